#!/bin/sh
# Runs the tool's exchange under Slurm on this machine alone, by srun --mpi=pmi2 and --mpi=pmix: configures and starts
# munged, slurmctld and slurmd with files of their own, and ends them. A job that scancel kills leaves nothing behind.
#
#   slurm.sh [RERAIL [ranks]]      RERAIL: the tool; default: target/debug/rerail, or from PATH
#
# Needs root (slurmd does). Exit: 0 passed, 69 something is absent (reported on stderr; not a pass), else 1.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
ranks=${2:-4}
# shellcheck source=conformance/scripts/lib/launchers.sh
. "$here/lib/launchers.sh"

[ "$(id -u)" -eq 0 ] || absent "root: slurmd runs as root only"
needs_program munged munge
needs_program slurmctld slurm-wlm
needs_program slurmd slurm-wlm
needs_program srun slurm-wlm
needs_tool "${1:-}"

work=$(mktemp -d)
chmod 755 "$work"
started=
finish() {
    for process in $started; do kill "$process" 2>/dev/null || true; done
    for process in $started; do wait "$process" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

start() {
    log=$work/$1.log
    shift
    "$@" >"$log" 2>&1 &
    started="$! $started"
}

failed() {
    echo "$*" >&2
    tail -n 20 "$work"/*.log >&2
    exit 1
}

# An own key and socket: nothing of the system's.
dd if=/dev/urandom of="$work/munge.key" bs=1024 count=1 2>/dev/null
chmod 400 "$work/munge.key"
start munged munged --foreground --force --key-file "$work/munge.key" --socket "$work/munge.socket" \
    --log-file "$work/munge.log" --pid-file "$work/munge.pid" --seed-file "$work/munge.seed"

# Two ports that are free now.
ports=$(ss -Htln | awk '{ print $4 }' | sed 's/.*://' | sort -n | uniq | tr '\n' ' ')
port=24000
free() {
    while case " $ports " in *" $port "*) true ;; *) false ;; esac; do port=$((port + 1)); done
    echo "$port"
}
control=$(free)
port=$((control + 1))
node=$(free)

host=$(hostname -s)
cat >"$work/slurm.conf" <<END
ClusterName=rerail
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$control
SlurmdPort=$node
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
ReturnToService=2
KillWait=2
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
mkdir "$work/state" "$work/spool"
export SLURM_CONF="$work/slurm.conf"

waited=0
until [ -S "$work/munge.socket" ]; do
    [ $waited -lt 50 ] || failed "munged does not start"
    waited=$((waited + 1))
    sleep 0.1
done
start controller slurmctld -D -f "$work/slurm.conf"
start daemon slurmd -D -f "$work/slurm.conf"
waited=0
until sinfo -h -o %t 2>/dev/null | grep -q '^idle$'; do
    [ $waited -lt 60 ] || failed "the node does not become idle"
    waited=$((waited + 1))
    sleep 0.5
done

plugins=$(srun --mpi=list 2>&1)
tested=
for plugin in pmi2 pmix; do
    case $plugin in pmi2) protocol=PMI-2 ;; pmix) protocol=PMIx ;; esac
    if ! echo "$plugins" | grep -qw "$plugin"; then
        echo "absent: Slurm's plugin $plugin" >&2
        continue
    fi
    offers "$protocol" timeout 60 srun --mpi=$plugin --overcommit -n "$ranks" "$rerail" info
    timeout 300 srun --mpi=$plugin --overcommit -n "$ranks" "$rerail" exchange --quick ||
        failed "the exchange failed under srun --mpi=$plugin"

    leftovers_before
    srun --mpi=$plugin --overcommit -n "$ranks" "$rerail" exchange >"$work/cancelled.log" 2>&1 &
    cancelled=$!
    waited=0
    until [ "$(of_tool | wc -l)" -ge $(($(echo "$processes_before" | wc -w) + ranks)) ]; do
        [ $waited -lt 100 ] || failed "no job to cancel"
        waited=$((waited + 1))
        sleep 0.1
    done
    sleep 1
    scancel --me
    if wait $cancelled; then failed "a cancelled job ended as if it had not been"; fi
    no_leftovers "scancel under --mpi=$plugin"
    tested="$tested $plugin"
done
[ "$tested" = " pmi2 pmix" ] || absent "a plugin of Slurm; tested:${tested:- none}"
echo "Slurm:$tested, and scancel leaves nothing"
