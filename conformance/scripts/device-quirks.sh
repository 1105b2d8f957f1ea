#!/bin/sh
# The whole transport, from settings to the functions of libibverbs, over devices that do what real ones do and simulated
# ones don't: the library is loopback-verbs.c, which describes at its top what each quirk is and whose. Every
# byte of messages of all sizes is looked at; what can't work has to be refused with the reason.
#
#   device-quirks.sh
#
# Exit: 0 all as it should be, 1 not, 69 a C compiler or libibverbs' headers are absent (reported on stderr;
# not a pass).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
# shellcheck source=conformance/scripts/lib/loopback.sh
. "$here/lib/loopback.sh"
needs_for_loopback

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
build_loopback "$scratch"
cargo build --quiet --manifest-path "$root/os-linux/Cargo.toml" --example device_quirks
program=${CARGO_TARGET_DIR:-$root/target}/debug/examples/device_quirks
failures=0

run() {
    # No rails beside the one that is looked at.
    env LD_LIBRARY_PATH="$scratch" WIRE0="$1" RERAIL_RAILS=verbs \
        ${2:+"$2"} "$program" > "$scratch/said" 2>&1
}

# QUIRKS [SETTING=VALUE [WORDS]]: all messages come, and the output contains the words.
works() {
    if run "$1" "${2:-}" && grep -q '^OK ' "$scratch/said" && grep -q -- "${3:-}" "$scratch/said"; then
        echo "ok       ${1:-none}${2:+ with $2}: $(grep '^OK ' "$scratch/said")"
    else
        echo "FAILED   ${1:-none}${2:+ with $2}, of which all messages have to come:"
        sed 's/^/    /' "$scratch/said"
        failures=$((failures + 1))
    fi
}

# QUIRKS WORDS: the rail is refused, in these words, by exit code 1.
refused() {
    code=0
    run "$1" || code=$?
    if [ "$code" -eq 1 ] && grep -q -- "$2" "$scratch/said"; then
        echo "ok       $1: $(tail -n 1 "$scratch/said")"
    else
        echo "FAILED   $1, which has to be refused ($2); exit code $code:"
        sed 's/^/    /' "$scratch/said"
        failures=$((failures + 1))
    fi
}

works ""
works "" RERAIL_VERBS_READ=off
works scatter "" '^wire0: [1-9][0-9]* messages came inside'
works scatter RERAIL_VERBS_READ=off '^wire0: [1-9][0-9]* messages came inside'
works no-inline
works ethernet
works grh
works sick-port
works sick-port RERAIL_VERBS_DEVICES=wire0
works tell "" '^wire0: [1-9][0-9]* calls of ibv_fork_init'
works tell RERAIL_VERBS_FORK=off '^wire0: 0 calls of ibv_fork_init'
works no-fork
refused no-lid 'port 1 has no LID'
refused no-srq 'the device has no shared receive queues'
refused no-ud 'the device has no datagram queue pairs'
refused iwarp 'connects by rdma_cm only'
refused vendor 'neither InfiniBand nor RoCE'
refused no-gid 'an InfiniBand port has a GID by itself'
refused ethernet,no-gid 'ip address add'
refused locked 'completion queue: .*error 12 .*ulimit -l'
[ "$failures" -eq 0 ] || { echo "$failures failed" >&2; exit 1; }
