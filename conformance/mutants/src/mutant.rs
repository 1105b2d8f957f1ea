//! What a mutant is: edits of source text that one number switches on.

/// Where an edit's text stands in its file, and how the switch is written around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// A statement, or an expression that stands as one: `if on { mutated } else { original }`.
    Statement,
    /// An expression: the same in parentheses.
    Expression,
    /// A block with its braces: the same in braces of its own.
    Block,
}

/// One place of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The file, below `core/src`.
    pub file: String,
    /// First byte of the node that is replaced.
    pub start: usize,
    /// The byte behind it.
    pub end: usize,
    pub form: Form,
    /// What stands there instead.
    pub text: String,
}

/// A mutant.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// What switches it on; from 1.
    pub id: u32,
    /// Describes the change, and stays the same when lines move.
    pub name: String,
    /// The file that it is counted for.
    pub file: String,
    /// The line of its first edit.
    pub line: usize,
    /// The text that it replaces, in one line.
    pub original: String,
    /// What stands there instead, in one line.
    pub mutated: String,
    pub edits: Vec<Edit>,
    /// Text behind the end of files that the edits call.
    pub appended: Vec<(String, String)>,
    /// Its index among the hand-written ones.
    pub written: Option<usize>,
}

/// A source file of the core.
#[derive(Clone, Debug)]
pub struct Source {
    /// Below `core/src`.
    pub path: String,
    pub text: String,
}

impl Source {
    /// The line of a byte, from 1.
    pub fn line_of(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }
}

/// A text in one line, for names: comments left out, white space folded.
pub fn in_one_line(text: &str) -> String {
    let code = text.lines().map(|line| line.split("// ").next().unwrap_or_default());
    let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
    words.join(" ")
}
