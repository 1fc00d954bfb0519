#!/usr/bin/env bash
# Has the program WEFT carry the files below DIR behind its own end, where it finds them when it was
# copied alone: carry.sh WEFT DIR [XZ OPTION]... The form is that of crates/session/src/carried.rs.
# The same files give the same bytes.
set -euo pipefail

weft=$1
dir=$2
shift 2
[ $# -gt 0 ] || set -- -9e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$dir"
mapfile -t names < <(find . -type f -printf '%P\n' | LC_ALL=C sort)
# One stream: what the libraries have in common is in it once.
cat -- "${names[@]}" | xz "$@" --threads=1 >"$work/stream"
stat -c %s "$work/stream" >"$work/list"
for name in "${names[@]}"; do
    echo "$(sha256sum <"$name" | cut -d ' ' -f 1) $(stat -c %s "$name") $name"
done >>"$work/list"
cd - >/dev/null
id=$(sha256sum <"$work/list" | cut -d ' ' -f 1)
{
    cat "$work/stream" "$work/list"
    printf 'weft carries %08x %s\n' "$(stat -c %s "$work/list")" "$id"
} >>"$weft"
