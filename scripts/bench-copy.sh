#!/usr/bin/env bash
# Times weft cp, weft pipe, scp and rsync on the same path of `weft wan`, with a real sshd on its far
# side, and prints a table. Arguments: SIZE_MB (default 1000), PATH_SPEC... (default: 70ms 1gbit with
# 0, 0.1, 1 and 5 % loss). PEERS=no leaves scp and rsync out. Times are end to end, with ssh's log-in,
# which stands in a column of its own: `ssh HOST true`, measured before each row.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
weft=${WEFT:-$root/target/release/weft}
size_mb=${1:-1000}
shift || true
specs=("$@")
[ ${#specs[@]} -gt 0 ] ||
    specs=("70ms 1gbit" "70ms 1gbit 0.1%" "70ms 1gbit 1%" "70ms 1gbit 5%")
# What TCP does with 5 % loss nobody waits for.
limit_s=${LIMIT:-60}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$dir/$key"; done
cat >"$dir/sshd_config" <<CONFIG
Port 2022
HostKey $dir/host
AuthorizedKeysFile $dir/user.pub
PidFile none
UsePAM no
StrictModes no
CONFIG
cat >"$dir/ssh_config" <<CONFIG
Host far
    HostName 10.77.0.2
    Port 2022
    IdentityFile $dir/user
    IdentitiesOnly yes
    UserKnownHostsFile $dir/known
    StrictHostKeyChecking no
    LogLevel ERROR
CONFIG
head -c "${size_mb}000000" /dev/urandom >"$dir/file"

# Runs inside of the path: prints the seconds that its command took, or `-`.
cat >"$dir/timed" <<'TIMED'
#!/usr/bin/env bash
start=$(date +%s.%N)
timeout "$LIMIT" "$@" >/dev/null 2>"$DIR/stderr" || { echo -; exit 0; }
awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.2f\n", b - a }'
TIMED
chmod +x "$dir/timed"

# across SPEC CONTROLLER COMMAND...: its seconds on a path of its own.
across() {
    local spec=$1 controller=$2
    shift 2
    rm -rf "$dir/out"
    # The controller is of the network namespace that the command and sshd are in.
    local set="sysctl -qw net.ipv4.tcp_congestion_control=$controller"
    # shellcheck disable=SC2086
    DIR=$dir LIMIT=$limit_s "$weft" wan $spec \
        --server "sh -c '$set; exec $(command -v sshd || echo /usr/sbin/sshd) -D -f $dir/sshd_config'" \
        -- sh -c "$set; exec \"\$0\" \"\$@\"" "$dir/timed" "$@" 2>>"$dir/wan"
}

row() {
    awk -v name="$1" -v spec="$2" -v s="$3" -v login="$4" -v mb="$size_mb" 'BEGIN {
        if (s == "-") { printf "| %s | %s | more than the limit | | %s |\n", spec, name, login; exit }
        data = s - login; if (data < 0.001) data = 0.001
        printf "| %s | %s | %.2f | %.0f | %.2f |\n", spec, name, s, 8 * mb / data, login
    }'
}

ssh=(ssh -F "$dir/ssh_config")
copy=("$weft" cp -q -e "${ssh[*]}" --remote-weft "$weft" --udp-only)
pipe=("$weft" pipe -e "${ssh[*]}" --remote-weft "$weft" --udp-only far --)
echo "| path | $size_mb MB by | s | Mbit/s without the log-in | log-in, s |"
echo "|---|---|---:|---:|---:|"
for spec in "${specs[@]}"; do
    login=$(across "$spec" cubic "${ssh[@]}" far true)
    row "weft cp" "$spec" "$(across "$spec" cubic "${copy[@]}" "$dir/file" "far:$dir/out")" "$login"
    cmp "$dir/file" "$dir/out" || echo "weft cp: the copy differs" >&2
    row "weft cp, from there" "$spec" \
        "$(across "$spec" cubic "${copy[@]}" "far:$dir/file" "$dir/out")" "$login"
    row "weft pipe" "$spec" "$(across "$spec" cubic sh -c \
        "exec \"\$@\" sh -c 'cat >$dir/out' <$dir/file" sh "${pipe[@]}")" "$login"
    [ "${PEERS:-yes}" = yes ] || continue
    for controller in cubic bbr; do
        row "scp, $controller" "$spec" \
            "$(across "$spec" $controller scp -qF "$dir/ssh_config" "$dir/file" "far:$dir/out")" \
            "$login"
        row "rsync, $controller" "$spec" "$(across "$spec" $controller \
            rsync -We "${ssh[*]}" "$dir/file" "far:$dir/out")" "$login"
    done
done
grep -h "did not keep up" "$dir/wan" | sort | uniq -c >&2 || true
