#!/usr/bin/env bash
# The code that threads share, under ThreadSanitizer: the ring in shared memory between two threads, and an endpoint that
# four threads share. Both are the core's. Rails map their rings once for each process, and what is written at one address
# and read at another is no race to the sanitizer: so tests of rails would pass whatever they did.
#
#   tsan.sh
#
# The standard library is built with the sanitizer, too: without, each hand-over that it makes (the end of a scope of
# threads, the last reference of an Arc, channels of the test harness) is reported as a race. So no report is suppressed:
# any one fails. A target folder of its own, for all that is built is built for the sanitizer.
#
# Exit: 0 no race, 1 a race or a test failed, 69 a nightly toolchain or its source is absent (reported on
# stderr; not a pass).
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
absent() {
    echo "ABSENT: $1" >&2
    exit 69
}
readonly TARGET=x86_64-unknown-linux-gnu
[ "$(uname -sm)" = "Linux x86_64" ] || absent "ThreadSanitizer is supported by this script on $TARGET alone"
cargo +nightly --version > /dev/null 2>&1 || absent "no nightly toolchain: rustup toolchain install nightly --component rust-src"
[ -e "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.toml" ] ||
    absent "the standard library's source is not installed: rustup component add rust-src --toolchain nightly"

export RUSTFLAGS="-Zsanitizer=thread" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
CARGO_TARGET_DIR=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/tsan
export CARGO_TARGET_DIR
# Reports end a test program with this code, after all of them.
export TSAN_OPTIONS="exitcode=66 halt_on_error=0"

readonly TESTS=(two_threads_exchange_every_byte threads_share_an_endpoint)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cargo +nightly test -Zbuild-std --target "$TARGET" -p rerail-testkit --test shm --test shared \
    -- --exact "${TESTS[@]}" > "$log" 2>&1; then
    sed -n '/WARNING: ThreadSanitizer/,$p' "$log" | head -n 120 >&2
    tail -n 20 "$log" >&2
    exit 1
fi
# A renamed test is not found by its old name, and no test would run.
[ "$(grep -c "^test result: ok\. 1 passed" "$log")" -eq ${#TESTS[@]} ] || { echo "not all of these tests have run: ${TESTS[*]}" >&2; exit 1; }
echo "no race in: ${TESTS[*]}"
