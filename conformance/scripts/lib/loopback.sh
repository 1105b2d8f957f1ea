# shellcheck shell=sh
# The libibverbs of loopback-verbs.c: what it needs, and building it. To be read by a script that has set `here` and has
# `absent` (callgrind.sh) or takes the one below.

command -v absent >/dev/null || absent() {
    echo "ABSENT: $1" >&2
    exit 69
}

# Installs a C compiler, libibverbs' headers and the packages named where one of them is missing and can be had; the first
# package named is looked for by the command of its name.
needs_for_loopback() {
    if [ $# -eq 0 ] || command -v "$1" >/dev/null; then
        if command -v gcc && echo '#include <infiniband/verbs.h>' | gcc -E -x c -; then return; fi >/dev/null 2>&1
    fi
    packages="gcc libc6-dev libibverbs-dev $*"
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || absent "needs: apt-get install $packages"
    echo "installing $packages" >&2
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $packages >&2 ||
        absent "apt-get install failed: $packages"
}

# Builds the library into a folder, with the versions of the symbols that the loader requires.
build_loopback() {
    cat > "$1/versions" << 'END'
IBVERBS_1.0 { global: ibv_create_comp_channel; ibv_destroy_comp_channel; };
IBVERBS_1.8 { global: ibv_reg_mr_iova2; } IBVERBS_1.0;
IBVERBS_1.1 { global: ibv_*; local: *; } IBVERBS_1.8;
END
    # shellcheck disable=SC2154
    gcc -O2 -Wall -Wextra -Werror -shared -fPIC -Wl,--version-script="$1/versions" \
        -o "$1/libibverbs.so.1" "$here/loopback-verbs.c"
}
