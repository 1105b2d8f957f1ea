#!/usr/bin/env bash
# The core's unsafe code under Miri, which sees each access that is out of bounds, not initialised, not aligned, aliased or a
# race: tables carved out of the caller's memory, the ring in shared memory (by two threads, too), an endpoint. A small set:
# Miri is a thousand times slower than a processor, so what draws many cases draws one, and what counts to thousands counts
# to forty there.
#
#   miri.sh [TEST...]     unit tests whose names begin with, or contain, one of these; without, those of TESTS
#
# A target folder of its own, for all that is built is built for Miri.
#
# Exit: 0 nothing found, 1 something found or a test failed, 69 Miri is absent (said on stderr; not a pass).
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
cargo +nightly miri --version > /dev/null 2>&1 || {
    echo "ABSENT: no Miri: rustup toolchain install nightly --component miri,rust-src" >&2
    exit 69
}

# Properties look for a file of earlier failures: Miri must let them. Tests of hostile memory write a part of a word that the
# ring reads whole, which Miri's model of weak memory does not know; orders are what loom is asked about.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-disable-weak-memory-emulation" PROPTEST_CASES=1 PROPTEST_RNG_SEED=1 CARGO_INCREMENTAL=0
CARGO_TARGET_DIR=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/miri
export CARGO_TARGET_DIR

readonly TESTS=(
    fast:: seq::recv_window::tests::a_ seq::recv_window::tests::numbers seq::reorder seq::sent_window rel::blocks
    store::list tag::tests::a_shape tag::tests::untagged
    shm::tests::a_ shm::tests::attaching shm::tests::flags shm::tests::what_fits shm::tests::two_threads
    endpoint::tests::short::only_the_next
)
names=("$@")
[ $# -gt 0 ] || names=("${TESTS[@]}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cargo +nightly miri test -p rerail-core --lib -- "${names[@]}" > "$log" 2>&1; then
    sed -n '/^error/,$p' "$log" | head -n 120 >&2
    tail -n 20 "$log" >&2
    exit 1
fi
# A filter that matches nothing would be one that finds nothing for ever.
grep -E '^test result: ok\. [1-9][0-9]* passed' "$log" || { echo "no test has run: ${names[*]}" >&2; exit 1; }
