#!/bin/sh
# Names the functions that an 8 B message over shared memory passes on the short way, by callgrind: those of rerail that
# spend 10 instructions or more of their own on each message, functions of the standard library and what is inlined
# included, bodies of memcpy not. ARCHITECTURE.md lists them; this script compares.
#
#   short-path.sh [-p] [-w]
#
#   -p   prints what was found, with instructions
#   -w   writes the list into ARCHITECTURE.md
#
# The ways: out is a send; post a receive; in a round that finds the message, a round that finds nothing, and the completion
# (os-linux/examples/short_cost.rs). What not every message passes (whole rounds, a line that is opened anew) is left out.
# Exit: 0 the list is right and within the bounds (12 functions in 8 files each way), 1 not, 2 wrong use, 69 valgrind or
# addr2line is absent, or this is no x86_64 (reported on stderr; not a pass).
set -eu

own=10
functions_max=12
files_max=8
count=200

print=
write=
while getopts pwh option; do
    case $option in
        p) print=1 ;;
        w) write=1 ;;
        *) echo "usage: $0 [-p] [-w]" >&2; exit 2 ;;
    esac
done

here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
document=$root/ARCHITECTURE.md
# shellcheck source=conformance/scripts/lib/callgrind.sh
. "$here/lib/callgrind.sh"

[ "$(uname -m)" = x86_64 ] || absent "an x86_64 processor: elsewhere other functions are inlined"
need "valgrind addr2line" "valgrind libc6-dbg binutils"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo build --release --quiet --manifest-path "$root/os-linux/Cargo.toml" --example short_cost
program=${CARGO_TARGET_DIR:-$root/target}/release/examples/short_cost

# Executions of each instruction in the functions of these patterns: FILE COUNT FUNCTION...
profile_addresses() {
    file=$1 messages=$2
    shift 2
    for function in "$@"; do set -- "$@" "--toggle-collect=short_cost::$function*"; shift; done
    valgrind --tool=callgrind --callgrind-out-file="$file" --dump-instr=yes --dump-line=no --compress-strings=no \
        --compress-pos=no "$@" "$program" 8 "$messages" > "$scratch/said" 2>&1 || { cat "$scratch/said" >&2; return 1; }
}

# The functions of a way: WAY FUNCTION..., as lines of way, file, function, instructions.
way() {
    way=$1
    shift
    profile_addresses "$scratch/none" "$count" "$@"
    profile_addresses "$scratch/more" "$((2 * count))" "$@"
    # A line that follows `calls=` is the cost of the call; the others are instructions.
    awk -v program="$program" -v none="$scratch/none" -v count="$count" '
        /^ob=/ { is_ours = substr($0, 4) == program }
        /^calls=/ { is_call = 1; next }
        /^0x/ {
            if (!is_call && is_ours) executed[$1] += (FILENAME == none ? -$2 : $2)
            is_call = 0
        }
        END { for (at in executed) if (executed[at] >= count / 2) print at, executed[at] / count }
    ' "$scratch/none" "$scratch/more" | sort > "$scratch/executed"
    [ -s "$scratch/executed" ] || { echo "$way: nothing was counted" >&2; return 1; }
    cut -d' ' -f1 "$scratch/executed" | addr2line -a -f -i -C -e "$program" > "$scratch/frames"
    # Of each address: itself, then function and place of each frame, the innermost first.
    awk -v root="$root/" -v way="$way" -v own="$own" '
        function short(name, type) {
            sub(/::h[0-9a-f]+$/, "", name)
            while (sub(/::[{][{]closure[}][}]$/, "", name)) {}
            while (match(name, /[A-Za-z0-9_]<[^<>]*>/)) name = substr(name, 1, RSTART) substr(name, RSTART + RLENGTH)
            if (match(name, /<[^<>]*>::[A-Za-z0-9_]+$/)) {
                # <impl A>::f, <impl A for B>::f, <A as B>::f
                type = substr(name, RSTART + 1, RLENGTH - 1)
                name = type
                sub(/^.*>::/, "", name)
                sub(/>::.*$/, "", type)
                sub(/^impl .* for /, "", type)
                sub(/^impl /, "", type)
                sub(/ as .*$/, "", type)
                sub(/^.*::/, "", type)
                return type "::" name
            }
            if (match(name, /[A-Z][A-Za-z0-9_]*::[a-z0-9_]+$/)) return substr(name, RSTART)
            sub(/^.*::/, "", name)
            return name
        }
        FNR == NR { cost[$1] = $2; next }
        /^0x/ { at = $1; sub(/^0x0*/, "0x", at); is_found = 0; next }
        {
            name = $0
            getline place
            is_ours = name ~ /rerail_(core|linux)::/ && name !~ /^<?(core|alloc|std)::/
            if (is_found || !is_ours) next
            is_found = 1
            name = short(name)
            spent[name] += cost[at]
            sub(/:[0-9?]*( .*)?$/, "", place)
            if (index(place, root) != 1) next
            place = substr(place, length(root) + 1)
            in_file[name, place] += cost[at]
            if (in_file[name, place] > most[name]) { most[name] = in_file[name, place]; file[name] = place }
        }
        END { for (name in spent) if (spent[name] >= own) printf "%s %s %s %.0f\n", way, file[name], name, spent[name] }
    ' "$scratch/executed" "$scratch/frames" | LC_ALL=C sort -k2,3
}
way out counted_send > "$scratch/ways"
way post counted_post >> "$scratch/ways"
way in counted_progress counted_poll >> "$scratch/ways"
[ -z "$print" ] || cat "$scratch/ways"

awk '
    { if ($1 != way) print (way ? "" : "```text") ; else if ($2 == file) { line = line " " $3; next } }
    { flush() ; way_word = $1 == way ? "" : $1; way = $1; file = $2; line = sprintf("%-5s %-30s %s", way_word, file, $3) }
    END { flush(); print "```" }
    function flush() { if (line) print line; line = "" }
' "$scratch/ways" | awk 'NF' > "$scratch/list"

begin='<!-- short-path.sh -w -->'
end='<!-- end -->'
block() { awk -v begin="$begin" -v end="$end" '$0 == end { inside = 0 } inside { print } $0 == begin { inside = 1 }' "$document"; }
grep -qxF -e "$begin" "$document" && grep -qxF -e "$end" "$document" || { echo "no block \"$begin\" in $document" >&2; exit 1; }
if [ -n "$write" ]; then
    awk -v begin="$begin" -v end="$end" -v list="$scratch/list" '
        $0 == end { inside = 0 }
        !inside { print }
        $0 == begin { inside = 1; while ((getline line < list) > 0) print line }
    ' "$document" > "$scratch/document"
    cat "$scratch/document" > "$document"
fi
status=0
block | diff -u - "$scratch/list" >&2 || { echo "ARCHITECTURE.md lists other functions: short-path.sh -w" >&2; status=1; }
awk -v functions_max="$functions_max" -v files_max="$files_max" '
    { functions[$1]++; if (!seen[$1, $2]++) files[$1]++ }
    END {
        for (way in functions) {
            if (functions[way] <= functions_max && files[way] <= files_max) continue
            printf "%s: %d functions in %d files; at most %d in %d\n", way, functions[way], files[way], functions_max, files_max
            wrong = 1
        }
        exit wrong
    }
' "$scratch/ways" >&2 || status=1
exit $status
