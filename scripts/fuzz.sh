#!/usr/bin/env bash
# Runs every fuzz target for a while, one after the other. SECONDS_EACH says how long each.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${FUZZ_TOOLCHAIN:-nightly}
if ! cargo "+$toolchain" fuzz --version >/dev/null 2>&1; then
    echo "fuzz: cargo-fuzz or the $toolchain toolchain is missing; install them with" >&2
    echo "    rustup toolchain install $toolchain && cargo install cargo-fuzz" >&2
    exit 1
fi

for target in $(cargo "+$toolchain" fuzz list); do
    echo "fuzz: $target" >&2
    cargo "+$toolchain" fuzz run "$target" -- -max_total_time="${SECONDS_EACH:-60}"
done
