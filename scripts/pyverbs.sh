#!/usr/bin/env bash
# Puts rdma-core's python tests into target/pyverbs, where their test looks for them: Debian's
# python3-pyverbs has them among its documents, which images for containers leave out.
set -euo pipefail
cd "$(dirname "$0")/.."

home=target/pyverbs
documents=usr/share/doc/rdma-core/tests
[ ! -f $home/tests/run_tests.py ] || exit 0

rm -rf $home
mkdir -p $home
if [ -d /$documents ]; then
    cp -r /$documents $home/tests
elif (cd $home && apt-get -qq download python3-pyverbs && dpkg-deb -x ./*.deb .); then
    mv $home/$documents $home/tests
else
    echo "pyverbs: not found; its tests will be skipped" >&2
    rm -rf $home
    exit 0
fi
find $home/tests -name '*.gz' -exec gunzip -f {} +
