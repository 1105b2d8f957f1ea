#!/bin/sh
# Two hosts, two rails, one machine: a file goes from one network namespace to another over two shaped veth pairs, and
# must arrive whole at 90 % or more of the sum of both rates.
#
#   netns.sh [-b BINARY] [-s SIZE_MIB] [-r RATE_MBIT] [-m MIN_PERCENT]
#
# With CI=true the rate is reported and not judged; that the copy is whole always is.
# Needs root, iproute2 (ip, tc) and a kernel with network namespaces, veth and tbf. Exit codes: 0 fast enough and whole,
# 1 not, 2 wrong use, 69 something that is needed is absent.
set -eu
# shellcheck source=conformance/scripts/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"

size_mib=1024
rate_mbit=500
min_percent=90
binary=
usage() { echo "usage: $0 [-b BINARY] [-s SIZE_MIB] [-r RATE_MBIT] [-m MIN_PERCENT]" >&2; exit 2; }
while getopts b:s:r:m:h option; do
    case $option in
        b) binary=$OPTARG ;;
        s) size_mib=$OPTARG ;;
        r) rate_mbit=$OPTARG ;;
        m) min_percent=$OPTARG ;;
        *) usage ;;
    esac
done
numbers_or_usage "$size_mib" "$rate_mbit" "$min_percent"
prepare sha256sum

for rail in 0 1; do
    pair "$rail" "10.77.$rail"
    shape "$rail" "$rate_mbit" 2> "$folder/error" || absent "tbf: $(cat "$folder/error")"
done

head -c "$((size_mib * 1024 * 1024))" /dev/urandom > "$folder/file"
mkdir "$folder/out"
RERAIL_KEY=$(new_key)
export RERAIL_KEY

RERAIL_HOST_ID=right ip netns exec "$right" "$binary" recv --listen 10.77.0.2:7470 --out "$folder/out" --once --json \
    --interfaces 10.77.0.2,10.77.1.2 > "$folder/received.json" 2> "$folder/received.log" &
child=$!
status=0
RERAIL_HOST_ID=left ip netns exec "$left" "$binary" send "$folder/file" --to 10.77.0.2:7470 --json \
    --interfaces 10.77.0.1,10.77.1.1 > "$folder/sent.json" 2> "$folder/sent.log" || status=$?
received=0
if [ "$status" = 0 ]; then
    wait "$child" || received=$?
    child=
fi
if [ "$status" != 0 ] || [ "$received" != 0 ]; then
    echo "the transfer failed (sender $status, receiver $received):" >&2
    cat "$folder/sent.log" "$folder/received.log" >&2
    exit 1
fi

number() { sed -n "s/.*\"$1\":\([0-9.e+]*\).*/\1/p" "$2"; }
sent_hash=$(sha256sum < "$folder/file" | cut -d' ' -f1)
received_hash=$(sha256sum < "$folder/out/file" | cut -d' ' -f1)
told_hash=$(sed -n 's/.*"sha256":"\([0-9a-f]*\)".*/\1/p' "$folder/received.json")
seconds=$(number seconds "$folder/sent.json")
rate=$(number rate "$folder/sent.json")

printf '%-22s %s\n' \
    'rails' "2 x $rate_mbit Mbit/s" \
    'file' "$size_mib MiB in $seconds s" \
    'sha256 of the source' "$sent_hash" \
    'sha256 of the copy' "$received_hash"
sed 's/.*"rails":\[\(.*\)\].*/\1/; s/},{/\n/g; s/[{}"]//g; s/name://g; s/,bytes:/ /g; s/,measured:/ /g' "$folder/sent.json" |
    while read -r name bytes measured; do
            printf '%-22s %s bytes, measured %s bytes/s\n' "rail $name" "$bytes" "$measured"
        done
awk -v rate="$rate" -v each="$rate_mbit" -v least="$min_percent" 'BEGIN {
    sum = 2 * each * 1e6 / 8
    percent = 100 * rate / sum
    printf "%-22s %.1f MB/s of %.1f MB/s: %.1f %% (at least %d %%)\n", "rate", rate / 1e6, sum / 1e6, percent, least
    exit percent < least
}' || {
    # A rate is a measurement: reported, but not judged, where other people's work shares the processors.
    [ "${CI:-}" = true ] || { echo "too slow" >&2; exit 1; }
    echo "slower than demanded; not judged in CI"
}
if [ "$sent_hash" != "$received_hash" ] || [ "$sent_hash" != "$told_hash" ]; then
    echo "the copy differs" >&2
    exit 1
fi
echo "OK"
