#!/bin/sh
# Checks that cargo is there and new enough, before it fails on something that nobody understands.
set -eu
cd "$(dirname "$0")/.."

wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -1)
if ! command -v cargo >/dev/null; then
    echo "weft: cargo is missing; install Rust $wanted or newer from https://rustup.rs" >&2
    exit 1
fi
found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2)
oldest=$(printf '%s\n%s\n' "$wanted" "${found:-0}" | sort -V | head -1)
if [ "$oldest" != "$wanted" ]; then
    echo "weft: $(command -v cargo) is Rust ${found:-unknown}, and $wanted or newer is needed:" \
        "https://rustup.rs has it, \`rustup update stable\` where rustup is there" >&2
    exit 1
fi
