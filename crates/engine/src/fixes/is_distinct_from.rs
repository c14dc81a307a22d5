//! `a IS DISTINCT FROM b AND c` as SQL means it.
//!
//! ```sql
//! SELECT count(*) FROM t WHERE true IS DISTINCT FROM true AND false
//! ```
//!
//! - DataFusion: Every row: the parser reads `true IS DISTINCT FROM (true AND false)`; right is none.
//! - Upstream: apache/datafusion#23692, mended by apache/datafusion-sqlparser-rs#2436, which no parser of DataFusion's has
//!   yet.
//! - This can go when its canary finds the fault mended.
//!
//! The parser takes all that follows for the right side: `a IS DISTINCT FROM (b AND c)`, which is another
//! condition, or none at all. What was written in parentheses is a node of its own, so a conjunction
//! that lies bare where none can be is one that was swallowed; it is put back above what comes before it.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Statement, UnaryOperator, Value, VisitorMut,
};

use crate::sql::walk::{self, Flow, ON, Stop};

/// Puts conjunctions and disjunctions back that were taken for the right side of IS [NOT] DISTINCT FROM.
pub fn restore(statement: &mut Statement) {
    walk::change_all(statement, &mut Restore);
}

struct Restore;

impl VisitorMut for Restore {
    type Break = Stop;

    // Operands come before the operator.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right)
                if is(right, &[BinaryOperator::And, BinaryOperator::Or]) =>
            {
                let both = [BinaryOperator::And, BinaryOperator::Or];
                raise(expr, &both, |expr| match expr {
                    Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => right,
                    other => other,
                });
            }
            Expr::BinaryOp { op: BinaryOperator::And, right, .. }
                if is(right, &[BinaryOperator::Or]) =>
            {
                raise(expr, &[BinaryOperator::Or], |expr| match expr {
                    Expr::BinaryOp { right, .. } => right,
                    other => other,
                });
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr: inner }
                if is(inner, &[BinaryOperator::And, BinaryOperator::Or]) =>
            {
                let both = [BinaryOperator::And, BinaryOperator::Or];
                raise(expr, &both, |expr| match expr {
                    Expr::UnaryOp { expr, .. } => expr,
                    other => other,
                });
            }
            // `-2 ^ 2` is 4, as in PostgreSQL.
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner }
                if is(inner, &[BinaryOperator::PGExp]) =>
            {
                raise(expr, &[BinaryOperator::PGExp], |expr| match expr {
                    Expr::UnaryOp { expr, .. } => expr,
                    other => other,
                });
            }
            _ => {}
        }
        ON
    }
}

/// Whether an expression is one of these operators, and not in parentheses.
fn is(expr: &Expr, operators: &[BinaryOperator]) -> bool {
    matches!(expr, Expr::BinaryOp { op, .. } if operators.contains(op))
}

/// Exchanges an expression with the operators at its right end: of these the leftmost operand becomes its own.
fn raise(expr: &mut Expr, operators: &[BinaryOperator], right: impl Fn(&mut Expr) -> &mut Expr) {
    let nothing = || Expr::value(Value::Null);
    let mut above = std::mem::replace(right(expr), nothing());
    let mut lowest = &mut above;
    while is(lowest, operators)
        && let Expr::BinaryOp { left, .. } = lowest
    {
        lowest = left;
    }
    *right(expr) = std::mem::replace(lowest, nothing());
    *lowest = std::mem::replace(expr, nothing());
    *expr = above;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn restored(condition: &str) -> Statement {
        let text = format!("SELECT 1 WHERE {condition}");
        let mut statements = Parser::parse_sql(&crate::sql::HeadraceDialect, &text).unwrap();
        restore(&mut statements[0]);
        statements.remove(0)
    }

    /// Parentheses are told from none by what the text says with and without them.
    fn bare(condition: &str) -> String {
        struct Strip;
        impl VisitorMut for Strip {
            type Break = Stop;
            fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
                if let Expr::Nested(inner) = expr {
                    *expr = std::mem::replace(inner, Expr::value(Value::Null));
                }
                ON
            }
        }
        let mut statement = restored(condition);
        walk::change_all(&mut statement, &mut Strip);
        format!("{statement:#?}").lines().filter(|line| !line.contains("Location")).collect()
    }

    #[test]
    fn conjunctions_lie_above_what_they_connect() {
        for (written, meant) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            ("a IS NOT DISTINCT FROM b OR c AND d", "(a IS NOT DISTINCT FROM b) OR (c AND d)"),
            ("a IS DISTINCT FROM b AND c OR d", "((a IS DISTINCT FROM b) AND c) OR d"),
            ("x AND a IS DISTINCT FROM b OR d", "(x AND (a IS DISTINCT FROM b)) OR d"),
            ("NOT a IS DISTINCT FROM b AND c", "(NOT (a IS DISTINCT FROM b)) AND c"),
            (
                "NOT x AND NOT a IS DISTINCT FROM b OR c",
                "((NOT x) AND (NOT (a IS DISTINCT FROM b))) OR c",
            ),
            ("a IS DISTINCT FROM (b AND c)", "a IS DISTINCT FROM (b AND c)"),
            ("a IS DISTINCT FROM b", "a IS DISTINCT FROM b"),
            ("-a ^ b ^ c > 0", "(((-a) ^ b) ^ c) > 0"),
            ("a * b ^ c > 0", "(a * (b ^ c)) > 0"),
            ("-(a ^ b) > 0", "(-(a ^ b)) > 0"),
            (
                "a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e",
                "((a IS DISTINCT FROM b) AND (c IS DISTINCT FROM d)) OR e",
            ),
            ("a IS DISTINCT FROM b + 1 = c OR d", "(a IS DISTINCT FROM (b + 1 = c)) OR d"),
        ] {
            // A side that is written in parentheses is left as it is.
            let parts = |text: &str| text.matches(['(', ')']).count();
            assert!(parts(meant) > 0 || written == meant);
            assert_eq!(bare(written), bare(meant), "{written}");
        }
    }
}
