#!/usr/bin/env bash
# Puts MPICH with libfabric, from PyPI, into target/mpich, where its test looks for it. Debian's
# MPICH speaks UCX alone, which refuses iWARP. Without a network there is none, and the test says
# so by name.
set -euo pipefail
cd "$(dirname "$0")/.."

home=target/mpich
[ ! -x $home/bin/mpiexec ] || exit 0

pip=("$home/bin/pip" --quiet --disable-pip-version-check)
if ! python3 -m venv $home || ! "${pip[@]}" install mpich==5.0.2; then
    echo "mpich: not installed; its test will be skipped" >&2
    rm -rf $home
fi
