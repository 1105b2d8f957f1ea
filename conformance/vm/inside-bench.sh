# Runs inside of the machine (conformance/vm/bench.sh): rounds of raw verbs and of rerail, one after the other.
rounds=$1
sizes="8 4096 65536 1048576"
export RERAIL_RAILS=verbs
mkdir -p /tmp/all

# perftest: the second process prints; of its last line of figures, one column. GID 1 is the IPv4 one.
raw() {
    program=$1 size=$2 count=$3 column=$4
    $program -d rxe0 -x 1 -s "$size" -n "$count" -F >/tmp/server 2>&1 &
    sleep 0.4
    $program -d rxe0 -x 1 -s "$size" -n "$count" -F localhost >/tmp/client 2>&1
    wait
    awk -v size="$size" -v column="$column" '$1 == size && NF >= 4 { value = $column } END { print value }' /tmp/client
}
# rerail: one number of its JSON, the first of that name.
field() { grep -o "\"$1\": *[0-9.]*" | head -n 1 | grep -o '[0-9.]*$'; }
thousandth() { awk '{ printf "%.2f", $1 / 1000 }'; }
millionth() { awk '{ printf "%.1f", $1 / 1000000 }'; }
ours() { rerail perf "$@" --path verbs --json 2>/tmp/complaint || cat /tmp/complaint >&2; }

keep() { echo "$3" >>"/tmp/all/$1-$2"; }
for round in $(seq "$rounds"); do
    for size in $sizes; do
        case $size in
        8) times=2000 count=2000 windows=10 ;;
        4096) times=1000 count=2000 windows=10 ;;
        65536) times=100 count=300 windows=5 ;;
        *) times=20 count=40 windows=1 ;;
        esac
        keep raw-latency "$size" "$(raw ib_send_lat "$size" $times 5)"
        keep latency "$size" "$(ours latency --devices rxe0 --sizes "$size" --iterations $times | field median_ns | thousandth)"
        keep raw-write "$size" "$(raw ib_write_bw "$size" $count 4)"
        keep raw-read "$size" "$(raw ib_read_bw "$size" $count 4)"
        keep raw-send "$size" "$(raw ib_send_bw "$size" $count 4)"
        keep send "$size" "$(ours bandwidth --devices rxe0 --sizes "$size" --iterations $windows | field bytes_per_second | millionth)"
        keep put "$size" "$(ours bandwidth --op put --devices rxe0 --sizes "$size" --iterations $windows | field bytes_per_second | millionth)"
        keep two "$size" "$(ours bandwidth --sizes "$size" --iterations $windows | field bytes_per_second | millionth)"
    done
    echo "round $round of $rounds is done" >&2
done

best() { sort -g "/tmp/all/$1-$2" | grep . | { [ "$3" = least ] && head -n 1 || tail -n 1; }; }
# perftest counts MB as 2^20 bytes; rerail as 10^6.
decimal() { awk -v value="$1" 'BEGIN { printf "%.1f", value * 1.048576 }'; }
ratio() { awk -v ours="$1" -v raw="$2" 'BEGIN { if (raw > 0) printf "%.2f", ours / raw; else printf "-" }'; }
echo "| size | ib_send_lat us | rerail us | ratio | ib_write_bw MB/s | ib_read_bw MB/s | ib_send_bw MB/s | rerail MB/s | to the best raw | rerail put MB/s | two rails MB/s |"
echo "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
for size in $sizes; do
    raw_latency=$(best raw-latency "$size" least) latency=$(best latency "$size" least)
    write=$(decimal "$(best raw-write "$size" most)") read=$(decimal "$(best raw-read "$size" most)")
    sent=$(decimal "$(best raw-send "$size" most)")
    send=$(best send "$size" most) put=$(best put "$size" most) two=$(best two "$size" most)
    top=$(printf '%s\n' "$write" "$read" "$sent" | sort -g | tail -n 1)
    echo "| $size | $raw_latency | $latency | $(ratio "$latency" "$raw_latency") | $write | $read | $sent | $send | $(ratio "$send" "$top") | $put | $two |"
done
