//! What a file claims of itself may cost speed, never an answer nor an error that is not there.

use headrace_ir::{
    AggregateFunction, ArithmeticOp, CompareOp, DataType, Expr, OnOverflow, Sink, Step, ValueRange,
};

use crate::support::*;

/// Column `x` with these values, of which the file claims that they lie between 1 and 5.
fn lying(values: &[i32]) -> Table {
    let mut table = Table::new("t", values.len()).int32("x", values);
    table.columns[0].info.range = Some(ValueRange { min: 1, max: 5 });
    table
}

fn count() -> Sink {
    Sink::aggregate(vec![], vec![call(AggregateFunction::Count, None, DataType::Int64)])
}

/// Rows for which `condition` is true, of those that `guard` keeps: by two filters, by one AND, and
/// by a CASE.
fn counts(table: &Table, guard: &Expr, condition: &Expr) -> Vec<String> {
    let both = Expr::And(vec![guard.clone(), condition.clone()]);
    let case = Expr::Case {
        branches: vec![(guard.clone(), condition.clone())],
        otherwise: None,
        data_type: DataType::Bool,
    };
    let filters = [
        vec![Step::Filter(guard.clone()), Step::Filter(condition.clone())],
        vec![Step::Filter(Expr::Or(vec![both]))],
        vec![Step::Filter(case)],
    ];
    let answer = |steps| rows(&run(table, steps, count(), &[]).unwrap()).join(" ");
    filters.into_iter().map(answer).collect()
}

#[test]
fn a_divisor_that_is_claimed_to_differ_from_zero() {
    let table = lying(&[0, 2, 5, 0, 20]);
    let x = || table.col("x");
    let guard = compare(CompareOp::Ne, x(), int(0));
    let condition = compare(CompareOp::Ge, arithmetic(ArithmeticOp::Divide, int(10), x()), int(2));
    assert_eq!(counts(&table, &guard, &condition), ["2", "2", "2"]);
}

#[test]
fn a_smallest_value_that_is_claimed_not_to_be_there() {
    let table = lying(&[i32::MIN, 2, -5, i32::MIN, 20]);
    let x = || table.col("x");
    let guard = compare(CompareOp::Gt, x(), int(-1000));
    let opposite = Expr::Negate { value: Box::new(x()), on_overflow: OnOverflow::Error };
    let condition = compare(CompareOp::Lt, opposite, int(0));
    assert_eq!(counts(&table, &guard, &condition), ["2", "2", "2"]);
}
