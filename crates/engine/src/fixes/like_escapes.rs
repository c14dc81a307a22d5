//! `x LIKE 'a#%' ESCAPE '#'` is `x LIKE 'a\%'`.
//!
//! ```sql
//! SELECT 'a%' LIKE 'a#%' ESCAPE '#'
//! ```
//!
//! - DataFusion: Refused: a backslash alone escapes; right is true.
//! - Upstream: no upstream issue known; apache/datafusion#13312 left it out.
//! - This can go when its canary finds the fault mended.

use datafusion::common::{Result, plan_err};
use datafusion::sql::sqlparser::ast::{Expr, Value};

/// A pattern with backslashes in the place of its escape character.
///
/// # Errors
/// An escape character of a pattern that is no constant.
pub fn escaped(expr: &mut Expr) -> Result<()> {
    let (Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. }) = expr
    else {
        return Ok(());
    };
    let escape = match escape_char.as_ref().map(|value| &value.value) {
        Some(Value::SingleQuotedString(text)) if text != "\\" => text.clone(),
        _ => return Ok(()),
    };
    if escape.chars().count() > 1 {
        return plan_err!("the escape character '{escape}' is more than one character");
    }
    let Expr::Value(value) = pattern.as_mut() else {
        return plan_err!(
            "ESCAPE of a pattern that is no constant is not offered\nhint: a backslash escapes in any pattern"
        );
    };
    let Value::SingleQuotedString(text) = &mut value.value else { return Ok(()) };
    let mut with_backslashes = String::with_capacity(text.len() + 8);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if escape.chars().eq([character]) {
            let Some(plain) = characters.next() else {
                return plan_err!("the pattern '{text}' ends with its escape character");
            };
            with_backslashes.push('\\');
            with_backslashes.push(plain);
            continue;
        }
        // Without its own meaning it is a character like any other.
        if character == '\\' {
            with_backslashes.push('\\');
        }
        with_backslashes.push(character);
    }
    *text = with_backslashes;
    *escape_char = None;
    Ok(())
}
