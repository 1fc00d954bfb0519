#!/usr/bin/env bash
# Sees to it that the programs of the demonstration are there: ten packages at most. On Debian and
# Ubuntu the missing ones are installed without a word but the log's name; elsewhere it says what
# their packages are called. sshd is unpacked below target/ and not installed, since an installed
# one would listen on this machine. Without it act 4 is skipped by name.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=(cc ibv_devinfo rping ib_write_bw iperf3)
peers=(fi_pingpong ucx_perftest ssh)
missing=() absent=()
for program in "${programs[@]}"; do
    command -v "$program" >/dev/null || missing+=("$program")
done
for program in "${peers[@]}"; do
    command -v "$program" >/dev/null || absent+=("$program")
done

# An sshd of Debian, with the one library of it that a base system lacks.
unpack_sshd() {
    home=target/demo
    if [ -x /usr/sbin/sshd ] || [ -x $home/usr/sbin/sshd ]; then return; fi
    mkdir -p $home
    if (
        cd $home
        apt-get -qq -o APT::Sandbox::User=root download openssh-server libwrap0
        for package in ./*.deb; do dpkg-deb --extract "$package" . && rm "$package"; done
    ) >target/demo-sshd.log 2>&1; then return; fi
    echo "demo: no sshd could be fetched, so act 4 will be skipped; target/demo-sshd.log" >&2
}

if command -v dpkg-query >/dev/null; then
    if [ $((${#missing[@]} + ${#absent[@]})) -gt 0 ]; then
        scripts/deps.sh --only gcc libc6-dev ibverbs-utils rdmacm-utils perftest iperf3 \
            libfabric-bin libfabric-dev ucx-utils openssh-client
    fi
    unpack_sshd
    exit 0
fi
[ ${#missing[@]} -gt 0 ] || exit 0
ids=" $(. /etc/os-release 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}") "
case $ids in
*" fedora "* | *" rhel "*)
    command="dnf install gcc libibverbs-utils librdmacm-utils perftest iperf3"
    ;;
*" suse "* | *" opensuse "*)
    command="zypper install gcc rdma-core librdmacm-utils perftest iperf"
    ;;
*" arch "*) command="pacman -S gcc rdma-core iperf3, and perftest from the AUR" ;;
*) command="what your system calls gcc, rdma-core's utilities, perftest and iperf3" ;;
esac
echo "demo: missing: ${missing[*]}; install $command" >&2
exit 1
