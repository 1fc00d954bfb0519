#!/usr/bin/env bash
# Measures the Linux kernel's rxe and siw, and Weft, between two virtual machines with one CPU each,
# for the table of README.md: `make compared`. Prints one JSON object.
#
#     compare.sh > FILE
#
# The machines are emulated unless WEFT_INTEROP_ACCEL says kvm. Emulated, every figure is far below
# that of a processor, and can be compared with the others of the same run only. ROUNDS=3 says how
# often each is measured. Everything runs in namespaces of its own, so nothing is left behind.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
lab=${WEFT_INTEROP_DIR:-${CARGO_TARGET_DIR:-$root/target}/interop}
weft=${WEFT_INTEROP_WEFT:-${CARGO_TARGET_DIR:-$root/target}/release/weft}
accel=${WEFT_INTEROP_ACCEL:-tcg,thread=multi}
rounds=${ROUNDS:-3}
logs=$lab/compare
readonly PATH_WORDS="70 ms, 1 % loss both ways, 50 Mbit/s"
readonly NETEM="delay 35ms loss 1% rate 50mbit limit 2000"
readonly SERVER=192.0.2.2 PORT=18515

if [ "${WEFT_INTEROP_STAGE:-}" != inside ]; then
    "$root/scripts/deps.sh" qemu-system-x86 gcc-12 busybox-static kmod cpio xz-utils \
        dash socat python3 >&2 || exit 2
    [ -x "$weft" ] || {
        echo "compare: $weft is missing; make release builds it" >&2
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
trap 'exit 130' INT TERM
PATH=$PATH:/usr/sbin:/sbin
unset "${!WEFT_INTEROP_@}"
rm -rf "$logs"
mkdir -p "$logs"

# The image of the other rows, with Weft and the driver of rxe behind it: the kernel unpacks both.
make_compare_image() {
    local extra=$lab/extra
    make_image "$lab"
    rm -rf "$extra"
    mkdir -p "$extra/etc/libibverbs.d"
    add_program "$extra" "$weft" /usr/bin/weft
    add_program "$extra" "$(dirname "$weft")/libweft.so" /usr/bin/libweft.so
    local library
    for library in "$LIBRARIES"/libibverbs/librxe-*.so; do add_program "$extra" "$library"; done
    echo 'driver rxe' >"$extra/etc/libibverbs.d/rxe.driver"
    (cd "$extra" && find . -print0 | cpio --null -o -H newc --quiet -R 0:0) >>"$lab/initramfs"
    rm -rf "$extra"
}

# start_machine NUMBER: its control port is 2220 and the number, its address ends in the number.
start_machine() {
    local number=$1 cpu=max,la57=off
    [ "$accel" != kvm ] || cpu=host
    ip tuntap add dev "tap$number" mode tap vnet_hdr
    ip link set "tap$number" up master bridge0
    qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -M q35,usb=off -smp 1 -m 768 \
        -nodefaults -no-user-config -no-reboot -display none \
        -kernel "$lab/vmlinuz" -initrd "$lab/initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0" \
        -serial "file:$logs/console$number.log" -device virtio-rng-pci \
        -netdev "tap,id=link,ifname=tap$number,script=no,downscript=no" \
        -device "virtio-net-pci,netdev=link,romfile=,event_idx=off,mac=52:54:00:00:00:0$number" \
        -netdev "user,id=control,hostfwd=tcp:127.0.0.1:222$number-:2222" \
        -device virtio-net-pci,netdev=control,romfile= >"$logs/qemu$number.log" 2>&1 &
}

is_up() {
    [ "$(in_machine "$1" 'ibv_devinfo -l' 2>/dev/null | grep -c siw0)" = 1 ]
}

# both SCRIPT: in each machine.
both() {
    in_machine 2 "$1" >>"$logs/both.log" 2>&1 && in_machine 3 "$1" >>"$logs/both.log" 2>&1
}

# measured COLUMN DEVICE PROGRAM OPTIONS: the number in that column of perftest's last line, or a
# dash if the program fails or does not end.
measured() {
    local column=$1 device=$2 line="$3 -R -F -d $2 $4" log="$logs/$2-$3" last
    case $device in
        weft0) line="WEFT_INSECURE=1 WEFT_TRANSPORT=shuttle weft run $line" ;;
        weft_iw0) line="WEFT_INSECURE=1 WEFT_TRANSPORT=iwarp weft run $line" ;;
    esac
    in_machine 2 "timeout 120 env $line -p $PORT" >"$log.server" 2>&1 &
    await 60 in_machine 2 "grep -qi :$(printf %04x $PORT) /proc/net/tcp /proc/net/udp \
        || rdma resource show cm_id | grep -q $PORT" 2>/dev/null || true
    # A server that has just started to listen is not yet ready in a slow machine.
    in_machine 3 "sleep 2; timeout 90 env $line -p $PORT $SERVER" >"$log.client" 2>&1 || true
    in_machine 2 "pkill $3" >/dev/null 2>&1 || true
    wait %% 2>/dev/null || true
    last=$(grep -E '^ *[0-9]+ +[0-9]+' "$log.client" | tail -n 1 | awk "{print \$$column}")
    echo "${last:--}"
}

# One device in all three columns; netem is off for the first two.
row() {
    local name=$1 device=$2 version=$3 latency bandwidth stream
    both "/guest/netem; ip link set eth0 gso_max_segs 65535" || true
    # rdma-cm takes the device that has the address, whatever -d says: there is only one.
    both "rdma link delete siw0 2>/dev/null; rdma link delete rxe0 2>/dev/null; true"
    case $device in
        siw0) both "/guest/siw" ;;
        rxe0) both "rdma link add rxe0 type rxe netdev eth0" ;;
    esac
    latency=$(measured 6 "$device" ib_send_lat "-s 64 -n 1000")
    bandwidth=$(measured 4 "$device" ib_write_bw "-s 65536 -D 5 --report_gbits")
    # One loss is to be one packet's, and not a bundle's of the kernel.
    both "ip link set eth0 gso_max_segs 1 && tc qdisc replace dev eth0 root netem $NETEM"
    stream=$(measured 4 "$device" ib_write_bw "-s 65536 -t 64 -D 20 -f 4 --report_gbits")
    both "tc qdisc del dev eth0 root" || true
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$version" "$latency" "$bandwidth" "$stream" \
        | tee -a "$logs/rows" >&2
}

mount -t sysfs sysfs /sys 2>/dev/null || true
ip link set lo up
ip link add bridge0 type bridge
ip link set bridge0 up
make_compare_image
for number in 2 3; do start_machine "$number"; done
for number in 2 3; do
    await 300 is_up "$number" || {
        echo "compare: a machine does not come up; see $logs/console$number.log" >&2
        exit 2
    }
done
in_machine 3 "ip address flush dev eth0; ip address add 192.0.2.3/24 dev eth0" >&2
both "modprobe -a crc32_generic rdma_rxe sch_netem && ping -q -c 2 $SERVER"

kernel=$(cut -d' ' -f1 "$lab/kernel")
version=$("$weft" --version | awk '{print $2}')
: >"$logs/rows"
for ((round = 0; round < rounds; round++)); do
    row '`weft0`' weft0 "$version"
    row '`weft_iw0`' weft_iw0 "$version"
    row 'siw (kernel)' siw0 "$kernel"
    row 'rxe (kernel)' rxe0 "$kernel"
done

python3 - "$logs/rows" "$accel" "$kernel" "$PATH_WORDS" "$rounds" <<'JSON'
import datetime, json, statistics, sys

file, accel, kernel, path, rounds = sys.argv[1:]
FACTORS = [1, 1e3, 1e3]


def median(values, factor):
    """Of the rounds that have a number, as text with three digits; not of fewer than half."""
    numbers = [float(value) * factor for value in values if value != "-"]
    if 2 * len(numbers) <= len(values):
        return "does not end"
    number = statistics.median(numbers)
    return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f}"


taken = {}
for line in open(file, encoding="utf-8"):
    name, version, *values = line.rstrip("\n").split("\t")
    taken.setdefault((name, version), []).append(values)
rows = []
for (name, version), all_rounds in taken.items():
    columns = zip(zip(*all_rounds), FACTORS)
    rows.append([name, version, *(median(values, factor) for values, factor in columns)])
cpu = "a hypervisor" if accel == "kvm" else "emulation (TCG), far below a processor"
date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
json.dump(
    {
        "about": f"{date}: between two virtual machines with one CPU each by {cpu}, Linux "
        f"{kernel}, perftest in all rows with `-R`, kernel TCP with cubic. Medians of {rounds} "
        "rounds. Compare them with each other only.",
        "columns": [
            "in virtual machines",
            "version",
            "64 bytes one way, us",
            "64 KiB messages, Mbit/s",
            f"Mbit/s of one stream across {path}",
        ],
        "rows": rows,
    },
    sys.stdout,
    indent=1,
)
print()
JSON
