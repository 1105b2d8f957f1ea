# Runs inside of the machine with two devices (conformance/vm/check.sh).

fail() { echo "FAILED: $1"; exit 1; }
# A command that must fail with a text that has these words.
tells() {
    words=$1
    shift
    "$@" >/tmp/told 2>&1
    grep -q -- "$words" /tmp/told || { cat /tmp/told; fail "$* does not print: $words"; }
    echo "ok: printed \"$(grep -m 1 -- "$words" /tmp/told | sed 's/^ *//')\""
}
# As a user who is not root.
echo 'nobody:x:65534:65534:nobody:/:/bin/sh' >/etc/passwd
as_nobody() { su -s /bin/sh nobody -c "$*"; }

echo "== the contract suite on both devices"
rerail check --all-devices --known /root/rxe.txt --timeout-seconds 2 --idle-ms 50 --json >/results/devices.json || {
    rerail check --device rxe0 --known /root/rxe.txt --timeout-seconds 2 --idle-ms 50
    fail "rerail check"
}
echo "ok: $(grep -c '"outcome": "passed"' /results/devices.json) cases passed on two devices"

echo "== every sort of request over both rails, four processes"
RERAIL_RAILS=verbs rerail exchange -n 4 --hosts 4 --quick --stall-seconds 30 || fail "rerail exchange"
echo "== the same by writes instead of reads, and by buffers instead of either"
RERAIL_RAILS=verbs RERAIL_VERBS_READ=off rerail exchange -n 2 --hosts 2 --quick --stall-seconds 30 >/tmp/out || {
    cat /tmp/out
    fail "rerail exchange by writes"
}
RERAIL_RAILS=verbs RERAIL_VERBS_READ=off RERAIL_VERBS_WRITE=off \
    rerail exchange -n 2 --hosts 2 --quick --stall-seconds 30 >/tmp/out || {
    cat /tmp/out
    fail "rerail exchange by buffers"
}
echo "ok"

echo "== puts, gets and sends, verified"
for op in send put get; do
    rerail perf bandwidth --path verbs --op $op --verify --sizes 8,4K,64K,1M --iterations 1 --window 8 >/tmp/out || {
        cat /tmp/out
        fail "rerail perf --op $op"
    }
    grep -q 'verbs:rxe0' /tmp/out && grep -q 'verbs:rxe1' /tmp/out || { cat /tmp/out; fail "--op $op: a rail is missing"; }
done
echo "ok"

echo "== a file"
dd if=/dev/urandom of=/tmp/file bs=1M count=8 2>/dev/null
mkdir /tmp/into
RERAIL_KEY=$(printf '%064d' 7)
export RERAIL_KEY
RERAIL_RAILS=verbs RERAIL_HOST_ID=receiver rerail recv --listen 127.0.0.1:7001 --out /tmp/into --once >/tmp/recv 2>&1 &
sleep 1
RERAIL_RAILS=verbs RERAIL_HOST_ID=sender rerail send --to 127.0.0.1:7001 /tmp/file >/tmp/sent 2>&1 || {
    cat /tmp/sent /tmp/recv
    fail "rerail send"
}
wait
cmp /tmp/file /tmp/into/file || { cat /tmp/sent /tmp/recv; fail "the file differs"; }
echo "ok"

echo "== messages when something is missing"
tells "rxe0 port 1: GID index 9 is not in use; choose one that is in use: 0" \
    env RERAIL_RAILS=verbs RERAIL_VERBS_DEVICES=rxe0/1/9 rerail launch -n 2 --hosts 2 rerail exchange --quick
tells "no device of this name; there are: rxe0, rxe1" \
    env RERAIL_RAILS=verbs RERAIL_VERBS_DEVICES=mlx5_7 rerail launch -n 2 --hosts 2 rerail exchange --quick
tells "GID index 9 is not in use" rerail check --device rxe0 --gid-index 9
chmod 600 /dev/infiniband/uverbs*
tells "permission denied: this user needs read and write access to /dev/infiniband/uverbs" as_nobody rerail info
tells "chmod 666 /dev/infiniband/uverbs0" as_nobody rerail info
chmod 666 /dev/infiniband/uverbs*
( ulimit -l 64; as_nobody rerail info >/tmp/memlock 2>&1 )
tells "of memory may be locked" cat /tmp/memlock
tells "ulimit -l unlimited" cat /tmp/memlock
( ulimit -l 64; RERAIL_RAILS=verbs as_nobody rerail launch -n 2 --hosts 2 rerail exchange --quick >/tmp/memlock 2>&1 )
tells "raise the limit of locked memory" cat /tmp/memlock
ip=/usr/bin/ip
$ip link set v1 down
tells "rxe1 has no active port: 1 is down" rerail info
tells "ip link set INTERFACE up" rerail info
$ip link set v1 up
mv /lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so /tmp
tells "libibverbs has no driver for it" rerail info
mv /tmp/librxe-rdmav34.so /lib/x86_64-linux-gnu/libibverbs
mv /lib/x86_64-linux-gnu/libibverbs.so.1 /tmp
tells "libibverbs is not installed" rerail info
tells "apt install libibverbs1 ibverbs-providers" rerail info
rerail exchange -n 2 --hosts 2 --quick >/tmp/out || { cat /tmp/out; fail "without the library TCP must do"; }
mv /tmp/libibverbs.so.1 /lib/x86_64-linux-gnu
rdma link delete rxe0
rdma link delete rxe1
tells "the kernel has no RDMA device" rerail info
tells "modprobe rdma_rxe" rerail info
echo "ok"
