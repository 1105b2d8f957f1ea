//! Sizes, rates and times as people write and read them.
//!
//! Sizes are binary (`64K` is 65,536 bytes), rates decimal (MB/s is 10^6 bytes per second) as in the
//! benchmarks of this field.

/// A size as the tool prints it: exact where it is small or a whole number of a unit, else rounded.
pub fn bytes(count: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if count.is_multiple_of(1 << shift) && (1..10_000).contains(&(count >> shift)) {
            return format!("{} {unit}", count >> shift);
        }
    }
    match count {
        0..10_000_000 => format!("{count} B"),
        10_000_000..10_000_000_000 => format!("{:.1} MiB", count as f64 / f64::from(1 << 20)),
        _ => format!("{:.2} GiB", count as f64 / f64::from(1 << 30)),
    }
}

/// A rate in MB/s.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{:.1}", bytes_per_second / 1e6)
}

/// A time in microseconds.
pub fn microseconds(ns: u64) -> String {
    format!("{}.{:02}", ns / 1000, ns % 1000 / 10)
}

/// No size is larger: no machine has memory for such messages, and sums of them stay far from 64 bits.
const BYTES_MAX: u64 = 1 << 40;

/// Reads a size: digits and one of `K`, `M`, `G` (binary; `KiB` and the like too) or nothing.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return Err(format!("'{text}' is no size: digits, then K, M or G (binary), or nothing")),
    };
    if digits.is_empty() || digits.contains(|c: char| !c.is_ascii_digit()) {
        return Err(format!("'{text}' is no size: digits, then K, M or G (binary), or nothing"));
    }
    let count: u64 = digits.parse().unwrap_or(u64::MAX);
    let size = count.checked_mul(1 << shift).filter(|&size| size <= BYTES_MAX);
    size.ok_or_else(|| format!("'{text}' is more than {}", bytes(BYTES_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_bytes("0"), Ok(0));
        assert_eq!(parse_bytes("63"), Ok(63));
        assert_eq!(parse_bytes("8K"), Ok(8192));
        assert_eq!(parse_bytes("64m"), Ok(64 << 20));
        assert_eq!(parse_bytes("1 GiB"), Ok(1 << 30));
        assert!(parse_bytes("").is_err());
        assert!(parse_bytes("K").is_err());
        assert!(parse_bytes("8T").is_err());
        assert!(parse_bytes("-1").is_err());
        assert_eq!(parse_bytes("1024G"), Ok(1 << 40));
        for large in ["1025G", "99999999999G", "99999999999999999999999"] {
            assert_eq!(parse_bytes(large), Err(format!("'{large}' is more than 1024 GiB")));
        }
    }

    #[test]
    fn sizes_are_printed() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(8193), "8193 B");
        assert_eq!(bytes(8192), "8 KiB");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(12_345_678), "11.8 MiB");
        assert_eq!(bytes(24_684_092 << 10), "23.54 GiB");
    }

    #[test]
    fn times_and_rates_are_printed() {
        assert_eq!(microseconds(1_234), "1.23");
        assert_eq!(microseconds(5), "0.00");
        assert_eq!(rate(62_500_000.0), "62.5");
    }
}
