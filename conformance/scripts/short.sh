#!/bin/sh
# Counts the instructions of a small message over shared memory with callgrind: everything that a process spends on one
# round trip (post, send, take, completion, a round that finds nothing, its share of whole rounds), driver, core, rail and
# ring, bodies of memcpy left out (os-linux/examples/short_cost.rs).
#
#   short.sh [-j] [-w]
#
#   -j   prints one JSON object with a figure for each case instead of the table
#   -w   writes the baseline anew instead of comparing
#
# Fails where a figure is more than 3 % above the committed one (short.baseline, beside this script). Figures below it by as
# much are told: the baseline is to follow. The baseline holds for x86_64; elsewhere nothing is compared.
# Exit: 0 within the bounds, 1 not, 2 wrong use, 69 valgrind is absent (said on stderr; not a pass).
set -eu

tolerance=3
count=600

json=
write=
while getopts jwh option; do
    case $option in
        j) json=1 ;;
        w) write=1 ;;
        *) echo "usage: $0 [-j] [-w]" >&2; exit 2 ;;
    esac
done

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
baseline=$here/short.baseline
# shellcheck source=conformance/scripts/lib/callgrind.sh
. "$here/lib/callgrind.sh"

if ! command -v valgrind >/dev/null 2>&1; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends valgrind libc6-dbg >&2 ||
            absent "valgrind (apt-get install valgrind failed)"
    else
        absent "valgrind (Debian: apt-get install valgrind; as root this script does it)"
    fi
fi

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
count idle_round idle 100

if [ -n "$write" ]; then
    {
        echo "# Instructions of a small message over shared memory, a rank and round trip: case, instructions."
        written_by short.sh
        cat "$scratch/counted"
    } > "$baseline"
fi
awk -v tolerance="$tolerance" -v json="$json" '
    /^#/ { next }
    FILENAME != counted_file { known[$1] = $2; next }
    {
        if (json) object = object (object ? "," : "") sprintf("\"%s\":%d", $1, $2)
        else printf "%-26s %7d %9s\n", $1, $2, $1 in known ? known[$1] : "-"
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
