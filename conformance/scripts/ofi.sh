#!/bin/sh
# Runs unmodified runtimes over the libfabric provider: fi_info, fi_pingpong, Debian's Open MPI and PyPI's MPICH.
#
#   ofi.sh [PART...]        PART: layout, pingpong, openmpi, mpich, hosts; all where none is named
#
# Programs: conformance/peers/mpi_check.c (every byte and status is looked at) and mpi_bench.c. Installs what is missing
# where it may (apt-get as root; MPICH's wheel by pip into the target folder).
# Exit: 0 passed, 1 something failed, 69 nothing failed but something is absent (reported on stderr; not a
# pass).
set -eu
cd "$(dirname "$0")/../.."

has() { command -v "$1" >/dev/null 2>&1; }

missing=
has fi_pingpong || missing="$missing libfabric-bin"
[ -e /usr/include/rdma/fabric.h ] || missing="$missing libfabric-dev"
{ has mpirun.openmpi && has mpicc.openmpi; } || missing="$missing openmpi-bin libopenmpi-dev"
has cc || missing="$missing gcc libc6-dev"
has python3 && python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
if [ -n "$missing" ] && has apt-get && [ "$(id -u)" -eq 0 ]; then
    # shellcheck disable=SC2086  # several words
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing; } \
        </dev/null >/dev/null 2>&1 || echo "ofi: apt-get could not install$missing" >&2
fi

cargo build --quiet --release -p rerail-ofi
target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
work=$target/ofi
mkdir -p "$work"
# A folder of its own: libfabric opens all that ends in fi.so.
cp "$target/release/librerail_fi.so" "$work/librerail-fi.so"
export FI_PROVIDER_PATH="$work" FI_PROVIDER=rerail
# As root mpirun needs both confirmations.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

failed=
absent=
fail() {
    echo "FAILED: $*" >&2
    failed=yes
}
absent() {
    echo "absent: $*" >&2
    absent=yes
}

# The hand-written interface against the C headers.
part_layout() {
    if ! has cc || [ ! -e /usr/include/rdma/fabric.h ]; then
        absent "a C compiler, or libfabric's headers"
        return
    fi
    compared=$(cargo test --quiet -p rerail-ofi --test layout -- --nocapture | grep '^compared') ||
        { fail "the interface differs from the headers"; return; }
    echo "layout: $compared"
}

part_pingpong() {
    has fi_pingpong && has fi_info || { absent "fi_pingpong (Debian: libfabric-bin)"; return; }
    fi_info -p rerail | grep -q 'provider: rerail' || { fail "fi_info does not list the provider"; return; }
    for kind in "" "-m tagged"; do
        # shellcheck disable=SC2086  # two words
        timeout 60 fi_pingpong -p rerail -e rdm -I 200 -c -B 47700 $kind >"$work/pingpong.server" 2>&1 &
        server=$!
        sleep 1
        # shellcheck disable=SC2086
        timeout 60 fi_pingpong -p rerail -e rdm -I 200 -c -P 47700 $kind 127.0.0.1 >"$work/pingpong.client" 2>&1 ||
            fail "fi_pingpong $kind: $(tail -n 3 "$work/pingpong.client")"
        wait "$server" || fail "fi_pingpong $kind, the server: $(tail -n 3 "$work/pingpong.server")"
    done
    echo "pingpong: messages and tagged messages, checked"
}

# Runs a command that starts ranks; its output is shown where it fails.
run() {
    name=$1
    shift
    if timeout 60 "$@" >"$work/log" 2>&1; then
        echo "$name: $(grep -c '^ok ' "$work/log") sections passed"
        grep -q '^ok ' "$work/log" || fail "$name: no section has run"
    else
        fail "$name: exit code $?"
        tail -n 15 "$work/log" >&2
    fi
}

# Latency of 8 bytes, one number: that it runs, and what it took.
bench() {
    name=$1
    shift
    if timeout 60 "$@" latency 8 200 10 200 >"$work/log" 2>&1; then
        echo "$name: 8 bytes in $(sort -n "$work/log" | head -n 1) ns at best"
    else
        fail "$name: exit code $?"
        tail -n 15 "$work/log" >&2
    fi
}

part_openmpi() {
    { has mpirun.openmpi && has mpicc.openmpi; } || { absent "Open MPI (Debian: openmpi-bin libopenmpi-dev)"; return; }
    for program in mpi_check mpi_bench; do
        mpicc.openmpi -O2 -pthread -Wall -Wextra -o "$work/$program.openmpi" "conformance/peers/$program.c"
    done
    for ranks in 2 4; do
        # Debian switches OFI off in its configuration.
        with="mpirun.openmpi --oversubscribe -n $ranks --mca pml cm --mca mtl ofi"
        # shellcheck disable=SC2086  # several words, here and below
        run "Open MPI, $ranks ranks" $with "$work/mpi_check.openmpi"
        # shellcheck disable=SC2086
        run "Open MPI, $ranks ranks, one-sided by messages" $with --mca osc pt2pt \
            "$work/mpi_check.openmpi" one-sided swapping
        # The comparing swap crashes in Open MPI 4.1.4 itself, over its own shared memory too.
        # shellcheck disable=SC2086
        run "Open MPI, $ranks ranks, one-sided by btl/ofi" $with --mca osc rdma --mca btl self,ofi \
            "$work/mpi_check.openmpi" one-sided
    done
    run "Open MPI, 2 ranks with threads" mpirun.openmpi --oversubscribe -n 2 --mca pml cm --mca mtl ofi \
        "$work/mpi_check.openmpi" threads
    if FI_PROVIDER_PATH="$work/none" timeout 60 mpirun.openmpi -n 2 --mca pml cm --mca mtl ofi \
        "$work/mpi_check.openmpi" matching >/dev/null 2>&1; then
        fail "Open MPI runs without the provider"
    fi
    bench "Open MPI" mpirun.openmpi --oversubscribe -n 2 --mca pml cm --mca mtl ofi "$work/mpi_bench.openmpi"
}

# MPICH's wheel in the target folder, and the programs for it; fails where it can't be had.
get_mpich() {
    mpich=$target/mpich-venv/bin
    if [ ! -x "$mpich/mpiexec" ]; then
        { python3 -m venv "$target/mpich-venv" && "$mpich/pip" -q install mpich; } >"$work/log" 2>&1 || {
            absent "MPICH (pip install mpich: $(tail -n 1 "$work/log"))"
            return 1
        }
    fi
    for program in mpi_check mpi_bench; do
        "$mpich/mpicc" -O2 -pthread -Wall -Wextra -o "$work/$program.mpich" "conformance/peers/$program.c"
    done
    # Its ranks of one node talk past the provider unless configured otherwise, and it prefers UCX.
    export MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1
}

part_mpich() {
    get_mpich || return 0
    for ranks in 2 4; do
        run "MPICH, $ranks ranks" "$mpich/mpiexec" -n "$ranks" "$work/mpi_check.mpich"
        run "MPICH, $ranks ranks, one-sided" "$mpich/mpiexec" -n "$ranks" "$work/mpi_check.mpich" one-sided swapping
    done
    run "MPICH, 2 ranks with threads" "$mpich/mpiexec" -n 2 "$work/mpi_check.mpich" threads
    # Names that hold two TCP contacts, and no shared memory.
    RERAIL_RAILS=tcp RERAIL_TCP_INTERFACES=127.0.0.1,127.0.0.2 \
        run "MPICH, 3 ranks, over two TCP rails" "$mpich/mpiexec" -n 3 "$work/mpi_check.mpich"
    bench "MPICH" "$mpich/mpiexec" -n 2 "$work/mpi_bench.mpich"
    # What has run above has run over the provider: without it nothing does.
    if FI_PROVIDER_PATH="$work/none" timeout 60 "$mpich/mpiexec" -n 2 "$work/mpi_check.mpich" matching >/dev/null 2>&1; then
        fail "MPICH runs without the provider"
    fi
}

# Two hosts on one machine, network namespaces with two links between them; then one link goes down under way.
part_hosts() {
    { [ "$(id -u)" -eq 0 ] && has ip; } || { absent "root and iproute2, for two hosts"; return; }
    get_mpich || return 0
    here=ofi$$-
    trap 'ip netns del "${here}0"; ip netns del "${here}1"' EXIT
    trap 'exit 143' INT TERM
    if ! { ip netns add "${here}0" && ip netns add "${here}1"; } 2>/dev/null; then
        absent "network namespaces"
        return
    fi
    for link in 0 1; do
        ip -n "${here}0" link add "rail$link" type veth peer name "rail$link" netns "${here}1" ||
            { absent "veth links"; return; }
        for host in 0 1; do
            ip -n "$here$host" addr add "10.91.$link.$((host + 1))/24" dev "rail$link"
            ip -n "$here$host" link set "rail$link" up
            ip -n "$here$host" link set lo up
        done
    done
    # The kernel reports a carrier some time after both ends are up.
    tries=0
    until [ "$({ ip -n "${here}0" -br link; ip -n "${here}1" -br link; } | grep -c '^rail.* UP ')" -eq 4 ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { absent "links that come up"; return; }
        sleep 0.1
    done
    printf '#!/bin/sh\nexec ip netns exec "%s$((PMI_RANK %% 2))" "$@"\n' "$here" >"$work/enter"
    chmod +x "$work/enter"
    run "MPICH, 4 ranks on two hosts" "$mpich/mpiexec" -n 4 "$work/enter" "$work/mpi_check.mpich"
    (sleep 2 && ip -n "${here}0" link set rail1 down) &
    run "MPICH, 2 hosts, a link goes down" "$mpich/mpiexec" -n 2 "$work/enter" "$work/mpi_check.mpich" ring
    wait
}

[ $# -gt 0 ] || set -- layout pingpong openmpi mpich hosts
for part in "$@"; do
    case $part in
    layout | pingpong | openmpi | mpich | hosts) "part_$part" ;;
    *) echo "ofi: no part $part" >&2 && exit 2 ;;
    esac
done
[ -z "$failed" ] || exit 1
[ -z "$absent" ] || exit 69
