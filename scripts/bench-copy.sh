#!/usr/bin/env bash
# Times weft cp, weft pipe, scp and rsync on the same path of `weft wan`, with a real sshd on its
# far side, and prints a table. Arguments: SIZE_MB (default 1000), PATH_SPEC... (default: 70ms 1gbit
# with 0, 0.1, 1 and 5 % loss). PEERS=no leaves scp and rsync out. Times are end to end, with ssh's
# log-in, which stands in a column of its own: `ssh HOST true`, measured before each path. TCP's
# controller is the machine's (`sysctl net.ipv4.tcp_congestion_control`).
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

sshd=$(command -v sshd || echo /usr/sbin/sshd)
# Namespaces have the controller of the machine, and may not be able to set another one.
tcp=$(cat /proc/sys/net/ipv4/tcp_congestion_control)

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
Subsystem sftp internal-sftp
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
status=0
timeout "$LIMIT" "$@" >/dev/null 2>"$DIR/stderr" || status=$?
[ $status != 124 ] || { echo -; exit 0; }
[ $status = 0 ] || { cat "$DIR/stderr" >&2; exit $status; }
awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.2f\n", b - a }'
TIMED
chmod +x "$dir/timed"

# across SPEC COMMAND...: its seconds on a path of its own.
across() {
    local spec=$1
    shift
    rm -rf "$dir/out"
    # shellcheck disable=SC2086
    DIR=$dir LIMIT=$limit_s "$weft" wan $spec --server "$sshd -D -f $dir/sshd_config" \
        -- "$dir/timed" "$@" 2>>"$dir/wan" || { cat "$dir/wan" >&2; exit 1; }
}

row() {
    awk -v name="$1" -v spec="$2" -v s="$3" -v login="$4" -v mb="$size_mb" 'BEGIN {
        if (s == "-") { printf "| %s | %s | over the limit | | %s |\n", spec, name, login; exit }
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
    login=$(across "$spec" "${ssh[@]}" far true)
    row "weft cp" "$spec" "$(across "$spec" "${copy[@]}" "$dir/file" "far:$dir/out")" "$login"
    cmp "$dir/file" "$dir/out" || echo "weft cp: the copy differs" >&2
    row "weft cp, from there" "$spec" \
        "$(across "$spec" "${copy[@]}" "far:$dir/file" "$dir/out")" "$login"
    row "weft pipe" "$spec" "$(across "$spec" sh -c \
        "exec \"\$@\" sh -c 'cat >$dir/out' <$dir/file" sh "${pipe[@]}")" "$login"
    [ "${PEERS:-yes}" = yes ] || continue
    row "scp, $tcp" "$spec" \
        "$(across "$spec" scp -qF "$dir/ssh_config" "$dir/file" "far:$dir/out")" "$login"
    row "rsync, $tcp" "$spec" \
        "$(across "$spec" rsync -We "${ssh[*]}" "$dir/file" "far:$dir/out")" "$login"
done
grep -h "did not keep up" "$dir/wan" | sort | uniq -c >&2 || true
