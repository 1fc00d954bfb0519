#!/bin/sh
# Runs both ends of a program that takes `-p PORT`: pair.sh PROGRAM [ARGUMENT]...
# The server is rank 0 of the job and gets the arguments, the client is rank 1 and gets 127.0.0.1
# as well. The status is the client's. PORT is 18515 if nothing is said.
# rping, which has other arguments, is known by its name.
set -u
port=${PORT:-18515}
program=$1
shift
case ${program##*/} in
rping)
	server() { PMI_RANK=0 "$program" -s -a 127.0.0.1 -p "$port" "$@"; }
	client() { PMI_RANK=1 "$program" -c -a 127.0.0.1 -p "$port" "$@"; }
	;;
*)
	server() { PMI_RANK=0 "$program" -p "$port" "$@"; }
	client() { PMI_RANK=1 "$program" -p "$port" "$@" 127.0.0.1; }
	;;
esac
server "$@" >/dev/null &
listener=$!
hex=$(printf '%04X' "$port")
# Until somebody listens there: state 0A.
until grep -Eqs ":$hex [0-9A-F]+:0000 0A" /proc/net/tcp /proc/net/tcp6; do
	kill -0 "$listener" 2>/dev/null || exit 1
	sleep 0.02
done
client "$@"
status=$?
kill "$listener" 2>/dev/null
wait "$listener" 2>/dev/null
exit "$status"
