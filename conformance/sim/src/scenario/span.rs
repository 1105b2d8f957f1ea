//! Spans of time as people write them: `"250ns"`, `"3us"`, `"1.5ms"`, `"2s"`.

use std::fmt;
use std::str::FromStr;

use rerail_core::time::{Nanos, Time};
use serde::{Deserialize, Serialize};

/// A span of virtual time in nanoseconds, written with its unit. As a moment it counts from the start of the
/// simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub u64);

/// Text that is no span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanError {
    found: String,
}

/// Units, the longest first where one ends with another.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

impl Span {
    /// So many microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Span(us.saturating_mul(1_000))
    }

    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Span(ms.saturating_mul(1_000_000))
    }

    /// As a moment.
    pub const fn time(self) -> Time {
        Time(self.0)
    }

    /// As the core counts.
    pub const fn nanos(self) -> Nanos {
        Nanos(self.0)
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let error = || SpanError { found: text.chars().take(40).collect() };
        let (number, unit_ns) =
            UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns))).ok_or_else(error)?;
        let (whole, fraction) = number.trim_end().split_once('.').unwrap_or((number.trim_end(), ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
            return Err(error());
        }
        let whole: u64 = whole.parse().map_err(|_| error())?;
        let mut part_ns = 0;
        let mut worth_ns = unit_ns;
        for digit in fraction.bytes() {
            // Finer than a nanosecond is refused, not rounded.
            if worth_ns % 10 != 0 && digit != b'0' {
                return Err(error());
            }
            worth_ns /= 10;
            part_ns += u64::from(digit - b'0') * worth_ns;
        }
        let ns = whole.checked_mul(unit_ns).and_then(|ns| ns.checked_add(part_ns));
        ns.map(Span).ok_or_else(error)
    }
}

impl fmt::Display for Span {
    /// In the largest unit that needs no fraction; reads back as the same span.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, ns): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*ns);
        let (unit, ns) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", self.0 / ns)
    }
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is no span of time: a number and one of ns, us, ms, s, as in \"250us\"", self.found)
    }
}

impl std::error::Error for SpanError {}

impl TryFrom<String> for Span {
    type Error = SpanError;

    fn try_from(text: String) -> Result<Self, SpanError> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_exactly_or_refused() {
        for (text, ns) in [
            ("0ns", 0),
            ("7ns", 7),
            ("3us", 3_000),
            ("1.5ms", 1_500_000),
            ("2 s", 2_000_000_000),
            ("0.000000001s", 1),
            ("1.250us", 1_250),
            ("1.0ns", 1),
        ] {
            assert_eq!(text.parse(), Ok(Span(ns)), "{text}");
        }
        for text in ["", "5", "ms", "-1ms", "1.5ns", "1e3us", "99999999999999s", "1 h", "1.2.3s", ".5s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn spans_read_back_as_written() {
        for ns in [0, 1, 999, 1_000, 1_500, 2_000_000, 60_000_000_000, u64::MAX] {
            assert_eq!(Span(ns).to_string().parse(), Ok(Span(ns)));
        }
    }
}
