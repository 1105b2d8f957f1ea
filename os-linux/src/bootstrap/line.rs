//! Lines of the PMI-1 wire protocol: `cmd=name key=value key=value\n`; messages of PMI-2.
//!
//! Source: the protocol of MPICH's hydra and Slurm; there is no standard. Keys come in any order; unknown
//! keys are ignored; a word without `=` belongs to the value before it (messages with spaces). A value that
//! we write is escaped like in a URL, so that spaces, `=` and `;` never get on the wire.
//!
//! Invariant: a line is at most [`LINE_BYTES_MAX`] long, so a stranger can't make us hold more than that.

use std::fmt::Write as _;

/// Longest line that is taken, its end included. Hydra's values have at most 1024 bytes, its names 256.
pub(super) const LINE_BYTES_MAX: usize = 8192;

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pairs: Vec<(String, String)>,
}

impl Line {
    /// Splits a line (without its end); the error names the reason.
    pub(super) fn parse(bytes: &[u8]) -> Result<Line, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "bytes that are no text".to_string())?;
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return Err(format!("control character {:#04x}", control as u32));
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("", _)) => return Err(format!("no name before '=' in {word:?}")),
                Some((name, _)) if pairs.iter().any(|(known, _)| known == name) => {
                    return Err(format!("{name:?} twice"));
                }
                Some((name, value)) => pairs.push((name.into(), value.into())),
                None => {
                    let (_, value) = pairs.last_mut().ok_or_else(|| format!("{word:?} without '='"))?;
                    value.push(' ');
                    value.push_str(word);
                }
            }
        }
        let line = Line { pairs };
        if line.get("cmd").is_none_or(str::is_empty) { Err("no cmd".into()) } else { Ok(line) }
    }

    /// Splits a message of PMI-2, `name=value;...;` with `;;` for a semicolon in a value.
    pub(super) fn parse_pairs(bytes: &[u8]) -> Result<Line, String> {
        // No text has this character once it has passed.
        const SEMICOLON: &str = "\u{1}";
        let text = std::str::from_utf8(bytes).map_err(|_| "bytes that are no text".to_string())?;
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return Err(format!("control character {:#04x}", control as u32));
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.replace(";;", SEMICOLON).split(';').filter(|pair| !pair.trim().is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} without '='"))?;
            if pairs.iter().any(|(known, _)| known == name) {
                return Err(format!("{name:?} twice"));
            }
            pairs.push((name.into(), value.replace(SEMICOLON, ";")));
        }
        let line = Line { pairs };
        if line.get("cmd").is_none_or(str::is_empty) { Err("no cmd".into()) } else { Ok(line) }
    }

    /// The command.
    pub(super) fn cmd(&self) -> &str {
        self.get("cmd").unwrap_or_default()
    }

    /// The value of a key.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a key that has to be there and to be a number.
    pub(super) fn number(&self, name: &str) -> Result<i64, String> {
        let text = self.get(name).ok_or_else(|| format!("no {name}"))?;
        text.parse().map_err(|_| format!("{name} is no number"))
    }
}

/// Cuts a stream into lines.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    bytes: Vec<u8>,
}

/// A line has no end within [`LINE_BYTES_MAX`] bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl LineReader {
    /// Takes bytes as they come.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line without its end; `None`: feed more.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        match self.bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) if end < LINE_BYTES_MAX => {
                let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
                line.pop();
                Ok(Some(line))
            }
            None if self.bytes.len() < LINE_BYTES_MAX => Ok(None),
            _ => Err(TooLong),
        }
    }

    /// The bytes after the last whole line.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes
    }
}

/// Writes a text with every byte that could mean something on the wire as `%` and two digits.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => escaped.push(byte as char),
            b'-' | b'.' | b'_' | b':' | b'/' | b'@' | b'+' | b'[' | b']' => escaped.push(byte as char),
            _ => write!(escaped, "%{byte:02X}").expect("a String takes everything"),
        }
    }
    escaped
}

/// Undoes [`escape`]; the error names the reason.
pub(super) fn unescape(escaped: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| (b as char).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push((high << 4 | low) as u8),
            _ => return Err("'%' without two hexadecimal digits"),
        }
    }
    String::from_utf8(bytes).map_err(|_| "not UTF-8")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let one = Line::parse(b"cmd=get_result rc=0 msg=success value=a=b").unwrap();
        let two = Line::parse(b"value=a=b  rc=0 cmd=get_result extra= ").unwrap();
        for line in [&one, &two] {
            assert_eq!(line.cmd(), "get_result");
            assert_eq!(line.number("rc"), Ok(0));
            assert_eq!(line.get("value"), Some("a=b"));
        }
        assert_eq!(two.get("extra"), Some(""));
    }

    #[test]
    fn a_message_may_have_spaces() {
        let line = Line::parse(b"cmd=put_result msg=out of room rc=-1").unwrap();
        assert_eq!(line.get("msg"), Some("out of room"));
        assert_eq!(line.number("rc"), Ok(-1));
    }

    #[test]
    fn malformed_line_reports_the_error() {
        let cases: [(&[u8], &str); 9] = [
            (b"", "no cmd"),
            (b"rc=0", "no cmd"),
            (b"cmd=", "no cmd"),
            (b"word cmd=x", "\"word\" without '='"),
            (b"=x cmd=y", "no name before '=' in \"=x\""),
            (b"cmd=a cmd=b", "\"cmd\" twice"),
            (b"cmd=a\tb=c", "control character 0x09"),
            (b"cmd=a\0", "control character 0x00"),
            (b"cmd=\xff", "bytes that are no text"),
        ];
        for (bytes, why) in cases {
            assert_eq!(Line::parse(bytes), Err(why.to_string()), "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(Line::parse(b"cmd=x rc=one").unwrap().number("rc"), Err("rc is no number".into()));
        assert_eq!(Line::parse(b"cmd=x").unwrap().number("rc"), Err("no rc".into()));
    }

    #[test]
    fn lines_are_cut_wherever_the_stream_breaks() {
        let mut reader = LineReader::default();
        reader.feed(b"cmd=a\ncm");
        assert_eq!(reader.next(), Ok(Some(b"cmd=a".to_vec())));
        assert_eq!(reader.next(), Ok(None));
        assert_eq!(reader.rest(), b"cm");
        reader.feed(b"d=b\n");
        assert_eq!(reader.next(), Ok(Some(b"cmd=b".to_vec())));
        assert_eq!(reader.next(), Ok(None));
    }

    #[test]
    fn a_line_without_end_is_refused_at_the_limit() {
        let mut reader = LineReader::default();
        reader.feed(&vec![b'x'; LINE_BYTES_MAX - 1]);
        assert_eq!(reader.next(), Ok(None));
        reader.feed(b"x");
        assert_eq!(reader.next(), Err(TooLong));
        reader.feed(b"\n");
        assert_eq!(reader.next(), Err(TooLong));
    }

    #[test]
    fn bad_escapes_are_errors() {
        assert!(unescape("100%").is_err());
        assert!(unescape("%4").is_err());
        assert!(unescape("%+1").is_err());
        assert!(unescape("%FF").is_err());
        assert_eq!(unescape("%e2%82%ac").unwrap(), "\u{20ac}");
    }

    proptest! {
        #[test]
        fn any_text_survives_the_wire(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(escaped.bytes().all(|b| b.is_ascii_graphic() && b != b'=' && b != b';' && b != b'\\'));
            prop_assert_eq!(unescape(&escaped).unwrap(), text);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Line::parse(&bytes);
            let _ = unescape(&String::from_utf8_lossy(&bytes));
        }
    }
}
