#!/bin/sh
# Runs the tool's exchange under MPICH's launcher: the PMI-1 and PMI-2 clients against a launcher that isn't ours.
#
#   hydra.sh [RERAIL [ranks]]      RERAIL: the tool; default: target/debug/rerail, or from PATH
#
# Exit: 0 passed, 69 something is absent (reported on stderr; not a pass), else the launcher's code.
set -eu

absent() {
    echo "absent: $*" >&2
    exit 69
}

here=$(dirname "$0")
ranks=${2:-4}

if ! command -v mpiexec.hydra >/dev/null 2>&1; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "mpiexec.hydra is missing, installing mpich" >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mpich >&2 ||
            absent "mpiexec.hydra (apt-get install mpich failed)"
    else
        absent "mpiexec.hydra (Debian: apt-get install mpich; as root this script does it)"
    fi
    command -v mpiexec.hydra >/dev/null 2>&1 || absent "mpiexec.hydra (mpich is installed but brought none)"
fi

if [ $# -ge 1 ]; then
    rerail=$1
else
    rerail=${CARGO_TARGET_DIR:-$here/../../target}/debug/rerail
    [ -x "$rerail" ] || rerail=$(command -v rerail) || absent "rerail (cargo build, or give its path)"
fi
[ -x "$rerail" ] || absent "$rerail is no program"

# The launcher must not hang for ever where a rank does.
for protocol in PMI-1 PMI-2; do
    # It offers both; this variable selects PMI-2 in a process (Slurm sets it).
    set -- -n "$ranks"
    [ $protocol = PMI-1 ] || set -- "$@" -env PMI_JOBID hydra
    timeout 120 mpiexec.hydra "$@" "$rerail" info | grep -q "offered by this environment: $protocol" || {
        echo "the tool does not find $protocol" >&2
        exit 1
    }
    echo "$protocol:"
    timeout 120 mpiexec.hydra "$@" "$rerail" exchange
done
