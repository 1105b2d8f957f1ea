#!/bin/sh
# Counts the instructions that everything between the core and a device spends, with callgrind: the driver's rounds, a rail,
# and for verbs the shim, for a message of 8 bytes (both sides together) and for a round that finds nothing. Neither the
# core's nor the device's are among them, but what these layers have copied by the C library is. The device is
# loopback-verbs.c, a libibverbs of its own that takes messages across while they are posted; so the same code runs as on
# hardware, from the driver to the library's functions, and each run is the same.
#
#   driver-instructions.sh [-k FOLDER] [-w]
#
#   -k FOLDER    leaves the profiles there (for callgrind_annotate)
#   -w           writes the baseline anew instead of comparing
#
# Fails where a sum is more than 3 % above the committed one (driver-instructions.baseline, beside this script). Sums below it
# by as much are reported: the baseline is to follow. The baseline holds for x86_64; elsewhere nothing is
# compared. Exit: 0 within the bounds, 1 not, 2 wrong use, 69 valgrind, a C compiler or libibverbs' headers
# are absent (reported on stderr; not a pass).
set -eu

tolerance=3
count=512

folder=
write=
while getopts k:wh option; do
    case $option in
        k) folder=$OPTARG ;;
        w) write=1 ;;
        *) echo "usage: $0 [-k FOLDER] [-w]" >&2; exit 2 ;;
    esac
done

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
baseline=$here/driver-instructions.baseline
# shellcheck source=conformance/scripts/lib/callgrind.sh
. "$here/lib/callgrind.sh"
# shellcheck source=conformance/scripts/lib/loopback.sh
. "$here/lib/loopback.sh"

needs_for_loopback valgrind libc6-dbg

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ -n "$folder" ] || folder=$scratch

build_loopback "$scratch"

cargo build --release --quiet --manifest-path "$root/os-linux/Cargo.toml" --example driver_cost
program=${CARGO_TARGET_DIR:-$root/target}/release/examples/driver_cost
export LD_LIBRARY_PATH=$scratch

# Costs by layer, of the functions that belong to it by their names, and of those of libraries that they call.
cat > "$scratch/layers.awk" << 'END'
# The first mention of a function has its name, later ones only its number: "(12) name", "(12)".
function named(kind, text,    end, number) {
    end = index(text, ")")
    number = kind substr(text, 1, end)
    if (length(text) > end) names[number] = substr(text, end + 2)
    return names[number]
}
function layer_of(object, name) {
    if (object ~ /libibverbs/) return "device"
    if (name ~ /rerail_linux::(driver|memory)/) return "driver"
    if (name ~ /rerail_linux/) return "rail"
    if (name ~ /rerail_verbs|rdma_core_sys/) return "shim"
    if (name ~ /rerail_core/) return "core"
    if (name ~ /driver_cost/) return "program"
    return "library"
}
/^ob=/ { object = named("object", substr($0, 4)); next }
/^cob=/ { callee_object = named("object", substr($0, 5)); next }
/^fn=/ { layer = layer_of(object, named("function", substr($0, 4))); callee_object = ""; next }
/^cfn=/ { callee = layer_of(callee_object == "" ? object : callee_object, named("function", substr($0, 5))); next }
/^calls=/ {
    getline
    if (callee == "library" && layer != "library") sum[layer] += $2
    callee_object = ""
    next
}
/^[-+*0-9]/ { if (layer != "library") sum[layer] += $2 }
END {
    whole = sum["driver"] + sum["rail"] + sum["shim"]
    printf "%s %d %d %d %d\n", what, sum["driver"] / count, sum["rail"] / count, sum["shim"] / count, whole / count
}
END

for rail in verbs two-verbs shm; do
    for case in message look; do
        out=$folder/$rail.$case.callgrind
        # The sum of all layers is of no use here; that there is one is.
        profile "$out" 'driver_cost::counted_*' "$program" "$rail" "$case" "$count" > /dev/null
        awk -v what="$rail $case" -v count="$count" -f "$scratch/layers.awk" "$out" >> "$scratch/counted"
    done
done

if [ -n "$write" ]; then
    {
        echo "# Instructions beside the core's and the device's: rails, case, of the driver, the rail, the shim, all three."
        written_by driver-instructions.sh
        cat "$scratch/counted"
    } > "$baseline"
fi
awk -v tolerance="$tolerance" '
    BEGIN { printf "%-10s %-8s %7s %7s %7s %7s %9s\n", "rails", "case", "driver", "rail", "shim", "all", "baseline" }
    /^#/ { next }
    FILENAME != counted_file { known[$1 " " $2] = $6; next }
    {
        key = $1 " " $2
        printf "%-10s %-8s %7d %7d %7d %7d %9s\n", $1, $2, $3, $4, $5, $6, key in known ? known[key] : "-"
        off = key in known ? 100 * ($6 - known[key]) / known[key] : 0
        if (off > tolerance) wrong[++wrongs] = sprintf("%s: %.1f %% above the baseline", key, off)
        if (off < -tolerance) printf "%s: %.1f %% below the baseline: write it anew (-w)\n", key, -off | "cat >&2"
    }
    END {
        for (n = 1; n <= wrongs; n++) print wrong[n] | "cat >&2"
        exit wrongs > 0
    }
' counted_file="$scratch/counted" "$(known)" "$scratch/counted"
