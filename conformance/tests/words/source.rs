//! The prose of a source file: its comments and its string literals, line by line. The rest is code.
//!
//! Left out as code: what stands between backticks, fenced blocks and link targets of comments, strings
//! without a space (names, paths, keys), placeholders and escapes of strings, and labels of random streams
//! (`Rng::new(seed, "...")`): other labels would change what every seed draws. A word that is joined to
//! another by `_`, `-`, `/`, `.` or `:` is part of a name.

/// Lines of prose of a Rust file, with their numbers.
pub fn of_rust(text: &str) -> Vec<(usize, String)> {
    let mut prose = Prose::new(text);
    while let Some(c) = prose.peek(0) {
        match (c, prose.peek(1)) {
            ('/', Some('/')) => prose.comment("///!"),
            ('/', Some('*')) => prose.block(),
            ('r', Some('"' | '#')) if prose.begins_literal() => prose.raw(),
            ('"', _) => prose.quoted('"', true),
            ('\'', Some('\\')) => prose.quoted('\'', true),
            ('\'', Some(_)) if prose.peek(2) == Some('\'') => prose.skip(3),
            _ => prose.skip(1),
        }
    }
    prose.finish()
}

/// Lines of prose of a shell script, with their numbers. Here-documents are files of other languages.
pub fn of_shell(text: &str) -> Vec<(usize, String)> {
    let mut prose = Prose::new(text);
    let mut here: Option<String> = None;
    while let Some(c) = prose.peek(0) {
        match c {
            '#' if prose.before().is_none_or(char::is_whitespace) => prose.comment("#!"),
            '\\' => prose.skip(2),
            '"' => prose.quoted('"', true),
            '\'' => prose.quoted('\'', false),
            '<' if prose.peek(1) == Some('<') => {
                here = prose.here_document();
                prose.skip(2);
            }
            '\n' => {
                prose.skip(1);
                while here.is_some() && prose.peek(0).is_some() {
                    let line = prose.take_line();
                    if here.as_deref() == Some(line.trim()) {
                        here = None;
                    }
                }
            }
            _ => prose.skip(1),
        }
    }
    prose.finish()
}

/// The words of a line of prose, in lower case. Names that are made of several words are none.
pub fn words(line: &str) -> impl Iterator<Item = String> {
    let is_joint = |c: char| "_-/.:".contains(c);
    let runs = line.split(move |c: char| !c.is_alphanumeric() && !is_joint(c));
    let runs = runs.map(move |run| run.trim_matches(is_joint));
    runs.filter(|run| !run.is_empty() && run.chars().all(char::is_alphanumeric)).map(str::to_lowercase)
}

struct Prose {
    text: Vec<char>,
    at: usize,
    line: usize,
    found: Vec<(usize, String)>,
    /// Inside a fenced block of a comment that goes on in the next line.
    is_fenced: bool,
}

impl Prose {
    fn new(text: &str) -> Self {
        Prose { text: text.chars().collect(), at: 0, line: 1, found: Vec::new(), is_fenced: false }
    }

    fn finish(self) -> Vec<(usize, String)> {
        self.found.into_iter().filter(|(_, line)| !line.trim().is_empty()).collect()
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn before(&self) -> Option<char> {
        self.at.checked_sub(1).map(|at| self.text[at])
    }

    /// Whether nothing is in front of this place but what may be in front of a raw string.
    fn begins_literal(&self) -> bool {
        let line = self.line_before();
        let word = line.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
        matches!(word, None | Some("" | "b" | "c"))
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.line += usize::from(self.peek(0) == Some('\n'));
            self.at += 1;
        }
    }

    /// What stands before this place in its line.
    fn line_before(&self) -> String {
        let start = self.text[..self.at].iter().rposition(|&c| c == '\n').map_or(0, |at| at + 1);
        self.text[start..self.at].iter().collect()
    }

    fn take_line(&mut self) -> String {
        let rest = &self.text[self.at..];
        let line: String = rest.iter().take_while(|&&c| c != '\n').collect();
        self.skip(line.chars().count() + 1);
        line
    }

    /// The name of the here-document that begins here, if it is one: no shift, and no here-string.
    fn here_document(&self) -> Option<String> {
        let rest: String = self.text[self.at + 2..].iter().take_while(|&&c| c != '\n').collect();
        let name = rest.trim_start_matches('-').trim_start().trim_start_matches(['\'', '"', '\\']);
        let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let is_one = name.starts_with(char::is_alphabetic) && !self.line_before().contains("((");
        is_one.then_some(name)
    }

    /// A comment to the end of the line, after any of these marks.
    fn comment(&mut self, marks: &str) {
        let line = self.line;
        let text: String = self.text[self.at..].iter().take_while(|&&c| c != '\n').collect();
        self.skip(text.chars().count());
        let text = text.trim_start_matches(|c| marks.contains(c));
        if text.trim_start().starts_with("```") {
            self.is_fenced = !self.is_fenced;
        } else if !self.is_fenced {
            self.found.push((line, without_targets(text)));
        }
        // A fence ends with its comment at the latest.
        let next: String = self.text[self.at..].iter().skip(1).take_while(|&&c| c != '\n').collect();
        self.is_fenced &= next.trim_start().starts_with(['/', '#']);
    }

    /// A comment between `/*` and `*/`.
    fn block(&mut self) {
        let (mut depth, mut text) = (0, String::new());
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => (depth, _) = (depth + 1, self.skip(2)),
                ('*', Some('/')) => (depth, _) = (depth - 1, self.skip(2)),
                _ => {
                    text.push(c);
                    self.skip(1);
                }
            }
            if c == '\n' || depth == 0 {
                let line = self.line - usize::from(c == '\n');
                self.found.push((line, without_targets(&std::mem::take(&mut text))));
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// A raw string, or an identifier that begins with `r`.
    fn raw(&mut self) {
        let hashes = self.text[self.at + 1..].iter().take_while(|&&c| c == '#').count();
        if self.peek(1 + hashes) != Some('"') {
            return self.skip(1);
        }
        let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
        let label = self.is_label();
        self.skip(2 + hashes);
        let (start, from) = (self.line, self.at);
        while self.at < self.text.len() && !self.text[self.at..].starts_with(&end) {
            self.skip(1);
        }
        let text = self.text[from..self.at].iter().collect();
        self.skip(end.len());
        self.string(start, text, label);
    }

    /// A string or character up to the same quote.
    fn quoted(&mut self, quote: char, escapes: bool) {
        let label = self.is_label();
        self.skip(1);
        let (start, mut text) = (self.line, String::new());
        while let Some(c) = self.peek(0).filter(|&c| c != quote) {
            if c == '\\' && escapes {
                // An escape parts words; an escaped end of the line stays one.
                text.push(if self.peek(1) == Some('\n') { '\n' } else { ' ' });
                self.skip(2);
            } else if c == '$' && self.peek(1) == Some('(') && escapes {
                text.push('{');
                self.skip_substitution();
                text.push('}');
            } else {
                text.push(c);
                self.skip(1);
            }
        }
        self.skip(1);
        self.string(start, text, label);
    }

    /// `$(...)` of a shell: code, with quotes of its own.
    fn skip_substitution(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.peek(0) {
            depth += i32::from(c == '(') - i32::from(c == ')');
            self.skip(1);
            if depth == 0 && c == ')' {
                return;
            }
        }
    }

    /// Whether a string that begins here is the label of a random stream.
    fn is_label(&self) -> bool {
        self.line_before().contains("Rng::new(")
    }

    fn string(&mut self, start: usize, text: String, label: bool) {
        if label || !text.trim().contains(char::is_whitespace) {
            return;
        }
        let text = without_placeholders(&text);
        for (i, line) in text.split('\n').enumerate() {
            self.found.push((start + i, super::without_code(line)));
        }
    }
}

/// A comment without code and without the targets of links.
fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_string();
    let rest = parts.map(|part| part.split_once(')').map_or("", |(_, rest)| rest));
    super::without_code(&rest.fold(first, |text, rest| text + "] " + rest))
}

/// A string without `{name}`, `$name` and `${name}`, whose values are not its own.
fn without_placeholders(text: &str) -> String {
    let (mut out, mut depth, mut is_name) = (String::new(), 0, false);
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = (depth - 1).max(0),
            '$' => is_name = true,
            '\n' => (out, is_name) = (out + "\n", false),
            _ if depth > 0 => {}
            c if is_name && (c.is_alphanumeric() || c == '_') => {}
            c => {
                is_name = false;
                out.push(c);
            }
        }
    }
    out
}
