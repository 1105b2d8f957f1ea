#!/usr/bin/env bash
# perftest's raw verbs and `rerail perf` side by side, in one boot of one machine, over the same Soft-RoCE device: prints
# the tables of conformance/BENCHMARKS.md. A software-emulated machine shares its processors with whatever else runs on the
# host. So each of them stays on one of the host's (where both polling ranks have to share one, each waits for the other's
# time slice to end, and a round trip takes 8 ms); in each round every run of rerail stands right beside the raw one that it
# is compared with, which is first changes from round to round, both are pinned to the same processors; and
# what is printed are medians: of the figures, and of the ratios of neighbours.
#
#   conformance/vm/bench.sh [ROUNDS]     (default 5; about 80 seconds each)
#
# Exit codes: as conformance/vm/run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
echo "host: $(nproc) processors, load $(cut -d ' ' -f 1-3 /proc/loadavg)" >&2
"$here/run" --pin --seconds 1800 ${RERAIL:+--rerail "$RERAIL"} --with "$here/inside-bench.sh" sh /root/inside-bench.sh "${1:-5}"
echo "host: load $(cut -d ' ' -f 1-3 /proc/loadavg)" >&2
