# Runs inside of the machines (conformance/vm/cluster.sh): cluster.sh with a few sizes, as emulation is slow.
export RERAIL=/usr/bin/rerail CHECK="--known /root/rxe.txt --timeout-seconds 2 --idle-ms 50"
export PERF="--sizes 8,64K --iterations 4 --warmup 1 --window 4"
key=$(printf '%064d' 7)
case $1,$VM_HOST in
local,*) /root/bash /root/cluster.sh local >/results/result.json ;;
pair,0) /root/bash /root/cluster.sh serve "$key" ;;
# The suite is `local`'s; here a part of it will do.
pair,1) CHECK="$CHECK states/" /root/bash /root/cluster.sh measure "$VM_PEER" "$key" >/results/result.json ;;
esac
