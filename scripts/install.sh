#!/bin/sh
# Installs Weft from a release, for this user or below any prefix. Needs tar, and curl or wget where
# the release is to be fetched; no root, no package.
set -eu

usage() {
    cat <<'END'
Usage: install.sh [--prefix DIR] [RELEASE]
       install.sh [--prefix DIR] --uninstall

Installs weft, degen, libraries, manual pages and shell completions below DIR (~/.local).

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

# What is installed below the prefix, a file a line.
list=lib/weft/installed

# The files of a release below its directory; those of lib are where its weft carries them, or in
# it.
files() {
    { (cd "$1" && find bin share -type f) && (cd "$libraries" && find lib -type f); } | sort
}

# Where a file of the release in the directory $1 is.
source_of() {
    case $2 in
    lib/*) echo "$libraries/$2" ;;
    *) echo "$1/$2" ;;
    esac
}

install_from() {
    [ -f "$1/bin/weft" ] || fail "$1 has no bin/weft: this is no release of Weft"
    "$1/bin/weft" --version >/dev/null ||
        fail "$1/bin/weft does not run on this machine ($(uname -sm)); the line above says why"
    libraries=$1
    if ! [ -d "$1/lib" ]; then
        libraries=$work/carried
        "$1/bin/weft" unpack "$libraries/lib/weft" || fail "the line above says what is missing"
    fi
    remove_others "$1"
    files "$1" | while read -r file; do
        from=$(source_of "$1" "$file")
        case $file in
        bin/*) place "$from" "$prefix/$file" 755 ;;
        *) place "$from" "$prefix/$file" 644 ;;
        esac
    done
    { files "$1" && echo $list; } >"$prefix/$list.new"
    mv -f "$prefix/$list.new" "$prefix/$list"
    echo "installed $("$prefix/bin/weft" --version) below $prefix"
    case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "add it to PATH:  export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

# What an older release had and this one has not.
remove_others() {
    [ -f "$prefix/$list" ] || return 0
    while read -r file; do
        [ -f "$(source_of "$1" "$file")" ] || [ "$file" = $list ] || remove "$file"
    done <"$prefix/$list"
}

# One file below the prefix, and the directories that are empty without it.
remove() {
    rm -f "$prefix/$1"
    (cd "$prefix" && rmdir -p "$(dirname "$1")" 2>/dev/null) || true
}

uninstall() {
    [ -f "$prefix/$list" ] || fail "$prefix/$list is missing: nothing was installed from here"
    kept=$(cat "$prefix/$list")
    for file in $kept; do remove "$file"; done
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
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$release" ]; then
    install_from "$(cd "$(dirname "$0")" && pwd)"
    exit 0
fi
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
