#!/bin/sh
# Faults on a kernel's network: two network namespaces, two or three veth pairs that tbf holds to rates of their own, and
# `rerail perf mixed` both ways between them, which verifies every byte and counts every message. Meanwhile faults of many
# sorts, drawn from a seed, several at a time. Nothing may be lost, duplicated, late in order or different, no
# peer may be given up, and after the last fault messages must flow again within a second.
#
#   netns-faults.sh [-b BINARY] [-s SECONDS] [--seed N] [-r RATES_MBIT] [-o FOLDER]
#
#   -s SECONDS   for how long (20; by hand 600)
#   --seed N     draws sorts, rails, sides, times and lengths of the faults (1)
#   -r RATES     of the rails, separated by commas (400,200,100); two or three
#   -o FOLDER    keeps the result, the faults with their times, and the output of both sides
#
# The sorts: `link` (one end of a pair is set down, and up again), `flap` (that five times in short), `rate` (both ends of a
# pair to a tenth), `silence` (what one end sends is dropped, without a report: a tbf that no packet fits),
# `reset` (the kernel is made to destroy the sockets at one end: ss -K), `route` (one end's route to the
# other is removed), `address` (one end's address is), `all` (all pairs set down at once).
#
# The two processes meet over a pair of their own. Once messages flow its connection is reset and the pair set down for
# good: no process needs it any more, for the end neither (rules B-2 and B-3 of PROTOCOL.md).
#
# With CI=true the time after the last fault is reported and not judged. Needs root, iproute2 (ip, tc, ss) and
# a kernel with network namespaces, veth and tbf; sorts of which something is absent are left out, and named.
# Exit codes: 0 as demanded, 1 not, 2 wrong use, 69 something that is needed is absent.
set -eu
# shellcheck source=conformance/scripts/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"

seconds=20
seed=1
rates=400,200,100
binary=
out=
usage() {
    echo "usage: $0 [-b BINARY] [-s SECONDS] [--seed N] [-r RATES_MBIT] [-o FOLDER]" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        -b) binary=$2 ;;
        -s) seconds=$2 ;;
        --seed) seed=$2 ;;
        -r) rates=$2 ;;
        -o) out=$2 ;;
        *) usage ;;
    esac
    shift 2
done
# shellcheck disable=SC2046
numbers_or_usage "$seconds" "$seed" $(echo "$rates" | tr , ' ')
count=$(echo "$rates" | tr , '\n' | wc -l)
[ "$count" -ge 2 ] && [ "$count" -le 3 ] && [ "$seconds" -ge 10 ] || usage

prepare awk ss
if [ -n "$out" ]; then mkdir -p "$out"; else out=$folder/out; mkdir "$out"; fi

rate_of() { echo "$rates" | cut -d, -f$(($1 + 1)); }
net_of() { echo "10.79.$1"; }

ours=
theirs=
rail=0
while [ "$rail" -lt "$count" ]; do
    pair "$rail" "$(net_of "$rail")"
    shape "$rail" "$(rate_of "$rail")" 2> "$folder/error" || absent "tbf: $(cat "$folder/error")"
    ours=$ours${ours:+,}$(net_of "$rail").1
    theirs=$theirs${theirs:+,}$(net_of "$rail").2
    rail=$((rail + 1))
done
# Where the two meet.
pair 9 10.79.9

# Side 1 or 2 of a rail: its namespace, and its device.
space() { if [ "$1" = 1 ]; then echo "$left"; else echo "$right"; fi; }
device() { if [ "$2" = 1 ]; then echo "rra$1-$id"; else echo "rrb$1-$id"; fi; }

link() { ip -n "$(space "$2")" link set "$(device "$1" "$2")" "$3"; }
silence() {
    ip netns exec "$(space "$2")" tc qdisc replace dev "$(device "$1" "$2")" root tbf rate 8kbit burst 16 latency 50ms
}
reset() {
    ip netns exec "$(space "$2")" ss -K -t state established src "$(net_of "$1").$2" > "$3" 2>&1
}
route() {
    to="$(net_of "$1").0/24"
    ip -n "$(space "$2")" route "$3" "$to" dev "$(device "$1" "$2")" proto kernel scope link src "$(net_of "$1").$2"
}
address() { ip -n "$(space "$2")" address "$3" "$(net_of "$1").$2/24" dev "$(device "$1" "$2")"; }
pause() { sleep "$(awk -v ms="$1" 'BEGIN { printf "%.3f", ms / 1000 }')"; }

# One fault: sort, rail, side, length in ms. What is there already, or gone already by another fault, is no error.
fault() {
    started=$(date +%s%N)
    case $1 in
        link) link "$2" "$3" down; pause "$4"; link "$2" "$3" up ;;
        flap)
            for _ in 1 2 3 4 5; do
                link "$2" "$3" down; pause 50
                link "$2" "$3" up; pause 50
            done
            ;;
        rate) shape "$2" "$(($(rate_of "$2") / 10))"; pause "$4"; shape "$2" "$(rate_of "$2")" ;;
        silence) silence "$2" "$3"; pause "$4"; shape "$2" "$(rate_of "$2")" ;;
        reset) reset "$2" "$3" /dev/null ;;
        route) route "$2" "$3" delete || true; pause "$4"; route "$2" "$3" replace || true ;;
        address) address "$2" "$3" delete || true; pause "$4"; address "$2" "$3" add || true ;;
        all)
            for each in $(seq 0 $((count - 1))); do link "$each" "$3" down; done
            pause "$4"
            for each in $(seq 0 $((count - 1))); do link "$each" "$3" up; done
            ;;
    esac 2>> "$folder/faults.log"
    echo "$1 $2 $3 $started $(date +%s%N)" >> "$out/faults"
}

# Everything as it was in the beginning.
heal() {
    for each in $(seq 0 $((count - 1))); do
        for side in 1 2; do
            address "$each" "$side" add || true
            link "$each" "$side" up
            route "$each" "$side" replace
        done
        shape "$each" "$(rate_of "$each")"
    done 2>> "$folder/faults.log"
}

# What this kernel can do.
sorts="link flap rate silence route address all"
without=
if reset 0 1 "$folder/error" && ! grep -qi "not supported" "$folder/error"; then
    sorts="$sorts reset"
else
    without="$without reset (ss -K: $(tr '\n' ' ' < "$folder/error"))"
fi
[ -z "$without" ] || echo "absent here:$without"

# The plan: pause before it, sort, rail, side, length; in ms. The last seconds are for what follows.
awk -v seed="$seed" -v sorts="$sorts" -v rails="$count" -v until="$(((seconds - 5) * 1000))" 'BEGIN {
    srand(seed)
    kinds = split(sorts, sort, " ")
    for (at = 0; ; ) {
        wait = 100 + int(rand() * 1900)
        kind = sort[1 + int(rand() * kinds)]
        rail = int(rand() * rails)
        side = 1 + int(rand() * 2)
        # Many short ones, some long.
        len = int(50 * exp(rand() * log(60)))
        at += wait
        if (at + len > until) break
        print wait, kind, rail, side, len
    }
}' > "$out/plan"
: > "$out/faults"

RERAIL_KEY=$(new_key)
RERAIL_RAILS=tcp
export RERAIL_KEY RERAIL_RAILS

RERAIL_HOST_ID=right ip netns exec "$right" "$binary" perf --listen 10.79.9.2:7474 --interfaces "$theirs" \
    > "$out/right.log" 2>&1 &
child=$!
# Both have started: one of them calls over a rail, and the other one has had time to have seen to the end what it read.
met() {
    for _ in $(seq 300); do
        if [ -n "$(ip netns exec "$left" ss -Htn state established dst "$(net_of 0).2" 2> "$folder/error")" ]; then
            sleep 1
            return 0
        fi
        pause 100
    done
    return 1
}
(
    if met; then
        ip netns exec "$left" ss -K -t state established dst 10.79.9.2 > "$folder/met" 2>&1 || true
        ip -n "$right" link set "rrb9-$id" down
    else
        echo "no connection over rail 0 after 30 s: the pair over which they meet is left alone" >&2
    fi
    running=
    while read -r wait kind rail side len; do
        pause "$wait"
        fault "$kind" "$rail" "$side" "$len" &
        running="$running $!"
    done < "$out/plan"
    for each in $running; do wait "$each" || true; done
    heal
    date +%s%N > "$out/healed"
) &
faults=$!
status=0
RERAIL_HOST_ID=left ip netns exec "$left" "$binary" perf mixed --verify --seconds "$seconds" --connect 10.79.9.2:7474 \
    --interfaces "$ours" --json > "$out/result.json" 2> "$out/left.log" || status=$?
# Faults end before the messages, unless these ended early.
if [ "$status" != 0 ]; then kill "$faults" 2> /dev/null || true; fi
wait "$faults" || true
other=0
if [ "$status" = 0 ]; then
    wait "$child" || other=$?
    child=
fi

field() { sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" "$out/result.json"; }
sum() { field "$1" | awk '{ sum += $1 } END { printf "%.0f", sum }'; }
field from_unix_ns > "$folder/from"
field ms > "$folder/ms"
paste "$folder/from" "$folder/ms" > "$folder/pauses"

echo "seed $seed, $seconds s, rails of $rates Mbit/s"
for kind in $sorts; do
    awk -v kind="$kind" '
        FILENAME ~ /pauses$/ { from[n] = $1; ms[n] = $2; n++; next }
        $1 == kind {
            times++
            # A pause counts for every fault that began before it ended, and was over a second before it began at most.
            for (i = 0; i < n; i++)
                if ($4 <= from[i] + ms[i] * 1e6 && from[i] <= $5 + 1e9 && ms[i] > longest) longest = ms[i]
        }
        END { printf "%-8s %4d times, longest pause beside it %5d ms\n", kind, times, longest }
    ' "$folder/pauses" "$out/faults"
done
if [ -s "$out/result.json" ]; then
    echo "messages $(sum sent), received $(sum received), bytes $(sum bytes), puts $(sum puts), additions $(sum adds)"
    echo "connections failed $(sum failures), came back $(sum returns), not to be had $(sum refusals) times;" \
        "sent again $(sum replayed) packets, dropped $(sum dropped_again) that had come before"
    echo "lost $(sum lost), duplicated $(sum doubled), late in order $(sum late), different $(sum different);" \
        "longest pause $(field longest_pause_ms | sort -n | tail -n 1) ms"
fi
if [ "$status" != 0 ] || [ "$other" != 0 ]; then
    echo "failed (left $status, right $other):" >&2
    cat "$out/left.log" "$out/right.log" >&2
    [ -n "${KEEP:-}" ] || grep -A 3 '"problems"' "$out/result.json" >&2 || true
    exit 1
fi
after=$(awk -v healed="$(cat "$out/healed")" '
    { end = $1 + $2 * 1e6 }
    end > healed { rest = (end - ($1 > healed ? $1 : healed)) / 1e6; if (rest > longest) longest = rest }
    END { printf "%.0f", longest }' "$folder/pauses")
echo "after the last fault nothing flowed for $after ms at most"
if [ "$after" -gt 1000 ]; then
    [ "${CI:-}" = true ] || { echo "too long" >&2; exit 1; }
    echo "longer than demanded; not judged in CI"
fi
echo "OK"
