#!/usr/bin/env bash
# Runs the unit tests of the protocol crates under Miri, which finds undefined behaviour, leaks and
# reads of uninitialised memory. Each property runs PROPTEST_CASES times (4). Five minutes on two
# processors, of which the tests take two.
#
# Covered: sync, wire, mpa, cm, rdmap and sdp; verbs but for memory regions, which it reads and
# writes by assembly that recovers from faults. Not covered: that, and shuttle, whose ciphers are a
# library in C. scripts/sanitizers.sh goes through both.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${MIRI_TOOLCHAIN:-nightly}
if ! cargo "+$toolchain" miri --version >/dev/null 2>&1; then
    echo "miri: Miri or the $toolchain toolchain is missing; install them with" >&2
    echo "    rustup toolchain install $toolchain --component miri rust-src" >&2
    exit 1
fi

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/miri
export PROPTEST_CASES=${PROPTEST_CASES:-4}
# Properties look for files of earlier failures.
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation"

for crate in sync wire mpa cm rdmap sdp; do
    cargo "+$toolchain" miri test --locked -p "weft-$crate" --lib
done
cargo "+$toolchain" miri test --locked -p weft-verbs --lib -- --skip mr::
