#!/usr/bin/env bash
# Executes the steps of action.yml and of packaging/gitlab.yml, and what `weft cdi generate` writes,
# in root file systems that have neither Weft nor Rust, and validates examples/containers. Needs a
# release in target/dist, and PyPI once.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/roots.sh

release=$(ls -t target/dist/weft-*-"$(uname -m)"-linux.tar.gz | head -1)
inner=/mnt/release/${release##*/}
root=$roots/debian-12
make_root debian-12 bookworm $debian
make_root python-slim trixie $debian python3-venv,python3-pip
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
pair="$both both 'ibv_rc_pingpong -c' 'ibv_rc_pingpong -c 127.0.0.1'"

# The commands below `run:` or in a list, of a file in the subset of YAML that the recipes keep to.
steps() {
    python3 - "$@" <<'PYTHON'
import re, sys
path, section, out = sys.argv[1:]
lines = open(path).read().split("\n")
blocks, at = [], 0
while at < len(lines):
    found = re.match(r"( *)(?:run:|- (?![a-z]+:))\s*(.*)", lines[at])
    runs = "run:" in lines[at].split("#")[0]
    at += 1
    if not found or not found[2] or (section == "run") != runs:
        continue
    if found[2] != "|":
        blocks.append(found[2])
        continue
    block = []
    while at < len(lines) and (not lines[at] or lines[at].startswith(found[1] + "  ")):
        block.append(lines[at][len(found[1]) + 2:])
        at += 1
    blocks.append("\n".join(block))
for number, block in enumerate(blocks):
    open(f"{out}{number}", "w").write(block + "\n")
print(len(blocks))
PYTHON
}

say() {
    echo "test-recipes: $*"
}

[ "$(steps action.yml run "$made/action")" = 2 ]
inside "$root" --ro-bind "$made" /mnt/steps --ro-bind "$PWD" /mnt/action \
    --setenv ACTION /mnt/action --setenv RELEASE "$inner" --setenv PREFIX /tmp/weft \
    --setenv GITHUB_PATH /tmp/path --setenv GITHUB_ENV /tmp/env --setenv COMMANDS "$pair" \
    /bin/sh -euc 'sh -eu /mnt/steps/action0
        PATH=$(cat /tmp/path):$PATH
        export $(cat /tmp/env)
        sh -eu /mnt/steps/action1
        ! COMMANDS=true sh -eu /mnt/steps/action1 2>/tmp/idle || exit 1
        grep -q "no RDMA" /tmp/idle'
say "the steps of action.yml install, run, and fail where no RDMA ran"

many=$(steps packaging/gitlab.yml list "$made/gitlab")
[ "$many" -ge 5 ]
for number in $(seq 0 $((many - 1))); do cat "$made/gitlab$number"; done >"$made/gitlab"
inside "$root" --ro-bind "$made" /mnt/steps --setenv RDMA_RELEASE "$inner" \
    --setenv RDMA_PREFIX /tmp/project/.weft --setenv COMMANDS "$pair" \
    /bin/sh -euc '. /mnt/steps/gitlab; weft run --require-traffic -- sh -euc "$COMMANDS"'
say "the steps of packaging/gitlab.yml install and run"

# What `kubectl --dry-run=server` and `compose config` would refuse: unknown fields among it.
validators=target/dist/validators
[ -x $validators/bin/kubernetes-validate ] || {
    python3 -m venv $validators
    $validators/bin/pip -q install kubernetes-validate==1.37.0 compose-spec==0.2.1
}
$validators/bin/kubernetes-validate --strict examples/containers/pods.yaml >"$made/pods"
[ "$(grep -c ' passed ' "$made/pods")" = 3 ]
$validators/bin/python - examples/containers/compose.yaml <<'PYTHON'
import sys
from compose_spec import PyCompose
spec = PyCompose.from_yaml(open(sys.argv[1]).read())
spec.validate()
assert set(spec.to_spec().services) == {"server", "client"}
PYTHON
say "pods.yaml and compose.yaml are valid"

# What a container engine does with the file: mounts and variables, of each device asked for.
edits() {
    python3 - "$@" <<'PYTHON'
import json, sys
names, said = sys.argv[2:], json.load(open(sys.argv[1]))
assert said["kind"] == "weft/rdma"
for device in said["devices"]:
    if device["name"] in names:
        for mount in device["containerEdits"].get("mounts", []):
            print("--ro-bind", mount["hostPath"], mount["containerPath"], sep="\n")
        for variable in device["containerEdits"]["env"]:
            print("--setenv", *variable.split("=", 1), sep="\n")
PYTHON
}

sh scripts/install.sh --prefix "$made/prefix" "$release" >/dev/null
"$made/prefix/bin/weft" cdi generate -o "$made/cdi/weft.json" -e WEFT_PORTS=4000-4015
for name in debian-12 python-slim; do
    # Mount points are made in the container's own layer.
    cp -a "$roots/$name" "$made/$name"
    mapfile -t options < <(edits "$made/cdi/weft.json" all)
    bwrap --bind "$made/$name" / --dev /dev --proc /proc --tmpfs /tmp --unshare-all --uid 1000 \
        --gid 1000 --clearenv --ro-bind "$roots/debian-13/usr/bin" /opt/programs \
        --setenv PATH /usr/bin:/bin:/opt/programs "${options[@]}" /bin/sh -euc "$pair"
    rm -rf "${made:?}/$name"
    say "what weft cdi generate writes serves ibv_rc_pingpong in $name"
done
