#!/usr/bin/env bash
# Sees to it that the programs of the demonstration are there. On Debian and Ubuntu the missing ones
# are installed; elsewhere it says what their packages are called.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=(cc rping ib_write_bw fio iperf3)
missing=()
for program in "${programs[@]}"; do
    command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if command -v dpkg-query >/dev/null; then
    exec scripts/deps.sh --only gcc libc6-dev rdmacm-utils perftest fio iperf3
fi
ids=" $(. /etc/os-release 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}") "
case $ids in
*" fedora "* | *" rhel "*)
    command="dnf install gcc librdmacm-utils perftest fio fio-engine-rdma iperf3"
    ;;
*" suse "* | *" opensuse "*) command="zypper install gcc librdmacm-utils perftest fio iperf" ;;
*" arch "*) command="pacman -S gcc rdma-core fio iperf3, and perftest from the AUR" ;;
*) command="what your system calls gcc, rdma-core's utilities, perftest, fio and iperf3" ;;
esac
echo "demo: missing: ${missing[*]}; install $command" >&2
exit 1
