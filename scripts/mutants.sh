#!/usr/bin/env bash
# Mutation testing of one crate (cm, mpa, rdmap, verbs, shuttle): cargo-mutants changes the code,
# one place at a time, and tells which changes no test of the crate has noticed. docs/mutants.md
# says what has survived and why.
#
#     scripts/mutants.sh CRATE [arguments of cargo-mutants]
#     scripts/mutants.sh diff BASE            the changes since BASE, in whichever of these crates
#
# Random runs are few (WEFT_RUNS, PROPTEST_CASES): what a change breaks, breaks soon. The code is
# optimised a little: shuttle's tests run 18 times as fast for a build that is hardly slower.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo mutants --version >/dev/null 2>&1; then
    echo "mutants: cargo-mutants is missing; install it with" >&2
    echo "    cargo install --locked cargo-mutants" >&2
    exit 1
fi

export WEFT_RUNS=${WEFT_RUNS:-8}
export PROPTEST_CASES=${PROPTEST_CASES:-64}
export CARGO_PROFILE_DEV_DEBUG=0
export CARGO_PROFILE_DEV_OPT_LEVEL=1
out=${CARGO_TARGET_DIR:-target}/mutants
mkdir -p "$out"

what=${1:?cm, mpa, rdmap, verbs, shuttle or diff}
shift
if [ "$what" = diff ]; then
    base=${1:?a commit to compare with}
    shift
    git diff "$base" >"$out/diff"
    exec cargo mutants --in-diff "$out/diff" --output "$out" "$@"
fi
exec cargo mutants -p "weft-$what" --sharding round-robin --output "$out" "$@"
