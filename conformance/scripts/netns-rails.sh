#!/bin/sh
# Unequal rails on a real kernel's network: two network namespaces, two to four veth pairs that tbf holds to rates of their
# own, and `rerail perf` between them by several policies, with messages of 1 MiB, one way and both ways; then once more
# while the rates change. What bare TCP sockets carry over each rail in the same minute is what counts as the rails' rates:
# headers take their part of what tbf allows (4 to 6 % at an MTU of 1500), and so does whatever else the machine does.
#
#   netns-rails.sh [-b BINARY] [-r RATES_MBIT] [-c RATE_MBIT] [-p POLICIES] [-s SECONDS] [-w WINDOW] [-o FOLDER]
#
#   -r RATES     of the rails, separated by commas (1000,250); two to four
#   -c RATE      rail 0's after a third of the run, back after two thirds (100)
#   -p POLICIES  of even, weighted (by the rates), adaptive, balanced (all four)
#   -s SECONDS   of one run with fixed rates; a run with changes takes three times as long (3)
#   -w WINDOW    messages under way, each way (16)
#   -o FOLDER    keeps what was measured: a JSON file for each run, and plots of the changes (rates-change-*.svg)
#
# Demanded of balanced: 95 % of the sum of what bare sockets carry, and within 1 s of a change 90 % of the new sum. The
# others are reported beside it. With CI=true rates are reported and not judged.
# Needs root, iproute2 (ip, tc) and a kernel with network namespaces, veth and tbf. Exit codes: 0 as demanded, 1 not, 2
# wrong use, 69 something that is needed is absent.
set -eu
# shellcheck source=conformance/scripts/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"

rates=1000,250
changed=100
policies=even,weighted,adaptive,balanced
seconds=3
window=16
binary=
out=
usage() {
    echo "usage: $0 [-b BINARY] [-r RATES_MBIT] [-c RATE_MBIT] [-p POLICIES] [-s SECONDS] [-w WINDOW] [-o FOLDER]" >&2
    exit 2
}
while getopts b:r:c:p:s:w:o:h option; do
    case $option in
        b) binary=$OPTARG ;;
        r) rates=$OPTARG ;;
        c) changed=$OPTARG ;;
        p) policies=$OPTARG ;;
        s) seconds=$OPTARG ;;
        w) window=$OPTARG ;;
        o) out=$OPTARG ;;
        *) usage ;;
    esac
done
# shellcheck disable=SC2046
numbers_or_usage $(echo "$rates" | tr , ' ') "$changed" "$seconds" "$window"
count=$(echo "$rates" | tr , '\n' | wc -l)
[ "$count" -ge 2 ] && [ "$count" -le 4 ] || usage

prepare awk
if [ -n "$out" ]; then mkdir -p "$out"; else out=$folder/out; mkdir "$out"; fi

rate_of() { echo "$rates" | cut -d, -f$(($1 + 1)); }

ours=
theirs=
rail=0
while [ "$rail" -lt "$count" ]; do
    pair "$rail" "10.78.$rail"
    shape "$rail" "$(rate_of "$rail")" 2> "$folder/error" || absent "tbf: $(cat "$folder/error")"
    ours=$ours${ours:+,}10.78.$rail.1
    theirs=$theirs${theirs:+,}10.78.$rail.2
    rail=$((rail + 1))
done
RERAIL_KEY=$(new_key)
RERAIL_RAILS=tcp
export RERAIL_KEY RERAIL_RAILS

# The output of one side ends here; shown where something failed.
failed() {
    echo "$1 failed:" >&2
    cat "$folder/left.log" "$folder/right.log" >&2
    exit 1
}

# One bare socket: $1 receives and $2 sends, over address $3, windows $4, the sender's result into file $5.
socket() {
    ip netns exec "$1" "$binary" perf bandwidth --baseline --sizes 1M --window 8 --iterations "$4" --warmup 1 \
        --listen "$3" >> "$folder/right.log" 2>&1 &
    listening=$!
    ip netns exec "$2" "$binary" perf bandwidth --baseline --sizes 1M --window 8 --iterations "$4" --warmup 1 \
        --connect "$3" --json > "$5" 2>> "$folder/left.log" || return 1
    wait "$listening"
}

# Mbit/s of payload that bare sockets carry over rail $1 at $2 Mbit/s, $3 ways at once. Other users of the
# processors can only make it less, so the better of two counts.
bare() {
    windows=$(($2 * seconds / 8 / 8 / 2 + 2))
    : > "$folder/left.log"
    : > "$folder/right.log"
    for turn in 1 2; do
        back=
        if [ "$3" = 2 ]; then
            socket "$left" "$right" "10.78.$1.1:7473" "$windows" "$folder/bare.$turn.back" &
            back=$!
        fi
        socket "$right" "$left" "10.78.$1.2:7471" "$windows" "$folder/bare.$turn.there" || failed "a bare socket on rail $1"
        [ -z "$back" ] || wait "$back" || failed "a bare socket on rail $1"
    done
    for turn in 1 2; do
        sed -n 's/^    "bytes_per_second": \([0-9.e+]*\).*/\1/p; s/^      "bytes_per_second": \([0-9.e+]*\).*/\1/p' \
            "$folder/bare.$turn."* | awk '{ sum += $1 } END { print sum * 8 / 1e6 }'
    done | sort -n | tail -n 1 | awk '{ printf "%.1f\n", $1 }'
    rm -f "$folder"/bare.*
}

# One run: bandwidth or bidirectional, policy, seconds, the file for the result.
run() {
    weights=
    [ "$2" != weighted ] || weights="--weights $rates"
    # shellcheck disable=SC2086
    RERAIL_HOST_ID=right ip netns exec "$right" "$binary" perf --listen 10.78.0.2:7472 --interfaces "$theirs" \
        --policy "$2" $weights > "$folder/right.log" 2>&1 &
    child=$!
    # shellcheck disable=SC2086
    RERAIL_HOST_ID=left ip netns exec "$left" "$binary" perf "$1" --connect 10.78.0.2:7472 --interfaces "$ours" \
        --policy "$2" $weights --sizes 1M --window "$window" --seconds "$3" --json > "$4" 2> "$folder/left.log" ||
        failed "$1 by $2"
    wait "$child" || failed "$1 by $2"
    child=
}

add() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f\n", a + b }'; }

echo "bare TCP sockets, payload:"
sum=0
rail=0
while [ "$rail" -lt "$count" ]; do
    carried=$(bare "$rail" "$(rate_of "$rail")" 1)
    both=$(bare "$rail" "$(rate_of "$rail")" 2)
    echo "  rail $rail, tbf $(rate_of "$rail") Mbit/s: $carried Mbit/s, both ways at once $both Mbit/s"
    [ "$rail" != 0 ] || first=$carried
    sum=$(add "$sum" "$carried")
    rail=$((rail + 1))
done
shape 0 "$changed"
low=$(bare 0 "$changed" 1)
echo "  rail 0, tbf $changed Mbit/s: $low Mbit/s"
shape 0 "$(rate_of 0)"
lower=$(awk -v sum="$sum" -v first="$first" -v low="$low" 'BEGIN { printf "%.1f\n", sum - first + low }')
echo "  sum: $sum Mbit/s, while rail 0 is slow $lower Mbit/s"

status=0
lenient=
[ "${CI:-}" != true ] || lenient=--lenient
judge= # Only balanced must keep to it.
case ,$policies, in *,balanced,*) judge="--judge balanced" ;; *) lenient=--lenient ;; esac
# Title, file of the plot, sums; all policies' files of the current folder of results.
tell() {
    echo "$1:"
    # shellcheck disable=SC2086
    "$binary" series $files --sums "$3" $judge $lenient --svg "$2" --title "$1" || status=1
}

for way in bandwidth bidirectional; do
    if [ "$way" = bandwidth ]; then ways=1 name="one way"; else ways=2 name="both ways"; fi
    # Both ways: twice what one way carries, which is more than bare sockets come to both ways.
    twice() { awk -v n="$1" -v ways="$ways" 'BEGIN { printf "%.1f\n", n * ways }'; }
    mkdir -p "$out/$way" "$out/$way-changes"

    files=
    for policy in $(echo "$policies" | tr , ' '); do
        run "$way" "$policy" "$seconds" "$out/$way/$policy.json"
        files="$files $out/$way/$policy.json"
    done
    tell "fixed rates, $name" "$out/$way/rates.svg" "0=$(twice "$sum")"

    files=
    for policy in $(echo "$policies" | tr , ' '); do
        file=$out/$way-changes/$policy.json
        # Joining takes a while; the moments of the changes are noted, and laid beside the run's own start.
        (
            sleep "$seconds.5" && date +%s%N > "$folder/slow" && shape 0 "$changed"
            sleep "$seconds" && date +%s%N > "$folder/fast" && shape 0 "$(rate_of 0)"
        ) &
        changer=$!
        run "$way" "$policy" $((3 * seconds)) "$file"
        wait "$changer"
        files="$files $file"
        # Starts differ by less than a sample between policies; the last run's stand for all.
        started=$(sed -n 's/.*"started_unix_ns": \([0-9]*\).*/\1/p' "$file")
        at() { awk -v at="$(cut -c 1-13 "$1")" -v start="$(echo "$started" | cut -c 1-13)" 'BEGIN { printf "%.2f\n", (at - start) / 1000 }'; }
        slow=$(at "$folder/slow")
        fast=$(at "$folder/fast")
        [ "$policy" = balanced ] && judged_slow=$slow judged_fast=$fast
        echo "  $way by $policy: rail 0 slow at $slow s, back at $fast s" >&2
    done
    tell "rail 0 from $(rate_of 0) to $changed Mbit/s and back, $name" "$out/rates-change-$way.svg" \
        "0=$(twice "$sum"),${judged_slow:-$slow}=$(twice "$lower"),${judged_fast:-$fast}=$(twice "$sum")"
done
[ -z "$lenient" ] || echo "reported, not judged"
exit $status
