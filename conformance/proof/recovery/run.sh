#!/usr/bin/env bash
# Goes through every interleaving of the cases, and sees that bugs on purpose are found. Exit codes: 0 proved, else not.
set -euo pipefail
cd "$(dirname "$0")"
cargo test --release "$@" </dev/null
cargo run --quiet --release </dev/null
