#!/usr/bin/env bash
# Runs the fuzz targets that are named, or all, for a while, one after the other. SECONDS_EACH says
# how long each. They begin with the inputs of fuzz/seeds and keep what they find in fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${FUZZ_TOOLCHAIN:-nightly}
if ! cargo "+$toolchain" fuzz --version >/dev/null 2>&1; then
    echo "fuzz: cargo-fuzz or the $toolchain toolchain is missing; install them with" >&2
    echo "    rustup toolchain install $toolchain && cargo install cargo-fuzz" >&2
    exit 1
fi

targets=("$@")
if [ $# = 0 ]; then mapfile -t targets < <(cargo "+$toolchain" fuzz list); fi
for target in "${targets[@]}"; do
    echo "fuzz: $target" >&2
    mkdir -p "fuzz/corpus/$target"
    cargo "+$toolchain" fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="${SECONDS_EACH:-60}"
done
