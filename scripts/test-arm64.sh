#!/usr/bin/env bash
# Runs the aarch64 release of target/dist under qemu-user in a root file system of Debian 12 for
# arm64, with programs of rdma-core, perftest and pyverbs, and prints a table of what ran. Says that
# it is skipped where the kernel lets no user namespace have a list of interpreters (Linux 6.7).
#
# What emulation cannot show: the memory order of the processor, and how fast anything is.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/both.sh

debian=http://deb.debian.org/debian
qemu=$(command -v qemu-aarch64-static || true)
release=$(ls -t target/dist/weft-*-aarch64-linux.tar.gz 2>/dev/null | head -1)
root=target/dist/roots/debian-12-arm64
include=ibverbs-utils,rdmacm-utils,perftest,python3-pyverbs

if [ -z "$release" ]; then
    echo "test-arm64: no release for aarch64 in target/dist: make dist" >&2
    exit 1
fi
for tool in debootstrap bwrap unshare; do
    command -v $tool >/dev/null || { echo "test-arm64: $tool is missing" >&2 && exit 1; }
done

# The packages, unpacked: to configure them would take minutes of emulation, and nothing here needs
# it.
make_root() {
    [ ! -e "$root.made" ] || return 0
    rm -rf "$root"
    mkdir -p "${root%/*}"
    debootstrap --foreign --arch=arm64 --variant=minbase --include=$include bookworm "$root" \
        $debian >"$root.log" 2>&1
    local package
    for package in "$root"/var/cache/apt/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -xf - -C "$root" --keep-directory-symlink
    done
    rm -rf "$root/proc" "$root"/var/cache/apt/archives
    mkdir -p "$root/proc" "$root/mnt"
    touch "$root.made"
}

# Programs for aarch64 run by qemu, in this mount namespace alone. Its file is opened here: the root
# file system need not have it.
# shellcheck disable=SC2016 # It is expanded inside.
with_interpreter='
    zeros="\x00\x00\x00\x00\x00\x00\x00\x00"
    ones="\xff\xff\xff\xff\xff\xff\xff"
    magic="\x7fELF\x02\x01\x01\x00$zeros\x02\x00\xb7\x00"
    mask="$ones\x00$ones\xff\xfe\xff\xff\xff"
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    printf "%s" ":aarch64:M::$magic:$mask:$1:F" >/proc/sys/fs/binfmt_misc/register
    shift
    ip link set lo up
    exec "$@"'

inside() {
    timeout 300 unshare --user --map-root-user --mount --net sh -euc "$with_interpreter" inside \
        "$qemu" bwrap --ro-bind "$root" / --dev /dev --proc /proc --tmpfs /tmp --tmpfs /mnt \
        --ro-bind "$PWD/${release%/*}" /mnt/release \
        --ro-bind "$PWD/scripts/install.sh" /mnt/install.sh --die-with-parent --clearenv \
        --setenv HOME /tmp --setenv PATH /tmp/.local/bin:/usr/bin:/bin "$@"
}

# Each program checks its bytes, or has what it prints compared.
prelude="
    sh /mnt/install.sh '/mnt/release/${release##*/}' >/dev/null
    $both
    patience=60"
status=0
check() {
    local name=$1
    if inside /bin/sh -euc "$prelude
$2" >"$root.out" 2>&1; then
        echo "| $name | ran |"
    else
        echo "| $name | failed: $(tail -1 "$root.out") |"
        status=1
    fi
}

if [ -z "$qemu" ] || ! unshare --user --map-root-user --mount \
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc 2>/dev/null; then
    echo "test-arm64: skipped: it needs qemu-aarch64-static, and a kernel that has binfmt_misc in" \
        "user namespaces (6.7)"
    exit 0
fi
make_root
echo "| aarch64 under qemu-user, Debian 12 | |"
echo "|---|---|"
check "weft --version, weft info" 'weft --version; weft info'
check "AES instructions taken for a key" \
    'weft key new /tmp/key; WEFT_KEY=/tmp/key weft info | grep -i AES'
check "ibv_devinfo -v" 'weft run ibv_devinfo -v | grep -q PORT_ACTIVE'
for program in rc uc ud srq; do
    check "ibv_${program}_pingpong -c" \
        "both 'weft run ibv_${program}_pingpong -g 0 -c -n 50' \
            'weft run ibv_${program}_pingpong -g 0 -c -n 50 127.0.0.1'"
done
check "ibv_rc_pingpong -c, sealed" "weft key new /tmp/key
    export WEFT_KEY=/tmp/key WEFT_LANE=off
    both 'weft run ibv_rc_pingpong -c -n 50' 'weft run ibv_rc_pingpong -c -n 50 127.0.0.1'"
check "rping -V, weft0" "both 'weft run rping -s -a 127.0.0.1 -V -C 5' \
    'weft run rping -c -a 127.0.0.1 -V -C 5'"
check "rping -V, weft_iw0" "export WEFT_TRANSPORT=iwarp
    both 'weft run rping -s -a 127.0.0.1 -V -C 5' 'weft run rping -c -a 127.0.0.1 -V -C 5'"
for program in ib_write_bw ib_read_lat ib_atomic_bw ib_send_bw; do
    check "$program -R" "both 'weft run $program -R -n 20 -s 8' \
        'weft run $program -R -n 20 -s 8 127.0.0.1'"
done
check "dlopen and dlsym of libibverbs" "weft run python3 -c '
import ctypes
verbs = ctypes.CDLL(\"libibverbs.so.1\")
count = ctypes.c_int()
verbs.ibv_get_device_list.restype = ctypes.c_void_p
assert verbs.ibv_get_device_list(ctypes.byref(count)) and count.value == 2'"
check "pyverbs" "weft run python3 -c '
import pyverbs.device as d
assert [x.name.decode() for x in d.get_device_list()] == [\"weft0\", \"weft_iw0\"]
from pyverbs.pd import PD
from pyverbs.mr import MR
with d.Context(name=\"weft0\") as context, PD(context) as pd, MR(pd, 4096, 7) as mr:
    mr.write(\"bytes\", 5)
    assert mr.read(5, 0) == b\"bytes\"'"
exit $status
