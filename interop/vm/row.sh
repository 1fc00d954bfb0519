# One row of the table: a server at one end, a client at the other, and what must come of it.
# Sourced by interop.sh.
#
# The matrix sets these before a row; they stay until it changes them.

# What the row runs under, as the table shows it.
setting=
# Variables of Weft's environment for its end, such as WEFT_CRC=off.
environment=()
# How long the client may take, in seconds.
patience=120
# The version of IP.
family=4
# "yes" when the row's packets are to be decoded by tshark, with a right CRC in every FPDU.
decoding=

port=18515
rows=0
failures=0

# row WHO CHECKED PROGRAM SERVER CLIENT [AGAIN]: both ends must succeed.
#
# WHO is the initiator, "weft" or "siw"; CHECKED says what of the data is checked; PROGRAM is how
# the table names it. In both commands % is the port, and @ the server's address.
# AGAIN is a pattern of what the ends print when the program has lost a race of its own making. The
# row then runs again, up to forty times: in an emulated machine it is lost more often than not.
row() {
    announce "$@" || return 0
    local called attempt=1
    until try "$4" "$5" "${6:-}" || [ "$attempt" = 40 ] || ! is_excused "${6:-}"; do
        attempt=$((attempt + 1))
        port=$((port + 1))
    done
    local verdict=
    local detail="server $served, client $called" seen
    [ "$served $called" != "0 0" ] || verdict=ok
    if [ -n "$decoding" ]; then
        seen=$(decoded) || verdict=
        detail="$detail, $seen"
        verdict=${verdict:+$verdict, $seen}
    fi
    [ "$attempt" = 1 ] || verdict=${verdict:+$verdict, attempt $attempt}
    conclude "$verdict" "$detail"
}

# is_excused AGAIN: whether the row failed for a reason that is neither Weft's nor siw's. A machine
# that is not well is replaced; if its kernel stopped, that may well be somebody's fault.
is_excused() {
    if ! guest_is_well; then
        local stopped=no
        ! grep -q 'kernel BUG' "$logs/console.log" || stopped=yes
        restart "$lab"
        [ "$stopped" = no ]
    else
        [ -n "$1" ] && grep -qE "$1" "$log.server" "$log.client" 2>/dev/null
    fi
}

# try SERVER CLIENT AGAIN: leaves how both ended in `served` and `called`.
try() {
    called="not started"
    start_capture
    if start_server "$1"; then
        called=0
        run_"$client_end" "$patience" "$(filled "$2")" >"$log.client" 2>&1 || called=$?
        if [ "$called" != 0 ] && [ -n "$3" ] && grep -qE "$3" "$log.client"; then
            served=hangs
        else
            await_server 60
        fi
    fi
    clean_up
    stop_capture
    [ "$served $called" = "0 0" ]
}

start_capture() {
    [ -n "$decoding" ] || return 0
    dumpcap -q -P -i tap0 -f "tcp port $port" -w "$log.pcap" 2>"$log.dumpcap" &
    capture=$!
    # Its header is written when it listens.
    await 30 test -s "$log.pcap"
}

stop_capture() {
    [ -n "$decoding" ] || return 0
    # What it has not fetched from the kernel when it is interrupted is lost.
    await 10 end_is_captured || true
    kill -INT "$capture"
    wait "$capture" || true
    rm -f "$log.dumpcap"
    # These two take any short Send for their own.
    tshark -r "$log.pcap" -V --disable-protocol smb_direct --disable-protocol rpcordma \
        >"$log.decoded" 2>/dev/null
}

# Whether both ends have closed, as far as the capture goes.
end_is_captured() {
    local ends
    local closing='tcp.flags.fin == 1 || tcp.flags.reset == 1'
    ends=$(tshark -r "$log.pcap" -Y "$closing" 2>/dev/null) || true
    [ "$(wc -l <<<"$ends")" -ge 2 ]
}

# What tshark says of the row's packets; fails when something is wrong with them.
decoded() {
    local good bad
    good=$(grep -c 'Good CRC32' "$log.decoded")
    bad=$(grep -ciE 'bad crc32|malformed' "$log.decoded")
    echo "$good right CRCs, $bad faults"
    [ "$good" -gt 0 ] && [ "$bad" = 0 ]
}

# call_row WHO PROGRAM CLIENT: without a server.
call_row() {
    announce "$1" no "$2" || return 0
    local called=0 verdict=
    run_"$client_end" "$patience" "$(filled "$3")" >"$log.client" 2>&1 || called=$?
    [ "$called" != 0 ] || verdict=ok
    conclude "$verdict" "client $called"
}

# death_row WHO VICTIM PROGRAM SERVER CLIENT: the end of siw dies in the middle of the transfer; the
# program over Weft must notice and end. VICTIM is "process" or "machine".
death_row() {
    announce "$1" no "$3, $2 killed" || return 0
    local called="not started" pid
    if start_server "$4"; then
        run_"$client_end" 300 "$(filled "$5")" >"$log.client" 2>&1 &
        pid=$!
        if await 60 transferred 300000; then
            kill_"$2"
            await_exit "$pid" 100
            called=$outcome
            await_server 100
        else
            called="does not transfer"
        fi
        stop "$pid"
    fi
    [ "$2" = machine ] || clean_up
    local survivor=$called record=$log.client verdict=
    if [ "$1" = siw ]; then
        survivor=$served record=$log.server
    fi
    # rping ends with 0 when the connection is closed, whoever closes it.
    case $survivor in
        hangs | *not*) ;;
        0) ! grep -q 'DISCONNECT EVENT' "$record" || verdict=ok ;;
        *) verdict=ok ;;
    esac
    conclude "$verdict" "server $served, client $called"
}

kill_process() {
    in_guest 'killall -q -9 rping ib_write_bw ib_read_bw ib_send_bw' || true
}

kill_machine() {
    power_off
}

# Whether so many octets have passed since the row began.
transferred() {
    [ "$(octets)" -gt $((octets_before + $1)) ]
}

octets() {
    local statistics=/sys/class/net/tap0/statistics
    echo $(($(cat "$statistics/rx_bytes") + $(cat "$statistics/tx_bytes")))
}

# announce WHO CHECKED PROGRAM ...: begins a row; fails when it is not among those asked for.
announce() {
    local direction="siw -> Weft" word
    server_end=host client_end=guest server_address=${HOST[$family]}
    if [ "$1" = weft ]; then
        direction="Weft -> siw"
        server_end=guest client_end=host server_address=${GUEST[$family]}
    fi
    line=$(printf '%-11s  %-38s  %-28s  %-7s' "$direction" "$3" "$setting" "$2")
    for word in "${wanted[@]}"; do
        [[ $line == *"$word"* ]] || return 1
    done
    rows=$((rows + 1))
    port=$((port + 1))
    log=$logs/$(printf '%02d' "$rows")-$(echo "$direction $3 $setting" | tr -cs 'a-zA-Z0-9\n' -)
    began=$SECONDS
    octets_before=$(octets)
    served=0
    printf '%s  ' "$line"
}

# conclude VERDICT DETAIL: ends the row; an empty verdict is a failure, of which DETAIL tells more.
conclude() {
    local took=$((SECONDS - began))
    if [ -n "$1" ]; then
        echo "$1 (${took} s)"
    else
        failures=$((failures + 1))
        echo "FAILED ($2, ${took} s)"
    fi
}

filled() {
    local command=${1//%/$port}
    echo "${command//@/$server_address}"
}

# start_server COMMAND: returns when it listens; fails when it does not, with `served` set.
start_server() {
    run_"$server_end" 600 "$(filled "$1")" >"$log.server" 2>&1 &
    server=$!
    if await 60 listens_or_ended && ! ended "$server"; then
        return 0
    fi
    await_server 0
    return 1
}

listens_or_ended() {
    local pattern
    ended "$server" && return 0
    pattern=$(printf ':%04X 0*:0000 0A' "$port")
    if [ "$server_end" = host ]; then
        grep -q "$pattern" /proc/net/tcp /proc/net/tcp6
    else
        in_guest "grep -q '$pattern' /proc/net/tcp /proc/net/tcp6"
    fi
}

# await_server SECONDS: leaves its exit status, or "hangs", in `served`.
await_server() {
    await_exit "$server" "$1"
    served=$outcome
}

# await_exit PID SECONDS: leaves the exit status, or "hangs", in `outcome`.
await_exit() {
    outcome=0
    if await "$2" ended "$1"; then
        wait "$1" || outcome=$?
    else
        outcome=hangs
    fi
}

ended() {
    ! kill -0 "$1" 2>/dev/null
}

# run_host SECONDS COMMAND: over Weft, in the place of this shell when it is a subshell.
run_host() {
    # The words of the command are the matrix's own.
    # shellcheck disable=SC2086
    # perftest asks the first device which transport it is, before rdma-cm finds out.
    local device=
    [[ $2 != ib_* ]] || device='-d weft_iw0'
    timeout -k 5 "$1" env "${environment[@]}" "$weft" run -- $2 $device
}

# run_guest SECONDS COMMAND: over siw.
run_guest() {
    in_guest "exec timeout -s KILL $1 $2"
}

# stop PID: what runs at either end of the row is no longer wanted.
stop() {
    local child
    for child in $(children_of "$1"); do
        kill "$child" 2>/dev/null || true
    done
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

children_of() {
    cat "/proc/$1/task/$1/children" 2>/dev/null || true
}

# Nothing of a row is left when the next begins.
clean_up() {
    if [ "$served" = hangs ]; then
        in_guest 'killall -q -9 peer rping ib_write_bw ib_read_bw ib_send_bw ib_write_lat \
            ib_read_lat ib_send_lat' >/dev/null || true
        stop "$server"
    fi
}

print_heading() {
    printf '%-11s  %-38s  %-28s  %-7s  %s\n' direction program options checked result
}

print_summary() {
    echo
    echo "$rows rows, $failures failed"
    [ "$failures" = 0 ] && [ "$rows" -gt 0 ]
}
