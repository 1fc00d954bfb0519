# Root file systems of other distributions, for scripts that source this: made once, below
# target/dist/roots. They need root and a network to be made, and neither to be used.

debian=http://deb.debian.org/debian
older=http://archive.debian.org/debian
ubuntu=http://archive.ubuntu.com/ubuntu
roots=target/dist/roots
mkdir -p $roots
for tool in debootstrap bwrap; do
    command -v $tool >/dev/null || { echo "$0: $tool is missing" >&2 && exit 1; }
done

# make_root NAME SUITE MIRROR [PACKAGES]: a minimal system with rdma-core's programs, or PACKAGES.
make_root() {
    local name=$1 suite=$2 mirror=$3 packages=${4:-ibverbs-utils,rdmacm-utils} script=
    [ ! -e "$roots/$name.made" ] || return 0
    # One that failed has left it mounted.
    ! mountpoint -q "$roots/$name/proc" || umount "$roots/$name/proc"
    rm -rf "${roots:?}/$name"
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=/usr/share/debootstrap/scripts/gutsy
    local keys=(--no-check-gpg)
    [ "$mirror" != $debian ] || keys=()
    local components=main
    [ "$mirror" != $ubuntu ] || components=main,universe
    debootstrap "${keys[@]}" --variant=minbase --components=$components \
        --include="$packages" "$suite" "$roots/$name" "$mirror" $script \
        >"$roots/$name.log" 2>&1 && touch "$roots/$name.made"
}

# inside ROOT [BWRAP OPTIONS] COMMAND...: as a user without rights, in a network of its own with
# loopback alone, and with nothing of this machine but the release directory at /mnt/release.
inside() {
    local root=$1
    shift
    bwrap --ro-bind "$root" / --dev /dev --proc /proc --tmpfs /tmp --tmpfs /mnt \
        --ro-bind "$PWD/target/dist" /mnt/release \
        --ro-bind "$PWD/scripts/install.sh" /mnt/install.sh \
        --unshare-all --uid 1000 --gid 1000 --die-with-parent --clearenv \
        --setenv HOME /tmp --setenv PATH /tmp/.local/bin:/usr/bin:/bin "$@"
}

. scripts/both.sh
