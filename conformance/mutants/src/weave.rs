//! All mutants of a file in one text: at every place the mutated text and the original one, and a switch
//! between them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::generate::bytes_of;
use crate::mutant::{Edit, Form, Mutant, Source};

/// What the switch is called in the woven core. One number is read from the environment, once. Where a file
/// is named there as well, the requested numbers are written into it, each once: the places that a
/// test reaches.
pub const SWITCH: &str = r#"
/// Which mutant is on.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod mutant {
    extern crate std;
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU8, Ordering};

    struct Chosen {
        id: u32,
        reached: Option<std::fs::File>,
    }

    static CHOSEN: std::sync::LazyLock<Chosen> = std::sync::LazyLock::new(|| {
        let id = std::env::var("RERAIL_MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(0);
        let reached = std::env::var_os("RERAIL_REACHED").map(|path| std::fs::File::create(path).expect("a file"));
        Chosen { id, reached }
    });
    static SEEN: [AtomicU8; 1 << 16] = [const { AtomicU8::new(0) }; 1 << 16];

    #[inline]
    pub fn on(id: u32) -> bool {
        let chosen = &*CHOSEN;
        if chosen.reached.is_some() {
            note(chosen, id);
        }
        chosen.id == id
    }

    #[cold]
    fn note(chosen: &Chosen, id: u32) {
        if SEEN[id as usize].load(Ordering::Relaxed) == 0 && SEEN[id as usize].swap(1, Ordering::Relaxed) == 0 {
            let mut file = chosen.reached.as_ref().expect("checked above");
            file.write_all(std::format!("{id}\n").as_bytes()).expect("the file can be written");
        }
    }
}
"#;

/// A woven file.
pub struct Woven {
    pub path: String,
    pub text: String,
    /// Bytes of the text that stand there for a mutant, inner ones behind outer ones.
    places: Vec<Place>,
}

/// Where a mutant is in a woven text.
struct Place {
    range: Range<usize>,
    id: u32,
    what: Stands,
}

/// What stands in a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// The mutated text.
    Text,
    /// The same, and it goes on where the original leaves the block.
    GoesOn,
    /// The whole switch.
    Switch,
}

impl Woven {
    /// The mutants in whose text a range lies, or, without such, those around whose switch it lies closest.
    pub fn at_fault(&self, at: &Range<usize>) -> BTreeSet<u32> {
        let text = self.closest(at, |what| what != Stands::Switch);
        if text.is_empty() { self.closest(at, |_| true) } else { text }
    }

    /// The mutants of [`at_fault`](Self::at_fault), as far as the range lies in their text.
    pub fn in_text(&self, at: &Range<usize>) -> BTreeSet<u32> {
        self.closest(at, |what| what != Stands::Switch)
    }

    /// Mutants in a range that go on where the original does not: what borrows is at fault behind them.
    pub fn going_on(&self, range: &Range<usize>) -> BTreeSet<u32> {
        let within = |place: &&Place| range.start <= place.range.start && place.range.end <= range.end;
        self.places.iter().filter(|place| place.what == Stands::GoesOn).filter(within).map(|place| place.id).collect()
    }

    /// Mutants with text in the lines of a range.
    pub fn in_lines(&self, range: &Range<usize>) -> BTreeSet<u32> {
        let start = self.text[..range.start].rfind('\n').unwrap_or(0);
        let end = self.text[range.end..].find('\n').map_or(self.text.len(), |at| range.end + at);
        let texts = self.places.iter().filter(|place| place.what != Stands::Switch);
        texts.filter(|place| place.range.start < end && start < place.range.end).map(|place| place.id).collect()
    }

    fn closest(&self, at: &Range<usize>, counts: impl Fn(Stands) -> bool) -> BTreeSet<u32> {
        let holds = |place: &&Place| counts(place.what) && place.range.start <= at.start && at.end <= place.range.end;
        let holding = self.places.iter().filter(holds);
        let Some(least) = holding.clone().map(|place| place.range.len()).min() else { return BTreeSet::new() };
        holding.filter(|place| place.range.len() == least).map(|place| place.id).collect()
    }
}

/// Edits at one node.
#[derive(Default)]
struct Site<'a> {
    edits: Vec<(u32, &'a Edit)>,
}

/// Weaves the mutants into a file. `constant`: names of functions that must stay `const`, because constants
/// need them.
pub fn weave(source: &Source, mutants: &[&Mutant], constant: &BTreeSet<String>) -> Woven {
    // Outer nodes first.
    let mut sites: BTreeMap<(usize, std::cmp::Reverse<usize>), Site<'_>> = BTreeMap::new();
    for mutant in mutants {
        for edit in mutant.edits.iter().filter(|edit| edit.file == source.path) {
            let site = sites.entry((edit.start, std::cmp::Reverse(edit.end))).or_default();
            site.edits.push((mutant.id, edit));
        }
    }
    let sites: Vec<(Range<usize>, Site<'_>)> =
        sites.into_iter().map(|((start, end), site)| (start..end.0, site)).collect();
    let consts = constants(source, &sites, constant);
    let mut weaver = Weaver { source, sites, consts, next: 0, out: String::new(), places: Vec::new() };
    weaver.copy(0..source.text.len());
    let Weaver { mut out, places, .. } = weaver;
    for (file, text) in mutants.iter().flat_map(|mutant| &mutant.appended) {
        if *file == source.path {
            out += "\n";
            out += text;
        }
    }
    Woven { path: source.path.clone(), text: out, places }
}

struct Weaver<'a> {
    source: &'a Source,
    sites: Vec<(Range<usize>, Site<'a>)>,
    /// Where a `const` is left out.
    consts: Vec<Range<usize>>,
    /// The next site.
    next: usize,
    out: String,
    places: Vec<Place>,
}

impl Weaver<'_> {
    /// Copies a range with the switches in it.
    fn copy(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while let Some((site, _)) = self.sites.get(self.next).filter(|(site, _)| site.start < range.end) {
            let site = site.clone();
            self.plain(at..site.start);
            self.site(site.clone());
            at = site.end;
        }
        self.plain(at..range.end);
    }

    fn site(&mut self, range: Range<usize>) {
        let edits: Vec<(u32, Edit)> =
            self.sites[self.next].1.edits.iter().map(|(id, edit)| (*id, (*edit).clone())).collect();
        self.next += 1;
        let form = edits.iter().map(|(_, edit)| edit.form).max().unwrap_or(Form::Expression);
        let (open, close) = match form {
            Form::Statement => ("", ""),
            Form::Expression => ("(", ")"),
            Form::Block => ("{ ", " }"),
        };
        let begin = self.out.len();
        self.out += open;
        for (id, edit) in &edits {
            self.out += &format!("if crate::mutant::on({id}) ");
            let start = self.out.len();
            match edit.form {
                Form::Block => self.out += &edit.text,
                Form::Statement | Form::Expression => self.out += &format!("{{ {} }}", edit.text),
            }
            let original = &self.source.text[range.clone()];
            let leaves = ["return", "continue", "break"].iter().any(|word| original.starts_with(word));
            let what = if leaves && edit.text.is_empty() { Stands::GoesOn } else { Stands::Text };
            self.places.push(Place { range: start..self.out.len(), id: *id, what });
            self.out += " else ";
        }
        let braces = form != Form::Block;
        self.out += if braces { "{ " } else { "" };
        self.copy(range);
        self.out += if braces { " }" } else { "" };
        self.out += close;
        let whole = begin..self.out.len();
        self.places.extend(edits.iter().map(|(id, _)| Place { range: whole.clone(), id: *id, what: Stands::Switch }));
    }

    fn plain(&mut self, range: Range<usize>) {
        let mut at = range.start;
        for cut in self.consts.iter().filter(|cut| range.start <= cut.start && cut.end <= range.end) {
            self.out += &self.source.text[at..cut.start];
            at = cut.end;
        }
        self.out += &self.source.text[at..range.end];
    }
}

/// The word `const` of functions with sites in them: a switch is not computed by the compiler.
fn constants(source: &Source, sites: &[(Range<usize>, Site<'_>)], constant: &BTreeSet<String>) -> Vec<Range<usize>> {
    struct Find<'a> {
        sites: &'a [(Range<usize>, Site<'a>)],
        constant: &'a BTreeSet<String>,
        found: Vec<Range<usize>>,
    }
    impl Find<'_> {
        fn signature(&mut self, signature: &syn::Signature, block: &syn::Block) {
            let (start, end) = bytes_of(block.span());
            let has_site = self.sites.iter().any(|(site, _)| start <= site.start && site.end <= end);
            let stays = self.constant.contains(&signature.ident.to_string());
            if let Some(word) = signature.constness.filter(|_| has_site && !stays) {
                let (start, end) = bytes_of(word.span());
                self.found.push(start..end);
            }
        }
    }
    impl<'ast> Visit<'ast> for Find<'_> {
        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            self.signature(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }

        fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
            self.signature(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }
    let Ok(file) = syn::parse_file(&source.text) else { return Vec::new() };
    let mut find = Find { sites, constant, found: Vec::new() };
    find.visit_file(&file);
    find.found
}

/// Ids of mutants with an edit in a function of one of these names.
pub fn inside_functions(source: &Source, mutants: &[Mutant], names: &BTreeSet<String>) -> BTreeSet<u32> {
    struct Find<'a> {
        names: &'a BTreeSet<String>,
        found: Vec<Range<usize>>,
    }
    impl Find<'_> {
        fn signature(&mut self, signature: &syn::Signature, block: &syn::Block) {
            if signature.constness.is_some() && self.names.contains(&signature.ident.to_string()) {
                let (start, end) = bytes_of(block.span());
                self.found.push(start..end);
            }
        }
    }
    impl<'ast> Visit<'ast> for Find<'_> {
        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            self.signature(&item.sig, &item.block);
        }

        fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
            self.signature(&item.sig, &item.block);
        }
    }
    let Ok(file) = syn::parse_file(&source.text) else { return BTreeSet::new() };
    let mut find = Find { names, found: Vec::new() };
    find.visit_file(&file);
    let inside = |edit: &Edit| {
        edit.file == source.path && find.found.iter().any(|range| range.start <= edit.start && edit.end <= range.end)
    };
    mutants.iter().filter(|mutant| mutant.edits.iter().any(inside)).map(|mutant| mutant.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::mutants_of;

    fn woven(text: &str) -> (Woven, Vec<Mutant>) {
        let source = Source { path: "a.rs".into(), text: text.into() };
        let mut mutants = mutants_of(&source).unwrap();
        (1..).zip(&mut mutants).for_each(|(id, mutant)| mutant.id = id);
        let all: Vec<&Mutant> = mutants.iter().collect();
        (weave(&source, &all, &BTreeSet::new()), mutants)
    }

    /// Every mutant is in the text, which parses; without its switches it is what it was.
    #[test]
    fn texts_are_woven_into_each_other() {
        let (woven, mutants) = woven("const fn f(a: u32, b: bool) -> bool { if a < 2 && !b { g(a, a + 1); } b }");
        syn::parse_file(&woven.text).unwrap_or_else(|error| panic!("{error}: {}", woven.text));
        assert!(woven.text.starts_with(" fn f("), "{}", woven.text);
        for mutant in &mutants {
            assert!(woven.text.contains(&format!("on({})", mutant.id)), "{}", mutant.name);
        }
        assert!(mutants.len() > 8);
    }

    #[test]
    fn complaints_name_the_mutant_in_whose_text_they_lie() {
        let (woven, mutants) = woven("fn f(a: u32, b: u32) { g(a, b); }");
        let swapped = mutants.iter().find(|mutant| mutant.mutated == "g(b, a)").unwrap();
        let at = woven.text.find("g(b, a)").unwrap();
        assert_eq!(woven.at_fault(&(at..at + 3)), BTreeSet::from([swapped.id]));
        let at = woven.text.find("g(a, b)").unwrap();
        assert_eq!(woven.at_fault(&(at..at + 3)), BTreeSet::from([swapped.id]), "around it is the swap's switch");
    }
}
