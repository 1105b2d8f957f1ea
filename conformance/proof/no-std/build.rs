//! Links nothing but this program: no start files, no C library, no compiler run-time of C.

fn main() {
    for argument in ["-nostartfiles", "-nodefaultlibs", "-static", "-no-pie"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
