#!/usr/bin/env bash
# Runs what CONFORMANCE.md describes, and prints one JSON document: what the node is, every case of the contract suite on
# each of its devices, and figures.
#
#   conformance/cluster.sh local               this node alone
#   conformance/cluster.sh serve               the first of two nodes: prints what to run on the other one
#   conformance/cluster.sh measure HOST        the second: measures with the first one
#
# RERAIL_KEY: the key that both nodes share; `serve` makes one, where there is none.
# RERAIL_VERBS_DEVICES names the devices; without it all that can be used. PORT (7470): the first node's TCP port. RERAIL: a
# program that is built already. CHECK, PERF: more options of `rerail check` and `rerail perf`, as --known FILE, --sizes 8,64K.
# Exit codes: 0 done, 1 something failed (the document names it), 69 there is no verbs device here.
set -euo pipefail
cd "$(dirname "$0")/.."
export RERAIL_RAILS=verbs
port=${PORT:-7470}
# Measured one after the other, on both nodes in this order.
runs=("latency --op send" "latency --op put" "latency --op get" "bandwidth --op send" "bandwidth --op put"
    "bandwidth --op get" "bidirectional --op send" "rate --op send")

if [ -z "${RERAIL:-}" ]; then
    cargo build --quiet --release -p rerail-conformance --bin rerail </dev/null
    RERAIL=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/rerail
fi

failed=0
complaint=$(mktemp)
trap 'rm -f "$complaint"' EXIT

document() {
    local how=$1 first=1 run
    local code=0
    # One case shows whether there is a device at all.
    "$RERAIL" check --all-devices states/made-in-reset >/dev/null 2>"$complaint" || code=$?
    if [ $code -eq 69 ]; then
        cat "$complaint" >&2
        exit 69
    fi
    echo "{ \"info\":"
    "$RERAIL" info --json
    echo ", \"check\":"
    # A case that failed is a result, not a reason to stop.
    # shellcheck disable=SC2086
    "$RERAIL" check --all-devices --json ${CHECK:-} || failed=1
    echo ", \"figures\": ["
    for run in "${runs[@]}"; do
        [ $first -eq 1 ] || echo ","
        first=0
        # shellcheck disable=SC2086
        $how $run
    done
    echo "] }"
}

# shellcheck disable=SC2086
locally() { "$RERAIL" perf "$@" ${PERF:-} --path verbs --verify --json || { failed=1; echo null; }; }
remotely() {
    local out
    # The other node needs a moment for each.
    for _ in $(seq 50); do
        # shellcheck disable=SC2086
        if out=$("$RERAIL" perf "$@" ${PERF:-} --verify --json --connect "$host:$port" 2>"$complaint"); then
            printf '%s\n' "$out"
            return
        fi
        grep -q refused "$complaint" || break
        sleep 0.2
    done
    cat "$complaint" >&2
    failed=1
    echo null
}

case "${1:-}" in
local) document locally ;;
serve)
    RERAIL_KEY=${RERAIL_KEY:-$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')}
    export RERAIL_KEY
    echo "the other node: RERAIL_KEY=$RERAIL_KEY conformance/cluster.sh measure $(hostname) > result.json" >&2
    for run in "${runs[@]}"; do
        "$RERAIL" perf "${run%% *}" --listen "0.0.0.0:$port" || failed=1
    done
    ;;
measure)
    if [ $# -ne 2 ] || [ -z "${RERAIL_KEY:-}" ]; then
        echo "cluster: RERAIL_KEY=KEY conformance/cluster.sh measure HOST" >&2
        exit 2
    fi
    host=$2
    document remotely
    ;;
*)
    sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
exit "$failed"
