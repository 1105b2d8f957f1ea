#!/usr/bin/env bash
# The same seed gives the same trace to the byte: on repeated runs, and whether built for debugging or for speed.
#
#   conformance/scripts/determinism.sh [SEEDS]
#
# SEEDS: how many simulations of each menu of faults are compared (default 6).
# Exit code: 0 all traces are equal, 1 two differ, 2 wrong use.
set -euo pipefail
cd "$(dirname "$0")/../.."

seeds=${1:-6}
[[ $seeds =~ ^[0-9]+$ ]] || { echo "usage: $0 [SEEDS]" >&2; exit 2; }

target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
cargo build --quiet
cargo build --quiet --release

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

lines=0
for menu in lossless all; do
    for ((seed = 1; seed <= seeds; seed++)); do
        for build in debug release release; do
            # The verdict is another matter: simulations with all faults may need recovery.
            "$target/$build/rerail" sim --seed "$seed" --faults "$menu" --trace >"$folder/$build-new" || true
            # Two of the last lines report what the run took of the real machine.
            grep -v -e ' of virtual time in ' -e '^peak memory of this process ' "$folder/$build-new" >"$folder/new" || true
            if [ -e "$folder/old" ] && ! cmp "$folder/old" "$folder/new"; then
                echo "seed $seed, faults $menu: the $build build writes another trace" >&2
                diff "$folder/old" "$folder/new" | head -5 >&2
                exit 1
            fi
            mv "$folder/new" "$folder/old"
        done
        lines=$((lines + $(wc -l <"$folder/old")))
        rm "$folder/old"
    done
done
[ "$lines" -gt 100 ] || { echo "hardly anything was traced: $lines lines" >&2; exit 1; }
echo "OK $((2 * seeds)) simulations, $lines lines of trace each in a debug build and twice in a release build: equal to the byte"
