//! Links `logs` with defmt's section, which lies at address 1 and holds the format strings.

fn main() {
    println!("cargo:rerun-if-changed=defmt-on-linux.x");
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo:rustc-link-arg-bin=logs=-Wl,-T,{here}/defmt-on-linux.x");
    // rustc's own lld takes INSERT only directly behind SECTIONS, not behind an INCLUDE of it.
    println!("cargo:rustc-link-arg-bin=logs=-fuse-ld=bfd");
    // Interned strings are named by their address in the file: a position-independent one would move them.
    println!("cargo:rustc-link-arg-bin=logs=-no-pie");
}
