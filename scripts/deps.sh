#!/usr/bin/env bash
# Installs the Debian packages that building, testing and comparing need, and those named as
# arguments, if any is missing; after --only, those named alone.
# Says nothing and changes nothing when all are there.
set -euo pipefail
cd "$(dirname "$0")/.."

log=target/deps.log
packages=(
    "$@"
    # To build and link verbs programs.
    gcc make libibverbs-dev librdmacm-dev ibverbs-providers
    # Programs that run over Weft.
    ibverbs-utils rdmacm-utils perftest fio libfabric-bin ucx-utils dapl2-utils qperf
    # Programs of sockets.
    curl netcat-openbsd python3 nuttcp netpipe-tcp wrk openssh-client openssh-server rsync
    # Libraries for scripts/servers.sh.
    libjemalloc2 liblzf1 libwrap0
    # Storage, remote memory and virtual machines.
    libiscsi-bin librpma-dev qemu-system-x86
    # rdma-core's own tests, in Python. For scripts/pyverbs.sh, which builds a newer release.
    python3-pyverbs
    cmake ninja-build pkg-config libnl-3-dev libnl-route-3-dev python3-dev
    # MPI. For scripts/mpich.sh: the MPICH of Debian has no libfabric.
    openmpi-bin libopenmpi-dev python3-venv
    # What Weft is measured against.
    iperf3 sockperf libfabric-dev
    # To look at what happens.
    tshark strace valgrind iproute2 iputils-ping nftables util-linux
)
# A browser, for the report of the benchmarks. Without it that test says that it is skipped.
optional=(chromium-headless-shell)

if [ "${1:-}" = --only ]; then
    packages=("${@:2}")
    optional=()
fi

if ! command -v dpkg-query >/dev/null; then
    echo "deps: this is not Debian; install the equivalents of: ${packages[*]}" >&2
    exit 1
fi

is_missing() {
    status=$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)
    [ "$status" != installed ]
}

missing=()
for package in "${packages[@]}"; do
    if is_missing "$package"; then missing+=("$package"); fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=(env)
elif command -v sudo >/dev/null; then
    as_root=(sudo env)
else
    echo "deps: missing, and this user cannot install them; as root, run" >&2
    echo "    apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi

mkdir -p target
echo "deps: installing ${#missing[@]} packages with what they depend on; $log has the rest" >&2
as_root+=(DEBIAN_FRONTEND=noninteractive)
install=("${as_root[@]}" apt-get -qq install --yes --no-install-recommends --no-upgrade)
if ! { "${as_root[@]}" apt-get -qq update && "${install[@]}" "${missing[@]}"; } >$log 2>&1; then
    tail -n 20 $log >&2
    echo "deps: not all of this could be installed: ${missing[*]}" >&2
    exit 1
fi
for package in "${optional[@]}"; do
    if is_missing "$package" && ! "${install[@]}" "$package" >>$log 2>&1; then
        echo "deps: $package could not be installed; what needs it is skipped" >&2
    fi
done
