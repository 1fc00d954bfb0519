#!/usr/bin/env bash
# Puts programs of other projects into target/peers, where interop/clients/tests/clients looks for
# them: from Debian's sources, PyPI and crates.io, some hundred MB in all. What cannot be had is
# named on stderr, and its test says that it is skipped.
#
# scripts/peers.sh [NAME...]    all, or those named
set -euo pipefail
cd "$(dirname "$0")/.."

home=$PWD/target/peers
log=$home/log
mkdir -p "$home"
here=$(mktemp -d "$home/work.XXXXXX")
trap 'rm -rf "$here"' EXIT

# The upstream sources of a Debian package, as the newest release has them, unpacked into $here.
upstream() {
    local apt=$home/apt
    if [ ! -d "$apt" ]; then
        mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
        local key=/usr/share/keyrings/debian-archive-keyring.gpg
        local mirror
        mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' |
            grep --max-count 1 '/debian/*$')
        echo "deb-src [signed-by=$key] $mirror sid main" >"$apt/sources.list"
    fi
    local options=(
        -qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=-
        -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root
    )
    apt-get "${options[@]}" update
    (cd "$here" && apt-get "${options[@]}" source --tar-only --download-only "$1")
    mkdir "$here/$1"
    tar --extract --file "$here/$1"_*.orig.tar.* --directory "$here/$1" --strip-components 1
}

# A virtual environment NAME with packages of PyPI.
packages() {
    local name=$1
    shift
    # Debian's python, for which all of them have wheels.
    /usr/bin/python3 -m venv "$home/$name"
    "$home/$name/bin/pip" --quiet --disable-pip-version-check install "$@"
}

# A newer libfabric than Debian's, and its tests.
fabtests() {
    upstream libfabric
    cd "$here/libfabric"
    ./autogen.sh
    local provider without=()
    for provider in psm2 psm3 usnic efa opx tcp udp sockets cxi lpp ucx mrail sm2 shm lnx \
        hook_debug hook_hmem dmabuf_peer_mem perf profile trace; do
        without+=("--disable-$provider")
    done
    ./configure --quiet --prefix="$home/fabtests" --enable-verbs "${without[@]}"
    make --silent -j2 install
    cd fabtests
    ./autogen.sh
    ./configure --quiet --prefix="$home/fabtests" --with-libfabric="$home/fabtests"
    make --silent -j2 install
}

valkey() {
    upstream valkey
    make --silent -C "$here/valkey" -j2 BUILD_RDMA=yes BUILD_LUA=no MALLOC=libc OPTIMIZATION=-O1
    mkdir "$home/valkey"
    cp "$here"/valkey/src/valkey-{server,cli,benchmark} "$home/valkey"
}

# The transfer engines name torch, a GB, as what they need, and do without it.
nixl() {
    packages nixl numpy
    "$home/nixl/bin/pip" --quiet --disable-pip-version-check install --no-deps nixl-cu12==1.5.1
}

mooncake() {
    packages mooncake mooncake-transfer-engine-non-cuda==0.3.13.post1
}

infinistore() {
    # Its libuv is of the time of this uvloop.
    packages infinistore numpy fastapi uvicorn uvloop==0.21.0
    "$home/infinistore/bin/pip" --quiet --disable-pip-version-check install --no-deps \
        infinistore==0.2.35
}

impi() {
    packages impi impi-rt==2021.18.1 impi-devel==2021.18.1
}

sideway() {
    cargo install --quiet --locked --debug --root "$home/sideway" --target-dir "$here/target" \
        --version 0.4.3 --example rc_pingpong --example cmtime sideway
}

all=(fabtests valkey nixl mooncake infinistore impi sideway)
for name in "${@:-${all[@]}}"; do
    [ ! -e "$home/$name/complete" ] || continue
    echo "peers: $name" >&2
    rm -rf "${home:?}/$name"
    # A subshell that is a condition does not end at its first failure.
    set +e
    (set -e; "$name") >"$log" 2>&1
    status=$?
    set -e
    if [ "$status" = 0 ]; then
        touch "$home/$name/complete"
    else
        tail -n 5 "$log" >&2
        echo "peers: $name cannot be had; its test will be skipped" >&2
        rm -rf "${home:?}/$name"
    fi
done
