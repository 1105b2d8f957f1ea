#!/usr/bin/env bash
# Builds the program that logs, runs it, and decodes what it wrote. Exit codes: 0 decoded as expected, else failed.
set -euo pipefail
cd "$(dirname "$0")"
DEFMT_LOG=trace cargo test "$@" </dev/null
