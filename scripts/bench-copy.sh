#!/usr/bin/env bash
# Times weft cp, weft pipe, scp and rsync on the same path of `weft wan`, with a real sshd on its
# far side, and prints the table that BENCHMARKS.md has. Arguments: SIZE_MB (default 1000),
# PATH_SPEC... (default: 70ms 1gbit with 0, 0.1, 1 and 5 % loss). Variables:
#   ROUNDS=3       rounds, each of which goes through all rows; a row is the median of them
#   LIMIT=60       seconds after which a copy is given up, and not tried in later rounds
#   PEERS=no       leaves scp, rsync and qcp out
#   PARTS="..."    of `wan`, `files` and `local` (default: all)
#   INTO=FILE      puts the table between its marks in FILE instead of printing it
#   KEEP=DIR       keeps what is measured in DIR and goes on with what is there: a table of several
#                  runs, each of a path, a part or a round
# Times are end to end without ssh's log-in, until it has started the command at the far end. That
# of weft cp and pipe is their own; for others it is that of `ssh HOST`, the median of three before
# each round and path, since losses hit each connection elsewhere. CPU is that of all
# processes of an end, ssh and sshd with them. The controller of TCP is that of the route (`ip route
# ... congctl`).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
weft=${WEFT:-$root/target/release/weft}
size_mb=${1:-1000}
shift || true
specs=("$@")
[ ${#specs[@]} -gt 0 ] ||
    specs=("70ms 1gbit" "70ms 1gbit 0.1%" "70ms 1gbit 1%" "70ms 1gbit 5%")
export LIMIT=${LIMIT:-60}
parts=" ${PARTS:-wan files local} "
files=20000

sshd=$(command -v sshd || echo /usr/sbin/sshd)
dir=$(mktemp -d)
export DIR=$dir
# What was measured.
kept=${KEEP:-$dir}
mkdir -p "$kept"
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
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv XDG_STATE_HOME=$dir/state-far
CONFIG
for host in far:10.77.0.2 here:127.0.0.1; do
    cat >>"$dir/ssh_config" <<CONFIG
Host ${host%:*}
    HostName ${host#*:}
    Port 2022
    IdentityFile $dir/user
    IdentitiesOnly yes
    UserKnownHostsFile $dir/known
    StrictHostKeyChecking no
    LogLevel ERROR
CONFIG
done
export XDG_STATE_HOME=$dir/state
head -c "${size_mb}000000" /dev/urandom >"$dir/file"

# The far end of weft, which tells its CPU: it may outlive the session of ssh, and then no sshd has
# waited for it.
cat >"$dir/weft-there" <<THERE
#!/usr/bin/env bash
date +%s.%N >"$dir/began"
"$weft" "\$@"
status=\$?
times >"$dir/there.new"
mv "$dir/there.new" "$dir/there"
exit \$status
THERE
chmod +x "$dir/weft-there"

# Runs where the client is: prints the seconds that its command took, or `-`, the seconds of CPU of
# either end, and the seconds of its log-in, if it tells them.
cat >"$dir/timed" <<'TIMED'
#!/usr/bin/env bash
if [ "$TCP" != - ]; then
    # The only route is that of the path.
    # shellcheck disable=SC2046
    ip route change $(ip route | head -1 | sed 's/congctl.*//') congctl "$TCP"
fi
sshd=$(pgrep -of "^sshd: .* -f $DIR/sshd_config")
tick=$(getconf CLK_TCK)
far() { awk -v t="$tick" '{ print ($16 + $17) / t }' "/proc/$sshd/stat"; }
before=$(far)
rm -f "$DIR/there" "$DIR/began"
start=$(date +%s.%N)
status=0
timeout "$LIMIT" "$@" >/dev/null 2>"$DIR/stderr" || status=$?
end=$(date +%s.%N)
# Not in a subshell, which has no children of its own.
times >"$DIR/times"
children() {
    tail -1 "$1" | awk '{ split($1, u, "[ms]"); split($2, s, "[ms]")
        print u[1] * 60 + u[2] + s[1] * 60 + s[2] }'
}
near=$(children "$DIR/times")
if [ $status = 124 ]; then echo "- - - -"; exit 0; fi
[ $status = 0 ] || { cat "$DIR/stderr" >&2; exit $status; }
# What sshd has started is counted once it has ended.
for _ in $(seq 50); do
    pgrep -f "^[^ ]*bash $DIR/weft-there|^sshd: .*@notty" >/dev/null || break
    sleep 0.1
done
there=0
[ ! -f "$DIR/there" ] || there=$(children "$DIR/there")
# What sshd has waited for is in its own sum.
awk -v a="$start" -v b="$end" -v near="$near" -v far="$(far)" -v before="$before" \
    -v there="$there" -v began="$(cat "$DIR/began" 2>/dev/null)" 'BEGIN {
        far -= before; if (far < there) far += there
        printf "%.3f %.2f %.2f %s\n", b - a, near, far, began == "" ? "-" : began - a }'
TIMED
chmod +x "$dir/timed"

# across SPEC TCP COMMAND...: what `timed` says of it, on a path of its own; `local` for none.
across() {
    local spec=$1
    export TCP=$2
    shift 2
    # A tree goes only in the end: ext4 passes over inodes that were freed in the last minutes, so
    # files that are made after a removal take up to four times as long.
    rm -f "$dir/out" 2>/dev/null || mv "$dir/out" "$(mktemp -d "$dir/old.XXXXXX")"
    # weft cp flushes the file system, and would flush what earlier rows have left in the cache.
    sync -f "$dir"
    if [ "$spec" = local ]; then
        TCP=- "$dir/timed" "$@"
        return
    fi
    # shellcheck disable=SC2086
    "$weft" wan $spec --server "$sshd -D -f $dir/sshd_config" -- "$dir/timed" "$@" \
        2>>"$dir/wan" || { cat "$dir/wan" >&2; exit 1; }
}

# row SPEC MB NAME TCP COMMAND...: measures, unless it took too long before.
row() {
    local spec=$1 mb=$2 name=$3 tcp=$4
    shift 4
    if grep -qsF "$spec|$name|$mb|-" "$kept/over"; then return; fi
    local said took near far own
    said=$(across "$spec" "$tcp" "$@")
    read -r took near far own <<<"$said"
    [ "$own" != - ] || own=$login
    echo "$spec|$name|$mb|$own|$took|$near|$far" >>"$kept/results"
    [ "$took" != - ] || echo "$spec|$name|$mb|-" >>"$kept/over"
}

ssh=(ssh -F "$dir/ssh_config")
copy=("$weft" cp -q -e "${ssh[*]}" --remote-weft "$dir/weft-there" --udp-only)
cold=(env WEFT_PATHS=off "${copy[@]}")
pipe=(env WEFT_PATHS=off "$weft" pipe -e "${ssh[*]}" --remote-weft "$dir/weft-there" --udp-only
    far --)

log_in() {
    # As it is told with the rows, whose times have it in them.
    local all=() said
    for _ in 1 2 3; do
        said=$(across "$1" bbr "${ssh[@]}" "$2" "date +%s.%N >$dir/began")
        all+=("${said##* }")
    done
    login=$(printf '%s\n' "${all[@]}" | sort -n | sed -n 2p)
    [[ $login =~ ^[0-9.]+$ ]] || { echo "ssh did not log in: ${all[*]}" >&2; exit 1; }
    grep -qsF "login|$1|" "$kept/logins" || echo "login|$1|$login" >>"$kept/logins"
}

wan_rows() {
    local spec=$1 mb=$size_mb file=$dir/file
    log_in "$spec" far
    row "$spec" "$mb" "weft cp" bbr "${cold[@]}" "$file" "far:$dir/out"
    cmp "$file" "$dir/out" || echo "weft cp: the copy differs" >&2
    # A copy that is not measured, from which the next one knows this path and no other.
    rm -rf "$XDG_STATE_HOME" "$dir/state-far"
    across "$spec" bbr "${copy[@]}" "$file" "far:$dir/out" >/dev/null
    row "$spec" "$mb" "weft cp, the path known" bbr "${copy[@]}" "$file" "far:$dir/out"
    row "$spec" "$mb" "weft cp, from there" bbr "${cold[@]}" "far:$file" "$dir/out"
    row "$spec" "$mb" "tar, weft pipe" bbr sh -c 'tar c -C "$0" file | "$@"' "$dir" \
        "${pipe[@]}" sh -c "cat >$dir/out"
    [ "${PEERS:-yes}" = yes ] || return 0
    for tcp in bbr cubic; do
        row "$spec" "$mb" "scp, $tcp" $tcp scp -qF "$dir/ssh_config" "$file" "far:$dir/out"
        row "$spec" "$mb" "rsync, $tcp" $tcp rsync -We "${ssh[*]}" "$file" "far:$dir/out"
    done
    local qcp rtt rate
    qcp=$(command -v qcp) || return 0
    # It is told what path it has, which it does not find out.
    read -r rtt rate _ <<<"$spec"
    case $rate in
        *gbit) rate=$(awk -v r="${rate%gbit}" 'BEGIN { print 125000 * r }')k ;;
        *mbit) rate=$(awk -v r="${rate%mbit}" 'BEGIN { print 125 * r }')k ;;
        *) return 0 ;;
    esac
    for controller in bbr cubic; do
        row "$spec" "$mb" "qcp, $controller" bbr "$qcp" -q -4 --ssh-config "$dir/ssh_config" \
            -S -F -S "$dir/ssh_config" --remote-qcp-binary "$qcp" --rx "$rate" \
            --rtt "${rtt%ms}" --congestion "$controller" "$file" "far:$dir/out"
    done
}

files_rows() {
    local spec=$1 mb=$((files * 4096 / 1000000)) from=$dir/files
    log_in "$spec" far
    row "$spec" "$mb" "$files files, weft cp -r" bbr "${cold[@]}" -r "$from/" "far:$dir/out/"
    row "$spec" "$mb" "their archive, weft cp" bbr "${cold[@]}" "$dir/archive" "far:$dir/out"
    row "$spec" "$mb" "$files files, tar, weft pipe" bbr sh -c 'tar c -C "$0" . | "$@"' "$from" \
        "${pipe[@]}" sh -c "mkdir $dir/out && tar x -C $dir/out"
    [ "${PEERS:-yes}" = yes ] || return 0
    row "$spec" "$mb" "$files files, rsync, bbr" bbr \
        rsync -rWte "${ssh[*]}" "$from/" "far:$dir/out"
    row "$spec" "$mb" "$files files, scp, bbr" bbr \
        scp -qrF "$dir/ssh_config" "$from" "far:$dir/out"
}

local_rows() {
    log_in local here
    row local "$size_mb" "weft cp" - "${cold[@]}" "$dir/file" "here:$dir/out"
    [ "${PEERS:-yes}" = yes ] || return 0
    row local "$size_mb" "scp" - scp -qF "$dir/ssh_config" "$dir/file" "here:$dir/out"
    row local "$size_mb" "rsync" - rsync -We "${ssh[*]}" "$dir/file" "here:$dir/out"
}

# The rows of all rounds as a table: medians, and the least and the most behind them.
table() {
    local rounds versions
    # Without the copies that were given up, which are not tried again.
    rounds=$(grep -v '|-|' "$kept/results" | cut -d'|' -f1-3 | sort | uniq -c | awk '
        { if (!least || $1 < least) least = $1; if ($1 > most) most = $1 }
        END { print least (most > least ? " to " most : "") }')
    versions="$("$weft" --version); $(ssh -V 2>&1 | cut -d, -f1);"
    versions+=" $(rsync --version | awk 'NR == 1 { print $1, $2, $3 }')"
    echo "$(date +%F), $(nproc) x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)," \
        "Linux $(uname -r); $versions; rounds: $rounds." \
        "Log-in: $(awk -F'|' '{ printf "%s%s %.2f s", sep, $2, $3; sep = "; " }' "$kept/logins")."
    echo
    echo "| path | what | MB | s without the log-in | Mbit/s | of the ceiling |" \
        "CPU s/GB here, there |"
    echo "|---|---|---:|---:|---:|---:|---:|"
    awk -F'|' '
        function median(text, n,    i, j, x, v) {
            n = split(text, v, " ")
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) {
                    x = v[j]; v[j] = v[j - 1]; v[j - 1] = x
                }
            least = v[1]; most = v[n]
            return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
        }
        # Bits of a file that the path carries in a second in full packets of TCP.
        function ceiling(spec,    i, n, word, rate, loss) {
            n = split(spec, word, " ")
            for (i = 1; i <= n; i++) {
                if (word[i] ~ /gbit$/) rate = word[i] * 1000
                if (word[i] ~ /mbit$/) rate = word[i] + 0
                if (word[i] ~ /%$/) loss = word[i] / 100
            }
            return rate * 0.965 * (1 - loss)
        }
        {
            key = $1 "|" $2 "|" $3
            if (!(key in times)) order[++rows] = key
            mb[key] = $3
            if ($5 == "-") { times[key] = "-"; next }
            times[key] = times[key] " " ($5 - $4)
            near[key] = near[key] " " $6; far[key] = far[key] " " $7
        }
        END {
            for (i = 1; i <= rows; i++) {
                key = order[i]; split(key, name, "|"); m = mb[key]
                if (times[key] ~ /-/) {
                    printf "| %s | %s | %d | over %d | | | |\n", name[1], name[2], m, limit
                    continue
                }
                s = median(times[key]); span = sprintf("%.2f to %.2f", least, most)
                rate = 8 * m / s; top = ceiling(name[1])
                printf "| %s | %s | %d | %.2f (%s) | %.0f | %s | %.1f, %.1f |\n", name[1], \
                    name[2], m, s, span, rate, top ? sprintf("%.2f", rate / top) : "", \
                    median(near[key]) * 1000 / m, median(far[key]) * 1000 / m
            }
        }' limit="$LIMIT" "$kept/results"
}

if [[ $parts = *" files "* ]]; then
    mkdir "$dir/files"
    head -c $((files * 4096)) /dev/urandom >"$dir/archive"
    for sub in $(seq -w 0 99); do mkdir "$dir/files/$sub"; done
    # A hundred directories, and 4096 bytes for each file.
    (cd "$dir/files" && for sub in $(seq -w 0 99); do
        tail -c +$((1 + 10#$sub * files / 100 * 4096)) "$dir/archive" |
            head -c $((files / 100 * 4096)) | split -b 4096 -a 4 - "$sub/"
    done) || true
fi
for _ in $(seq "${ROUNDS:-3}"); do
    if [[ $parts = *" wan "* ]]; then
        for spec in "${specs[@]}"; do wan_rows "$spec"; done
    fi
    if [[ $parts = *" files "* ]]; then files_rows "${specs[0]}"; fi
    if [[ $parts = *" local "* ]]; then
        "$sshd" -D -o ListenAddress=127.0.0.1 -f "$dir/sshd_config" &
        server=$!
        trap 'kill "$server" 2>/dev/null || true; rm -rf "$dir"' EXIT
        for _ in $(seq 50); do (: >/dev/tcp/127.0.0.1/2022) 2>/dev/null && break; sleep 0.1; done
        local_rows
        kill "$server"
        wait "$server" || true
    fi
done
if [ -n "${INTO:-}" ]; then
    table >"$dir/table"
    awk -v table="$dir/table" '
        /^<!-- copy -->$/ { print; print ""; while ((getline line <table) > 0) print line
            print ""; inside = 1; next }
        /^<!-- end of copy -->$/ { inside = 0 }
        !inside { print }' "$INTO" >"$dir/page"
    cat "$dir/page" >"$INTO"
else
    table
fi
grep -sh "did not keep up" "$dir/wan" | sort | uniq -c >&2 || true
