#!/usr/bin/env bash
# Runs the tests of the crates that touch registered memory, sockets and threads under
# AddressSanitizer, then ThreadSanitizer, or those of the two that are named (address, thread).
# ThreadSanitizer has to see the standard library's locks, so that is built with it.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${SANITIZER_TOOLCHAIN:-nightly}
host=$(rustc -vV | sed -n 's/^host: //p')
sanitizers=("$@")
[ $# -gt 0 ] || sanitizers=(address thread)

for sanitizer in "${sanitizers[@]}"; do
    options=()
    if [ "$sanitizer" = thread ]; then
        if [ ! -d "$(rustc "+$toolchain" --print sysroot)/lib/rustlib/src/rust/library" ]; then
            echo "sanitizers: the standard library has no sources here; install them with" >&2
            echo "    rustup component add rust-src --toolchain $toolchain" >&2
            exit 1
        fi
        options=(-Zbuild-std)
    fi
    echo "sanitizers: $sanitizer" >&2
    CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/$sanitizer" RUSTFLAGS="-Zsanitizer=$sanitizer" \
        cargo "+$toolchain" test "${options[@]}" --no-fail-fast --locked --target "$host" \
        -p weft-verbs -p weft-rdmap -p weft-rnic -p weft-io
done
