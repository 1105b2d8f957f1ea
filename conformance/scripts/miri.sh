#!/usr/bin/env bash
# The core's unsafe code under Miri, which sees each access that is out of bounds, not initialised, not aligned, aliased or a
# race: the arena and the tables on it, the ring in shared memory between two threads, an endpoint that four threads share.
#
#   miri.sh [TEST...]     unit tests whose names contain one of these; without, those of TESTS
#
# Miri is a hundred times slower than a processor: properties are tried with few cases, and the corpus is left to the fuzzer.
# A target folder of its own, for all that is built is built for Miri.
#
# Exit: 0 nothing found, 1 something found or a test failed, 69 Miri is absent (said on stderr; not a pass).
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
absent() {
    echo "ABSENT: $1" >&2
    exit 69
}
cargo +nightly miri --version > /dev/null 2>&1 || absent "no Miri: rustup toolchain install nightly --component miri,rust-src"

# Properties look for a file of earlier failures: Miri must let them.
export MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4 CARGO_INCREMENTAL=0
CARGO_TARGET_DIR=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/miri
export CARGO_TARGET_DIR

readonly TESTS=(store:: rel::blocks rel::retain shm::tests shared::)
names=("$@")
[ $# -gt 0 ] || names=("${TESTS[@]}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cargo +nightly miri test -p rerail-core --lib -- --skip corpus "${names[@]}" > "$log" 2>&1; then
    sed -n '/^error/,$p' "$log" | head -n 120 >&2
    tail -n 20 "$log" >&2
    exit 1
fi
# A filter that matches nothing would be one that finds nothing for ever.
grep -E '^test result: ok\. [1-9][0-9]* passed' "$log" || { echo "no test has run: ${names[*]}" >&2; exit 1; }
