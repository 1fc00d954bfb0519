#!/usr/bin/env bash
# Installs the release of target/dist in root file systems that nobody prepared, as their user
# without rights or a package manager, and runs two programs of rdma-core over it. Those that cannot
# be had are skipped by name. What ran where is printed as a table, which is also the one in
# docs/install.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/roots.sh

limit_s=10
systems=(
    "debian-10 buster $older" "ubuntu-18.04 bionic $ubuntu"
    "debian-11 bullseye $debian" "debian-12 bookworm $debian" "debian-13 trixie $debian"
    "debian-sid sid $debian" "ubuntu-20.04 focal $ubuntu" "ubuntu-22.04 jammy $ubuntu"
    "ubuntu-24.04 noble $ubuntu"
)
arch=$(uname -m)
release=$(ls -t target/dist/weft-*-"$arch"-linux.tar.gz | head -1)
wheel=$(ls -t target/dist/weft_rdma-*_"$arch".whl | head -1)

programs="
    both 'weft run ibv_rc_pingpong -c' 'weft run ibv_rc_pingpong -c 127.0.0.1'
    both 'weft run rping -s -a 127.0.0.1 -v -C 3' 'weft run rping -c -a 127.0.0.1 -V -C 3'"
status=0
# What the last command has printed.
output=$(mktemp)

glibc_of() {
    inside "$1" /bin/sh -c 'ldd --version 2>&1 | sed -n "1s/.* //p"'
}

# core_of NAME: its release of rdma-core.
core_of() {
    sed -n '/^Package: libibverbs1$/,/^$/s/^Version: \([^-]*\).*/\1/p' \
        "$roots/$1/var/lib/dpkg/status"
}

# row NAME CORE ROOT COMMAND...: times the command, which is to succeed.
row() {
    local name=$1 core=$2 root=$3 began took_ms said glibc
    shift 3
    glibc=$([ "$root" = / ] && echo none || glibc_of "$root")
    began=$(date +%s%N)
    if "$@" >"$output" 2>&1; then
        took_ms=$((($(date +%s%N) - began) / 1000000))
        said="$((took_ms / 1000)).$((took_ms % 1000 / 100)) s"
        if [ $took_ms -gt $((limit_s * 1000)) ]; then
            said="$said: more than $limit_s s"
            status=1
        fi
    else
        said="failed: $(tail -1 "$output")"
        status=1
    fi
    printf '| %s | %s | %s | %s |\n' "$name" "$glibc" "$core" "$said"
}

# report NAME CORE [BWRAP OPTIONS] COMMANDS: times the commands in the root file system NAME.
report() {
    row "$1" "$2" "$roots/$1" inside "$roots/$1" "${@:3:$#-3}" /bin/sh -euc "$both${*: -1}"
}

# packaged NAME PACKAGE INSTALL REMOVE: times a package for the whole machine, in a copy of the root
# file system NAME, as its root. Removed again, it has left nothing below /usr.
packaged() {
    local copy
    copy=$(mktemp -d)
    cp -a "$roots/$1/." "$copy"
    row "$1, $2" "$(core_of "$1")" "$copy" bwrap --bind "$copy" / --dev /dev --proc /proc \
        --tmpfs /tmp --tmpfs /mnt --ro-bind "$PWD/target/dist" /mnt/release --unshare-all \
        --uid 0 --gid 0 --die-with-parent --clearenv --setenv HOME /tmp \
        --setenv PATH /usr/sbin:/usr/bin:/sbin:/bin /bin/sh -euc "$both
            find /usr | sort >/tmp/before
            $3 /mnt/release/weft-*-$arch-linux$2$programs
            $4 weft
            find /usr | sort | diff /tmp/before - || { echo it has left files; exit 1; }"
    rm -rf "$copy"
}

# Both ends of `weft perf` in a network of their own: each of $SERVER and $CLIENT is a command.
# shellcheck disable=SC2016 # It is expanded inside.
perf_pair='
    status=1
    $SERVER perf server -1 &
    for try in $(seq 50); do
        $CLIENT perf 127.0.0.1 --transport $TRANSPORT --op send --verify -n 2000 &&
            status=0 && break
        sleep 0.1
    done
    [ $status = 0 ] || kill $!
    wait
    exit $status'

# perf_row NAME TRANSPORT SERVER CLIENT: times them, which look at the data themselves.
perf_row() {
    row "$1, $2" none / bwrap --dev-bind / / --unshare-net --unshare-pid --die-with-parent \
        --setenv TRANSPORT "$2" --setenv SERVER "$3" --setenv CLIENT "$4" bash -euc "$perf_pair"
}

# The static program in a file system without any other file, and with the archive's `weft`, copied
# alone into Debian 12.
static_program() {
    local alone dynamic transport
    alone="bwrap --ro-bind $PWD/target/dist/weft-static-$arch-linux /weft --dev /dev --proc /proc
        --tmpfs /tmp --clearenv --setenv HOME /tmp /weft"
    dynamic="bwrap --ro-bind $roots/debian-12 / --dev /dev --proc /proc --tmpfs /tmp
        --ro-bind $PWD/${release%.tar.gz}/bin/weft /tmp/weft --clearenv --setenv HOME /tmp
        --setenv PATH /usr/bin:/bin /tmp/weft"
    for transport in shuttle iwarp; do
        perf_row "no file but the static program, weft perf" $transport "$alone" "$alone"
        [ ! -e $roots/debian-12.made ] ||
            perf_row "the static program with a weft alone in debian-12, weft perf" $transport \
                "$alone" "$dynamic"
    done
}

skip() {
    echo "test-dist: $1 could not be had: $roots/$1.log" >&2
    printf '| %s | | | skipped: it could not be had |\n' "$1"
}

page=docs/install.md
table=$(mktemp)
trap 'rm -f "$table" "$output"' EXIT

run_all() {
    echo '| system | glibc | rdma-core | from the release to verified bytes |'
    echo '|---|---|---|---|'
    for system in "${systems[@]}"; do
        read -r name suite mirror <<<"$system"
        if ! make_root "$name" "$suite" "$mirror"; then
            skip "$name"
            continue
        fi
        report "$name" "$(core_of "$name")" \
            "sh /mnt/install.sh /mnt/release/${release##*/} >/dev/null$programs"
    done

    [ ! -e $roots/debian-12.made ] || packaged debian-12 .deb "dpkg -i" "dpkg -r"
    if make_root debian-12-rpm bookworm $debian ibverbs-utils,rdmacm-utils,rpm; then
        packaged debian-12-rpm .rpm "rpm -i --nodeps" "rpm -e --nodeps"
    else
        skip debian-12-rpm
    fi

    # Systems without any library of rdma-core: the programs, which ask for version nodes up to
    # their own release's, come from another one.
    bare=(--ro-bind "$roots/debian-13/usr/bin" /mnt/programs
        --setenv PATH /tmp/.local/bin:/tmp/venv/bin:/usr/bin:/bin:/mnt/programs)
    if make_root python-slim trixie $debian python3-venv,python3-pip; then
        report python-slim "none (wheel)" "${bare[@]}" \
            "python3 -m venv /tmp/venv
            pip -q install --no-index /mnt/release/${wheel##*/}
            python3 -c 'import weft_rdma; weft_rdma.run([\"ibv_devices\"], check=True)'$programs"
        report python-slim "none (archive)" "${bare[@]}" \
            "sh /mnt/install.sh /mnt/release/${release##*/} >/dev/null$programs"
        report python-slim "none (weft alone)" "${bare[@]}" \
            "mkdir /tmp/alone
            tar -xzf /mnt/release/${release##*/} -C /tmp/alone --strip-components=2 --wildcards \
                '*/bin/weft'
            PATH=/tmp/alone:\$PATH$programs
            [ \"\$(ls /tmp/alone)\" = weft ]"
    else
        skip python-slim
    fi
    static_program
}

# Not in a pipe: the status is set in there.
run_all >"$table"
cat "$table"
grep -q '^<!-- test-dist -->$' $page || {
    echo "test-dist: $page has no place for it" >&2
    exit 1
}
sed -i -e "/^<!-- test-dist -->\$/,/^<!-- end of test-dist -->\$/{
    /^<!-- test-dist -->\$/r $table
    /^|/d
}" $page
exit $status
