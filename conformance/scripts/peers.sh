#!/bin/sh
# Measures rerail beside UCX, libfabric, Open MPI and MPICH over shared memory: 8 B to 32 MiB, latency, message rate with 1,
# 8 and 64 messages under way, bandwidth, puts and gets; and beside bare sockets, too, over TCP (--cases tcp_): latency and
# rate of 8 B, one rail over the loopback interface. All are pinned to the same two processors and take turns; each round
# waits for an idle machine; a cache line is measured beside small messages. More ranks than processors: pairs of 8 that are
# drawn anew, all-to-all of 16. rerail and MPI run the same loops (conformance/src/perf/batch.rs, many.rs,
# conformance/peers/mpi_bench.c). On a machine that is not idle: chrt -f 10 peers.sh, for rows of two ranks; over TCP
# chrt -r 10, as UCX has a thread beside the one that polls.
#
#   peers.sh [--rounds N] [--cases PARTS] [--pairs N] [--pin A,B] [--json] [--svg FILE] [--judge] [--idle-seconds S]
#
# In CI, without arguments: one round of two cases, whatever the machine does beside.
#
# Installs the peers from Debian's packages where it may. A peer that can't be had is reported as absent.
# Exit: 0 measured (with --judge: every bar holds), 1 a bar is missed, 2 wrong use or a program failed, 69 no peer is here,
# or (with --judge) the machine was not idle.
set -eu
cd "$(dirname "$0")/../.."

has() { command -v "$1" >/dev/null 2>&1; }
# The compiler of an MPI, and its headers, which are in a package of their own.
compiles() { echo '#include <mpi.h>' | "mpicc.$1" -E -x c - >/dev/null 2>&1; }

missing=
has ucx_perftest || missing="$missing ucx-utils"
has fi_pingpong || missing="$missing libfabric-bin"
{ has mpirun.openmpi && compiles openmpi; } || missing="$missing openmpi-bin libopenmpi-dev"
{ has mpiexec.hydra && compiles mpich; } || missing="$missing mpich libmpich-dev"
has taskset || missing="$missing util-linux"
if [ -n "$missing" ] && has apt-get && [ "$(id -u)" -eq 0 ]; then
    # shellcheck disable=SC2086  # several words
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing; } \
        </dev/null >/dev/null 2>&1 || echo "peers: apt-get could not install$missing" >&2
elif [ -n "$missing" ]; then
    echo "peers: missing, and only root can install them with apt-get:$missing" >&2
fi
has ucx_perftest || has fi_pingpong || compiles openmpi || compiles mpich || {
    echo "peers: no peer is here to measure against" >&2
    exit 69
}

# The release profile, without link-time optimisation: what an embedder gets.
cargo build --quiet --release -p rerail-conformance --bin rerail --example peers
target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
mkdir -p "$target/peers"
for mpi in openmpi mpich; do
    ! compiles "$mpi" || "mpicc.$mpi" -O2 -Wall -Wextra -o "$target/peers/mpi_bench.$mpi" conformance/peers/mpi_bench.c
done
# With other work beside (CI), only that everything runs is shown.
[ $# -gt 0 ] || [ -z "${CI:-}" ] || set -- --rounds 1 --idle-seconds 0 --cases latency_8,window_64
exec "$target/release/examples/peers" --rerail "$target/release/rerail" --mpi "$target/peers" "$@"
