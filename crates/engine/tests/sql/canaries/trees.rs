//! Syntax trees of texts that the parser misreads and DataFusion does not run.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

pub const FILES: [&str; 1] = ["arrow_operators"];

#[test]
fn arrow_operators() {
    let text = "x ->> 'a' = 'b'";
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).unwrap();
    let expr = parser.parse_expr().unwrap();
    let swallows = matches!(&expr, Expr::BinaryOp { op: BinaryOperator::LongArrow, right, .. }
        if matches!(right.as_ref(), Expr::BinaryOp { op: BinaryOperator::Eq, .. }));
    assert!(
        swallows,
        "upstream has mended this: fixes/arrow_operators.rs can go\n{text}\nnow: {expr:?}"
    );
}
