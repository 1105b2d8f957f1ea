#!/usr/bin/env bash
# conformance/cluster.sh, as people with adapters run it (CONFORMANCE.md), on Soft-RoCE devices: on one node, and between two
# that two cables join. What it prints must be one JSON document with every part, no failure but rxe's known ones in it.
#
#   conformance/vm/cluster.sh [local|pair]     (default both; some minutes, most of them the suite)
#
# Exit codes: as conformance/vm/run; 1 where the document is not as it should be.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
shell=$(command -v bash)
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# The names of all parts, once each, and no failure.
judge() {
    local document=$1 part
    for part in info check figures; do
        [ "$(grep -c "^[{,] \"$part\":" "$document")" -eq 1 ] || { echo "cluster: $document: \"$part\" is not there once" >&2; exit 1; }
    done
    if command -v python3 >/dev/null; then python3 -m json.tool "$document" >/dev/null; fi
    if grep -q '"outcome": "failed"' "$document"; then
        grep -A 1 -B 3 '"outcome": "failed"' "$document" >&2
        exit 1
    fi
    if grep -q '^null' "$document"; then echo "cluster: a figure is missing" >&2; exit 1; fi
    echo "ok: $(grep -c '"outcome": "passed"' "$document") cases passed, $(grep -c '"outcome": "known failure"' "$document") failures known"
}

for how in "${@:-local pair}"; do
    for which in $how; do
        mkdir "$results/$which"
        two=()
        [ "$which" = local ] || two=(--two)
        "$here/run" "${two[@]}" --seconds 500 ${RERAIL:+--rerail "$RERAIL"} --results "$results/$which" --with "$shell" \
            --with "$here/../cluster.sh" --with "$here/../devices/rxe.txt" --with "$here/inside-cluster.sh" \
            sh /root/inside-cluster.sh "$which"
        document=$results/$which/result.json
        [ "$which" = local ] || document=$results/$which/1/result.json
        judge "$document"
    done
done
