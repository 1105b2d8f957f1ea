# shellcheck shell=sh
# Two hosts on one machine: two network namespaces and veth pairs between them that tbf holds to rates of their own. What
# netns.sh and netns-rails.sh share; they source it, it does nothing by itself.
#
#   absent TEXT              prints what is absent, and ends with code 69
#   numbers_or_usage N...    calls `usage` unless all are whole numbers
#   prepare PROGRAM...       checks for root and programs, builds `binary` where it is empty, makes both namespaces
#   pair RAIL NET            a veth pair, rra$RAIL-$id with NET.1 to rrb$RAIL-$id with NET.2
#   shape RAIL RATE_MBIT     holds a pair to a rate, in both directions
#   new_key                  prints a key for RERAIL_KEY
#
# `prepare` sets id, left and right (the namespaces) and folder (a temporary one), and has all of it cleared away when the
# script ends, with the process named by `child`, where that is not empty.

absent() { echo "absent: $*" >&2; exit 69; }

numbers_or_usage() {
    for number in "$@"; do
        case $number in '' | *[!0-9]*) usage ;; esac
    done
}

prepare() {
    [ "$(id -u)" = 0 ] || absent "root rights, which network namespaces need"
    for program in ip tc "$@"; do
        command -v "$program" > /dev/null || absent "$program (packages iproute2, coreutils and mawk)"
    done

    root=$(cd "$(dirname "$0")/../.." && pwd)
    if [ -z "$binary" ]; then
        cargo build --release --manifest-path "$root/Cargo.toml" -p rerail-conformance --bin rerail
        binary=${CARGO_TARGET_DIR:-$root/target}/release/rerail
    fi
    [ -x "$binary" ] || absent "$binary (build it, or name one with -b)"

    # Names of this run's own, so that two runs don't meet.
    id=$$
    left=rr-left-$id
    right=rr-right-$id
    folder=$(mktemp -d)
    child=
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    ip netns add "$left" 2> "$folder/error" || absent "network namespaces: $(cat "$folder/error")"
    ip netns add "$right"
    ip -n "$left" link set lo up
    ip -n "$right" link set lo up
}

cleanup() {
    status=$?
    trap - EXIT INT TERM
    [ -z "$child" ] || kill "$child" 2> /dev/null || true
    ip netns delete "$left" 2> /dev/null || true
    ip netns delete "$right" 2> /dev/null || true
    rm -rf "$folder"
    exit "$status"
}

pair() {
    ip link add "rra$1-$id" netns "$left" type veth peer name "rrb$1-$id" netns "$right" 2> "$folder/error" ||
        absent "veth: $(cat "$folder/error")"
    ip -n "$left" address add "$2.1/24" dev "rra$1-$id"
    ip -n "$right" address add "$2.2/24" dev "rrb$1-$id"
    ip -n "$left" link set "rra$1-$id" up
    ip -n "$right" link set "rrb$1-$id" up
}

shape() {
    ip netns exec "$left" tc qdisc replace dev "rra$1-$id" root tbf rate "$2mbit" burst 128kb latency 50ms
    ip netns exec "$right" tc qdisc replace dev "rrb$1-$id" root tbf rate "$2mbit" burst 128kb latency 50ms
}

new_key() { head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n'; }
