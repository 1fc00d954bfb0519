#!/usr/bin/env bash
# Hands the release of target/dist to an unmodified image by rootless podman: without a capability,
# and with what `weft cdi generate` writes. To be run by a user without rights, after
# `make test-dist`, which makes the root file systems. Says that it is skipped where podman cannot
# start a container, or where it knows no directory for devices but /etc/cdi and Weft is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "test-podman: skipped: $*"
    exit 0
}

[ "$(id -u)" != 0 ] || skip "it is about users without rights; run it as one"
command -v podman >/dev/null || skip "podman is missing"
release=$(ls -t target/dist/weft-*-"$(uname -m)"-linux.tar.gz | head -1)
root=target/dist/roots/debian-12
made=$(mktemp -d)
podman=(podman)
leave() {
    "${podman[@]}" rmi -f localhost/weft-test:latest >/dev/null 2>&1 || true
    rm -rf "$made"
}
trap leave EXIT
# Where control groups are of the older kind, only runc starts containers.
[ -e /sys/fs/cgroup/cgroup.controllers ] || podman+=(--runtime=/usr/sbin/runc)
podman+=(--cgroup-manager=cgroupfs --events-backend=none)

tar -C $root --exclude='./proc/*' --exclude='./dev/*' --exclude='./sys/*' -cf "$made/image.tar" . \
    2>/dev/null || true
image=$("${podman[@]}" import -q "$made/image.tar" localhost/weft-test:latest) ||
    skip "podman cannot make an image"
run=("${podman[@]}" run --rm --network=none --cap-drop=all --security-opt=no-new-privileges)
"${run[@]}" "$image" true 2>"$made/why" || skip "podman cannot run a container: $(cat "$made/why")"

if podman --help | grep -q -- --cdi-spec-dir; then
    sh scripts/install.sh --prefix "$made/prefix" "$release" >/dev/null
    "$made/prefix/bin/weft" cdi generate -o "$made/cdi/weft.json"
    run=("${podman[@]}" --cdi-spec-dir "$made/cdi" "${run[@]:${#podman[@]}}")
elif ! [ -e /etc/cdi/weft.json ]; then
    skip "this podman looks for devices in /etc/cdi alone: weft cdi generate -o /etc/cdi/weft.json"
fi
# shellcheck disable=SC2016 # It is expanded inside.
"${run[@]}" --device weft/rdma=all "$image" sh -euc '
    ibv_rc_pingpong -c >/dev/null &
    until ibv_rc_pingpong -c 127.0.0.1; do sleep 0.1; done
    wait'
echo "test-podman: an unmodified image has RDMA by weft/rdma=all, rootless and without capabilities"
