# What the scripts that count instructions share; sourced, with $scratch a folder of theirs and $baseline their file of
# numbers that were committed.

# What can't be had here is no failure and no pass.
absent() {
    echo "absent: $*" >&2
    exit 69
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

# Says by what and when numbers were written, as the baseline's second line: SCRIPT.
written_by() {
    echo "# Written by: conformance/scripts/$1 -w   ($(uname -m), $(rustc --version | cut -d' ' -f1,2))"
}

# The baseline, where it holds: on x86_64. Elsewhere there is nothing to compare with.
known() {
    if [ "$(uname -m)" = x86_64 ] && [ -e "$baseline" ]; then echo "$baseline"; else echo /dev/null; fi
}
