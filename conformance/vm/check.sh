#!/usr/bin/env bash
# Real verbs, checked in virtual machines with Soft-RoCE devices: the contract suite on both devices, every sort of
# request over both rails, a file, messages when something is missing; devices that fail while messages are
# under way (two of the cases of faults.sh); then two machines.
#
#   conformance/vm/check.sh [--write]     --write: conformance/DEVICES.md anew from what came out
#
# Exit codes: 0 all is as it should be, 1 it is not, 69 this machine can't do it, 70 a machine broke.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

code=0
conformance/vm/run --seconds 240 --results "$results" --with conformance/vm/inside.sh \
    --with conformance/devices/rxe.txt sh /root/inside.sh || code=$?
[ "$code" -eq 0 ] || exit "$code"

target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
"$target/release/rerail" check --json >"$results/sim.json"
"$target/release/rerail" check --compare "$results/sim.json" "$results/devices.json" >"$results/table.md"
if [ "${1:-}" = --write ]; then
    {
        sed '/^<!-- from here on/q' conformance/DEVICES.md
        echo
        cat "$results/table.md"
    } >"$results/DEVICES.md"
    cp "$results/DEVICES.md" conformance/DEVICES.md
    echo "conformance/DEVICES.md is written"
fi

echo "== devices that fail under verified messages"
conformance/vm/faults.sh links_in_turn removal

echo "== two machines, two rails between them"
# Both use the same words; rank 0 waits for rank 1, which dials until it is accepted.
conformance/vm/run --two --seconds 240 --with conformance/vm/inside-two.sh sh /root/inside-two.sh
echo "vm: all is as it should be"
