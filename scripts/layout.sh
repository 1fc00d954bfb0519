#!/bin/sh
# Lays out an installation in DIR from the build in BUILT: layout.sh BUILT DIR [WEFT [CC...]]. WEFT
# is a build of this machine's that says its manual, CC the C compiler for the stubs.
set -eu

built=$1
to=$2
weft=${3:-$built/weft}
shift $(($# < 3 ? $# : 3))
scripts=$(cd "$(dirname "$0")" && pwd)

rm -rf "$to"
install -D -m 755 -t "$to/bin" "$built/weft"
if [ -e "$built/degen" ]; then
    install -m 755 "$built/degen" "$to/bin"
else
    # The same program as `weft wan`, without its code twice.
    # shellcheck disable=SC2016 # It is expanded when it runs.
    printf '#!/bin/sh\n%s\n' 'exec "$(dirname "$(readlink -f "$0")")/weft" wan "$@"' \
        >"$to/bin/degen"
    chmod 755 "$to/bin/degen"
fi
install -D -m 644 -t "$to/lib/weft" "$built/libweft.so" "$built/libweft_sockets.so"
"$scripts/stubs.sh" "$to/lib/weft/stubs" "$@"
chmod 644 "$to"/lib/weft/stubs/*/*

share=$to/share
mkdir -p "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/site-functions" \
    "$share/fish/vendor_completions.d"
"$weft" man "$share/man/man1"
"$weft" completions bash >"$share/bash-completion/completions/weft"
"$weft" completions zsh >"$share/zsh/site-functions/_weft"
"$weft" completions fish >"$share/fish/vendor_completions.d/weft.fish"
sources=$scripts/..
install -D -m 644 -t "$share/weft" "$sources/crates/capture/shuttle.lua"
# The help names them.
install -D -m 644 -t "$share/doc/weft/docs" "$sources"/docs/*.md "$sources/docs/grafana.json"
install -D -m 644 -t "$share/doc/weft/examples/scenarios" "$sources"/examples/scenarios/*
install -m 755 "$scripts/install.sh" "$to/install.sh"
