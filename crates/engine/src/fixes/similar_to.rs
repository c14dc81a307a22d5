//! `a SIMILAR TO 'pattern'`: the pattern is of the whole text, `%` is any text and `_` any character.
//!
//! ```sql
//! SELECT 'abc' SIMILAR TO 'b', 'abc' SIMILAR TO 'a%'
//! ```
//!
//! - DataFusion: True and false: the pattern is taken for a regular expression of any part; right is false and true.
//! - Upstream: apache/datafusion#22263, mended by apache/datafusion#23188, which no release has yet.
//! - This can go when its canary finds the fault mended.
//!
//! The planner takes the pattern for a regular expression that may match anywhere. It gets the one that is meant.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue, not_impl_err, plan_err};
use datafusion::logical_expr::expr::Like;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, binary_expr, lit};

use crate::plans::map_expressions;

/// Makes patterns of SIMILAR TO regular expressions.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    map_expressions(plan, |expr| expr.transform_up(as_regex))
}

fn as_regex(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::SimilarTo(Like { negated, expr: text, pattern, escape_char, .. }) = expr else {
        return Ok(Transformed::no(expr));
    };
    // Beside a view of texts it is cast.
    let written = match pattern.as_ref() {
        Expr::Cast(cast) => cast.expr.as_ref(),
        other => other,
    };
    let pattern = match written {
        Expr::Literal(value, _) => match value.try_as_str() {
            Some(Some(pattern)) => lit(regex(pattern, escape_char.unwrap_or('\\'))?),
            _ => lit(ScalarValue::Utf8(None)),
        },
        _ => {
            return not_impl_err!(
                "SIMILAR TO with a pattern that is not a constant\nhint: LIKE takes any, regexp_like a regular expression"
            );
        }
    };
    let operator = if negated { Operator::RegexNotMatch } else { Operator::RegexMatch };
    Ok(Transformed::yes(binary_expr(*text, operator, pattern)))
}

/// The regular expression of a pattern (PostgreSQL's manual, 9.7.2).
fn regex(pattern: &str, escape: char) -> Result<String> {
    let mut regex = String::from("(?s)^(?:");
    let (mut characters, mut in_brackets, mut in_count) = (pattern.chars(), false, false);
    while let Some(character) = characters.next() {
        match character {
            _ if character == escape => match characters.next() {
                Some(plain) => push_plain(&mut regex, plain),
                None => {
                    return plan_err!(
                        "the pattern '{pattern}' of SIMILAR TO ends with its escape character"
                    );
                }
            },
            '[' | ']' => {
                in_brackets = character == '[';
                regex.push(character);
            }
            _ if in_brackets => regex.push(character),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '{' | '}' => {
                in_count = character == '{';
                regex.push(character);
            }
            ',' if in_count => regex.push(','),
            '|' | '*' | '+' | '?' | '(' | ')' => regex.push(character),
            _ => push_plain(&mut regex, character),
        }
    }
    regex.push_str(")$");
    Ok(regex)
}

fn push_plain(regex: &mut String, character: char) {
    if character.is_ascii_punctuation() {
        regex.push('\\');
    }
    regex.push(character);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::regex;

    #[test]
    fn patterns_are_of_the_whole_text() {
        let of = |pattern| regex(pattern, '\\').unwrap();
        assert_eq!(of("a%_"), "(?s)^(?:a.*.)$");
        assert_eq!(of("(abc|x.z)+"), "(?s)^(?:(abc|x\\.z)+)$");
        assert_eq!(of("[a-c%]\\%^"), "(?s)^(?:[a-c%]\\%\\^)$");
        assert_eq!(of("_{1,3},"), "(?s)^(?:.{1,3}\\,)$");
        assert!(regex("a\\", '\\').is_err());
    }
}
