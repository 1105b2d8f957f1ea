# Read by `run`: where the machine's kernel and programs come from, and how its image is made.
#
# `prepare FOLDER` brings Debian's packages there, unpacked, once; it sets $kernel, $version and $root.
# `make_image WORK RERAIL [FILE...]` makes $WORK/image, an initramfs.

# What is unpacked beside the kernel. Libraries that they need and that this machine has are taken from here.
readonly PACKAGES=(busybox-static iproute2 perftest ibverbs-utils ibverbs-providers libibverbs1 librdmacm1 libibumad3
    libnl-3-200 libnl-route-3-200 libpci3)
# With what they depend on. crc32_generic: without it rxe reports only "failed to add".
readonly MODULES=(virtio_pci virtio_console virtio_net crc32_generic udp_tunnel ip6_udp_tunnel ib_core ib_uverbs rdma_rxe
    rdma_ucm veth)

# An archive of the files named on the input, as the kernel needs it.
cpio_newc() { "$root/bin/busybox" cpio -o -H newc 2>/dev/null; }

install_qemu() {
    command -v qemu-system-x86_64 >/dev/null && return
    command -v apt-get >/dev/null || absent "needs qemu-system-x86_64, and there is no apt-get to install it"
    [ "$(id -u)" -eq 0 ] || absent "needs qemu-system-x86_64: apt-get install qemu-system-x86"
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
        qemu-system-x86; } </dev/null >/dev/null || absent "apt-get could not install qemu-system-x86"
}

# Debian's plain kernel (not cloud, not rt), the newest that there is.
newest_kernel() {
    apt-cache search --names-only '^linux-image-[0-9.]+-[0-9]+-amd64$' | awk '{ print $1 }' | sort -V | tail -n 1
}

prepare() {
    local folder=$1 packages
    install_qemu
    root=$folder/root
    if [ ! -e "$folder/complete" ]; then
        command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
            absent "needs Debian's packages, and there is no apt-get to download them"
        packages=$(newest_kernel)
        if [ -z "$packages" ]; then
            [ "$(id -u)" -eq 0 ] && apt-get -q update >/dev/null || true
            packages=$(newest_kernel)
            [ -n "$packages" ] || absent "apt-cache finds no package linux-image-*-amd64 (is this Debian?)"
        fi
        rm -rf "$folder"
        mkdir -p "$folder/packages" "$root"
        (cd "$folder/packages" && apt-get -q download "$packages" "${PACKAGES[@]}" </dev/null >../log 2>&1) ||
            absent "apt-get can't download $packages ${PACKAGES[*]}: $(tail -n 1 "$folder/log")"
        local package
        for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$root"; done
        rm -rf "$folder/packages"
        version=$(basename "$root"/lib/modules/*)
        "$root/bin/busybox" depmod -b "$root" "$version"
        touch "$folder/complete"
    fi
    version=$(basename "$root"/lib/modules/*)
    kernel=$root/boot/vmlinuz-$version
}

# A module's file and those that it depends on, relative to the folder of modules; nothing where it is built in.
module_files() {
    awk -F: -v wanted="$1" '{
        name = $1; sub(/.*\//, "", name); sub(/\.ko.*$/, "", name); gsub(/-/, "_", name)
        if (name == wanted) print $1, $2
    }' "$root/lib/modules/$version/modules.dep" | tr ' ' '\n' | grep . || true
}

# Copies programs into the image's folder, and the libraries that they need.
copy_programs() {
    local image=$1 into=$2
    shift 2
    cp "$@" "$image/$into/"
    local libraries=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
    LD_LIBRARY_PATH=$libraries ldd "$@" 2>/dev/null | grep -o '/[^ :]*\.so[^ :]*' | sort -u >"$image/../libraries" || true
    local library
    while read -r library; do
        case $library in
        */ld-linux*) cp -L "$library" "$image/lib64/" ;;
        *) cp -Lu "$library" "$image/lib/x86_64-linux-gnu/" ;;
        esac
    done <"$image/../libraries"
}

make_image() {
    local work=$1 rerail=$2 image=$1/image.d module
    shift 2
    mkdir -p "$image"/{bin,usr/bin,etc,root,lib64,lib/x86_64-linux-gnu/libibverbs,"lib/modules/$version"}
    ln -s ../lib "$image/usr/lib"
    cp "$here/init" "$image/init"
    cp "$root/bin/busybox" "$image/bin/busybox"
    ln -s busybox "$image/bin/sh"
    # Debug information makes it ten times larger.
    strip -o "$work/rerail" "$rerail" 2>/dev/null || cp "$rerail" "$work/rerail"
    copy_programs "$image" usr/bin "$root"/usr/bin/ib_* "$root"/usr/bin/ibv_* "$root/bin/ip" \
        "$(find "$root" -name rdma -type f -perm -1)" "$work/rerail"
    # The library is opened at run time, the provider by it.
    copy_programs "$image" lib/x86_64-linux-gnu "$root/usr/lib/x86_64-linux-gnu/libibverbs.so.1"
    copy_programs "$image" lib/x86_64-linux-gnu/libibverbs "$root"/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*
    mkdir -p "$image/etc/libibverbs.d"
    cp "$root/etc/libibverbs.d/rxe.driver" "$image/etc/libibverbs.d/"
    cp "$root/lib/modules/$version"/modules.* "$image/lib/modules/$version/"
    for module in "${MODULES[@]}"; do module_files "$module"; done | sort -u | while read -r module; do
        mkdir -p "$image/lib/modules/$version/$(dirname "$module")"
        cp "$root/lib/modules/$version/$module" "$image/lib/modules/$version/$module"
    done
    echo "${MODULES[*]}" >"$image/etc/modules"
    [ $# -eq 0 ] || copy_programs "$image" root "$@"
    (cd "$image" && find . | cpio_newc | gzip -1) >"$work/image"
    rm -rf "$image"
}
