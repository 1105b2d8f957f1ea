# Runs inside of both machines that two cables join (conformance/vm/check.sh --two).
RERAIL_KEY=$(printf '%064d' 7)
export RERAIL_KEY RERAIL_RAILS=verbs
for op in send put get; do
    if [ "$VM_HOST" = 0 ]; then
        rerail perf latency --listen 10.0.0.1:7000 || exit 1
    else
        for _ in $(seq 60); do
            rerail perf latency --op $op --verify --sizes 8,64K,1M --iterations 4 --connect 10.0.0.1:7000 \
                >/tmp/out 2>&1
            code=$?
            grep -q 'refused' /tmp/out || break
            sleep 1
        done
        [ $code -eq 0 ] || { cat /tmp/out; exit 1; }
        [ $op = send ] && cat /tmp/out
        grep -q 'verbs:rxe0' /tmp/out && grep -q 'verbs:rxe1' /tmp/out || { cat /tmp/out; echo "a rail is missing"; exit 1; }
        echo "ok: $op between two machines over two rails, verified"
    fi
done
