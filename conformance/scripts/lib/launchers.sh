# What scripts that start the tool under launchers share. Sourced; needs $here, the folder of the script.
#
#   absent TEXT                    prints what is absent, and ends with code 69
#   needs_program NAME PACKAGE     installs it on Debian as root, else it is absent
#   needs_tool PATH                $rerail: PATH, or target/debug/rerail, or from PATH
#   offers PROTOCOL COMMAND...     fails unless `rerail info`, run by the command, finds that protocol
#   leftovers_before               notes what there is, for:
#   no_leftovers WHAT              fails where processes of the tool or files in /dev/shm have been left

absent() {
    echo "absent: $*" >&2
    exit 69
}

needs_program() {
    command -v "$1" >/dev/null 2>&1 && return
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || absent "$1 (Debian: apt-get install $2)"
    echo "$1 is missing, installing $2" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$2" >&2 ||
        absent "$1 (apt-get install $2 failed)"
    command -v "$1" >/dev/null 2>&1 || absent "$1 ($2 is installed but brought none)"
}

needs_tool() {
    rerail=$1
    if [ -z "$rerail" ]; then
        rerail=${CARGO_TARGET_DIR:-$here/../../target}/debug/rerail
        [ -x "$rerail" ] || rerail=$(command -v rerail) || absent "rerail (cargo build, or give its path)"
    fi
    [ -x "$rerail" ] || absent "$rerail is no program"
}

offers() {
    protocol=$1
    shift
    "$@" 2>/dev/null | grep -q "offered by this environment: $protocol" || {
        echo "the tool does not find $protocol: $*" >&2
        exit 1
    }
    echo "$protocol:"
}

# Processes that run the tool's file, by their ids.
of_tool() {
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/exe" 2>/dev/null)" = "$(readlink -f "$rerail")" ] && echo "${process#/proc/}"
    done
    return 0
}

leftovers_before() {
    processes_before=" $(of_tool | tr '\n' ' ')"
    files_before=$(ls /dev/shm)
}

no_leftovers() {
    waited=0
    while :; do
        left=
        for process in $(of_tool); do
            case "$processes_before" in *" $process "*) ;; *) left="$left $process" ;; esac
        done
        [ -n "$left" ] && [ $waited -lt 20 ] || break
        waited=$((waited + 1))
        sleep 0.5
    done
    [ -z "$left" ] || { echo "$1: processes are left:$left" >&2; exit 1; }
    [ "$files_before" = "$(ls /dev/shm)" ] || { echo "$1: /dev/shm has other files than before" >&2; exit 1; }
}
