#!/usr/bin/env bash
# Runs programs over Weft here against the same programs over the Linux kernel's siw in a virtual
# machine, as initiator and as responder, and prints a table. docs/interop.md says what it covers.
#
#     interop.sh [WORD...]      only rows in whose line every WORD occurs
#
# Exit status: 0 when every row is good, 1 when one is not, 2 when the lab cannot be had.
#
# Everything runs in namespaces of its own (network, processes, mounts, and users unless root runs
# it), so that nothing is left behind: not when a row fails, not when this is interrupted.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
lab=${WEFT_INTEROP_DIR:-${CARGO_TARGET_DIR:-$root/target}/interop}
weft=${WEFT_INTEROP_WEFT:-${CARGO_TARGET_DIR:-$root/target}/release/weft}
logs=$lab/logs
accel=${WEFT_INTEROP_ACCEL:-tcg,thread=multi}

if [ "${WEFT_INTEROP_STAGE:-}" != inside ]; then
    "$root/scripts/deps.sh" qemu-system-x86 gcc-12 busybox-static kmod cpio xz-utils \
        dash socat || exit 2
    [ -x "$weft" ] || {
        echo "interop: $weft is missing; make release builds it" >&2
        exit 2
    }
    "$here/build.sh" "$lab" || exit 2
    ${CC:-gcc} -O2 -Wall -Wextra -Werror -o "$lab/peer" "$here/peer.c" -lrdmacm -libverbs || exit 2
    spaces=(--net --mount --pid --fork --kill-child --mount-proc)
    [ "$(id -u)" = 0 ] || spaces=(--user --map-root-user "${spaces[@]}")
    WEFT_INTEROP_STAGE=inside exec unshare "${spaces[@]}" "$0" "$@"
fi

# shellcheck source-path=SCRIPTDIR
. "$here/vm.sh"
. "$here/row.sh"
. "$here/matrix.sh"

# The first process of a namespace has no default for signals.
trap 'exit 130' INT TERM

PATH=$lab:$PATH:/usr/sbin:/sbin
# Weft warns about variables that are not its own.
unset "${!WEFT_INTEROP_@}"
# siw has no encryption.
export WEFT_INSECURE=1
rm -rf "$logs"
mkdir -p "$logs" "$lab/weft"
# What a build in the meantime does not change.
cp "$weft" "$(dirname "$weft")/libweft.so" "$lab/weft/"
weft=$lab/weft/weft
wanted=("$@")

mount -t sysfs sysfs /sys 2>/dev/null || true
ip link set lo up
ip tuntap add dev tap0 mode tap vnet_hdr
ip address add "${HOST[4]}/24" dev tap0
ip address add "${HOST[6]}/64" dev tap0 nodad
ip link set tap0 up

make_image "$lab"
echo "Weft against siw of Linux $(cat "$lab/kernel"); logs in $logs"
boot "$lab" || exit 2
print_heading
run_matrix
power_off
print_summary
