//! What is put in place of what.

use syn::{BinOp, Expr, ExprBinary, Lit};

/// Operators in place of one.
pub fn instead_of(op: &BinOp) -> &'static [&'static str] {
    match op {
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) => &["+"],
        BinOp::Div(_) => &["*"],
        BinOp::Rem(_) => &["/"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::BitXor(_) => &["|"],
        // That they are left out is a mutant of its own.
        BinOp::AddAssign(_) | BinOp::SubAssign(_) => &["="],
        BinOp::BitOrAssign(_) => &["=", "&="],
        BinOp::BitAndAssign(_) => &["=", "|="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    }
}

/// A method in place of one.
pub fn other_method(name: &str) -> Option<&'static str> {
    Some(match name {
        "wrapping_add" => "wrapping_sub",
        "wrapping_sub" => "wrapping_add",
        "saturating_add" => "saturating_sub",
        "saturating_sub" => "saturating_add",
        "checked_add" => "checked_sub",
        "checked_sub" => "checked_add",
        "min" => "max",
        "max" => "min",
        "is_some" => "is_none",
        "is_none" => "is_some",
        "is_ok" => "is_err",
        "is_err" => "is_ok",
        "any" => "all",
        "all" => "any",
        "is_some_and" => "is_none_or",
        "is_none_or" => "is_some_and",
        "leading_zeros" => "trailing_zeros",
        "trailing_zeros" => "leading_zeros",
        "trailing_ones" => "trailing_zeros",
        "push_back" => "push_front",
        "pop_front" => "pop_back",
        "head" => "tail",
        "tail" => "head",
        "is_before" => "is_after",
        _ => return None,
    })
}

/// Literals in place of one: one more, and nothing for something.
pub fn other_literals(lit: &Lit) -> Vec<String> {
    match lit {
        Lit::Int(number) => {
            let (digits, suffix) = (number.base10_digits(), number.suffix());
            let Ok(value) = digits.parse::<u64>() else { return Vec::new() };
            let mut others = vec![format!("{}{suffix}", value.wrapping_add(1))];
            if value == 1 {
                others[0] = format!("0{suffix}");
                others.push(format!("2{suffix}"));
            }
            others
        }
        Lit::Bool(value) => vec![(!value.value).to_string()],
        _ => Vec::new(),
    }
}

/// Whether a statement of this expression is left out by a mutant.
pub fn can_be_left_out(expr: &Expr) -> bool {
    match expr {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Return(_) | Expr::Continue(_) | Expr::Break(_) => true,
        Expr::Binary(binary) => is_assignment(&binary.op),
        Expr::Try(inner) => can_be_left_out(&inner.expr),
        _ => false,
    }
}

const fn is_assignment(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// Whether a number of a binary expression only selects a bit, or sets by how much a counter moves on.
pub fn is_of_a_mask(binary: &ExprBinary, operand: &Expr) -> bool {
    let is_bit = |op: &BinOp| matches!(op, BinOp::Shl(_) | BinOp::Shr(_) | BinOp::BitAnd(_) | BinOp::BitOr(_));
    let masks = |expr: &Expr| matches!(expr, Expr::Binary(inner) if is_bit(&inner.op));
    let compares_masks =
        matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)) && (masks(&binary.left) || masks(&binary.right));
    matches!(operand, Expr::Lit(_)) && (is_bit(&binary.op) || compares_masks || is_assignment(&binary.op))
}

/// Whether two expressions are of one sort, so that they may be of one type.
pub fn are_alike(a: &Expr, b: &Expr) -> bool {
    matches!(
        (a, b),
        (Expr::Path(_), Expr::Path(_))
            | (Expr::Lit(_), Expr::Lit(_))
            | (Expr::Field(_), Expr::Field(_))
            | (Expr::MethodCall(_), Expr::MethodCall(_))
            | (Expr::Path(_), Expr::Field(_))
            | (Expr::Field(_), Expr::Path(_))
    )
}
