# Runs inside of the machine with two devices (conformance/vm/faults.sh).
ip=/usr/bin/ip
export RERAIL_RAILS=verbs

fail() {
    echo "FAILED: $1"
    cat /tmp/traffic 2>/dev/null
    rdma link
    rerail info | sed -n '/^verbs/,$p' | head -n 40
    exit 1
}
# Both ports are active and have the GID of their IPv4 address, which follows the address after a moment.
ready() {
    for device in rxe0 rxe1; do
        for _ in $(seq 100); do
            port=/sys/class/infiniband/$device/ports/1
            grep -q ACTIVE $port/state 2>/dev/null && grep -q '0000:0000:0000:0000:0000:ffff' $port/gids/* && break
            sleep 0.1
        done
    done
}

# Packets that a device has sent.
sent() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts"; }
# Messages for so many seconds in the background; returns when they flow over both rails.
traffic() {
    ready
    before0=$(sent rxe0) before1=$(sent rxe1)
    rerail perf mixed --path verbs --seconds "$1" --window 8 --sizes 0,8,1000,8K,100000,256K --stall-seconds 40 \
        >/tmp/traffic 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        kill -0 $pid 2>/dev/null || fail "the traffic is over before the fault"
        [ $(($(sent rxe0) - before0)) -ge 200 ] && [ $(($(sent rxe1) - before1)) -ge 200 ] && return
        sleep 0.1
    done
    fail "no traffic over both rails"
}
# Messages flowed until after the last fault, which is over; nothing was lost, duplicated, damaged or out of
# order, and both rails are there.
all_well() {
    kill -0 $pid 2>/dev/null || fail "$1: the traffic was over before the last fault was: let it run for longer"
    wait $pid || fail "$1: the traffic ended with $?"
    for device in rxe0 rxe1; do
        grep -q "verbs:$device" /tmp/traffic || fail "$1: rail $device is missing"
    done
    echo "ok: $1"
}
# Both rails carry messages now.
both_carry() {
    ready
    rerail perf bandwidth --path verbs --sizes 256K --window 8 --iterations 1 --warmup 0 --verify >/tmp/traffic 2>&1 ||
        fail "$1: afterwards"
    grep -q 'verbs:rxe0' /tmp/traffic && grep -q 'verbs:rxe1' /tmp/traffic || fail "$1: afterwards a rail is missing"
}
# A command that must be through within ten seconds.
soon() {
    "$@" &
    waited=$!
    for _ in $(seq 100); do
        kill -0 $waited 2>/dev/null || { wait $waited; return; }
        sleep 0.1
    done
    fail "$* hangs"
}
add() {
    rdma link add "rxe$1" type rxe netdev "v$1" || fail "rxe$1 could not be made again"
}

case_links_in_turn() {
    traffic 14
    for rail in 0 1; do
        $ip link set v$rail down
        sleep 1
        $ip link set v$rail up
        sleep 1
    done
    all_well "ports down and up, in turn"
}

case_links_at_once() {
    traffic 12
    $ip link set v0 down
    $ip link set v1 down
    sleep 1
    $ip link set v1 up
    $ip link set v0 up
    all_well "both ports down at once, and up again"
}

case_addresses() {
    traffic 14
    # The GID of the address goes with it; the new one gets a GID of its own, in the same place of the table.
    $ip addr del 10.0.1.1/24 dev v1
    sleep 0.5
    $ip addr add 10.0.1.9/24 dev v1
    sleep 1.5
    $ip addr del 10.0.1.9/24 dev v1
    $ip addr add 10.0.1.1/24 dev v1
    all_well "another address of one device, and the first one again"
}

case_removal() {
    for rail in 1 0; do
        traffic 14
        soon rdma link delete rxe$rail
        echo "ok: rdma link delete rxe$rail has finished: the processes have closed it"
        sleep 1
        add $rail
        all_well "rxe$rail removed and made again"
        both_carry "rxe$rail removed and made again"
    done
}

case_removal_of_both() {
    export RERAIL_RECOVERY_TIMEOUT=5s
    # For longer than it takes: it ends with the loss.
    traffic 90
    soon rdma link delete rxe0
    soon rdma link delete rxe1
    wait $pid
    code=$?
    export RERAIL_RECOVERY_TIMEOUT=600s
    [ $code -ne 0 ] || fail "both devices are gone, and the traffic has not noticed"
    grep -q 'rank [01] (.*is lost: .*verbs:rxe[01]' /tmp/traffic || fail "the message names no rail, or no peer"
    grep -q 'device was removed' /tmp/traffic || fail "the message does not name what has happened"
    echo "ok: both removed: reported \"$(grep -m 1 'is lost' /tmp/traffic)\""
    add 0
    add 1
    sleep 1
    both_carry "both removed and made again"
}

[ $# -gt 0 ] || set -- links_in_turn links_at_once addresses removal removal_of_both
failed=0
for name in "$@"; do
    echo "== $name"
    # Each by itself: what one leaves behind in the shell is not the next one's.
    ("case_$name") || failed=1
done
[ $failed -eq 0 ] && echo "faults: all is as it should be"
exit $failed
