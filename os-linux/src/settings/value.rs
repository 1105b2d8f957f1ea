//! Values as people write them: counts, sizes with `K`, `M`, `G`, times with `us`, `ms`, `s`, switches,
//! choices, lists.
//!
//! Invariant: [`Kind::parse`] reads the output of [`Kind::show`] back to the same value.

use rerail_core::config::RAILS_MAX;

/// A value of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A count, bytes, nanoseconds, a switch (0 or 1) or the place in a list of choices.
    Number(u64),
    /// Words.
    List(Vec<String>),
    /// A word; `None` where no value is set.
    Word(Option<String>),
}

impl Value {
    /// The number. Kinds and fields are matched by the table, and a test walks it.
    pub(super) fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            Value::List(_) | Value::Word(_) => unreachable!("the table gives numbers to this field"),
        }
    }

    /// The words.
    pub(super) fn list(self) -> Vec<String> {
        match self {
            Value::List(words) => words,
            Value::Number(_) | Value::Word(_) => unreachable!("the table gives lists to this field"),
        }
    }

    /// The word.
    pub(super) fn word(self) -> Option<String> {
        match self {
            Value::Word(word) => word,
            Value::Number(_) | Value::List(_) => unreachable!("the table gives words to this field"),
        }
    }
}

/// The form and the range of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A plain number.
    Count { min: u64, max: u64 },
    /// Bytes.
    Bytes { min: u64, max: u64 },
    /// Nanoseconds.
    Span { min: u64, max: u64 },
    /// Yes or no.
    Switch,
    /// One of these.
    Choice(&'static [&'static str]),
    /// At most 64 words with commas between them; `what` describes them, `empty` is the meaning of no word,
    /// `repeats` permits a word twice, `order` is the requirement on the words together.
    List { repeats: bool, what: &'static str, empty: &'static str, fits: fn(&str) -> bool, order: Order },
    /// One word; `what` describes it, `empty` is the meaning of no word.
    Word { what: &'static str, empty: &'static str, fits: fn(&str) -> bool },
}

/// A list's requirement on its words together, each of which fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing.
    Any,
    /// Sizes that ascend, and this word, larger than all of them, as the last one.
    Ascending { last: &'static str },
}

impl Order {
    /// The error in the words' order.
    fn check(self, words: &[String]) -> Result<(), String> {
        let Order::Ascending { last } = self else { return Ok(()) };
        let Some((end, smaller)) = words.split_last() else { return Ok(()) };
        if end != last {
            return Err(format!("the last word is {end}, and must be {last}"));
        }
        let sizes = || smaller.iter().map(|word| parse_bytes(word).ok());
        match sizes().zip(sizes().skip(1)).zip(smaller).find(|((size, next), _)| next <= size) {
            Some((_, word)) => Err(format!("the size behind {word} is not larger than it")),
            None => Ok(()),
        }
    }
}

/// Words of a list: none has more than one for each rail.
const WORDS_MAX: usize = RAILS_MAX;

const BYTES: [(&str, u64); 4] = [("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), ("", 1)];
const SPANS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

impl Kind {
    /// Parses a value; the error names the reason.
    pub(super) fn parse(&self, text: &str) -> Result<Value, String> {
        match *self {
            Kind::Count { min, max } => {
                let number = text.parse().map_err(|_| "not a number".to_string())?;
                self.within(number, min, max)
            }
            Kind::Bytes { min, max } => self.within(parse_bytes(text)?, min, max),
            Kind::Span { min, max } => self.within(parse_span(text)?, min, max),
            Kind::Switch => match text.to_ascii_lowercase().as_str() {
                "1" | "yes" | "on" | "true" => Ok(Value::Number(1)),
                "0" | "no" | "off" | "false" => Ok(Value::Number(0)),
                _ => Err("neither yes nor no".into()),
            },
            Kind::Choice(choices) => match choices.iter().position(|choice| *choice == text) {
                Some(index) => Ok(Value::Number(index as u64)),
                None => Err(match super::suggest::most_similar(text, choices.iter().copied()) {
                    Some(choice) => format!("not one of the choices, maybe {choice}?"),
                    None => "not one of the choices".into(),
                }),
            },
            Kind::List { fits, repeats, order, .. } => {
                let words: Vec<String> = text.split(',').map(|word| word.trim().to_string()).collect();
                if words == [""] {
                    return Ok(Value::List(Vec::new()));
                }
                if words.len() > WORDS_MAX {
                    return Err(format!("{} words, at most {WORDS_MAX} are possible", words.len()));
                }
                for (index, word) in words.iter().enumerate() {
                    if !fits(word) {
                        return Err(format!("{word:?} is none"));
                    }
                    if !repeats && words[..index].contains(word) {
                        return Err(format!("{word:?} twice"));
                    }
                }
                order.check(&words)?;
                Ok(Value::List(words))
            }
            Kind::Word { fits, .. } => match text {
                "" => Ok(Value::Word(None)),
                word if fits(word) => Ok(Value::Word(Some(word.into()))),
                _ => Err("not allowed".into()),
            },
        }
    }

    fn within(&self, number: u64, min: u64, max: u64) -> Result<Value, String> {
        if number < min {
            return Err(format!("less than {}", self.show_number(min)));
        }
        if number > max {
            return Err(format!("more than {}", self.show_number(max)));
        }
        Ok(Value::Number(number))
    }

    /// Writes a value.
    pub(super) fn show(&self, value: &Value) -> String {
        match value {
            Value::Number(number) => self.show_number(*number),
            Value::List(words) => words.join(","),
            Value::Word(word) => word.clone().unwrap_or_default(),
        }
    }

    fn show_number(&self, number: u64) -> String {
        let scaled = |units: [(&str, u64); 4]| {
            let (name, unit) = units.into_iter().find(|(_, unit)| number.is_multiple_of(*unit)).unwrap_or(("", 1));
            format!("{}{name}", number / unit)
        };
        match self {
            Kind::Bytes { .. } if number != 0 => scaled(BYTES),
            Kind::Span { .. } => scaled(SPANS),
            Kind::Switch => if number == 0 { "no" } else { "yes" }.into(),
            Kind::Choice(choices) => choices.get(number as usize).copied().unwrap_or_default().into(),
            _ => number.to_string(),
        }
    }

    /// The allowed values.
    pub(super) fn range(&self) -> String {
        match *self {
            Kind::Count { min, max } | Kind::Bytes { min, max } | Kind::Span { min, max } => {
                format!("{} to {}", self.show_number(min), self.show_number(max))
            }
            Kind::Switch => "yes or no".into(),
            Kind::Choice(choices) => choices.join(", "),
            Kind::List { what, empty, .. } => format!("{what} with commas between them; nothing: {empty}"),
            Kind::Word { what, empty, .. } => format!("{what}; nothing: {empty}"),
        }
    }

    /// The unit, for people.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Kind::Count { .. } => "count",
            Kind::Bytes { .. } => "bytes",
            Kind::Span { .. } => "time",
            Kind::Switch => "switch",
            Kind::Choice(_) => "choice",
            Kind::List { .. } => "list",
            Kind::Word { .. } => "text",
        }
    }
}

/// Digits and the text behind them.
fn split_number(text: &str) -> Result<(u64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() {
        return Err("not a number".into());
    }
    let number = digits.parse().map_err(|_| "too large".to_string())?;
    Ok((number, unit.trim_start()))
}

/// A size; the error names the reason.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    let unit = unit.to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit);
    match BYTES.iter().find(|(name, _)| *name == unit) {
        Some((_, unit)) => number.checked_mul(*unit).ok_or_else(|| "too large".into()),
        None => Err("unit not known (K, M and G are, in powers of 1024)".into()),
    }
}

fn parse_span(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    match SPANS.iter().find(|(name, _)| *name == unit) {
        Some((_, unit)) => number.checked_mul(*unit).ok_or_else(|| "too large".into()),
        None if unit.is_empty() && number == 0 => Ok(0),
        None if unit.is_empty() => Err("without a unit (ns, us, ms or s)".into()),
        None => Err("unit not known (ns, us, ms and s are)".into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        let bytes = [("0", 0), ("64K", 65_536), ("64 kib", 65_536), ("1M", 1 << 20), ("2GB", 2 << 30), ("7b", 7)];
        for (text, value) in bytes {
            assert_eq!(parse_bytes(text), Ok(value), "{text}");
        }
        for (text, value) in [("0", 0), ("10ms", 10_000_000), ("2s", 2_000_000_000), ("5 us", 5_000), ("9ns", 9)] {
            assert_eq!(parse_span(text), Ok(value), "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "1T", "64KK", "99999999999999999999", "18446744073709551615K"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for text in ["", "10", "ms", "10 minutes", "99999999999999999s", "1S"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn numbers_come_back(number in any::<u64>()) {
            let max = u64::MAX;
            let kinds = [
                Kind::Count { min: 0, max },
                Kind::Bytes { min: 0, max },
                Kind::Span { min: 0, max },
            ];
            for kind in kinds {
                let value = Value::Number(number);
                prop_assert_eq!(kind.parse(&kind.show(&value)), Ok(value));
            }
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in any::<String>()) {
            for setting_row in super::super::table::SETTING_ROWS {
                if let Ok(value) = setting_row.kind.parse(&text) {
                    prop_assert_eq!(setting_row.kind.parse(&setting_row.kind.show(&value)), Ok(value));
                }
            }
        }
    }
}
