#!/usr/bin/env bash
# Puts rdma-core's python tests, of two releases, into target/pyverbs, where their test looks for
# them. Debian's python3-pyverbs has its own among its documents, which images for containers leave
# out. PyPI's pyverbs has the whole source of a newer release, of which the libraries and the
# modules are built here. What cannot be had is skipped by the test.
set -euo pipefail
cd "$(dirname "$0")/.."

home=target/pyverbs
documents=usr/share/doc/rdma-core/tests
newest=59.0

debian() {
    rm -rf $home/debian $home/tests
    mkdir -p $home/debian
    if [ -d /$documents ]; then
        cp -r /$documents $home/tests
    elif (cd $home/debian && apt-get -qq download python3-pyverbs && dpkg-deb -x ./*.deb .); then
        mv $home/debian/$documents $home/tests
    else
        return 1
    fi
    find $home/tests -name '*.gz' -exec gunzip -f {} +
}

# Cython 3.1 and later do not compile the modules of this release. Without optimisation it takes
# half as long.
build() {
    local to=$home/$newest
    rm -rf $to
    mkdir -p $to/bin &&
        /usr/bin/python3 -m venv $to/venv &&
        $to/venv/bin/pip install cython==3.0.12 &&
        $to/venv/bin/pip download --no-deps --dest $to pyverbs==$newest &&
        tar -xzf $to/pyverbs-$newest.tar.gz -C $to --strip-components=1 &&
        CFLAGS=-O0 cmake -G Ninja -S $to/rdma-core -B $to/build -DIN_PLACE=1 -DNO_MAN_PAGES=1 \
            -DCMAKE_BUILD_TYPE=None -DPYTHON_EXECUTABLE="$PWD/$to/venv/bin/python" &&
        ninja -C $to/build -t targets all |
        sed -n 's#^\(python/pyverbs/.*\.so\):.*#\1#p' | xargs ninja -C $to/build &&
        no_kernel_devices $to/bin/rdma &&
        touch $to/ready
}

# The tests look for a device's network interface with iproute2's `rdma link` and then in sysfs. The
# former fails where the kernel knows no RDMA at all; this one says what it says where there is no
# device.
no_kernel_devices() {
    printf '#!/bin/sh\necho "[]"\n' >"$1" && chmod +x "$1"
}

if [ ! -f $home/tests/run_tests.py ] && ! debian; then
    echo "pyverbs: Debian's was not found; its tests will be skipped" >&2
fi
log=$home/$newest.log
mkdir -p $home
if [ ! -f $home/$newest/ready ] && ! build >$log 2>&1; then
    echo "pyverbs: $newest could not be built, see $log; its tests will be skipped" >&2
fi
