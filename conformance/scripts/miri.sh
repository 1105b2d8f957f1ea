#!/usr/bin/env bash
# The core's unsafe code under Miri, which interprets the program and reports undefined behaviour: use of memory that is not
# the code's, aliases that must not be, data that is not initialised, races between threads. All unsafe code of the core is the
# ring in shared memory and the arena that carves an endpoint's tables out of the caller's memory: the ring's tests, and
# endpoints that exchange messages.
#
#   miri.sh
#
# Left out are tests of thousands of drawn cases, which take Miri minutes to hours (the fuzzer with AddressSanitizer and the
# ordinary test run have them), and two that end Miri itself (Miri 0.1, nightly of May 2026: an assertion of its own).
#
# Exit: 0 nothing was found, 1 something, or a test failed, 69 Miri is absent (reported on stderr; not a
# pass).
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
absent() {
    echo "ABSENT: $1" >&2
    exit 69
}
cargo +nightly miri --version > /dev/null 2>&1 ||
    absent "no Miri: rustup toolchain install nightly --component miri --component rust-src"

CARGO_TARGET_DIR=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/miri
export CARGO_TARGET_DIR CARGO_INCREMENTAL=0
# Test programs read variables of the environment.
export MIRIFLAGS="-Zmiri-disable-isolation"

readonly RING=(
    unreleased_front_stays_and_a_full_ring_refuses_pushes
    full_annex_blocks_only_messages_that_need_it
    a_head_that_jumps_kills_the_ring
    oversized_message_leaves_the_ring_unchanged
    a_ring_takes_memory_as_it_is_used
    a_sleeper_makes_the_heavy_fence
    attaching_checks_size_alignment_and_constants
    flags_make_one_doorbell_each
    kinds_flags_and_tags_that_no_honest_peer_writes_kill_the_ring
    length_beyond_cell_or_slot_is_a_ring_error
    two_threads_exchange_every_byte
    message_that_fits_its_cell_does_not_use_the_annex
)
# Unit tests of the core.
readonly CORE=(
    shm::tests::ring_works_as_a_queue_when_positions_wrap
    shm::tests::shared_ring_fields_are_on_separate_cache_lines
    endpoint::tests::recovery::rebalanced_bytes_are_written_in_the_new_epoch
    endpoint::tests::late_callers::a_silent_caller_is_hung_up
)

# run COUNT ARGUMENT...: so many tests of a test program, with these arguments of `cargo miri test`.
run() {
    local count=$1
    shift
    if ! cargo +nightly miri test "$@" > "$log" 2>&1; then
        grep -nE -A 30 'error: |panicked' "$log" | head -n 120 >&2
        tail -n 20 "$log" >&2
        exit 1
    fi
    # A renamed test is not found by its old name, and no test would run.
    grep -q "^test result: ok\. $count passed" "$log" || { tail -n 3 "$log"; echo "not all of these tests have run: $*" >&2; exit 1; }
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
run "${#RING[@]}" -p rerail-testkit --test shm -- --exact "${RING[@]}"
run "${#CORE[@]}" -p rerail-core --lib -- --exact "${CORE[@]}"
echo "no undefined behaviour in $((${#RING[@]} + ${#CORE[@]})) tests"
