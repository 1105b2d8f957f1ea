#!/bin/sh
# Counts the instructions that the core spends per message with callgrind: a number that is the same on a busy machine.
# Small messages have 8 bytes, large ones 1 MiB; the sender's and the receiver's endpoints are counted apart, with 1, 2
# and 8 rails, by each policy named. What rails and memory copies cost is not among it (conformance/testkit/benches/support/pair.rs).
# And what it costs, for each peer, that all connect, that rails fail and come back, that processes die and the others
# close (conformance/testkit/examples/failure_cost.rs): the same in a large job as in a small one.
#
#   instructions.sh [-p POLICIES] [-k FOLDER] [--json] [-w]
#
#   -p POLICIES  names with commas between them (default: default,even,binding; "default": as an endpoint begins)
#   -k FOLDER    leaves the profiles there (for callgrind_annotate)
#   --json, -j   prints one JSON object instead of the table: a number for each case_policy_rails_side
#   -w           writes the baseline anew instead of comparing
#
# Fails where a number is more than 3 % above the committed one (instructions.baseline, beside this script), where a
# small message by the default policy costs either side over 40 instructions more with two rails than with one, or both sides together
# over 3 % more with recovery than without (cases whose names end with "-unreliable"), or where a peer of 1024 costs over
# 10 % more than one of 256. Numbers below the
# baseline by as much are reported: the baseline is to follow. The baseline holds for x86_64; elsewhere
# numbers are only compared with each other.
# Exit: 0 within the bounds, 1 not, 2 wrong use, 69 valgrind is absent (reported on stderr; not a pass).
set -eu

tolerance=3
second_rail_more=40
recovery_max=3
size_max=10

usage() {
    echo "usage: $0 [-p POLICIES] [-k FOLDER] [--json] [-w]" >&2
    exit 2
}

policies=default,even,binding
folder=
json=
write=
for word in "$@"; do
    shift
    [ "$word" != --json ] || word=-j
    set -- "$@" "$word"
done
while getopts p:k:jwh option; do
    case $option in
        p) policies=$OPTARG ;;
        k) folder=$OPTARG ;;
        j) json=1 ;;
        w) write=1 ;;
        *) usage ;;
    esac
done

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
baseline=$here/instructions.baseline
# shellcheck source=conformance/scripts/lib/callgrind.sh
. "$here/lib/callgrind.sh"

need "valgrind" "valgrind libc6-dbg"

# Optimised, and few things are built: the core and what it depends on.
cargo build --release --quiet --manifest-path "$root/conformance/testkit/Cargo.toml" --example message_cost --example failure_cost
examples=${CARGO_TARGET_DIR:-$root/target}/release/examples
program=$examples/message_cost

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ -n "$folder" ] || folder=$scratch

# Instructions of the endpoint within a function, per message, of so many: CASE RAILS POLICY COUNT SIDE. A side
# calls its endpoint through functions of its own, which only count once connecting and the first messages are
# over.
count() {
    case $5 in sender) functions=at_first ;; receiver) functions=at_second ;; both) functions='at_*' ;; esac
    collected=$(profile "$folder/$1.$2.$3.$5.callgrind" "*pair::$functions::*" "$program" "$1" "$2" "$3" "$4")
    echo "$1 $3 $2 $5 $((collected / $4))" >> "$scratch/counted"
}

# Messages of each case: there and back counts as two.
for policy in $(echo "$policies" | tr , ' '); do
    for rails in 1 2 8; do
        for side in sender receiver; do
            count one-way "$rails" "$policy" 512 "$side"
            count one-way-1M "$rails" "$policy" 8 "$side"
        done
    done
done
for rails in 1 2; do
    for side in sender receiver; do
        count one-way-unreliable "$rails" default 512 "$side"
        count one-way-1M-unreliable "$rails" default 8 "$side"
    done
done
count round-trip 1 default 256 both
count round-trip-retained 1 default 256 both
# Jobs of so many peers, with room for sixteen operations each, and 16 peers to which something is under way.
for peers in 256 1024; do
    file=$folder/failure.$peers.callgrind
    collected=$(profile "$file" '*Cluster*timed*' "$examples/failure_cost" "$peers" $((16 * peers)) 16)
    echo "failure default 2 peer-of-$peers $((collected / peers))" >> "$scratch/counted"
done

if [ -n "$write" ]; then
    {
        echo "# Instructions per message (round trips: per message there and one back): case, policy, rails, side, instructions."
        written_by instructions.sh
        cat "$scratch/counted"
    } > "$baseline"
fi
awk -v tolerance="$tolerance" -v recovery="$recovery_max" -v second="$second_rail_more" -v size="$size_max" -v json="$json" '
    /^#/ { next }
    FILENAME != counted_file { known[$1 " " $2 " " $3 " " $4] = $5; next }
    {
        key = $1 " " $2 " " $3 " " $4
        now[key] = $5
        off = key in known ? 100 * ($5 - known[key]) / known[key] : 0
        one = $1 " " $2 " 1 " $4
        more = one in now && $3 > 1 ? sprintf("%+.1f %%", 100 * ($5 - now[one]) / now[one]) : ""
        if (json) {
            name = $1 "_" $2 "_" $3 "_" $4
            gsub(/[^a-z0-9_]/, "_", name)
            object = object (object ? "," : "") sprintf("\"%s\":%d", name, $5)
        } else {
            if (!heads++)
                printf "%-20s %-10s %5s %-12s %12s %10s  %s\n", "case", "policy", "rails", "side", "instructions", "baseline", \
                    "over one rail"
            printf "%-20s %-10s %5d %-12s %12d %10s  %s\n", $1, $2, $3, $4, $5, key in known ? known[key] : "-", more
        }
        if (off > tolerance) wrong[++wrongs] = sprintf("%s: %.1f %% above the baseline", key, off)
        if (off < -tolerance) better[++betters] = sprintf("%s: %.1f %% below the baseline", key, -off)
        if ($1 == "one-way" && $2 == "default" && $3 == 2 && $5 > now[one] + second)
            wrong[++wrongs] = sprintf("%s: a second rail costs over %d instructions more", key, second)
        if ($2 == "default" && $1 ~ /^one-way(-unreliable)?$/) sum[$1 " " $3] += $5
        if ($1 == "failure") failure[$4] = $5
    }
    END {
        if (json) print "{" object "}"
        for (rails = 1; rails <= 2; rails++) {
            with = sum["one-way " rails]
            without = sum["one-way-unreliable " rails]
            if (!without) continue
            more = 100 * (with - without) / without
            if (!json)
                printf "8 bytes, both sides, %d rails: %d with recovery, %d without: %+.1f %%\n", rails, with, without, more
            if (more > recovery)
                wrong[++wrongs] = sprintf("%d rails: recovery costs over %d %% more", rails, recovery)
        }
        if (failure["peer-of-1024"] > failure["peer-of-256"] * (1 + size / 100))
            wrong[++wrongs] = sprintf("a peer of 1024 costs over %d %% more than one of 256", size)
        for (n = 1; n <= betters; n++) print better[n] ": write it anew (-w)" | "cat >&2"
        for (n = 1; n <= wrongs; n++) print wrong[n] | "cat >&2"
        exit wrongs > 0
    }
' counted_file="$scratch/counted" "$(known)" "$scratch/counted"
