#!/usr/bin/env bash
# Real verbs devices that fail while messages are under way: ports down and up, addresses that change, devices that are
# removed and come back, one rail and both. Two processes over two Soft-RoCE devices send messages of mixed sizes both ways,
# with puts, gets and atomics beside them; every message must come once, in order, as it was sent.
#
#   conformance/vm/faults.sh [CASE...]     (default all; the names are those of `case_...` in inside-faults.sh)
#
# About a minute, two on a loaded host. Exit codes: as conformance/vm/run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/run" --seconds "${SECONDS_MAX:-400}" ${RERAIL:+--rerail "$RERAIL"} --with "$here/inside-faults.sh" \
    sh /root/inside-faults.sh "$@"
