#!/usr/bin/env bash
# Runs the projects of examples/testing as their users do, each with its language's own test runner
# and the `weft` of the directory that is given (target/debug). A language that is not here is
# skipped by name.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(cd "${1:-target/debug}" && pwd)
export PATH=$bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r examples/testing "$work/testing"
status=0

# run LANGUAGE NEEDED-PROGRAMS COMMANDS
run() {
    local program
    for program in $2; do
        if ! command -v "$program" >/dev/null; then
            echo "test-languages: $1 is skipped: $program is missing"
            return
        fi
    done
    if (cd "$work/testing/$1" && sh -euc "$3") >"$work/$1.log" 2>&1; then
        echo "test-languages: $1 has passed"
    else
        cat "$work/$1.log"
        echo "test-languages: $1 has failed"
        status=1
    fi
}

run rust cargo 'CARGO_TARGET_DIR=../built cargo test --quiet --offline'
run c cmake 'cmake -S . -B built && cmake --build built && cd built && ctest --output-on-failure'
run go go 'GOFLAGS=-mod=mod GOPROXY=off go test -exec "weft run" ./...'
if python3 -c 'import pytest' 2>/dev/null; then
    modules=$PWD/packaging/python
    run python rping "PYTHONPATH=$modules python3 -m pytest -q -p weft_rdma.pytest_plugin"
else
    echo "test-languages: python is skipped: pytest is missing"
fi
exit $status
