# What the scripts that count instructions share; sourced, with $scratch a folder of theirs and $baseline their file of
# numbers that were committed.

# What can't be had here is no failure and no pass.
absent() {
    echo "absent: $*" >&2
    exit 69
}

# Sees to it that commands are here, where root can install their Debian packages: "COMMANDS" "PACKAGES".
need() {
    lacks=
    for command in $1; do command -v "$command" >/dev/null 2>&1 || lacks="$lacks $command"; done
    [ -n "$lacks" ] || return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        absent "$lacks (Debian: apt-get install $2; as root this script does it)"
    fi
    # shellcheck disable=SC2086  # several packages
    DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $2 >&2 ||
        absent "$lacks (apt-get install $2 failed)"
}

# Runs a program of optimised code and leaves its profile: FILE FUNCTIONS PROGRAM [ARGUMENT...]. Only what is called from the
# functions of the pattern counts. Prints how many instructions these were; none at all is an error.
profile() {
    file=$1 functions=$2
    shift 2
    valgrind --tool=callgrind --callgrind-out-file="$file" --toggle-collect="$functions" "$@" > "$scratch/said" 2>&1 ||
        { cat "$scratch/said" >&2; return 1; }
    collected=$(sed -n 's/.*Collected : //p' "$scratch/said")
    [ "${collected:-0}" -gt 0 ] || { echo "$*: nothing was counted in $functions" >&2; return 1; }
    echo "$collected"
}

# Of a profile, the instructions in the bodies of memcpy and memmove: FILE.
copied() {
    awk '
        /^fn=/ {
            id = name = substr($0, 4)
            sub(/\).*/, ")", id)
            if (sub(/^\([0-9]+\) /, "", name)) is_copy[id] = name ~ /mem(cpy|move)/
            copies = is_copy[id]
        }
        /^cfn=/ {
            id = name = substr($0, 5)
            sub(/\).*/, ")", id)
            if (sub(/^\([0-9]+\) /, "", name)) is_copy[id] = name ~ /mem(cpy|move)/
        }
        /^calls=/ { called = 1; next }
        /^[-+*0-9]/ { if (copies && !called) sum += $2; called = 0 }
        END { print sum + 0 }
    ' "$1"
}

# Prints which script wrote the numbers, and when, as the baseline's second line: SCRIPT.
written_by() {
    echo "# Written by: conformance/scripts/$1 -w   ($(uname -m), $(rustc --version | cut -d' ' -f1,2))"
}

# The baseline, where it holds: on x86_64. Elsewhere there is nothing to compare with.
known() {
    if [ "$(uname -m)" = x86_64 ] && [ -e "$baseline" ]; then echo "$baseline"; else echo /dev/null; fi
}
