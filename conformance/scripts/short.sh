#!/bin/sh
# Counts the instructions of a small message over shared memory with callgrind: everything that a process spends on one
# round trip (post, send, take, completion, a round that finds nothing, its share of whole rounds), driver, core, rail and
# ring, bodies of memcpy left out (os-linux/examples/short_cost.rs).
#
#   short.sh [--json] [-l] [-w]
#
#   --json, -j   prints one JSON object with a figure for each case instead of the table
#   -l   counts the cache lines of an 8 B message, too (lackey, a minute): cache_lines_8 is the distinct lines of data that
#        both sides touch, payload and stack included, the mean of 128 messages for two places of the stack;
#        cache_lines_8_stack those of the stack. In CI always
#   -w   writes the baseline anew instead of comparing
#
# Fails where a figure is above its goal, or more than 3 % above the committed one (short.baseline, beside this script).
# Figures below that by as much are reported: the baseline is to follow. Both hold for x86_64; elsewhere nothing is compared.
# Exit: 0 within the bounds, 1 not, 2 wrong use, 69 valgrind is absent (reported on stderr; not a pass).
set -eu

tolerance=3
count=600
# An idle round is one with one ring; the second kind has nine.
goals="round_trip_8 480 round_trip_168 580 round_trip_1024 800 round_trip_8192 1000 round_trip_8_mpi 600 \
round_trip_8_any_source 650 round_trip_8_unexpected 950 round_trip_8_tcp_beside 520 idle_round 44 idle_round_rings 76 cache_lines_8 45"

json=
lines=${CI:+1}
write=
for word in "$@"; do
    shift
    [ "$word" != --json ] || word=-j
    set -- "$@" "$word"
done
while getopts jlwh option; do
    case $option in
        j) json=1 ;;
        l) lines=1 ;;
        w) write=1 ;;
        *) echo "usage: $0 [--json] [-l] [-w]" >&2; exit 2 ;;
    esac
done

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
baseline=$here/short.baseline
# shellcheck source=conformance/scripts/lib/callgrind.sh
. "$here/lib/callgrind.sh"

need "valgrind" "valgrind libc6-dbg"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo build --release --quiet --manifest-path "$root/os-linux/Cargo.toml" --example short_cost
program=${CARGO_TARGET_DIR:-$root/target}/release/examples/short_cost

# Connecting and the first messages go through the same functions: what a run of no message counts is taken off.
count() {
    more=$(profile "$scratch/more" 'short_cost::counted_*' "$program" "$2" "$count")
    none=$(profile "$scratch/none" 'short_cost::counted_*' "$program" "$2" "$3")
    copies=$(($(copied "$scratch/more") - $(copied "$scratch/none")))
    echo "$1 $(((more - none - copies) / (count - $3)))" >> "$scratch/counted"
}
for bytes in 8 168 1024 8192; do count "round_trip_$bytes" "$bytes" 0; done
count round_trip_8_mpi mpi 0
count round_trip_8_any_source any 0
count round_trip_8_unexpected unexpected 0
count round_trip_8_tcp_beside tcp 0
count round_trip_8_inject inject 0
count idle_round idle 100
count idle_round_rings rings 100

# The data that is touched between entry and return of the functions `counted_*`, from a trace of everything: of a message
# these are post, send, a round, the completion, and another round.
cache_lines() {
    valgrind --tool=none "$program" where 0 2> "$scratch/said" > "$scratch/where" || { cat "$scratch/said" >&2; return 1; }
    # The environment lies above the stack: with 32 bytes more the stack begins at another place of a line.
    PLACE=$1 valgrind --tool=lackey --trace-mem=yes --log-fd=9 "$program" 8 128 9>&1 >/dev/null | awk -v where="$scratch/where" '
        function hex(digits, at, value) {
            for (at = 1; at <= length(digits); at++) value = 16 * value + index("0123456789abcdef", substr(digits, at, 1)) - 1
            return value
        }
        function touch(line) {
            if (line in touched) return
            touched[line] = 1
            count++
            # Below 0x1fff000000, where Valgrind ends the stack.
            if (line ~ /^1ff[ef]/) on_stack++
        }
        BEGIN { while ((getline line < where) > 0) { split(line, words, " "); entry[words[2]] = words[1] } }
        /^I / {
            comma = index($0, ",")
            at = substr($0, 4, comma - 4)
            if (inside) {
                if (at == back) {
                    inside = 0
                    if (step == "progress" && ++rounds == 2 && messages > 600) { all += count; stack += on_stack; counted++ }
                }
            } else if (at in entry) {
                step = entry[at]
                inside = 1
                back = substr(last, 1, length(last) - 6) sprintf("%06x", hex(substr(last, length(last) - 5)) + size)
                if (step == "post") { messages++; rounds = count = on_stack = 0; split("", touched) }
            }
            last = at
            size = substr($0, comma + 1)
            next
        }
        inside && step != "whole" && /^ [LSM] / {
            comma = index($0, ",")
            at = substr($0, 4, comma - 4)
            offset = hex(substr(at, length(at) - 1))
            page = substr(at, 1, length(at) - 2)
            for (line = int(offset / 64); line <= int((offset + substr($0, comma + 1) - 1) / 64); line++) touch(page " " line)
        }
        END {
            if (!counted) exit 1
            print all / counted, stack / counted
        }
    ' >> "$scratch/lines"
}
if [ -n "$lines" ]; then
    for place in "" 01234567890123456789012345678901; do
        cache_lines "$place" || { echo "short.sh: no cache lines were counted" >&2; exit 1; }
    done
    awk '
        { all += $1; stack += $2 }
        END { printf "cache_lines_8 %.0f\ncache_lines_8_stack %.0f\n", all / NR, stack / NR }
    ' "$scratch/lines" >> "$scratch/counted"
fi

if [ -n "$write" ]; then
    {
        echo "# Instructions of a small message over shared memory, a rank and round trip: case, instructions."
        written_by short.sh
        cat "$scratch/counted"
    } > "$baseline"
fi
awk -v tolerance="$tolerance" -v json="$json" -v goals="$goals" '
    BEGIN { many = split(goals, words, " "); for (n = 1; n < many; n += 2) goal[words[n]] = words[n + 1] }
    /^#/ { next }
    FILENAME != counted_file { known[$1] = $2; has_baseline = 1; next }
    {
        if (json) object = object (object ? "," : "") sprintf("\"%s\":%d", $1, $2)
        else printf "%-26s %7d %9s %9s\n", $1, $2, $1 in known ? known[$1] : "-", $1 in goal ? goal[$1] : "-"
        if (has_baseline && $1 in goal && $2 > goal[$1]) wrong[++wrongs] = sprintf("%s: %d, the goal is %d", $1, $2, goal[$1])
        off = $1 in known ? 100 * ($2 - known[$1]) / known[$1] : 0
        if (off > tolerance) wrong[++wrongs] = sprintf("%s: %.1f %% above the baseline", $1, off)
        if (off < -tolerance) printf "%s: %.1f %% below the baseline: write it anew (-w)\n", $1, -off | "cat >&2"
    }
    END {
        if (json) print "{" object "}"
        for (n = 1; n <= wrongs; n++) print wrong[n] | "cat >&2"
        exit wrongs > 0
    }
' counted_file="$scratch/counted" "$(known)" "$scratch/counted"
