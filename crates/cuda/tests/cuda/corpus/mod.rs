//! Pipelines over the random table: every step, sink and expression that the CUDA processor
//! takes, with the outcome that is expected of the CPU processor.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int8Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use headrace_ir::*;
use headrace_pipeline::build::{BuildOptions, BuildTable};

pub use self::builds::build;
use self::builds::build_with;
use crate::data::{DECIMAL, Shape, TEXTS, Table, fields};

mod aggregates;
mod builds;
mod distances;
mod expressions;
mod failures;
mod filters;
mod functions;
mod joins;
mod orders;
mod texts;
mod user_functions;
mod wide_keys;

pub use aggregates::hashed_groups;
pub use aggregates::{results_by_key, total_beyond_its_type};
pub use failures::{by_text, corrupt_tables};
pub use joins::several_matches;
pub use texts::{corrupt_texts, plain_texts, refused};

#[derive(Clone)]
pub struct Case {
    pub name: &'static str,
    pub steps: Vec<Step>,
    pub sink: Sink,
}

pub fn reg(name: &str) -> Expr {
    let fields = fields();
    let index = fields.iter().position(|f| f.name == name).unwrap();
    Expr::Register {
        index,
        data_type: fields[index].data_type.clone(),
        nullable: fields[index].nullable,
        name: name.into(),
    }
}

/// A register that a step has appended.
fn appended(offset: usize, data_type: DataType, nullable: bool, name: &str) -> Expr {
    Expr::Register { index: fields().len() + offset, data_type, nullable, name: name.into() }
}

fn int(data_type: DataType, value: i128) -> Expr {
    Expr::Literal(Scalar::int(data_type, value))
}
fn i32s(value: i128) -> Expr {
    int(DataType::Int32, value)
}
fn f64s(value: f64) -> Expr {
    Expr::Literal(Scalar::new(DataType::Float64, Value::Float(value)))
}
fn text(value: &str) -> Expr {
    Expr::Literal(Scalar::utf8(value))
}

fn cmp(op: CompareOp, left: Expr, right: Expr) -> Expr {
    Expr::Compare { op, left: Box::new(left), right: Box::new(right) }
}
fn lt(left: Expr, right: Expr) -> Expr {
    cmp(CompareOp::Lt, left, right)
}
fn ge(left: Expr, right: Expr) -> Expr {
    cmp(CompareOp::Ge, left, right)
}
fn eq(left: Expr, right: Expr) -> Expr {
    cmp(CompareOp::Eq, left, right)
}

fn arith(op: ArithmeticOp, left: Expr, right: Expr, on_overflow: OnOverflow) -> Expr {
    let data_type = match (left.data_type(), right.data_type()) {
        (DataType::Decimal128 { scale: l, .. }, DataType::Decimal128 { scale: r, .. }) => {
            let scale = if op == ArithmeticOp::Multiply { l + r } else { l.max(r) };
            DataType::Decimal128 { precision: 30, scale }
        }
        (left, _) => left,
    };
    Expr::Arithmetic { op, left: Box::new(left), right: Box::new(right), data_type, on_overflow }
}
fn add(left: Expr, right: Expr) -> Expr {
    arith(ArithmeticOp::Add, left, right, OnOverflow::Error)
}
fn mul(left: Expr, right: Expr) -> Expr {
    arith(ArithmeticOp::Multiply, left, right, OnOverflow::Error)
}
fn div(left: Expr, right: Expr) -> Expr {
    arith(ArithmeticOp::Divide, left, right, OnOverflow::Error)
}
fn cast(value: Expr, to: DataType, on_failure: CastFailure) -> Expr {
    Expr::Cast { value: Box::new(value), to, on_failure }
}
fn case(branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
    let data_type = branches[0].1.data_type();
    Expr::Case { branches, otherwise: otherwise.map(Box::new), data_type }
}
fn not(value: Expr) -> Expr {
    Expr::Not(Box::new(value))
}
fn is_null(value: Expr) -> Expr {
    Expr::IsNull(Box::new(value))
}
fn in_list(value: Expr, list: Vec<Scalar>, negated: bool) -> Expr {
    Expr::InList { value: Box::new(value), list, negated }
}
fn like(value: Expr, pattern: &str) -> Expr {
    Expr::Like {
        value: Box::new(value),
        pattern: pattern.into(),
        escape: None,
        negated: false,
        case_insensitive: false,
    }
}

fn named(name: &str, expr: Expr) -> NamedExpr {
    NamedExpr { name: name.into(), expr }
}
fn rows(columns: Vec<(&str, Expr)>) -> Sink {
    let columns = columns.into_iter().map(|(name, expr)| named(name, expr)).collect();
    Sink::Rows { columns, limit: None }
}

/// The first of these rows, ordered by all their columns, each the other way round than the one before; with other
/// limits the first one goes the other way, or has its NULLs behind.
fn first_rows(columns: Vec<(&str, Expr)>, limit: u64) -> Sink {
    let Sink::Rows { columns, .. } = rows(columns) else { panic!("rows") };
    let turn = limit as usize;
    let key = |column| OrderKey {
        column,
        descending: (column + turn).is_multiple_of(2),
        nulls_first: (column + turn).is_multiple_of(3),
    };
    let order = (0..columns.len()).map(key).collect();
    Sink::Sorted { columns, order, limit: Some(limit) }
}

fn call(function: AggregateFunction, argument: Option<Expr>) -> AggregateCall {
    let result = match (function, argument.as_ref().map(Expr::data_type)) {
        (AggregateFunction::Count, _) => DataType::Int64,
        (AggregateFunction::Sum, Some(DataType::Decimal128 { scale, .. })) => {
            DataType::Decimal128 { precision: 38, scale }
        }
        (AggregateFunction::Sum, Some(t)) if t.is_float() => DataType::Float64,
        (AggregateFunction::Sum, Some(DataType::UInt64 | DataType::UInt16)) => DataType::UInt64,
        (AggregateFunction::Sum, _) => DataType::Int64,
        (AggregateFunction::Avg, Some(DataType::Decimal128 { scale, .. })) => {
            DataType::Decimal128 { precision: 38, scale: scale + 4 }
        }
        (AggregateFunction::Avg, _) => DataType::Float64,
        (_, Some(t)) => t,
        (_, None) => DataType::Int64,
    };
    AggregateCall {
        name: format!(
            "{}_{}",
            function.name(),
            argument.as_ref().map_or("rows".into(), Expr::to_string)
        ),
        function,
        argument,
        filter: None,
        distinct: false,
        result,
        on_overflow: OnOverflow::Error,
    }
}
pub fn count() -> AggregateCall {
    call(AggregateFunction::Count, None)
}
pub fn sum(argument: Expr) -> AggregateCall {
    call(AggregateFunction::Sum, Some(argument))
}
pub fn aggregate(keys: Vec<(&str, Expr)>, calls: Vec<AggregateCall>) -> Sink {
    Sink::aggregate(keys.into_iter().map(|(name, expr)| named(name, expr)).collect(), calls)
}

/// Builds of the corpus, by their index in the program.
pub const DIRECT: usize = 0;
pub const HASHED: usize = 1;
pub const WITH_NULL_KEY: usize = 2;
pub const DUPLICATES: usize = 3;
pub const WIDE_KEYS: usize = 4;
/// As DIRECT, with up to four rows a key.
pub const SEVERAL: usize = 5;
/// As DIRECT, without any row.
pub const EMPTY: usize = 6;

fn probe(build: usize, kind: ProbeKind, keys: Vec<Expr>, payload: Vec<usize>) -> Step {
    Step::Probe(Probe { kind, payload, ..Probe::semi(build, keys) })
}

/// A key of the hashed build from `k`.
fn far_key() -> Expr {
    let wide = |e| cast(e, DataType::Int64, CastFailure::Error);
    let scaled = mul(wide(reg("k")), int(DataType::Int64, 3_000_000_007));
    arith(ArithmeticOp::Subtract, scaled, int(DataType::Int64, 600_000_000_000), OnOverflow::Error)
}

/// All builds, in the order of their numbers.
pub fn builds() -> Vec<Arc<BuildTable>> {
    [builds::builds(), wide_keys::builds(), distances::builds()].concat()
}

/// All cases.
pub fn cases() -> Vec<Case> {
    [
        filters::filters(),
        expressions::expressions(),
        aggregates::aggregates(),
        joins::joins(),
        joins::several_matches(),
        aggregates::hashed_groups(),
        joins::empty_builds(),
        distances::distances(),
        user_functions::user_functions(),
        failures::failures(),
        functions::functions(),
        functions::failing_functions(),
        orders::orders(),
        wide_keys::wide_keys(),
    ]
    .concat()
}

fn counted(name: &'static str, condition: Expr) -> Case {
    let sink = aggregate(vec![], vec![count(), sum(reg("a")), sum(reg("k"))]);
    Case { name, steps: vec![Step::Filter(condition)], sink }
}
