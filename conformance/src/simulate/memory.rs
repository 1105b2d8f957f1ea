//! What this process had in memory, as the kernel counts it.

/// Most bytes of this process that were in memory at once (`VmHWM`, proc_pid_status(5)); `None` where the
/// kernel does not report it.
pub fn peak_resident_bytes() -> Option<u64> {
    peak_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The line `VmHWM:   1234 kB`; the kernel's kB are 1024 bytes.
fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_in_bytes() {
        let status = "Name:\trerail\nVmPeak:\t  900 kB\nVmHWM:\t    12 kB\nVmRSS:\t    8 kB\n";
        assert_eq!(peak_of(status), Some(12 * 1024));
        assert_eq!(peak_of("Name:\trerail\n"), None);
        assert_eq!(peak_of("VmHWM:\t many kB\n"), None);
    }

    #[test]
    fn this_process_has_one_that_grows() {
        let before = peak_resident_bytes().expect("Linux has /proc");
        let filled = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = peak_resident_bytes().expect("Linux has /proc");
        assert!(after >= before && after >= filled.len() as u64, "{before} {after}");
    }
}
