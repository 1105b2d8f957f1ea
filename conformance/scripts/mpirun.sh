#!/bin/sh
# Runs the tool's exchange under Open MPI's launcher: PMIx by its library. A killed rank ends the job and leaves nothing.
#
#   mpirun.sh [RERAIL [ranks]]     RERAIL: the tool; default: target/debug/rerail, or from PATH
#
# Exit: 0 passed, 69 something is absent (reported on stderr; not a pass), else 1 or the launcher's code.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
ranks=${2:-4}
# shellcheck source=conformance/scripts/lib/launchers.sh
. "$here/lib/launchers.sh"

needs_program mpirun openmpi-bin
needs_tool "${1:-}"

mpirun() {
    timeout 120 mpirun --oversubscribe $([ "$(id -u)" -ne 0 ] || echo --allow-run-as-root) "$@"
}

offers PMIx mpirun -n "$ranks" "$rerail" info
mpirun -n "$ranks" "$rerail" exchange --quick
leftovers_before
# Reports the killed rank by its own code (3: a peer was lost), or Open MPI ends all.
if mpirun -n "$ranks" "$rerail" exchange --quick --kill-rank 1 --after-round 3; then
    echo "a job with a killed rank ended as if nothing had happened" >&2
    exit 1
fi
no_leftovers "a killed rank"
