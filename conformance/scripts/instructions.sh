#!/bin/sh
# Counts the instructions that the core spends per 8-byte message, both sides together, with callgrind: a number that is
# the same on a busy machine. Fails where a case takes more than its bound: the bounds stand a tenth above what was
# measured when they were last set, so that a change that makes messages dearer does not go unnoticed.
#
#   instructions.sh            counts, and compares with the bounds
#   instructions.sh FOLDER     also leaves the profiles there (for callgrind_annotate)
#
# The bounds hold for x86_64; elsewhere the numbers are only printed.
# Exit: 0 within the bounds, 1 not, 69 valgrind is absent (said on stderr; not a pass).
set -eu

absent() {
    echo "absent: $*" >&2
    exit 69
}

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..

if ! command -v valgrind >/dev/null 2>&1; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "valgrind is missing, installing it" >&2
        DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends valgrind libc6-dbg >&2 ||
            absent "valgrind (apt-get install valgrind failed)"
    else
        absent "valgrind (Debian: apt-get install valgrind; as root this script does it)"
    fi
fi

# Optimised, and few things are built: the core and what it depends on.
cargo build --release --quiet --manifest-path "$root/core/Cargo.toml" --example message_cost
program=${CARGO_TARGET_DIR:-$root/target}/release/examples/message_cost

if [ $# -ge 1 ]; then
    folder=$1
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi

# Instructions of a whole run of so many rounds.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$folder/$1.$2.callgrind" "$program" "$1" "$2" 2>&1 |
        sed -n 's/.*Collected : //p'
}

status=0
# Case, messages per round, bound.
while read -r case messages bound; do
    few=$(count "$case" 500)
    many=$(count "$case" 1500)
    # The difference leaves out what a run costs without any message.
    each=$(((many - few) / (1000 * messages)))
    echo "$case: $each instructions per message (bound $bound)"
    if [ "$(uname -m)" = x86_64 ] && [ "$each" -gt "$bound" ]; then
        echo "$case: dearer than the bound" >&2
        status=1
    fi
done <<CASES
round-trip 2 6750
round-trip-retained 2 7350
one-way 1 6700
CASES
exit $status
