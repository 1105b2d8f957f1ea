#!/usr/bin/env bash
# perftest's raw verbs and `rerail perf` side by side, in one boot of one machine, over the same Soft-RoCE device: prints
# the table of conformance/BENCHMARKS.md. Rounds of the two alternate, and the best of each counts: a software-emulated
# machine shares its processors with whatever else runs on the host, and only the best rounds are its own.
#
#   conformance/vm/bench.sh [ROUNDS]     (default 5; about half a minute each)
#
# Exit codes: as conformance/vm/run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/run" --seconds 900 --with "$here/inside-bench.sh" sh /root/inside-bench.sh "${1:-5}"
