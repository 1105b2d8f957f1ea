#!/usr/bin/env bash
# Compares the layout of these declarations with the C headers of the system's libibverbs: sizes, alignments, offsets
# and constants. The C program is generated from what the Rust one prints, so that neither can forget a field of the
# other.
# Exit codes: 0 equal, 1 different, 69 headers or compiler absent and not installable here.
set -euo pipefail
cd "$(dirname "$0")"

absent() {
    echo "check-layout: ABSENT: $1" >&2
    exit 69
}

have() { command -v gcc >/dev/null && echo '#include <infiniband/verbs.h>' | gcc -E -x c - >/dev/null 2>&1; }

if ! have; then
    command -v apt-get >/dev/null || absent "needs gcc and libibverbs-dev, and there is no apt-get to install them"
    [ "$(id -u)" -eq 0 ] || absent "needs gcc and libibverbs-dev: apt-get install gcc libc6-dev libibverbs-dev"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        gcc libc6-dev libibverbs-dev; } </dev/null >/dev/null || absent "apt-get could not install libibverbs-dev"
    have || absent "libibverbs-dev is installed, but its header does not compile"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo run --quiet -p rdma-core-sys --example layout </dev/null >"$work/rust"

awk '
    BEGIN { print "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {" }
    # The one union in C; all others are structs.
    function c_type(name) { return (name == "ibv_gid" ? "union " : "struct ") name }
    $2 == "size" {
        printf "printf(\"%s size %%zu align %%zu\\n\", sizeof(%s), _Alignof(%s));\n", $1, c_type($1), c_type($1)
    }
    $2 == "offset" {
        # A member of a member keeps its dots.
        split($1, part, ".")
        member = substr($1, length(part[1]) + 2)
        printf "printf(\"%s offset %%zu size %%zu\\n\", offsetof(%s, %s), sizeof(((%s *)0)->%s));\n",
            $1, c_type(part[1]), member, c_type(part[1]), member
    }
    $2 == "before-end" {
        split($1, part, ".")
        printf "printf(\"%s before-end %%zu\\n\", sizeof(struct %s) - offsetof(struct %s, %s));\n",
            $1, part[1], part[1], part[2]
    }
    $2 == "=" { printf "printf(\"%s = %%lld\\n\", (long long)%s);\n", $1, $1 }
    END { print "return 0; }" }
' "$work/rust" >"$work/layout.c"
gcc -std=c11 -o "$work/layout" "$work/layout.c"
"$work/layout" >"$work/c"

if ! diff -u --label rust --label c "$work/rust" "$work/c"; then
    echo "check-layout: the declarations differ from infiniband/verbs.h (- rust, + c)" >&2
    exit 1
fi
echo "check-layout: $(wc -l <"$work/rust") facts agree with infiniband/verbs.h"
