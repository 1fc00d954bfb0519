#!/usr/bin/env bash
# Builds what the virtual machine boots from, once, into the directory given as the argument: a
# stock Debian kernel, the modules it needs, and siw compiled from Debian's own kernel source.
#
# Debian ships siw's source in linux-source-* but enables it in no kernel, so it is compiled as an
# out-of-tree module against the stock headers. The packages are unpacked below the directory;
# nothing of them is installed, and nothing needs root.
set -euo pipefail

out=${1:?usage: build.sh DIRECTORY}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# What the guest loads, with whatever these need in turn.
modules=(
    virtio_pci virtio_net virtio_rng
    siw rdma_rxe ib_uverbs rdma_ucm crc32_generic crc32c_generic
    sch_netem sch_ingress cls_matchall cls_u32 act_mirred act_gact ifb
)

say() {
    echo "interop: $*" >&2
}

stamp=$(cat "$here/build.sh" | sha256sum)
[ "$(cat "$out/stamp" 2>/dev/null || true)" = "$stamp" ] && exit 0

mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -rf "$out"/{stamp,packages,tree,siw,siw-tunable,modules}
mkdir -p "$out"/{packages,tree,siw,siw-tunable,modules}

kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: linux-image-//p' | head -n 1)
series=$(echo "$kernel" | cut -d. -f1,2)
version=$(apt-cache policy "linux-image-$kernel" | sed -n 's/ *Candidate: //p')
[ -n "$version" ] || {
    say "apt knows no linux-image-amd64; run apt-get update"
    exit 1
}

fetch() {
    say "fetching kernel $kernel and its source (some 210 MiB)"
    (
        cd "$out/packages"
        apt-get download -q \
            "linux-image-$kernel" \
            "linux-headers-$kernel" \
            "linux-headers-${kernel%-amd64}-common" \
            "linux-kbuild-$series" \
            "linux-source-$series=$version"
    ) >"$out/fetch.log" 2>&1 || {
        tail -n 5 "$out/fetch.log" >&2
        say "the packages cannot be fetched; apt-get update may help"
        exit 1
    }
}

unpack() {
    local package tarball="linux-source-$series"
    for package in "$out"/packages/linux-{image,headers,kbuild}-*.deb; do
        dpkg-deb -x "$package" "$out/tree"
    done
    # Only siw's folder leaves the archive.
    dpkg-deb --fsys-tarfile "$out"/packages/linux-source-*.deb \
        | tar -xOf - "./usr/src/$tarball.tar.xz" \
        | xz -dc \
        | tar -xf - -C "$out/siw" --strip-components=5 "$tarball/drivers/infiniband/sw/siw"
    # The headers name their common half by its installed place.
    headers="$out/tree/usr/src/linux-headers-$kernel"
    sed -i "s#\(include \)/usr/src/#\1$out/tree/usr/src/#" "$headers/Makefile"
}

compile() {
    make -s -C "$headers" M="$1" CONFIG_RDMA_SIW=m modules >"$1.log" 2>&1 || {
        tail -n 20 "$1.log" >&2
        say "siw does not compile; see $1.log"
        exit 1
    }
    strip -g "$1/siw.ko"
}

# The driver has no parameters. A second build of the same code turns its compile-time choices into
# some, so that peers with other habits can be had: CRC required, peer-to-peer set-up, revision 1.
make_tunable() {
    local choice main="$out/siw-tunable/siw_main.c" cm="$out/siw-tunable/siw_cm.c"
    cp "$out"/siw/* "$out/siw-tunable/"
    for choice in peer_to_peer mpa_crc_required mpa_crc_strict try_gso; do
        sed -i "s/\bconst bool $choice\b/bool $choice/" "$main" "$out/siw-tunable/siw.h"
        echo "module_param($choice, bool, 0644);" >>"$main"
    done
    echo 'module_param(mpa_version, byte, 0644);' >>"$main"
    sed -i 's/^static __be16 rtr_type\b.*/static ushort rtr_type = 0xc0;/' "$cm"
    echo 'module_param(rtr_type, ushort, 0644);' >>"$cm"
}

# The kernel's own modprobe knows what needs what; the names come out in the order of loading.
select_modules() {
    local tree="$out/tree/lib/modules/$kernel" module
    install -D -m 644 "$out/siw/siw.ko" "$tree/extra/siw.ko"
    kmod_as depmod -b "$out/tree" "$kernel"
    for module in "${modules[@]}"; do
        kmod_as modprobe -d "$out/tree" -S "$kernel" --show-depends "$module"
    done | sed -n 's#^insmod .*/\(lib/modules/[^ ]*\).*#\1#p' | sort -u \
        | while read -r module; do
            install -D -m 644 "$out/tree/$module" "$out/modules/$module"
        done
    cp "$tree"/modules.{builtin,builtin.modinfo,order} "$out/modules/lib/modules/$kernel/"
    kmod_as depmod -b "$out/modules" "$kernel"
    install -D -m 644 "$out/siw-tunable/siw.ko" "$out/modules/lib/siw-tunable.ko"
}

# depmod and modprobe live where only root looks for programs.
kmod_as() {
    PATH="$PATH:/usr/sbin:/sbin" "$@"
}

fetch
unpack
say "compiling siw"
compile "$out/siw"
make_tunable
compile "$out/siw-tunable"
select_modules
cp "$out/tree/boot/vmlinuz-$kernel" "$out/vmlinuz"
echo "$kernel ($version)" >"$out/kernel"
rm -rf "$out"/{packages,tree,siw,siw-tunable}
echo "$stamp" >"$out/stamp"
say "built siw of Linux $(cat "$out/kernel")"
