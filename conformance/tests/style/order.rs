//! The order of files within a folder of the core: methods of `Endpoint` call one way, and imports make no
//! circle.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, files, layers, none, own_lines, test_modules};

/// The folder whose files are in the order of the `mod` lines of its `mod.rs`.
const ENDPOINT: &str = "core/src/endpoint";

/// A word or a character of punctuation, and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'a> {
    line: usize,
    text: &'a str,
}

/// The tokens of a file before its tests, without comments, strings, characters and lifetimes.
fn tokens(file: &File) -> Vec<Token<'_>> {
    let own = own_lines(file);
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut rest, mut line) = (Vec::new(), file.text.as_str(), 1);
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c| !part_of_word(c)).unwrap_or(rest.len());
        let end = |close: &str, from: usize| rest[from..].find(close).map_or(rest.len(), |at| from + at + close.len());
        let raw = rest.strip_prefix('r').map(|it| it.trim_start_matches('#')).filter(|it| it.starts_with('"'));
        let len = if rest.starts_with("//") {
            end("\n", 0)
        } else if rest.starts_with("/*") {
            end("*/", 0)
        } else if let Some(text) = raw {
            let hashes = rest.len() - text.len() - 1;
            end(&format!("\"{}", "#".repeat(hashes)), hashes + 2)
        } else if first == '"' {
            let mut is_escaped = false;
            let is_end = |c: char| {
                let ends = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                ends
            };
            rest[1..].find(is_end).map_or(rest.len(), |at| at + 2)
        } else if rest.starts_with("'\\") {
            end("'", 3)
        } else if first == '\'' {
            let mut after = rest.char_indices().skip(2);
            match after.next() {
                Some((at, '\'')) => at + 1,
                _ => 1 + rest[1..].find(|c| !part_of_word(c)).unwrap_or(rest.len() - 1),
            }
        } else {
            let len = word.max(first.len_utf8());
            if !first.is_whitespace() && line <= own {
                tokens.push(Token { line, text: &rest[..len] });
            }
            len
        };
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

/// Where the group that opens at `open` ends.
fn closed(tokens: &[Token], open: usize) -> usize {
    let pairs = [("{", "}"), ("(", ")"), ("<", ">")];
    let (begin, end) = *pairs.iter().find(|(begin, _)| *begin == tokens[open].text).expect("a group opens here");
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        // The end of an arrow closes nothing.
        let is_arrow = token.text == ">" && ["-", "="].contains(&tokens[at - 1].text);
        depth += i32::from(token.text == begin) - i32::from(token.text == end && !is_arrow);
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// An `impl` block of `Endpoint`.
struct Block {
    /// Its tokens from `impl`; its braces.
    tokens: std::ops::Range<usize>,
    open: usize,
    /// It has methods of its own, not those of a trait.
    is_inherent: bool,
}

fn blocks(tokens: &[Token]) -> Vec<Block> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut blocks = Vec::new();
    for at in 0..tokens.len() {
        let begins_item = at == 0 || ["}", ";", "]"].contains(&text(at - 1));
        if text(at) != "impl" || !begins_item {
            continue;
        }
        let open = (at..tokens.len()).find(|&at| text(at) == "{").unwrap_or(tokens.len() - 1);
        let for_type = (at..open).find(|&at| text(at) == "for" && text(at + 1) != "<");
        let mut of = match for_type {
            Some(at) => at + 1,
            None if text(at + 1) == "<" => closed(tokens, at + 1) + 1,
            None => at + 1,
        };
        while text(of + 1) == ":" {
            of += 3;
        }
        if text(of) == "Endpoint" {
            blocks.push(Block { tokens: at..closed(tokens, open), open, is_inherent: for_type.is_none() });
        }
    }
    blocks
}

/// The methods of `Endpoint` that a file has.
fn methods<'a>(tokens: &[Token<'a>]) -> BTreeSet<&'a str> {
    let mut methods = BTreeSet::new();
    for block in blocks(tokens).into_iter().filter(|block| block.is_inherent) {
        let mut at = block.open + 1;
        while at < block.tokens.end {
            match tokens[at].text {
                "{" => at = closed(tokens, at),
                "fn" => drop(methods.insert(tokens[at + 1].text)),
                _ => {}
            }
            at += 1;
        }
    }
    methods
}

/// The names behind `self.`, `Self::` and `Endpoint::` that may be methods, with their lines. The error is a
/// line where the endpoint gets another name, so that calls of its methods would not be seen.
fn calls<'a>(tokens: &[Token<'a>]) -> Vec<Result<Token<'a>, usize>> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let blocks = blocks(tokens);
    let mut calls = Vec::new();
    let mut is_receiver = BTreeSet::new();
    let mut at = 0;
    while at < tokens.len() {
        let inside = blocks.iter().any(|block| (block.open..block.tokens.end).contains(&at));
        let header = blocks.iter().any(|block| (block.tokens.start..block.open).contains(&at));
        let line = tokens[at].line;
        match text(at) {
            "use" => at = (at..tokens.len()).find(|&at| text(at) == ";").unwrap_or(tokens.len()),
            "fn" => {
                let open = if text(at + 2) == "<" { closed(tokens, at + 2) + 1 } else { at + 2 };
                let first = (open + 1..tokens.len()).find(|&at| !["&", "mut"].contains(&text(at)));
                is_receiver.extend(first);
            }
            "self" if inside && text(at + 1) == "." => {
                let is_call = ["(", ":"].contains(&text(at + 3));
                calls.extend(is_call.then(|| Ok(tokens[at + 2])));
            }
            "self" if inside && !is_receiver.contains(&at) => calls.push(Err(line)),
            "Self" if inside && text(at + 1) == ":" && text(at + 2) == ":" => calls.push(Ok(tokens[at + 3])),
            "Endpoint" if !header => {
                let generics = if text(at + 1) == ":" && text(at + 3) == "<" { at + 3 } else { at + 1 };
                let end = if text(generics) == "<" { closed(tokens, generics) } else { at };
                let is_made = text(at + 1) == "{" && text(at - 1) == "(";
                match text(end + 1) {
                    ":" if text(end + 2) == ":" => calls.push(Ok(tokens[end + 3])),
                    _ if is_made || text(at - 1) == "struct" => {}
                    _ => calls.push(Err(line)),
                }
            }
            _ => {}
        }
        at += 1;
    }
    calls
}

/// The modules that a `mod.rs` declares, but those for tests, in their order.
fn declared<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    let ends = tokens.windows(3).enumerate().filter(|(_, it)| it[0].text == "mod" && it[2].text == ";");
    let is_for_tests = |at: usize| tokens[..at].iter().rev().take(5).any(|token| token.text == "test");
    ends.filter(|&(at, _)| !is_for_tests(at)).map(|(_, it)| it[1].text).collect()
}

/// The module of a folder in which a file lies. `None`: it is not in the folder, or is the folder's own.
fn module_in<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let inside = path.strip_prefix(folder)?.strip_prefix('/')?;
    let module = inside.split(['/', '.']).next()?;
    (!["mod.rs", "lib.rs"].contains(&inside) && path.ends_with(".rs")).then_some(module)
}

/// What is wrong in a folder where files of `modules` call methods of those before them only.
fn upward_calls(folder: &str, modules: &[&str], files: &[File]) -> Vec<String> {
    let place = |path: &str| match module_in(folder, path) {
        // Methods of the folder's own file are for all others.
        None => Some(0),
        Some(module) => modules.iter().position(|it| *it == module).map(|at| at + 1),
    };
    let mut owners = BTreeMap::new();
    let mut findings = Vec::new();
    let sources: Vec<_> = files.iter().map(|file| (file, tokens(file))).collect();
    for (file, tokens) in &sources {
        match place(&file.path) {
            Some(at) => owners.extend(methods(tokens).into_iter().map(|name| (name, (at, file)))),
            None => findings.push(format!("{} is no module of {folder}/mod.rs", file.path)),
        }
    }
    for (file, tokens) in &sources {
        let from = place(&file.path).unwrap_or(usize::MAX);
        for call in calls(tokens) {
            match call.map(|call| (call, owners.get(call.text))) {
                Err(line) => findings.push(format!("{}:{line}: the endpoint gets another name", file.path)),
                Ok((Token { line, text }, Some((to, owner)))) if *to > from => {
                    findings.push(format!("{}:{line}: calls {text} of {}", file.path, owner.path));
                }
                Ok(_) => {}
            }
        }
    }
    findings
}

/// The names of items that others may import from a file.
fn items<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    let kinds = ["struct", "enum", "trait", "type", "const", "static", "fn"];
    let named = tokens.windows(2).filter(|it| kinds.contains(&it[0].text) && it[1].text != "fn");
    named.map(|it| it[1].text).collect()
}

/// Where items that a folder's own file imports from its modules, and passes on, come from.
fn passed_on<'a>(folder: &str, files: &'a [File], modules: &BTreeSet<&'a str>) -> BTreeMap<&'a str, &'a str> {
    let mut from = BTreeMap::new();
    let is_own = |file: &&File| ["mod", "lib"].iter().any(|name| file.path == format!("{folder}/{name}.rs"));
    for own in files.iter().filter(is_own).map(tokens) {
        let text = |at: usize| own.get(at).map_or("", |token| token.text);
        for at in (1..own.len()).filter(|&at| text(at - 1) == "use") {
            let Some(module) = modules.get(text(at)) else { continue };
            let end = (at..own.len()).find(|&at| text(at) == ";").unwrap_or(own.len());
            let is_of = |file: &&File| module_in(folder, &file.path) == Some(module);
            for name in own[at + 1..end].iter().map(|token| token.text) {
                match name {
                    "*" => from
                        .extend(files.iter().filter(is_of).flat_map(|it| items(&tokens(it))).map(|it| (it, *module))),
                    _ => drop(from.insert(name, *module)),
                }
            }
        }
    }
    from
}

/// The modules of a folder, and which siblings the code of each names.
fn imports(folder: &str, files: &[File]) -> BTreeMap<String, BTreeSet<String>> {
    let modules: BTreeSet<&str> = files.iter().filter_map(|file| module_in(folder, &file.path)).collect();
    let passed = passed_on(folder, files, &modules);
    let absolute: Vec<&str> = folder.split('/').skip(2).collect();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let Some(module) = module_in(folder, &file.path) else { continue };
        let inside = file.path[folder.len() + 1..].trim_end_matches(".rs").trim_end_matches("/mod");
        let relative = vec!["super"; inside.split('/').count()];
        let tokens = tokens(file);
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
        let mut named = Vec::new();
        for at in 0..tokens.len() {
            let path: Vec<&str> = match text(at) {
                "super" => relative.clone(),
                "crate" => ["crate"].into_iter().chain(absolute.iter().copied()).collect(),
                _ => continue,
            };
            let begins = at < 2 || text(at - 1) != ":" || text(at - 2) != ":";
            let leads = |(i, step): (usize, &&str)| {
                text(at + 3 * i) == *step && text(at + 3 * i + 1) == ":" && text(at + 3 * i + 2) == ":"
            };
            if !begins || !path.iter().enumerate().all(leads) {
                continue;
            }
            let first = at + 3 * path.len();
            if text(first) != "{" {
                named.push(text(first));
                continue;
            }
            let mut depth = 0;
            for member in first..closed(&tokens, first) {
                depth += i32::from(text(member) == "{") - i32::from(text(member) == "}");
                if depth == 1 && ["{", ","].contains(&text(member)) {
                    named.push(text(member + 1));
                }
            }
        }
        let of = |name: &&str| modules.get(*name).or_else(|| passed.get(*name)).map(|it| it.to_string());
        let named = named.iter().filter_map(of).filter(|name| name != module);
        uses.entry(module.to_string()).or_default().extend(named);
    }
    uses
}

/// The files of the core without tests.
fn core_files() -> Vec<File> {
    let files = files();
    let tests = test_modules(&files);
    let is_test = |path: &str| tests.iter().any(|it| path == format!("{it}.rs") || path.starts_with(&format!("{it}/")));
    files.into_iter().filter(|it| it.path.starts_with("core/src/") && it.is_rust() && !is_test(&it.path)).collect()
}

#[test]
fn files_of_the_endpoint_are_in_order() {
    let files: Vec<File> = core_files().into_iter().filter(|file| file.path.starts_with(ENDPOINT)).collect();
    let own = files.iter().find(|file| file.path == format!("{ENDPOINT}/mod.rs")).expect("the folder has its file");
    let own = tokens(own);
    let modules = declared(&own);
    assert!(files.iter().map(|file| methods(&tokens(file)).len()).sum::<usize>() > modules.len(), "methods are seen");
    none("methods of `Endpoint` call those of files before theirs", upward_calls(ENDPOINT, &modules, &files));
    let mut findings = Vec::new();
    for (module, named) in imports(ENDPOINT, &files) {
        let before = modules.iter().take_while(|it| **it != module).map(|it| it.to_string()).collect();
        findings.extend(named.difference(&before).map(|name| format!("{module} imports from {name}")));
    }
    none("files import from files before them", findings);
}

#[test]
fn imports_within_a_folder_make_no_circle() {
    let files = core_files();
    let folders: BTreeSet<&str> =
        files.iter().filter_map(|file| file.path.rsplit_once('/')).map(|(folder, _)| folder).collect();
    let circles = folders.iter().filter_map(|folder| Some((folder, layers(&imports(folder, &files)).err()?)));
    none("files that import from each other", circles.map(|(folder, circle)| format!("{folder}: {circle}")).collect());
}

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

/// Two files, the first of which calls the second in every way that code can.
#[test]
fn a_call_upwards_is_found() {
    let high = file("f/high.rs", "impl Endpoint<'_> {\n    fn top<T>(&mut self) { self.base(); }\n}\n");
    let found = |text: &str| {
        let low = file(
            "f/low.rs",
            &format!("use super::Endpoint;\n{text}\nimpl<'m> Endpoint<'m> {{ fn base(&self) {{}} }}\n"),
        );
        upward_calls("f", &["low", "high"], &[low, file("f/high.rs", &high.text), file("f/mod.rs", "struct Endpoint;")])
    };
    let inside = |code: &str| found(&format!("impl Endpoint<'_> {{\nfn x(&mut self) {{\n{code}\n}} }}"));
    let upwards = ["f/low.rs:4: calls top of f/high.rs"];
    assert_eq!(inside("self.top();"), upwards);
    assert_eq!(inside("self.top::<u8>();"), upwards);
    assert_eq!(inside("a.map(Self::top);"), upwards);
    assert_eq!(inside("Endpoint::top(it);"), upwards);
    assert_eq!(inside("<Endpoint<'_>>::base(it, <Endpoint::<'_>>::top);").len(), 2);
    assert_eq!(inside("assert!(x, \"}\", '}', self\n.top());"), ["f/low.rs:5: calls top of f/high.rs"]);
    assert_eq!(inside("let x = &mut *self;"), ["f/low.rs:4: the endpoint gets another name"]);
    assert_eq!(inside("run(self);"), ["f/low.rs:4: the endpoint gets another name"]);
    assert_eq!(found("fn x(it: &mut Endpoint<'_>) {}"), ["f/low.rs:2: the endpoint gets another name"]);
    assert_eq!(found("impl fmt::Debug for super::Endpoint<'_> {\nfn fmt(&self) { self.top() } }").len(), 1);
    assert_eq!(upward_calls("f", &["low"], &[file("f/high.rs", "")]), ["f/high.rs is no module of f/mod.rs"]);

    // What is no call upwards.
    for code in ["self.base();", "self.t.top();", "self.top = 1;", "// self.top()", "\"self.top()\";", "it.top();"] {
        assert_eq!(inside(code), [""; 0], "{code}");
    }
    assert_eq!(found("impl Tables<'_> { fn x(&self) { run(self); self.top() } }"), [""; 0]);
    assert_eq!(found("#[cfg(test)]\nmod tests {\nfn x(it: &Endpoint<'_>) { it.top() }\n}"), [""; 0]);
}

/// The helpers of the order of imports.
#[test]
fn circles_of_imports_are_found() {
    let own = file(
        "core/src/f/mod.rs",
        "// One.\nmod a;\npub mod b;\n#[cfg(test)]\nmod tests;\npub use b::{B, Other};\npub use b::*;\n",
    );
    assert_eq!(declared(&tokens(&own)), ["a", "b"]);
    let found = |a: &str, b: &str| {
        let files = [file("core/src/f/a.rs", a), file("core/src/f/b/c.rs", b), file("core/src/f/mod.rs", &own.text)];
        layers(&imports("core/src/f", &files)).map_err(|circle| circle.to_string())
    };
    let circle = Err("a -> b -> a".to_string());
    assert_eq!(found("use super::b;", "use super::super::a::A;"), circle);
    assert_eq!(found("use super::{x, b::{B, C}};", "use crate::f::a::A;"), circle);
    assert_eq!(found("use super::{Own, B};", "x: crate::f::{a::A}"), circle);
    assert_eq!(found("use super::C;", "use crate::f::a::A;\npub struct C;"), circle);
    assert!(found("use super::{x::b, Own};", "use super::super::a::A;").is_ok());
    assert!(found("use super::b::B;", "use super::a::A;\n// super::super::a\n").is_ok());
    assert!(found("use super::b::B;", "#[cfg(test)]\nmod tests {\nuse super::super::super::a;\n}").is_ok());
}
