#!/bin/sh
# A process that is stopped (SIGSTOP) amid messages over two TCP rails and goes on later, and one that is killed. Meanwhile
# `rerail perf mixed` both ways, which verifies every byte and counts every message.
#
#   stopped.sh [-b BINARY] [-s SECONDS]
#
#   -s SECONDS   how long it is stopped (5; by hand 15, with which the connections' time-out is the default's 5 s)
#
# A stopped process's kernel takes what fits its windows; then the other's ends connections whose window stays full for
# `tcp_user_timeout`, which is a third of the stop here. They are dialled again: its kernel takes the call,
# and nothing answers while it is stopped. Once it runs again everything must come: nothing lost, duplicated,
# late in order or different, no peer given up. Of a process that is killed the other one must report its
# rank, the rail that detected it, and what was found there.
#
# With CI=true that connections had to be made anew is reported and not demanded. Exit codes: 0 as demanded, 1
# not, 2 wrong use.
set -eu
# shellcheck source=conformance/scripts/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"

seconds=5
binary=
usage() {
    echo "usage: $0 [-b BINARY] [-s SECONDS]" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        -b) binary=$2 ;;
        -s) seconds=$2 ;;
        *) usage ;;
    esac
    shift 2
done
numbers_or_usage "$seconds"
[ "$seconds" -ge 3 ] || usage
if [ -z "$binary" ]; then
    root=$(cd "$(dirname "$0")/../.." && pwd)
    cargo build --release --manifest-path "$root/Cargo.toml" -p rerail-conformance --bin rerail
    binary=${CARGO_TARGET_DIR:-$root/target}/release/rerail
fi

folder=$(mktemp -d)
child=
measures=
finish() {
    status=$?
    trap - EXIT INT TERM
    # A process that is stopped dies of this as well.
    for pid in $child $measures; do kill -KILL "$pid" 2> /dev/null || true; done
    rm -rf "$folder"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

RERAIL_KEY=$(new_key)
RERAIL_RAILS=tcp
RERAIL_TCP_USER_TIMEOUT=$((seconds / 3))s
# Small buffers are soon full.
RERAIL_TCP_SNDBUF=64K
RERAIL_TCP_RCVBUF=64K
export RERAIL_KEY RERAIL_RAILS RERAIL_TCP_USER_TIMEOUT RERAIL_TCP_SNDBUF RERAIL_TCP_RCVBUF

# Connections that stand between the second interface and another one, both ends of them held by a process of the two: that
# they meet goes over the first one. The fields of proc_pid_net(5): addresses are in hexadecimal, 01 is ESTABLISHED.
rails() {
    for pid in "$child" "$measures"; do
        # Descriptors may be closed while they are listed.
        find "/proc/$pid/fd" -lname 'socket:*' -printf '%l\n' 2> /dev/null || true
    done | tr -dc '0-9\n' > "$folder/sockets"
    awk 'FNR == NR { held[$1]; next }
        $4 == "01" && $2 ~ /^0200007F:/ && $10 in held { near++ }
        $4 == "01" && $3 ~ /^0200007F:/ && $10 in held { far++ }
        END { print (near && far) ? "stands" : "" }' "$folder/sockets" /proc/net/tcp
}

# Prints the output of both sides, and ends.
give_up() {
    echo "$1" >&2
    cat "$folder/left" "$folder/right" >&2
    exit 1
}

# Starts both sides: "$1" seconds of messages. The one that listens is `child`, the other one `measures`.
start() {
    RERAIL_HOST_ID=right "$binary" perf --listen 127.0.0.1:0 --interfaces 127.0.0.1,127.0.0.2 > "$folder/right" 2>&1 &
    child=$!
    address=
    while [ -z "$address" ]; do
        kill -0 "$child" || { cat "$folder/right" >&2; exit 1; }
        sleep 0.1
        address=$(sed -n 's/^listening on //p' "$folder/right")
    done
    RERAIL_HOST_ID=left "$binary" perf mixed --verify --seconds "$1" --window 32 --connect "$address" \
        --interfaces 127.0.0.1,127.0.0.2 --json > "$folder/result" 2> "$folder/left" &
    measures=$!
    # Both hold a connection of the second rail: they have read each other's address records. A second later
    # they are amid messages, or nearly, which must do no harm either.
    tries=0
    until [ -n "$(rails)" ]; do
        kill -0 "$measures" 2> /dev/null || give_up "it ended before it was connected over a rail"
        [ "$tries" -lt 300 ] || give_up "not connected over a rail after 30 s"
        tries=$((tries + 1))
        sleep 0.1
    done
    sleep 1
}

start $((seconds + 8))
kill -STOP "$child" || give_up "it ended before it could be stopped"
sleep "$seconds"
kill -CONT "$child"
wait "$measures" || { cat "$folder/left" "$folder/right" >&2; exit 1; }
measures=
wait "$child" || { cat "$folder/right" >&2; exit 1; }
child=
sum() { sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" "$folder/result" | awk '{ sum += $1 } END { printf "%.0f", sum }'; }
longest=$(sed -n 's/^ *"longest_pause_ms": \([0-9]*\),*$/\1/p' "$folder/result" | sort -n | tail -n 1)
echo "stopped for $seconds s, time-out of connections $RERAIL_TCP_USER_TIMEOUT"
echo "messages $(sum sent), received $(sum received), bytes $(sum bytes), puts $(sum puts), additions $(sum adds)"
echo "connections failed $(sum failures), came back $(sum returns), not to be had $(sum refusals) times;" \
    "sent again $(sum replayed) packets, dropped $(sum dropped_again) that had come before"
echo "lost $(sum lost), duplicated $(sum doubled), late in order $(sum late), different $(sum different);" \
    "longest pause $longest ms"
if [ "$(sum failures)" = 0 ]; then
    echo "no connection had to be made anew"
    [ "${CI:-}" = true ] || exit 1
fi

start 60
kill -KILL "$child" || give_up "it ended before it could be killed"
status=0
wait "$measures" || status=$?
measures=
echo "killed: $(cat "$folder/left")"
if [ "$status" != 3 ] || ! grep -q "^rerail: rank 0 (right, pid $child, over tcp) is lost: rail tcp:" "$folder/left"; then
    echo "ended with $status, and did not name it" >&2
    exit 1
fi
child=
echo "OK"
