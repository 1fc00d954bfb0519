# The virtual machine: its image, its start, commands in it, its end. Sourced by interop.sh, which
# runs it in a network namespace of its own; nothing of it outlives that namespace.
#
# Order of use: make_image, boot, then in_guest and the like as often as wanted, and power_off.

# What the host has at its end of the link, and the guest at the other, by IP version.
readonly HOST=([4]=192.0.2.1 [6]=2001:db8::1)
readonly GUEST=([4]=192.0.2.2 [6]=2001:db8::2)

# The guest's programs are the host's own, so that both ends are of one version.
readonly PROGRAMS=(
    dash busybox kmod ip tc rdma socat
    rping ibv_devinfo ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat
)
readonly LIBRARIES=/usr/lib/x86_64-linux-gnu

qemu_pid=
# What the machine gets again when it is started anew.
siw_parameters=
netem_arguments=

# make_image DIRECTORY: an initramfs from the modules there, the host's programs and guest/.
make_image() {
    local dir=$1 root="$1/root" program file
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,etc/libibverbs.d,guest}
    for program in "${PROGRAMS[@]}"; do
        file=$(PATH="$PATH:/usr/sbin:/sbin" type -P "$program")
        add_program "$root" "$file" "/usr/bin/$program"
    done
    add_program "$root" "$dir/peer" /usr/bin/peer
    # The C library loads the second one when a thread ends early.
    for file in "$LIBRARIES"/libibverbs/libsiw-*.so "$LIBRARIES/libgcc_s.so.1"; do
        add_program "$root" "$file"
    done
    echo 'driver siw' >"$root/etc/libibverbs.d/siw.driver"
    printf 'root:x:0:0:root:/:/bin/sh\n' >"$root/etc/passwd"
    cp -r "$dir"/modules/lib "$root/"
    cp "$here"/guest/* "$root/guest/"
    mv "$root/guest/init" "$root/init"
    # Not busybox's shell, which prefers its own ip and tc.
    ln -s /usr/bin/dash "$root/bin/sh"
    for program in $(busybox --list); do
        if [ ! -e "$root/usr/bin/$program" ] && [ ! -L "$root/bin/$program" ]; then
            ln -s /usr/bin/busybox "$root/bin/$program"
        fi
    done
    for program in modprobe insmod rmmod; do
        ln -sfn /usr/bin/kmod "$root/bin/$program"
    done
    (cd "$root" && find . -print0 | cpio --null -o -H newc --quiet -R 0:0) >"$dir/initramfs"
    rm -rf "$root"
}

# add_program ROOT FILE [PLACE]: a program or library and all libraries that it names.
add_program() {
    local root=$1 file place library
    file=$2
    place=${3:-$2}
    install -D "$file" "$root$place"
    # A static program has none, and ldd calls that an error.
    { ldd "$file" 2>/dev/null || true; } | sed -n 's#^[^/]*\(/[^ ]*\) (0x.*#\1#p' \
        | while read -r library; do
            [ -e "$root$library" ] || install -D "$library" "$root$library"
        done
}

# boot DIRECTORY: starts the machine and returns when it takes commands.
boot() {
    local dir=$1 cpu=max,la57=off
    [ "$accel" != kvm ] || cpu=host
    qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -M q35,usb=off -smp 1 -m 512 \
        -nodefaults -no-user-config -no-reboot -display none \
        -kernel "$dir/vmlinuz" -initrd "$dir/initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0" \
        -serial "file:$logs/console.log" \
        -device virtio-rng-pci \
        -netdev tap,id=link,ifname=tap0,script=no,downscript=no \
        -device virtio-net-pci,netdev=link,romfile=,event_idx=off \
        -netdev user,id=control,hostfwd=tcp:127.0.0.1:2222-:2222 \
        -device virtio-net-pci,netdev=control,romfile= \
        >"$logs/qemu.log" 2>&1 &
    qemu_pid=$!
    await 300 guest_answers_or_died && guest_answers || {
        echo "interop: the machine does not come up; see $logs/console.log" >&2
        return 1
    }
}

guest_answers_or_died() {
    guest_answers || ! kill -0 "$qemu_pid" 2>/dev/null
}

guest_answers() {
    [ "$(in_guest 'ibv_devinfo -l' 2>/dev/null | grep -c siw0)" = 1 ]
}

# in_machine NUMBER SCRIPT: runs it there; prints what it prints, and ends as it ends.
in_machine() {
    local line status=255
    while IFS= read -r line; do
        if [[ $line == *$'\004'* ]]; then
            status=${line##*$'\004'}
            line=${line%$'\004'*}
            [ -n "$line" ] || continue
        fi
        printf '%s\n' "$line"
    done < <(printf '%s\n' "$2" | socat -t 100000 - "TCP:127.0.0.1:222$1" 2>/dev/null)
    return "$status"
}

# in_guest SCRIPT: the same in the guest, where there is one.
in_guest() {
    in_machine 2 "$1"
}

# siw_with [PARAMETER=VALUE...]: other habits; without parameters, the unchanged driver.
siw_with() {
    siw_parameters=$*
    in_guest "/guest/siw $*" >>"$logs/siw.log" || {
        echo "interop: siw does not load with '$*'; see $logs/siw.log" >&2
        exit 2
    }
}

# netem_with [ARGUMENTS...]: what the link suffers both ways; without arguments, nothing.
netem_with() {
    netem_arguments=$*
    in_guest "/guest/netem $*" >>"$logs/netem.log" || {
        echo "interop: no netem $*; see $logs/netem.log" >&2
        exit 2
    }
}

# Whether the guest's kernel is whole and its link carries packets. QEMU's emulated link has been
# seen to stop for good.
guest_is_well() {
    ! grep -q 'kernel BUG' "$logs/console.log" \
        && in_guest "ping -q -c 5 -A ${HOST[4]}" >/dev/null
}

# restart DIRECTORY: a new machine that is as the old one was.
restart() {
    power_off
    mv "$logs/console.log" "$logs/console-$SECONDS.log"
    boot "$1" || exit 2
    [ -z "$siw_parameters" ] || siw_with "$siw_parameters"
    [ -z "$netem_arguments" ] || netem_with "$netem_arguments"
}

# power_off: as when the plug is pulled.
power_off() {
    [ -n "$qemu_pid" ] || return 0
    kill -9 "$qemu_pid" 2>/dev/null || true
    wait "$qemu_pid" 2>/dev/null || true
    qemu_pid=
}

# await SECONDS COMMAND...: until the command succeeds; fails when it has not by then.
await() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}
