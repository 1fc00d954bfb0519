#!/usr/bin/env bash
# Checks what may come into the tree (deny.toml): licences, bans and sources, or what is named.
# For those three nothing is fetched but cargo-deny itself, once; `advisories` fetches the RustSec
# database and fails where it cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools
PATH="$PATH:$tools/bin"
if ! cargo deny --version >/dev/null 2>&1; then
    echo "deny: installing cargo-deny $version into $tools" >&2
    # Without optimisation it is there in a minute, and takes a second for a check.
    if ! cargo install --quiet --locked --debug --root "$tools" "cargo-deny@$version"; then
        echo "deny: cargo-deny could not be installed; install it by hand:" >&2
        echo "    cargo install --locked cargo-deny" >&2
        exit 1
    fi
fi

checks=("$@")
options=(--locked --log-level error)
if [ $# = 0 ]; then
    checks=(licenses bans sources)
    # Only what a build for this machine has fetched already.
    options+=(--offline --target "$(rustc -vV | sed -n 's/^host: //p')")
fi

check() {
    cargo deny "${options[@]}" --manifest-path "$1" check --hide-inclusion-graph "${checks[@]}"
}

check Cargo.toml
# The workspaces beside it, where somebody has built them.
if [ -d fuzz/target ]; then check fuzz/Cargo.toml; fi
if [ -d "${CARGO_TARGET_DIR:-target}/quic" ]; then
    # A peer that is measured may have what Weft does not: quinn needs tokio.
    for at in "${!checks[@]}"; do [ "${checks[at]}" != bans ] || unset "checks[at]"; done
    [ ${#checks[@]} = 0 ] || check interop/quic/Cargo.toml
fi
