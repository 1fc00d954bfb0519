#!/bin/sh
# Installs Weft from a release, for this user or below any prefix. Needs tar, and curl or wget where
# the release is to be fetched; no root, no package.
set -eu

usage() {
    cat <<'END'
Usage: install.sh [--prefix DIR] [RELEASE]
       install.sh [--prefix DIR] --uninstall

Installs weft, degen, the libraries and shell completions below DIR (~/.local).

RELEASE is a file weft-VERSION-ARCH-linux.tar.gz or its URL. Without one, the release that this
script lies in is installed. If the file RELEASE.sha256 is beside it, the release has to match.
END
}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

fetch() {
    if command -v curl >/dev/null; then
        curl -fsSL -o "$2" "$1"
    elif command -v wget >/dev/null; then
        wget -q -O "$2" "$1"
    else
        fail "neither curl nor wget is here to fetch $1; give the path of a file"
    fi
}

# By rename: a process that runs from the old file keeps it.
place() {
    mkdir -p "$(dirname "$2")"
    cp "$1" "$2.new"
    chmod "$3" "$2.new"
    mv -f "$2.new" "$2"
}

# The files of a release below its directory, and modes.
files() {
    cat <<'END'
bin/weft 755
bin/degen 755
lib/weft/libweft.so 644
lib/weft/libweft_sockets.so 644
share/bash-completion/completions/weft 644
share/zsh/site-functions/_weft 644
share/fish/vendor_completions.d/weft.fish 644
END
}

install_from() {
    [ -f "$1/bin/weft" ] || fail "$1 has no bin/weft: this is no release of Weft"
    "$1/bin/weft" --version >/dev/null ||
        fail "$1/bin/weft does not run on this machine ($(uname -sm)); the line above says why"
    files | while read -r file mode; do place "$1/$file" "$prefix/$file" "$mode"; done
    echo "installed $("$prefix/bin/weft" --version) below $prefix"
    case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "add it to PATH:  export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

uninstall() {
    files | while read -r file _; do rm -f "$prefix/$file"; done
    rmdir "$prefix/lib/weft" 2>/dev/null || true
    echo "removed Weft from $prefix"
}

check_hash() {
    if [ -f "$1.sha256" ]; then
        wanted=$(cut -d ' ' -f 1 "$1.sha256")
        found=$(sha256sum "$1" | cut -d ' ' -f 1)
        [ "$wanted" = "$found" ] || fail "$1 is not what $1.sha256 names"
    fi
}

prefix=${HOME:-}/.local
release=
action=install
while [ $# -gt 0 ]; do
    case $1 in
    --prefix)
        [ $# -gt 1 ] || fail "--prefix needs a directory"
        prefix=$2
        shift
        ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --uninstall) action=uninstall ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) fail "unknown option $1; see --help" ;;
    *)
        [ -z "$release" ] || fail "one release at a time"
        release=$1
        ;;
    esac
    shift
done
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac

if [ $action = uninstall ]; then
    uninstall
    exit 0
fi
if [ -z "$release" ]; then
    install_from "$(cd "$(dirname "$0")" && pwd)"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $release in
http://* | https://*)
    fetch "$release" "$work/release.tar.gz"
    if fetch "$release.sha256" "$work/release.tar.gz.sha256" 2>/dev/null; then
        check_hash "$work/release.tar.gz"
    else
        rm -f "$work/release.tar.gz.sha256"
    fi
    release=$work/release.tar.gz
    ;;
*)
    [ -f "$release" ] || fail "$release is no file"
    check_hash "$release"
    ;;
esac
mkdir "$work/unpacked"
tar -xzf "$release" -C "$work/unpacked"
install_from "$(echo "$work"/unpacked/*)"
