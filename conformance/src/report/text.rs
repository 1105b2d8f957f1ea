//! Numbers and claims as people read them, on the page and in the terminal alike.

use rerail_sim::figures::{Axis, Claim, Scale};

/// A number with four digits that mean something, and no zeros behind them.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    let places = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A number with its unit; a ratio has none.
pub fn quantity(value: f64, unit: &str) -> String {
    if unit.is_empty() { number(value) } else { format!("{} {unit}", number(value)) }
}

/// What a claim demands.
pub fn expected(claim: &Claim) -> String {
    format!("{} {}", claim.relation, quantity(claim.expected, claim.unit))
}

/// A value on an axis: bytes with binary prefixes as the papers write them (`64K`), a name where it has one,
/// anything else as a number.
pub fn on_axis(axis: &Axis, value: f64) -> String {
    if let Scale::Names(names) = axis.scale {
        // Ticks are drawn from what rounding left of whole numbers.
        return names.get(value.round() as usize).map(|name| (*name).to_owned()).unwrap_or_default();
    }
    if axis.unit != "bytes" {
        return number(value);
    }
    for (unit, suffix) in [((1u64 << 30) as f64, "G"), ((1u64 << 20) as f64, "M"), (1024.0, "K")] {
        if value >= unit && value % unit == 0.0 {
            return format!("{}{suffix}", value / unit);
        }
    }
    format!("{value}")
}

/// An axis's name with its unit.
pub fn heading(axis: &Axis) -> String {
    if axis.unit.is_empty() { axis.label.clone() } else { format!("{} ({})", axis.label, axis.unit) }
}

#[cfg(test)]
mod tests {
    use rerail_sim::figures::Relation;

    use super::*;

    #[test]
    fn numbers_are_printed_with_four_digits() {
        let printed = [1723.4, 884.04, 58.0, 5.98, 1.949, 0.0005, 0.0, -3.5, f64::NAN].map(number);
        assert_eq!(printed, ["1723", "884", "58", "5.98", "1.949", "0.001", "0", "-3.5", "none"]);
        assert_eq!(quantity(5.98, "us"), "5.98 us");
        assert_eq!(quantity(2.0, ""), "2");
    }

    #[test]
    fn bytes_have_binary_prefixes_on_an_axis() {
        let bytes = Axis::message_bytes();
        let printed = [8.0, 1000.0, 1024.0, 65_536.0, 4_194_304.0].map(|value| on_axis(&bytes, value));
        assert_eq!(printed, ["8", "1000", "1K", "64K", "4M"]);
        let plain = Axis { label: "time".into(), unit: "s".into(), scale: Scale::Linear };
        assert_eq!((on_axis(&plain, 1024.0).as_str(), heading(&plain).as_str()), ("1024", "time (s)"));
    }

    #[test]
    fn axis_of_names_shows_the_names() {
        let axis = Axis { label: "kernel".into(), unit: String::new(), scale: Scale::Names(&["BT", "CG"]) };
        assert_eq!([0.0, 1.0, 1.0 - 1e-9, 2.0].map(|value| on_axis(&axis, value)), ["BT", "CG", "CG", ""]);
    }

    #[test]
    fn claim_text_contains_its_relation() {
        let claim = Claim {
            name: String::new(),
            expected: 884.0,
            relation: Relation::AtLeast,
            tolerance: 0.0,
            measured: 0.0,
            unit: "MB/s",
        };
        assert_eq!(expected(&claim), "at least 884 MB/s");
    }
}
