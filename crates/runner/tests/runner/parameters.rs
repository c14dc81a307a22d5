//! The values of a program's parameters, which come with each run.

use headrace_ir::{
    AggregateCall, AggregateFunction, ArithmeticOp, CompareOp, DataType, Expr, Field, Pipeline,
    Program, Scalar, Sink, Step,
};
use headrace_runner::{ErrorClass, Processor, Runner, RunnerOptions, StreamTable};

use crate::partial::{open, parts, run_on, run_with};
use crate::support::rows;

fn int(value: i128) -> Scalar {
    Scalar::int(DataType::Int32, value)
}

/// Facts of one city with at least a price, and a name that is not excluded: `city` and `name`
/// may be constants or parameters.
fn filtered(table: &StreamTable, city: Expr, name: Expr, more: Expr) -> Program {
    let source = table.source_over(0, &["city", "name", "value", "price"]).unwrap();
    let city_is = Expr::compare(CompareOp::Eq, source.register(0), city);
    let other_name = Expr::compare(CompareOp::Ne, source.register(1), name);
    let sum = Expr::arithmetic(ArithmeticOp::Add, source.register(2), more);
    let sum = AggregateCall::new("sum", AggregateFunction::Sum, Some(sum), DataType::Int64);
    let count = AggregateCall::new("count", AggregateFunction::Count, None, DataType::Int64);
    let sink = Sink::aggregate(vec![], vec![sum, count]);
    Program::new(
        vec![],
        Pipeline { source, steps: vec![Step::Filter(Expr::And(vec![city_is, other_name]))], sink },
    )
}

fn parameters() -> Vec<Field> {
    vec![
        Field::new("city", DataType::Int32, true),
        Field::new("name", DataType::Utf8, false),
        Field::new("more", DataType::Int64, false),
    ]
}

fn with_parameters(table: &StreamTable) -> Program {
    let read = |index: usize| {
        let Field { data_type, nullable, .. } = parameters()[index].clone();
        Expr::Parameter { index, data_type, nullable }
    };
    Program { parameters: parameters(), ..filtered(table, read(0), read(1), read(2)) }
}

#[test]
fn one_program_runs_with_many_values() {
    many_values(Processor::Cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_one_program_runs_with_many_values() {
    many_values(Processor::Cuda);
}

fn many_values(processor: Processor) {
    let folder = tempfile::tempdir().unwrap();
    let table = open(&parts(folder.path()));
    let text = serde_json::to_string(&with_parameters(&table)).unwrap();
    let program: Program = serde_json::from_str(&text).unwrap();
    let runner = Runner::new(&RunnerOptions::default());
    let mut answers = Vec::new();
    for (city, name, more) in [(int(3), "b", 0), (int(12), "g", -5), (int(99), "", 1)] {
        let values = [city, Scalar::utf8(name), Scalar::int(DataType::Int64, more)];
        let [city, name, more] = values.clone().map(Expr::Literal);
        let literal = filtered(&table, city, name, more);
        let expected = rows(&run_with(&runner, &literal, &[], &table).unwrap());
        assert_eq!(rows(&run_on(processor, &runner, &program, &values, &table).unwrap()), expected);
        answers.push(expected);
    }
    answers.dedup();
    assert_eq!(answers.len(), 3);
    let null = Scalar::null(DataType::Int32);
    let values = [null, Scalar::utf8("b"), Scalar::int(DataType::Int64, 0)];
    let none = rows(&run_on(processor, &runner, &program, &values, &table).unwrap());
    assert!(none == ["NULL|0"], "{none:?}");
}

#[test]
fn values_that_do_not_fit_are_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let files = parts(folder.path());
    let table = open(&files);
    // Whoever reads finds out.
    files.iter().for_each(|file| std::fs::write(file, b"nothing").unwrap());
    let runner = Runner::new(&RunnerOptions::default());
    let (name, more) = (Scalar::utf8("b"), Scalar::int(DataType::Int64, 0));
    for (values, cause) in [
        (vec![int(3), name.clone()], "takes 3 parameters, 2 values"),
        (vec![int(3), more.clone(), more.clone()], "$2 (name) cannot be 0: it is int64, not utf8"),
        (vec![int(3), Scalar::null(DataType::Utf8), more.clone()], "$2 (name) cannot be NULL"),
        (vec![int(1 << 40), name.clone(), more.clone()], "no int32 has this value"),
    ] {
        let error = run_with(&runner, &with_parameters(&table), &values, &table).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Parameter, "{error}");
        assert!(error.to_string().contains(cause), "{error}");
    }
    let values = [int(3), name, more];
    let error = run_with(&runner, &with_parameters(&table), &values, &table).unwrap_err();
    assert_eq!(error.class(), ErrorClass::FileChanged, "{error}");
}
