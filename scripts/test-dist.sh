#!/usr/bin/env bash
# Installs the release of target/dist in root file systems that nobody prepared, as their user
# without rights or a package manager, and runs two programs of rdma-core over it. Needs root and a
# network for the file systems themselves, which stay in target/dist/roots; those that cannot be had
# are skipped by name.
set -euo pipefail
cd "$(dirname "$0")/.."

limit_s=10
debian=http://deb.debian.org/debian
older=http://archive.debian.org/debian
ubuntu=http://archive.ubuntu.com/ubuntu
systems=(
    "debian-10 buster $older"
    "debian-11 bullseye $debian" "debian-12 bookworm $debian" "debian-13 trixie $debian"
    "debian-sid sid $debian" "ubuntu-20.04 focal $ubuntu" "ubuntu-22.04 jammy $ubuntu"
    "ubuntu-24.04 noble $ubuntu"
)
release=$(ls -t target/dist/weft-*-linux.tar.gz | head -1)
roots=target/dist/roots
mkdir -p $roots
for tool in debootstrap bwrap; do
    command -v $tool >/dev/null || { echo "test-dist: $tool is missing" >&2 && exit 1; }
done

make_root() {
    local name=$1 suite=$2 mirror=$3 script=
    [ ! -e "$roots/$name.made" ] || return 0
    rm -rf "${roots:?}/$name"
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=/usr/share/debootstrap/scripts/gutsy
    local keys=(--no-check-gpg)
    [ "$mirror" != $debian ] || keys=()
    local components=main
    [ "$mirror" != $ubuntu ] || components=main,universe
    debootstrap "${keys[@]}" --variant=minbase --components=$components \
        --include=ibverbs-utils,rdmacm-utils "$suite" "$roots/$name" "$mirror" $script \
        >"$roots/$name.log" 2>&1 && touch "$roots/$name.made"
}

# In a network of its own, with loopback alone, and nothing of this machine but the release.
inside() {
    local root=$1
    shift
    bwrap --ro-bind "$root" / --dev /dev --proc /proc --tmpfs /tmp --tmpfs /mnt \
        --ro-bind "$PWD/${release%/*}" /mnt/release \
        --ro-bind "$PWD/scripts/install.sh" /mnt/install.sh \
        --unshare-all --uid 1000 --gid 1000 --die-with-parent --clearenv \
        --setenv HOME /tmp --setenv PATH /tmp/.local/bin:/usr/bin:/bin "$@"
}

# What a user would type. Each program checks the bytes that it received.
try() {
    # shellcheck disable=SC2016 # It is expanded inside.
    inside "$1" /bin/sh -euc '
        sh /mnt/install.sh /mnt/release/'"${release##*/}"' >/dev/null
        weft run ibv_rc_pingpong -c >/dev/null 2>&1 &
        tries=0
        until weft run ibv_rc_pingpong -c 127.0.0.1 >/tmp/out 2>&1; do
            tries=$((tries + 1))
            [ $tries -lt 50 ] || { cat /tmp/out; exit 1; }
            sleep 0.1
        done
        wait
        weft run rping -s -a 127.0.0.1 -v -C 3 >/dev/null 2>&1 &
        tries=0
        until weft run rping -c -a 127.0.0.1 -V -C 3 >/tmp/out 2>&1; do
            tries=$((tries + 1))
            [ $tries -lt 50 ] || { cat /tmp/out; exit 1; }
            sleep 0.1
        done
        wait'
}

glibc_of() {
    inside "$1" /bin/sh -c 'ldd --version 2>&1 | sed -n "1s/.* //p"'
}

status=0
printf '| system | glibc | rdma-core | from the release to verified bytes |\n|---|---|---|---|\n'
for system in "${systems[@]}"; do
    read -r name suite mirror <<<"$system"
    if ! make_root "$name" "$suite" "$mirror"; then
        printf '| %s | | | skipped: it could not be had, see %s |\n' "$name" "$roots/$name.log"
        continue
    fi
    core=$(sed -n '/^Package: libibverbs1$/,/^$/s/^Version: //p' "$roots/$name/var/lib/dpkg/status")
    began=$(date +%s%N)
    if try "$roots/$name" >"$roots/$name.out" 2>&1; then
        took_ms=$((($(date +%s%N) - began) / 1000000))
        said="$((took_ms / 1000)).$((took_ms % 1000 / 100)) s"
        if [ $took_ms -gt $((limit_s * 1000)) ]; then
            said="$said: more than $limit_s s"
            status=1
        fi
    else
        said="failed: $(tail -1 "$roots/$name.out")"
        status=1
    fi
    printf '| %s | %s | %s | %s |\n' "$name" "$(glibc_of "$roots/$name")" "${core%%-*}" "$said"
done
exit $status
