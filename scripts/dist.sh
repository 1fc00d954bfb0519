#!/usr/bin/env bash
# Builds target/dist/weft-VERSION-ARCH-linux.tar.gz with its SHA-256: what there is for users, for
# machines with glibc 2.28 or newer, unpacked anywhere. The same sources give the same bytes.
#
# zig is the C compiler and linker: it has the symbols of each glibc, where the system's own linker
# asks for the newest ones.
set -euo pipefail
cd "$(dirname "$0")/.."

glibc=2.28
arch=$(uname -m)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
name=weft-$version-$arch-linux
home=target/dist
tools=$PWD/$home/tools
triple=$arch-unknown-linux-gnu

if ! [ -x $home/tools/bin/cargo-zigbuild ]; then
    python3 -m venv $home/tools
    $home/tools/bin/pip -q install ziglang==0.17.1 cargo-zigbuild==0.24.1
fi

# Paths of this machine are in no file of a release.
flags="--remap-path-prefix=$PWD=weft --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
CARGO_TARGET_DIR=$home/build RUSTFLAGS="$flags ${RUSTFLAGS:-}" PATH=$tools/bin:$PATH \
    cargo zigbuild --release --locked --target "$triple.$glibc" \
    -p weft-cli -p degen -p weft-preload -p weft-sockets

built=$home/build/$triple/release
to=$home/$name
rm -rf "$to"
install -D -m 755 -t "$to/bin" "$built/weft" "$built/degen"
install -D -m 644 -t "$to/lib/weft" "$built/libweft.so" "$built/libweft_sockets.so"
strip --strip-debug "$to"/bin/* "$to"/lib/weft/*
install -m 755 scripts/install.sh "$to/install.sh"
install -m 644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$to"
for shell in bash-completion/completions/weft=bash zsh/site-functions/_weft=zsh \
    fish/vendor_completions.d/weft.fish=fish; do
    mkdir -p "$(dirname "$to/share/${shell%=*}")"
    "$to/bin/weft" completions "${shell#*=}" >"$to/share/${shell%=*}"
done

newest=$(objdump -T "$to"/bin/* "$to"/lib/weft/* | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
if [ "$(printf '%s\n' "GLIBC_$glibc" "$newest" | sort -V | tail -1)" != "GLIBC_$glibc" ]; then
    echo "dist: it needs $newest; at most $glibc" >&2
    exit 1
fi

made=$(git log -1 --format=%ct 2>/dev/null || echo 0)
tar --sort=name --mtime="@$made" --owner=0 --group=0 --numeric-owner --format=gnu \
    -C $home -cf - "$name" | gzip -n -9 >"$to.tar.gz"
(cd $home && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
size=$(stat -c %s "$to.tar.gz")
echo "$to.tar.gz: $((size / 1024)) KiB, needs $newest"
