#!/usr/bin/env bash
# Builds into DIR the stubs of rdma-core's libraries that `weft run` supplies where a machine has
# none: stubs.sh DIR [CC...]. Each has the version nodes and the public names of the newest release,
# so that programs that are linked with it start; libweft.so comes before it and serves the names
# that are verbs. Every function of a stub fails with EOPNOTSUPP.
set -euo pipefail

to=$1
shift
[ $# -gt 0 ] || set -- cc
cd "$(dirname "$0")/.."
names=(crates/preload/tests/rdma_core_names.txt scripts/stubs/providers.txt)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

functions() {
    echo '#include <errno.h>'
    echo '#define code(name) int name(void) { return errno = EOPNOTSUPP; }'
    echo '#define minus_one(name) int name(void) { errno = EOPNOTSUPP; return -1; }'
    echo '#define null(name) void *name(void) { errno = EOPNOTSUPP; return 0; }'
    echo '#define false(name) int name(void) { errno = EOPNOTSUPP; return 0; }'
    awk -v node="^$1_" '$1 ~ node { print $3 "(" $2 ")" }' "${names[@]}"
}

version_script() {
    awk -v node="^$1_" '$1 ~ node { print $1 }' "${names[@]}" | sort -Vu | while read -r version; do
        echo "$version {"
        echo "  global:"
        awk -v node="$version" '$1 == node { print "    " $2 ";" }' "${names[@]}"
        echo "};"
    done
}

# Each in a directory of its own: a stub of what is missing must not hide what is there.
for library in IBVERBS=libibverbs RDMACM=librdmacm MLX5=libmlx5 EFA=libefa; do
    node=${library%=*}
    file=${library#*=}.so.1
    functions "$node" >"$work/$file.c"
    version_script "$node" >"$work/$file.map"
    mkdir -p "$to/${library#*=}"
    "$@" -shared -fPIC -Os -s -fno-builtin -Wl,-soname,"$file" \
        -Wl,--version-script="$work/$file.map" -o "$to/${library#*=}/$file" "$work/$file.c"
done
