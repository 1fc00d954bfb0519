#!/usr/bin/env bash
# Runs programs under `weft run --fault PLAN --passthrough` over the Linux kernel's own devices, siw
# and rxe, in a virtual machine, and prints what came of each: `make test-passthrough`.
#
#     passthrough.sh [WORD...]      only rows in whose line every WORD occurs
#
# Exit status: 0 when every row is good or there is no QEMU, 1 when one is not, 2 when the machine
# does not come up. Both ends run in the one machine; the plan is that of the client.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
lab=${WEFT_INTEROP_DIR:-${CARGO_TARGET_DIR:-$root/target}/interop}
weft=${WEFT_INTEROP_WEFT:-${CARGO_TARGET_DIR:-$root/target}/release/weft}
accel=${WEFT_INTEROP_ACCEL:-tcg,thread=multi}
logs=$lab/passthrough
# Of the machine, from guest/init.
readonly SERVER=192.0.2.2
# How busybox's timeout ends when the program does not.
readonly IMPATIENT=143

if [ "${WEFT_INTEROP_STAGE:-}" != inside ]; then
    if ! command -v qemu-system-x86_64 >/dev/null; then
        echo "passthrough: skipped: there is no qemu-system-x86_64"
        exit 0
    fi
    "$root/scripts/deps.sh" gcc-12 busybox-static kmod cpio xz-utils dash socat || exit 2
    [ -x "$weft" ] || {
        echo "passthrough: $weft is missing; make release builds it" >&2
        exit 2
    }
    "$here/build.sh" "$lab" || exit 2
    compiler=(${CC:-gcc} -O2 -Wall -Wextra -Werror)
    "${compiler[@]}" -o "$lab/peer" "$here/peer.c" -lrdmacm -libverbs || exit 2
    "${compiler[@]}" -o "$lab/events" "$root/crates/preload/tests/c/events.c" -libverbs || exit 2
    spaces=(--net --mount --pid --fork --kill-child --mount-proc)
    [ "$(id -u)" = 0 ] || spaces=(--user --map-root-user "${spaces[@]}")
    WEFT_INTEROP_STAGE=inside exec unshare "${spaces[@]}" "$0" "$@"
fi

# shellcheck source-path=SCRIPTDIR
. "$here/vm.sh"
trap 'exit 130' INT TERM
PATH=$PATH:/usr/sbin:/sbin
unset "${!WEFT_INTEROP_@}"
rm -rf "$logs"
mkdir -p "$logs"
wanted=("$@")
rows=0
failures=0
# Seconds after which a client that does not end is ended.
patience=25

# The image of the other tests, with Weft, the driver of rxe and more programs behind it.
make_passthrough_image() {
    local extra=$lab/extra library
    make_image "$lab"
    rm -rf "$extra"
    mkdir -p "$extra/etc/libibverbs.d"
    add_program "$extra" "$weft" /usr/bin/weft
    add_program "$extra" "$(dirname "$weft")/libweft.so" /usr/bin/libweft.so
    add_program "$extra" "$lab/events" /usr/bin/events
    add_program "$extra" "$(type -P ibv_rc_pingpong)" /usr/bin/ibv_rc_pingpong
    for library in "$LIBRARIES"/libibverbs/librxe-*.so; do add_program "$extra" "$library"; done
    echo 'driver rxe' >"$extra/etc/libibverbs.d/rxe.driver"
    (cd "$extra" && find . -print0 | cpio --null -o -H newc --quiet -R 0:0) >>"$lab/initramfs"
    rm -rf "$extra"
}

# announce NAME: begins a row; fails when it is not among those asked for.
announce() {
    local word
    for word in "${wanted[@]}"; do
        [[ $1 == *"$word"* ]] || return 1
    done
    rows=$((rows + 1))
    log=$logs/$(printf '%02d' "$rows")
    printf '%-64s  ' "$1"
}

# conclude STATUS WORDS...: the row is good if the client ended so and printed all the words. STATUS
# may be "any", which is any but the end of patience, or "failure", which is not success besides.
conclude() {
    local status=$1 word
    shift
    case $status:$ended in
        *":$IMPATIENT" | failure:0) ;;
        failure:* | any:*) status=$ended ;;
    esac
    if [ "$status" != "$ended" ]; then
        failures=$((failures + 1))
        echo "FAILED (status $ended instead of $status; see $log.client)"
        return 0
    fi
    for word in "$@"; do
        if ! grep -q -- "$word" "$log.client"; then
            failures=$((failures + 1))
            echo "FAILED (no '$word' in $log.client)"
            return 0
        fi
    done
    echo ok
}

# alone PLAN COMMAND: one program, without a peer.
alone() {
    ended=0
    in_guest "timeout 60 weft run --fault '$1' --passthrough $2" >"$log.client" 2>&1 || ended=$?
}

# pair PLAN SERVER CLIENT: a server as it is, and a client under the plan. Without a plan the client
# runs without Weft.
pair() {
    local under=
    [ -z "$1" ] || under="weft run --fault '$1' --passthrough"
    in_guest "exec timeout 40 $2" >"$log.server" 2>&1 &
    await 30 in_guest "grep -qi '$(printf ':%04X 0' 7174)' /proc/net/tcp \
        || rdma resource show cm_id | grep -q LISTEN" 2>/dev/null || true
    ended=0
    in_guest "timeout $patience $under $3" >"$log.client" 2>&1 || ended=$?
    in_guest "killall -q ${2%% *}" >/dev/null 2>&1 || true
    wait %% 2>/dev/null || true
}

readonly RPING="rping -a $SERVER -p 7174 -S 64"
readonly PINGPONG="ibv_rc_pingpong -d rxe0 -g 1 -p 7174 -s 64"
# A plan of faults that are never due.
FAR="qp-error:after=1000000;hang:after=1000000;slow-ack=1ms:at=3600s"
readonly FAR="$FAR;cq-overrun:after=1000000"

# rping over siw: rdma-cm opens the device, and rping waits for events.
siw_rows() {
    announce "siw0 rping without Weft" && {
        pair "" "$RPING -s" "$RPING -c -v -C 20"
        conclude 0 "rdma-ping-19:"
    }
    announce "siw0 rping, no fault due" && {
        pair "$FAR" "$RPING -s" "$RPING -c -v -C 20"
        conclude 0 "rdma-ping-19:"
    }
    announce "siw0 rping qp-error:status=rem-access" && {
        pair "qp-error:after=10,status=rem-access" "$RPING -s" "$RPING -c -v -C 20"
        # Which is 0 for a client whose connection has ended.
        conclude any "rdma-ping-4:" "failed status 10"
        ! grep -q rdma-ping-5: "$log.client" || failures=$((failures + 1))
    }
    announce "siw0 rping hang" && {
        patience=10 pair "hang:after=10" "$RPING -s" "$RPING -c -v -C 20"
        conclude "$IMPATIENT"
    }
    announce "siw0 rping slow-ack" && {
        pair "slow-ack=100ms" "$RPING -s" "$RPING -c -v -C 5"
        conclude 0 "rdma-ping-4:"
    }
    announce "siw0 rping alloc-fail" && {
        pair "alloc-fail=mr:nth=2" "$RPING -s" "$RPING -c -v -C 20"
        conclude 12 "reg_mr failed"
    }
    announce "siw0 ib_send_bw qp-error" && {
        pair "qp-error:after=200" "ib_send_bw -R -F -d siw0 -n 500 -p 7174" \
            "ib_send_bw -R -F -d siw0 -n 500 -p 7174 $SERVER"
        conclude failure "Failed status 12"
    }
    announce "siw0 events port-down" && {
        alone "port-down=500ms:at=300ms" "events siw0 2 20"
        conclude 0 "^port: active" "port error; port: down" "port active; port: active"
    }
    return 0
}

# rxe without rdma-cm: the program opens the device.
rxe_rows() {
    announce "rxe0 ibv_rc_pingpong without Weft" && {
        pair "" "$PINGPONG" "$PINGPONG -n 200 $SERVER"
        conclude 0 "200 iters"
    }
    announce "rxe0 ibv_rc_pingpong, no fault due" && {
        pair "$FAR" "$PINGPONG -n 200" "$PINGPONG -n 200 $SERVER"
        conclude 0 "200 iters"
    }
    announce "rxe0 ibv_rc_pingpong qp-error" && {
        pair "qp-error:after=100" "$PINGPONG -n 200" "$PINGPONG -n 200 $SERVER"
        conclude 1 "Failed status transport retry counter exceeded (12)"
    }
    announce "rxe0 ibv_rc_pingpong -e qp-error" && {
        pair "qp-error:after=100,status=loc-prot" "$PINGPONG -e -n 200" \
            "$PINGPONG -e -n 200 $SERVER"
        conclude 1 "Failed status local protection error (4)"
    }
    announce "rxe0 ibv_rc_pingpong -e hang" && {
        patience=10 pair "hang:after=100" "$PINGPONG -e -n 200" "$PINGPONG -e -n 200 $SERVER"
        conclude "$IMPATIENT"
    }
    announce "rxe0 ibv_rc_pingpong -e slow-ack" && {
        pair "slow-ack=10ms" "$PINGPONG -e -n 20" "$PINGPONG -e -n 20 $SERVER"
        conclude 0 "20 iters"
    }
    announce "rxe0 ib_write_bw by ibv_wr_..., no fault due" && {
        pair "$FAR" "ib_write_bw -F -d rxe0 -x 1 -n 200 -p 7174" \
            "ib_write_bw -F -d rxe0 -x 1 -n 200 -p 7174 $SERVER"
        conclude 0 "^ 65536 *200 "
    }
    announce "rxe0 ib_write_bw by ibv_wr_... qp-error" && {
        pair "qp-error:after=150,status=rem-op" "ib_write_bw -F -d rxe0 -x 1 -n 200 -p 7174" \
            "ib_write_bw -F -d rxe0 -x 1 -n 200 -p 7174 $SERVER"
        conclude 1 "Failed status 11"
    }
    announce "rxe0 events gid-change, pkey-change" && {
        alone "pkey-change=0x8001:at=300ms;gid-change:at=500ms" "events rxe0 2 20"
        conclude 0 "P_Key change" "GID table change; port: active, lid 0, pkey 0x8001, row 0 empty"
    }
    announce "rxe0 events device-fatal" && {
        alone "device-fatal=1s:at=500ms" "events rxe0 1 20"
        conclude 0 "local catastrophic error; port: fails"
    }
    announce "rxe0 ibv_devinfo fail=open_device" && {
        alone "fail=open_device:dev=rxe0" "ibv_devinfo -d rxe0"
        conclude 1 "Failed to open device"
    }
    return 0
}

mount -t sysfs sysfs /sys 2>/dev/null || true
ip link set lo up
ip tuntap add dev tap0 mode tap vnet_hdr
ip address add "${HOST[4]}/24" dev tap0
ip link set tap0 up
make_passthrough_image
boot "$lab" || exit 2
in_guest "modprobe -a crc32_generic rdma_rxe && rdma link add rxe0 type rxe netdev eth0" >&2
siw_rows
rxe_rows
echo
echo "$rows rows, $failures failed"
[ "$failures" = 0 ] && [ "$rows" -gt 0 ]
