# Runs inside of the machine (conformance/vm/bench.sh): rounds of raw verbs and of rerail, one beside the other.
rounds=$1
sizes="8 4096 65536 1048576"
export RERAIL_RAILS=verbs
mkdir -p /tmp/all

# perftest: the second process prints; of its line of figures, one column. GID 1 is the IPv4 one. rerail pins its ranks to
# the same processors.
raw() {
    program=$1 size=$2 count=$3 column=$4
    taskset 1 "$program" -d rxe0 -x 1 -s "$size" -n "$count" -F >/tmp/server 2>&1 &
    server=$!
    sleep 0.4
    taskset 2 "$program" -d rxe0 -x 1 -s "$size" -n "$count" -F localhost >/tmp/client 2>&1
    wait $server
    awk -v size="$size" -v column="$column" '$1 == size && NF >= 4 { value = $column } END { print value }' /tmp/client
}
# MB/s of 10^6 bytes; perftest's MB are 2^20 bytes.
raw_bandwidth() { raw "$1" "$size" "$count" 4 | awk '{ printf "%.3f", $1 * 1.048576 }'; }
# rerail: one number of its JSON, the first of that name.
field() { grep -o "\"$1\": *[0-9.]*" | head -n 1 | grep -o '[0-9.]*$'; }
ours() { rerail perf "$@" --path verbs --sizes "$size" --json 2>/tmp/complaint || cat /tmp/complaint >&2; }
bandwidth() { ours bandwidth --iterations "$windows" --window "$window" "$@" | field bytes_per_second | awk '{ printf "%.3f", $1 / 1000000 }'; }

run_raw_latency() { raw ib_send_lat "$size" "$times" 5; }
run_latency() { ours latency --devices rxe0 --iterations "$times" | field median_ns | awk '{ printf "%.2f", $1 / 1000 }'; }
run_raw_read() { raw_bandwidth ib_read_bw; }
# What it costs that the other processor is at work, whatever it does: the sleeping side of a raw read has it for nothing.
run_raw_busy() {
    taskset 1 sh -c 'while :; do :; done' &
    loop=$!
    raw_bandwidth ib_read_bw
    kill $loop
    wait $loop 2>/dev/null
}
run_raw_write() { raw_bandwidth ib_write_bw; }
run_raw_send() { raw_bandwidth ib_send_bw; }
run_send() { bandwidth --devices rxe0; }
run_put() { bandwidth --devices rxe0 --op put; }
run_two() { bandwidth; }

# Runs, and keeps one line a round: its figure, or none. File of the name, of the size.
keep() { echo "$("run_$1")" >>"/tmp/all/$1-$size"; }
for round in $(seq "$rounds"); do
    for size in $sizes; do
        case $size in
        8) times=3000 count=3000 windows=30 window=64 ;;
        4096) times=1000 count=3000 windows=30 window=64 ;;
        # perftest never pauses; rerail's two sides wait for each other after each window, so large messages have long ones.
        65536) times=100 count=400 windows=2 window=192 ;;
        *) times=20 count=50 windows=2 window=24 ;;
        esac
        if [ $((round % 2)) -eq 1 ]; then
            order="raw_latency latency raw_busy raw_read send raw_write put raw_send two"
        else
            order="latency raw_latency two send raw_read raw_busy put raw_write raw_send"
        fi
        for what in $order; do keep "$what"; done
    done
    echo "round $round of $rounds is done" >&2
done

middle() { grep . | sort -g | awk '{ all[NR] = $1 } END { if (NR) printf "%.4f", (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'; }
median() { middle <"/tmp/all/$1-$size" | awk -v digits="$2" '{ printf "%." digits "f", $1 }'; }
# Lines stand side by side as the rounds did: where one has no figure, the neighbours stay neighbours.
quotients() { paste /tmp/above /tmp/below | awk -F'\t' '$1 > 0 && $2 > 0 { print $1 / $2 }'; }
# Of the quotients round by round.
ratio() {
    cp "/tmp/all/$1-$size" /tmp/above
    cp "/tmp/all/$2-$size" /tmp/below
    quotients | middle | awk '{ printf "%.2f", $1 }'
}
# Least and most of the quotients.
spread() {
    quotients | sort -g |
        awk 'NR == 1 { least = $1 } { most = $1 } END { printf "%.2f to %.2f", least, most }'
}
echo "| size | ib_send_lat us | rerail us | ratio | least to most |"
echo "|---:|---:|---:|---:|---:|"
for size in $sizes; do
    echo "| $size | $(median raw_latency 1) | $(median latency 1) | $(ratio latency raw_latency) | $(ratio latency raw_latency >/dev/null; spread) |"
done
echo
echo "| size | ib_read_bw MB/s | beside a busy loop | ib_write_bw | ib_send_bw | rerail MB/s | to ib_read_bw | least to most | to that beside a busy loop | rerail put | two rails | two to one |"
echo "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
for size in $sizes; do
    digits=1
    [ "$size" -gt 8 ] || digits=3
    echo "| $size | $(median raw_read $digits) | $(median raw_busy $digits) | $(median raw_write $digits) | $(median raw_send $digits) | $(median send $digits) | $(ratio send raw_read) | $(ratio send raw_read >/dev/null; spread) | $(ratio send raw_busy) | $(median put $digits) | $(median two $digits) | $(ratio two send) |"
done
