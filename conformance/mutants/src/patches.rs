//! Hand-written mutants: `patches/*.toml`. Each is an edit of exact text, found exactly once, and one
//! sentence on the wrong assumption that it stands for.

use std::path::Path;

use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Expr, Item, Stmt};

use crate::generate::{attributes_of, bytes_of, has_let, is_for_tests};
use crate::mutant::{Edit, Form, Mutant, Source, in_one_line};

/// A file of patches.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchFile {
    mutant: Vec<Patch>,
}

/// A hand-written mutant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    pub name: String,
    /// Numbers of `PROTOCOL.md`.
    pub rule: String,
    /// The wrong assumption, in one sentence.
    pub wrong: String,
    pub edit: Vec<PatchEdit>,
    #[serde(default)]
    pub append: Vec<Append>,
    /// How simulations must find it.
    pub hunt: Option<Hunt>,
}

/// Text in place of other text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchEdit {
    /// Below `core/src`.
    pub file: String,
    pub find: String,
    pub replace: String,
}

/// Text behind the end of a file, which the edits call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Append {
    pub file: String,
    pub text: String,
}

/// Simulations that must find a mutant: one of `within` seeds from `from` on, as one of the verdicts; none of
/// these raises an alarm without the mutant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hunt {
    /// As `Simulations` parses it.
    pub simulations: String,
    #[serde(default = "one")]
    pub from: u64,
    pub within: u64,
    /// Verdicts, each as `word` or `word: checker`.
    pub verdicts: Vec<String>,
}

fn one() -> u64 {
    1
}

/// All patches of a folder, by file name, then in their order.
pub fn read(folder: &Path) -> Result<Vec<Patch>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    let mut patches: Vec<Patch> = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file: PatchFile = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        for patch in file.mutant {
            if patches.iter().any(|other| other.name == patch.name) {
                return Err(format!("{}: there are two mutants {}", path.display(), patch.name));
            }
            patches.push(patch);
        }
    }
    Ok(patches)
}

/// The mutant of a patch. `Err`: its text is not found exactly once, or can't be switched where it stands.
pub fn mutant_of(patch: &Patch, index: usize, sources: &[Source]) -> Result<Mutant, String> {
    let fail = |why: String| format!("patch {}: {why}", patch.name);
    let mut edits = Vec::new();
    let first = patch.edit.first().ok_or_else(|| fail("has no edit".to_owned()))?;
    let mut line = 0;
    for edit in &patch.edit {
        let source = sources.iter().find(|source| source.path == edit.file);
        let source = source.ok_or_else(|| fail(format!("there is no core/src/{}", edit.file)))?;
        let found: Vec<usize> = source.text.match_indices(edit.find.trim()).map(|(at, _)| at).collect();
        let [start] = found[..] else {
            return Err(fail(format!(
                "its text is found {} times in {}, not once: {}",
                found.len(),
                edit.file,
                edit.find
            )));
        };
        if line == 0 {
            line = source.line_of(start);
        }
        let end = start + edit.find.trim().len();
        let (from, to, form) = node_around(source, start, end)
            .ok_or_else(|| fail(format!("no statement or expression holds its text in {}", edit.file)))?;
        let text = format!("{}{}{}", &source.text[from..start], edit.replace.trim(), &source.text[end..to]);
        edits.push(Edit { file: edit.file.clone(), start: from, end: to, form, text });
    }
    Ok(Mutant {
        id: 0,
        name: patch.name.clone(),
        file: first.file.clone(),
        line,
        original: in_one_line(&first.find),
        mutated: in_one_line(&first.replace),
        edits,
        appended: patch.append.iter().map(|append| (append.file.clone(), append.text.clone())).collect(),
        written: Some(index),
    })
}

/// The smallest node that can be switched and holds all bytes of a range.
fn node_around(source: &Source, start: usize, end: usize) -> Option<(usize, usize, Form)> {
    let file = syn::parse_file(&source.text).ok()?;
    let mut search = Search { start, end, best: None };
    search.visit_file(&file);
    search.best
}

struct Search {
    start: usize,
    end: usize,
    best: Option<(usize, usize, Form)>,
}

impl Search {
    fn offer(&mut self, (start, end): (usize, usize), form: Form) {
        let holds = start <= self.start && self.end <= end;
        // Of two of one size the outer one: a statement rather than its expression.
        if holds && self.best.is_none_or(|(from, to, _)| end - start < to - from) {
            self.best = Some((start, end, form));
        }
    }
}

impl<'ast> Visit<'ast> for Search {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes_of(item)) && !matches!(item, Item::Const(_) | Item::Static(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_block(&mut self, block: &'ast Block) {
        self.offer(bytes_of(block.span()), Form::Block);
        visit::visit_block(self, block);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(..) = statement {
            self.offer(bytes_of(statement.span()), Form::Statement);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Assign(assign) => {
                self.offer(bytes_of(expr.span()), Form::Expression);
                self.visit_expr(&assign.right);
            }
            // Places, what binds names, and blocks, which are offered as such.
            Expr::Let(_) | Expr::Path(_) | Expr::Field(_) | Expr::Index(_) | Expr::Block(_) => {
                visit::visit_expr(self, expr);
            }
            _ if has_let(expr) => visit::visit_expr(self, expr),
            _ => {
                self.offer(bytes_of(expr.span()), Form::Expression);
                visit::visit_expr(self, expr);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str, find: &str) -> Option<String> {
        let source = Source { path: "a.rs".into(), text: text.into() };
        let start = text.find(find).unwrap();
        let (from, to, _) = node_around(&source, start, start + find.len())?;
        Some(text[from..to].to_owned())
    }

    #[test]
    fn the_smallest_node_that_can_be_switched_is_taken() {
        let text = "fn f() { a.b = c + d; let e = g(h); if let Some(i) = j && k == l { m(); n(); } }";
        assert_eq!(node(text, "+ d").unwrap(), "c + d");
        assert_eq!(node(text, "a.b = c").unwrap(), "a.b = c + d");
        assert_eq!(node(text, "g(h)").unwrap(), "g(h)");
        assert_eq!(node(text, "k == l").unwrap(), "k == l");
        assert_eq!(node(text, "m(); n();").unwrap(), "{ m(); n(); }");
        assert_eq!(node("const A: u32 = 1;", "1"), None);
    }

    /// Texts that the code no longer has, and such as it has twice.
    #[test]
    fn text_is_found_exactly_once() {
        let sources = [Source { path: "a.rs".into(), text: "fn f() { g(1); g(1); h(2) }".into() }];
        let patch = |find: &str| Patch {
            name: "p".into(),
            rule: String::new(),
            wrong: String::new(),
            edit: vec![PatchEdit { file: "a.rs".into(), find: find.into(), replace: "i()".into() }],
            append: Vec::new(),
            hunt: None,
        };
        assert!(mutant_of(&patch("g(1)"), 0, &sources).unwrap_err().contains("2 times"));
        assert!(mutant_of(&patch("g(3)"), 0, &sources).unwrap_err().contains("0 times"));
        assert_eq!(mutant_of(&patch("h(2)"), 0, &sources).unwrap().edits[0].text, "i()");
    }
}
