# For scripts that source this: the text of a function for commands in a root file system.
# `both SERVER CLIENT` runs a pair of programs, and calls until the server is there. Each program
# has to check the bytes that it received. A client is ended after `patience` seconds, and the pair
# started again: rping of rdma-core 65 may wait at its end for an event that its other thread has
# dropped.
# shellcheck disable=SC2016 # It is expanded inside.
both='patience=3
both() {
    tries=0 server=
    while :; do
        kill -0 "$server" 2>/dev/null || { sh -c "$1" >/tmp/server 2>&1 & server=$!; }
        ! timeout $patience sh -c "$2" >/tmp/client 2>&1 || break
        tries=$((tries + 1))
        [ $tries -lt 50 ] || { cat /tmp/server /tmp/client; exit 1; }
        sleep 0.1
    done
    wait
}
'
