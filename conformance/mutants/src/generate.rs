//! Generated mutants: every place of a file where one of the operators of `operators` applies.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Item, Pat, ReturnType, Stmt, Token};

use crate::mutant::{Edit, Form, Mutant, Source, in_one_line};
use crate::operators;

/// The mutants of a file, without numbers. `Err`: it does not parse.
pub fn mutants_of(source: &Source) -> Result<Vec<Mutant>, String> {
    let file = syn::parse_file(&source.text).map_err(|error| format!("{}: {error}", source.path))?;
    let mut walk = Walk { source, names: Vec::new(), returns_nothing: false, found: Vec::new() };
    walk.visit_file(&file);
    let mut found = walk.found;
    found.sort_by_key(|mutant| (mutant.edits[0].start, mutant.edits[0].end));
    number_alike(&mut found);
    Ok(found)
}

/// Names of equal text in one function get a number behind them.
fn number_alike(found: &mut [Mutant]) {
    let mut seen = std::collections::HashMap::new();
    for mutant in found {
        let count = seen.entry(mutant.name.clone()).or_insert(0u32);
        *count += 1;
        if *count > 1 {
            mutant.name = format!("{} #{count}", mutant.name);
        }
    }
}

/// Bytes of a node.
pub fn bytes_of(span: Span) -> (usize, usize) {
    let range = span.byte_range();
    (range.start, range.end)
}

/// Whether an item is compiled for tests alone.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            syn::Meta::Path(path) if path.is_ident("test") => return true,
            _ => return false,
        };
        ["test", "defmt", "loom"].iter().any(|word| text.contains(word)) && !text.starts_with("not")
    })
}

/// The attributes of an item.
pub fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether a condition binds names: such a one can't be put into parentheses.
pub fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

struct Walk<'a> {
    source: &'a Source,
    /// Types, traits and functions around the place.
    names: Vec<String>,
    /// Whether the function gives nothing back.
    returns_nothing: bool,
    found: Vec<Mutant>,
}

impl Walk<'_> {
    fn text(&self, span: Span) -> &str {
        let (start, end) = bytes_of(span);
        &self.source.text[start..end]
    }

    /// Adds a mutant: the node at `span` becomes `text`. `what`: how the change is called where the texts are
    /// long.
    fn add(&mut self, span: Span, form: Form, text: String, what: Option<String>) {
        let (start, end) = bytes_of(span);
        let original = in_one_line(&self.source.text[start..end]);
        let mutated = in_one_line(&text);
        let change = what.unwrap_or_else(|| format!("{original} -> {mutated}"));
        let name = format!("{} {}: {change}", self.source.path, self.names.join("::"));
        let file = self.source.path.clone();
        let line = self.source.line_of(start);
        let edits = vec![Edit { file: file.clone(), start, end, form, text }];
        let appended = Vec::new();
        self.found.push(Mutant { id: 0, name, file, line, original, mutated, edits, appended, written: None });
    }

    fn expression(&mut self, span: Span, text: String) {
        self.add(span, Form::Expression, text, None);
    }

    /// The node at `outer` with the text of `inner`, which lies in it, replaced.
    fn inside(&self, outer: Span, inner: Span, text: &str) -> String {
        let ((start, end), (from, to)) = (bytes_of(outer), bytes_of(inner));
        let whole = &self.source.text;
        format!("{}{text}{}", &whole[start..from], &whole[to..end])
    }

    /// Two neighbours of a list change places, as far as they look alike.
    fn swaps<'e>(&mut self, whole: Span, list: impl Iterator<Item = &'e Expr>) {
        let list: Vec<&Expr> = list.collect();
        for pair in list.windows(2) {
            let (a, b) = (pair[0].span(), pair[1].span());
            let (first, second) = (self.text(a).to_owned(), self.text(b).to_owned());
            if first == second || !operators::are_alike(pair[0], pair[1]) {
                continue;
            }
            let ((start, end), (a, b)) = (bytes_of(whole), (bytes_of(a), bytes_of(b)));
            let text = &self.source.text;
            let swapped = format!("{}{second}{}{first}{}", &text[start..a.0], &text[a.1..b.0], &text[b.1..end]);
            self.expression(whole, swapped);
        }
    }

    fn condition(&mut self, condition: &Expr, values: &[&str]) {
        if has_let(condition) {
            return;
        }
        for value in values {
            let what = format!("if {} -> {value}", in_one_line(self.text(condition.span())));
            self.add(condition.span(), Form::Expression, (*value).to_owned(), Some(what));
        }
    }

    fn delete(&mut self, span: Span, form: Form) {
        let what = format!("delete {}", in_one_line(self.text(span)));
        let text = if form == Form::Statement { String::new() } else { "()".to_owned() };
        self.add(span, form, text, Some(what));
    }

    fn function(&mut self, name: &syn::Ident, output: &ReturnType, block: &Block) {
        self.names.push(name.to_string());
        let before = std::mem::replace(&mut self.returns_nothing, matches!(output, ReturnType::Default));
        if let ReturnType::Type(_, kind) = output
            && self.text(kind.span()) == "bool"
        {
            for value in ["true", "false"] {
                self.add(block.span(), Form::Block, format!("{{ {value} }}"), Some(format!("gives {value}")));
            }
        }
        self.visit_block(block);
        self.returns_nothing = before;
        self.names.pop();
    }

    fn matches_macro(&mut self, expr: &syn::ExprMacro) {
        self.expression(expr.span(), format!("!{}", self.text(expr.span())));
        let parts = expr.mac.parse_body_with(|input: syn::parse::ParseStream<'_>| {
            let value: Expr = input.parse()?;
            input.parse::<Token![,]>()?;
            Pat::parse_multi_with_leading_vert(input)?;
            let guard = match input.parse::<Option<Token![if]>>()? {
                Some(_) => Some(input.parse::<Expr>()?),
                None => None,
            };
            input.parse::<Option<Token![,]>>()?;
            Ok((value, guard))
        });
        if let Ok((value, guard)) = parts {
            self.visit_expr(&value);
            if let Some(guard) = guard {
                self.condition(&guard, &["true", "false"]);
                self.visit_expr(&guard);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        // Constants are computed by the compiler: nothing can be switched there.
        if is_for_tests(attributes_of(item)) || matches!(item, Item::Const(_) | Item::Static(_) | Item::Macro(_)) {
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.names.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.names.pop();
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let kind = in_one_line(self.text(item.self_ty.span()));
        let kind = kind.split('<').next().unwrap_or_default().to_owned();
        self.names.push(match &item.trait_ {
            Some((_, path, _)) => format!("<{kind} as {}>", in_one_line(self.text(path.span()))),
            None => kind,
        });
        visit::visit_item_impl(self, item);
        self.names.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig.ident, &item.sig.output, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.function(&item.sig.ident, &item.sig.output, &item.block);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes: &[Attribute] = match statement {
            Stmt::Expr(Expr::MethodCall(call), _) => &call.attrs,
            Stmt::Expr(Expr::Call(call), _) => &call.attrs,
            Stmt::Local(local) => &local.attrs,
            _ => &[],
        };
        if is_for_tests(attributes) {
            return;
        }
        match statement {
            Stmt::Expr(expr, Some(_)) if operators::can_be_left_out(expr) => {
                self.delete(statement.span(), Form::Statement);
            }
            Stmt::Expr(expr, None) if self.returns_nothing && operators::can_be_left_out(expr) => {
                self.delete(statement.span(), Form::Statement);
            }
            Stmt::Local(local) if matches!(local.pat, Pat::Wild(_)) => {
                self.delete(statement.span(), Form::Statement);
            }
            _ => {}
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let Some(init) = &local.init else { return };
        self.visit_expr(&init.expr);
        if let Some((_, diverge)) = &init.diverge {
            // What leaves the function there can't be left out.
            match &**diverge {
                Expr::Block(block) => {
                    if let Some((last, others)) = block.block.stmts.split_last() {
                        others.iter().for_each(|statement| self.visit_stmt(statement));
                        visit::visit_stmt(self, last);
                    }
                }
                other => self.visit_expr(other),
            }
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, &["true", "false"]);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let before = std::mem::replace(&mut self.returns_nothing, false);
        self.visit_expr(&closure.body);
        self.returns_nothing = before;
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        let span = expr.span();
        match expr {
            Expr::Binary(binary) if !has_let(expr) => {
                for other in operators::instead_of(&binary.op) {
                    let text = self.inside(span, binary.op.span(), other);
                    self.expression(span, text);
                }
                // `x >> n & 1 == 1` is one question; its numbers make no further ones.
                let operands = [&binary.left, &binary.right].map(|operand| &**operand);
                for operand in operands.into_iter().filter(|operand| !operators::is_of_a_mask(binary, operand)) {
                    self.visit_expr(operand);
                }
                return;
            }
            Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Not(_)) => {
                self.expression(span, self.text(unary.expr.span()).to_owned());
            }
            Expr::Lit(lit) => {
                for other in operators::other_literals(&lit.lit) {
                    self.expression(span, other);
                }
            }
            Expr::If(branch) => self.condition(&branch.cond, &["true", "false"]),
            // One that holds for ever is found by the clock alone.
            Expr::While(repeat) => self.condition(&repeat.cond, &["false"]),
            Expr::MethodCall(call) => {
                if let Some(other) = operators::other_method(&call.method.to_string()) {
                    let text = self.inside(span, call.method.span(), other);
                    self.expression(span, text);
                }
                self.swaps(span, call.args.iter());
            }
            Expr::Call(call) => self.swaps(span, call.args.iter()),
            Expr::Tuple(tuple) => self.swaps(span, tuple.elems.iter()),
            Expr::Struct(structure) => {
                let written = structure.fields.iter().filter(|field| field.colon_token.is_some());
                self.swaps(span, written.map(|field| &field.expr));
            }
            Expr::Macro(expr) if expr.mac.path.is_ident("matches") => return self.matches_macro(expr),
            Expr::Macro(_) => return,
            Expr::Assign(assign) => {
                // What stands on the left is a place and no value. To leave `x = true` out is enough.
                if !matches!(&*assign.right, Expr::Lit(_)) {
                    self.visit_expr(&assign.right);
                }
                return;
            }
            _ => {}
        }
        visit::visit_expr(self, expr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let source = Source { path: "a.rs".into(), text: text.into() };
        let found = mutants_of(&source).unwrap();
        found.into_iter().map(|mutant| mutant.name).collect()
    }

    #[test]
    fn each_operator_generates_its_mutants() {
        assert_eq!(
            names("impl T { fn f(&self, a: u32) -> u32 { if a < 2 { g(a, b); } a } }"),
            [
                "a.rs T::f: if a < 2 -> true",
                "a.rs T::f: if a < 2 -> false",
                "a.rs T::f: a < 2 -> a <= 2",
                "a.rs T::f: a < 2 -> a >= 2",
                "a.rs T::f: 2 -> 3",
                "a.rs T::f: g(a, b) -> g(b, a)",
                "a.rs T::f: delete g(a, b);",
            ]
        );
    }

    #[test]
    fn tests_constants_and_let_patterns_are_not_mutated() {
        assert!(names("const A: u32 = 1 + 2; #[cfg(test)] mod tests { fn f() { g(1); } }").is_empty());
        assert!(
            names("fn f() { #[cfg(test)] self.g(1 + 2); #[cfg(test)] g(1); #[cfg(test)] let x = 1 + 2; }").is_empty()
        );
        assert!(names("fn f() -> S { S { #[cfg(test)] a: 1 + 2 } }").is_empty());
        assert_eq!(names("fn f() { if let Some(x) = y && x { z } }"), Vec::<String>::new());
        assert_eq!(names("fn f() { let Some(x) = y else { g(); return; }; }"), ["a.rs f: delete g();"]);
    }

    #[test]
    fn equal_names_are_numbered() {
        assert_eq!(
            names("fn f() { g(!a); h(!a) }")[1..],
            ["a.rs f: !a -> a", "a.rs f: delete h(!a)", "a.rs f: !a -> a #2"]
        );
    }
}
