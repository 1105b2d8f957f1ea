#!/usr/bin/env bash
# A soak of real processes: `rerail exchange`, which verifies every byte, again and again with drawn options, each time under
# one kind of disturbance. What must hold of every run: nothing is lost, duplicated, late in order or different; what can't
# work ends with a documented exit code and a message with what to do; nothing hangs, and no process, no file
# in /dev/shm and no unix socket stays behind.
#
#   real-soak.sh [-b BINARY] [--minutes M | --seconds S] [--seed SEED] [--only KIND] [--run N]
#
#   --seconds S   begins no run after so long (75)
#   --seed SEED   draws the options and the moments of all runs (1); the kinds take turns
#   --only KIND   this kind alone; --run N: this run alone, as it was drawn
#
# | kind | disturbance | exit codes of the exchange that are right |
# |---|---|---|
# | calm | none | 0 |
# | pause | ranks are stopped (SIGSTOP) and go on, again and again | 0 |
# | kill-self | a rank kills itself in a drawn round (--kill-rank) | 0: the exchange judges it |
# | kill | a rank gets SIGKILL at a drawn moment, in half of the runs while it is stopped | 3, each survivor names it, unless all had verified everything and it died while it left: then the launcher names it; 0 where it was over; 2 before all had started, with the rank that failed |
# | end-launcher | the launcher gets SIGKILL, SIGTERM or SIGINT | the signal's, 2 or 3; all ranks end |
# | full-shm | /dev/shm is a full tmpfs | 0: nothing of the transport lies there |
# | files | few descriptors (ulimit -n), for all or for the ranks | 0, or 2 with the limit's name |
# | memory | little address space (ulimit -v) for the ranks | 0, or 2, or 3 of a rank that lost it: one names memory |
# | cgroup | little memory (cgroup); the kernel kills a process that needs more | 0, or as kill |
# | clock | CLOCK_REALTIME jumps by up to a day, either way, every 20 ms (a preloaded library, for these processes alone) | 0 |
# | uptime | monotonic clocks begin 30 years ahead (a time namespace) | 0 |
#
# The clock of the machine is left alone: what the transport reads of real time (nothing: the script looks through the source
# first) would come from libc, and the library stands before it. A kind that this machine can't do (root, a C compiler,
# namespaces or a cgroup are missing) is counted as absent. Exit: 0 all as demanded, 1 not, 2 wrong use.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
usage() { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
seconds=75 seed=1 only= run_only= binary=
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    -b) binary=$(realpath "$2") ;;
    --minutes) seconds=$(($2 * 60)) ;;
    --seconds) seconds=$2 ;;
    --seed) seed=$2 ;;
    --only) only=$2 ;;
    --run) run_only=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[[ $seconds =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ && $run_only =~ ^[0-9]*$ ]] || usage
if [ -z "$binary" ]; then
    cargo build --quiet --release --manifest-path "$root/Cargo.toml" -p rerail-conformance --bin rerail || exit 1
    binary=${CARGO_TARGET_DIR:-$root/target}/release/rerail
fi

# A /dev/shm of our own, which no other process writes to, in a mount namespace of our own.
if [ "$(id -u)" -eq 0 ] && [ -z "${RERAIL_SOAK_APART:-}" ] && unshare -m true 2> /dev/null; then
    arguments=(-b "$binary" --seconds "$seconds" --seed "$seed")
    [ -z "$only" ] || arguments+=(--only "$only")
    [ -z "$run_only" ] || arguments+=(--run "$run_only")
    RERAIL_SOAK_APART=1 exec unshare -m --propagation private "$0" "${arguments[@]}"
fi
apart=${RERAIL_SOAK_APART:-}
unset RERAIL_SOAK_APART
[ -z "$apart" ] || mount -t tmpfs -o size=1m tmpfs /dev/shm || apart=

scratch=$(mktemp -d)
cgroup=
leader=
finish() {
    status=$?
    trap - EXIT
    [ -z "$leader" ] || end_session
    [ -z "$cgroup" ] || rmdir "$cgroup" 2> /dev/null
    rm -rf "$scratch"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- what there is on this machine

kinds=(calm pause kill-self kill end-launcher full-shm files memory cgroup clock uptime)
declare -A absent=()

# The real time is not used: only tests and what is printed for people may read it.
if grep -rnE 'SystemTime|CLOCK_REALTIME|ClockId::Realtime|gettimeofday' "$root"/{core,os-linux,verbs-shim}/src --include='*.rs' |
    grep -vE '/tests(/|\.rs)'; then
    echo "FAILED: the transport reads the real-time clock, which may jump" >&2
    exit 1
fi
if command -v cc > /dev/null; then
    cat > "$scratch/clock.c" <<'C'
/* CLOCK_REALTIME of one process, which jumps by up to a day every 20 ms. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long jump(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    unsigned long step = now.tv_sec * 50UL + now.tv_nsec / 20000000L;
    return (long)(step * 2654435761UL % 172801UL) - 86400L;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += jump();
    return result;
}
int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, time, zone);
    if (result == 0 && time) time->tv_sec += jump();
    return result;
}
time_t time(time_t *out) {
    struct timeval now;
    gettimeofday(&now, 0);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
C
    cc -O1 -shared -fPIC -o "$scratch/clock.so" "$scratch/clock.c" || absent[clock]="cc failed"
    if [ -z "${absent[clock]:-}" ]; then
        first=$(LD_PRELOAD=$scratch/clock.so date +%s) && sleep 0.05 && second=$(LD_PRELOAD=$scratch/clock.so date +%s)
        [ $((second - first)) -lt 0 ] || [ $((second - first)) -gt 2 ] || absent[clock]="the library has no effect"
    fi
else
    absent[clock]="no C compiler"
fi
unshare -T --monotonic 1000000000 true 2> /dev/null || absent[uptime]="no time namespace can be made"
[ -n "$apart" ] || absent[full-shm]="only root may mount a tmpfs of its own"
for at in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -n "$cgroup" ] || [ ! -w "$at" ] || [ ! -e "$at/cgroup.procs" ] || ! mkdir "$at/rerail-soak-$$" 2> /dev/null ||
        cgroup=$at/rerail-soak-$$
done
limit_file=
for name in memory.limit_in_bytes memory.max; do
    [ -n "$cgroup" ] && [ -w "$cgroup/$name" ] && limit_file=$cgroup/$name
done
[ -n "$limit_file" ] || absent[cgroup]="no memory cgroup can be made"
if [ -n "$only" ]; then
    printf '%s\n' "${kinds[@]}" | grep -qxF -- "$only" || { echo "no kind $only; there are: ${kinds[*]}" >&2; exit 2; }
    kinds=("$only")
fi

# ---- random numbers: the same for the same seed and run

state=0
begin_drawing() { state=$((($1 * 6364136223846793005 + $2 * 1442695040888963407 + 11400714819323198485) & 0x7fffffffffffffff)); }
# Below $1, into `drawn`. xorshift: no subshell, so the state stays.
draw() {
    state=$((state ^ (state << 13) & 0x7fffffffffffffff))
    state=$((state ^ state >> 7))
    state=$((state ^ (state << 17) & 0x7fffffffffffffff))
    drawn=$((state % $1))
}
# One of the arguments, into `drawn`.
pick() {
    draw $#
    local at=$((drawn + 1))
    drawn=${!at}
}

# ---- one run

# Processes of the session of this run. Zombies are over: their adopting process has not collected them yet.
session() { ps -o pid=,stat= -s "$leader" 2> /dev/null | awk '$2 !~ /^Z/ { print $1 }'; }
end_session() {
    local pids
    mapfile -t pids < <(session)
    [ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2> /dev/null
}
ranks_of() { ps -o pid=,ppid= -s "$leader" 2> /dev/null | awk -v of="$leader" '$2 == of { print $1 }' | sort -n; }
# A rank that runs, by a drawn number; into `victim`, and its place in the order of start.
pick_rank() {
    local pids
    mapfile -t pids < <(ranks_of)
    victim=
    [ ${#pids[@]} -eq "$ranks" ] || return 1
    draw "$ranks"
    rank=$drawn
    victim=${pids[$rank]}
}
pause() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

# Which code and what message are right; `why` names what is wrong.
wrong() { why="${why:+$why; }$1"; }
said() { grep -qE -- "$1" "$scratch/log"; }

one() {
    local kind=$1
    why= code= outcome=ok
    pick 2 3 4 5; ranks=$drawn
    pick 1 2 2; hosts=$drawn
    pick 64 1K 4K 64K 1M; local bytes=$drawn
    draw 1000000; local arguments=(exchange -n "$ranks" --hosts "$hosts" --quick --max-bytes "$bytes" --seed "$drawn" --stall-seconds 20)
    local settings=(RERAIL_LOG=off)
    pick "" "" RERAIL_POLICY_SMALL=round-robin RERAIL_POLICY=even RERAIL_KEEPALIVE=20ms RERAIL_EAGER_MAX=4K
    [ -z "$drawn" ] || settings+=("$drawn")
    if [ "$hosts" -eq 1 ]; then
        pick "" RERAIL_RAILS=shm RERAIL_RAILS=tcp
        [ -z "$drawn" ] || settings+=("$drawn")
    fi
    local wrap=() limits=:
    hit=1
    # Long enough for signals to meet it.
    case $kind in pause | kill | end-launcher) hit=0 arguments[7]=1M ;; esac
    case $kind in
    kill-self)
        draw "$ranks"; arguments+=(--kill-rank "$drawn")
        draw 38; arguments+=(--after-round "$drawn")
        ;;
    full-shm) head -c 2M /dev/zero > /dev/shm/full 2> /dev/null ;;
    files)
        draw 28; limits="ulimit -n $((drawn + 5))"
        # The launcher has more of them open than a rank: in half of the runs it has enough.
        draw 2
        if [ "$drawn" -eq 0 ]; then
            wrap=("$binary" launch -n "$ranks" --hosts "$hosts" -- sh -c "$limits; exec \"\$0\" \"\$@\"")
            limits=:
        fi
        ;;
    memory)
        draw 120; wrap=("$binary" launch -n "$ranks" --hosts "$hosts" -- sh -c "ulimit -v $((15000 + drawn * 500)); exec \"\$0\" \"\$@\"") ;;
    cgroup) draw 60; echo $(((3 + drawn) * 1024 * 1024)) > "$limit_file" ;;
    clock) settings+=(LD_PRELOAD="$scratch/clock.so") ;;
    uptime) wrap=(unshare -T --monotonic 1000000000 --boottime 1000000000 --fork) ;;
    esac
    local before after begun=$EPOCHSECONDS
    before=$(ls -A /dev/shm)
    command="env ${settings[*]} ${wrap[*]:+${wrap[*]} }$(basename "$binary") ${arguments[*]}"
    setsid bash -c 'echo $$ > "$1"; [ -z "$2" ] || echo $$ > "$2/cgroup.procs"; eval "$3"; shift 3; exec env "$@"' soak \
        "$scratch/leader" "$([ "$kind" = cgroup ] && echo "$cgroup")" "$limits" "${settings[@]}" ${wrap[@]+"${wrap[@]}"} \
        "$binary" "${arguments[@]}" > "$scratch/log" 2>&1 &
    local job=$!
    # setsid forks where it leads a group already, and does not wait: its child writes its process id.
    while [ ! -s "$scratch/leader" ]; do sleep 0.002; done
    leader=$(cat "$scratch/leader")
    rm "$scratch/leader"
    ( sleep 90; echo "hangs" > "$scratch/hangs"; kill -KILL "$leader" ) > /dev/null 2>&1 &
    local watchdog=$!
    local rank= victim= signal=
    disturb "$kind"
    wait "$job" 2> /dev/null
    code=$?
    # The children of a launcher that was killed end by themselves, soon.
    local left=1
    for _ in {1..100}; do
        [ -n "$(session)" ] || { left=; break; }
        sleep 0.1
    done
    { kill -KILL "$watchdog" && wait "$watchdog"; } 2> /dev/null
    [ ! -e "$scratch/hangs" ] || { wrong "it hung for 90 s"; rm "$scratch/hangs"; }
    [ -z "$left" ] || { wrong "processes are left: $(session | tr '\n' ' ')"; end_session; }
    after=$(ls -A /dev/shm)
    [ "$before" = "$after" ] || wrong "left in /dev/shm: $after"
    [ -z "$apart" ] || rm -f /dev/shm/*
    ! said 'panicked at' || wrong "a panic"
    ! said 'FAILED' || wrong "verification failed"
    judge "$kind"
    leader=
    took=$((EPOCHSECONDS - begun))
    [ -z "$why" ] || outcome=unexpected
}

# What happens to it while it runs.
disturb() {
    case $1 in
    pause)
        for _ in {1..8}; do
            draw 150; pause $((drawn + 1))
            draw 250; local span=$((drawn + 1))
            pick_rank || continue
            kill -STOP "$victim" 2> /dev/null || continue
            hit=1
            pause "$span"
            kill -CONT "$victim" 2> /dev/null
        done
        ;;
    kill)
        pick 100 400 1600; draw "$drawn"; pause "$drawn"
        draw 2; local stopped=$drawn
        if pick_rank; then
            [ "$stopped" -eq 0 ] || { kill -STOP "$victim" 2> /dev/null; pause 50; }
            kill -KILL "$victim" 2> /dev/null && hit=1
        fi
        ;;
    end-launcher)
        pick 100 400 1600; draw "$drawn"; pause "$drawn"
        pick KILL TERM INT; signal=$drawn
        kill "-$signal" "$leader" 2> /dev/null && hit=1
        ;;
    esac
}

# The ranks that the launcher saw killed.
killed() { sed -nE 's/^rank ([0-9]+) .*was killed by SIGKILL.*/\1/p' "$scratch/log" | sort -u; }
# Each rank but the lost ones reports each lost one: of those that the launcher saw killed.
survivors_name_it() {
    local lost survivor
    for lost in $(killed); do
        for ((survivor = 0; survivor < ranks; survivor++)); do
            ! grep -qE "^rank $survivor .*was killed by" "$scratch/log" || continue
            said "rank $survivor reports: rank $lost " || wrong "rank $survivor does not name rank $lost"
        done
    done
}

judge() {
    case $1:$code in
    # It had sent BYE to all, so no rank misses it: the verdict on everything stands, and the launcher names
    # it.
    kill:3) outcome=error
        if said '^(\[[0-9]+\] )?(\S* )?OK '; then
            said 'rank [0-9]+ .*was killed by SIGKILL before it had left the job' || wrong "the launcher does not name it"
        else
            survivors_name_it
            said 'PEER LOST' || [ "$(killed | wc -l)" -eq "$ranks" ] || wrong "no rank went on"
        fi ;;
    cgroup:3) outcome=error; survivors_name_it; said 'PEER LOST' || [ "$(killed | wc -l)" -eq "$ranks" ] || wrong "no rank went on" ;;
    # Before all had joined, a job can't start; the launcher names the rank.
    kill:2 | cgroup:2) outcome=error; said 'rank [0-9]+ .*(was killed by SIGKILL|failed)' || wrong "no rank is named" ;;
    cgroup:137) outcome=error ;;
    end-launcher:137 | end-launcher:143 | end-launcher:130 | end-launcher:2 | end-launcher:3) outcome=error ;;
    files:2) outcome=error; said 'limit of open descriptors|ulimit -n' || wrong "the limit is not named" ;;
    # What a rank that was refused memory leaves behind another reports as a loss, and may end first.
    memory:2 | memory:3) outcome=error; said "memory" || wrong "memory is not named" ;;
    *:0) said '^(\[[0-9]+\] )?(\S* )?OK ' || wrong "exit code 0 without a verdict" ;;
    *) wrong "exit code $code" ;;
    esac
}

# ---- all of them

declare -A runs=() hits=() oks=() errors=() bads=()
begin=$EPOCHSECONDS failed=0 number=0
while [ $((EPOCHSECONDS - begin)) -lt "$seconds" ]; do
    kind=${kinds[number % ${#kinds[@]}]}
    if [ -n "$run_only" ] && [ "$number" -gt "$run_only" ]; then break; fi
    if [ -n "${absent[$kind]:-}" ] || { [ -n "$run_only" ] && [ "$number" -ne "$run_only" ]; }; then
        number=$((number + 1))
        [ "$number" -lt ${#kinds[@]} ] || [ ${#absent[@]} -lt ${#kinds[@]} ] || break
        continue
    fi
    begin_drawing "$seed" "$number"
    for _ in {1..8}; do draw 2; done
    one "$kind"
    runs[$kind]=$((${runs[$kind]:-0} + 1))
    hits[$kind]=$((${hits[$kind]:-0} + hit))
    case $outcome in
    ok) oks[$kind]=$((${oks[$kind]:-0} + 1)) ;;
    error) errors[$kind]=$((${errors[$kind]:-0} + 1)) ;;
    *)
        bads[$kind]=$((${bads[$kind]:-0} + 1))
        failed=1
        printf 'UNEXPECTED %s: %s (exit code %s, %s s)\n  %s\n  again: %s --seed %s%s --run %s\n' "$kind" "$why" "$code" \
            "$took" "$command" "$0" "$seed" "${only:+ --only $only}" "$number"
        grep -vE ' ok  ' "$scratch/log" | tail -n 12 | cut -c 1-240 | sed 's/^/    /'
        ;;
    esac
    number=$((number + 1))
done

printf '\n| disturbance | runs | disturbed in time | ok | expected error | unexpected |\n|---|---|---|---|---|---|\n'
for kind in "${kinds[@]}"; do
    if [ -n "${absent[$kind]:-}" ]; then
        printf '| %s | absent: %s | | | | |\n' "$kind" "${absent[$kind]}"
    else
        printf '| %s | %d | %d | %d | %d | %d |\n' "$kind" "${runs[$kind]:-0}" "${hits[$kind]:-0}" "${oks[$kind]:-0}" "${errors[$kind]:-0}" "${bads[$kind]:-0}"
    fi
done
echo "seed $seed, $number runs drawn, $((EPOCHSECONDS - begin)) s"
exit $failed
