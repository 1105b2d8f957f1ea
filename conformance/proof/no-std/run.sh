#!/usr/bin/env bash
# Builds the freestanding program in both profiles, looks through its file, and runs it.
# Exit codes: 0 proved, 69 not possible on this machine, else refuted.
set -euo pipefail
cd "$(dirname "$0")"

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "no-std: ABSENT: the program's entry point is that of x86-64 Linux, this is $(uname -sm)" >&2
    exit 69
fi
command -v readelf >/dev/null && command -v nm >/dev/null || {
    echo "no-std: ABSENT: needs nm and readelf (binutils)" >&2
    exit 69
}

refuted() {
    echo "no-std: REFUTED: $1" >&2
    exit 1
}

target=$(cargo metadata --no-deps --format-version 1 </dev/null | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
for profile in dev release; do
    cargo build --quiet --profile "$profile" </dev/null
    program=$target/$([ "$profile" = dev ] && echo debug || echo release)/proof-no-std

    undefined=$(nm --undefined-only "$program")
    [ -z "$undefined" ] || refuted "$profile: undefined symbols: $undefined"
    allocator=$(nm "$program" | grep -E '__rust_alloc|__rust_dealloc|__rg_alloc|__rdl_alloc|\bmalloc\b|5alloc' || true)
    [ -z "$allocator" ] || refuted "$profile: symbols of an allocator: $allocator"
    std=$(nm "$program" | grep -E '_ZN3std|_R.*3std' || true)
    [ -z "$std" ] || refuted "$profile: symbols of std: $std"
    if readelf --program-headers "$program" | grep -qE 'INTERP|DYNAMIC'; then
        refuted "$profile: needs a dynamic linker"
    fi
    printf '%s: ' "$profile"
    "$program"
done
