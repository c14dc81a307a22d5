//! Query 1.1 of the Star Schema Benchmark without SQL:
//! `cargo run -p headrace-runner --example q1_1 -- FOLDER`, a folder of `headrace ssb generate`.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};

use headrace_flow::CancelToken;
use headrace_format::arrow::ArrowTable;
use headrace_ir::{
    AggregateCall, AggregateFunction, ArithmeticOp, CompareOp, DataType, Expr, NamedExpr, Pipeline,
    Probe, Program, Scalar, Sink, Source, Step,
};
use headrace_runner::{Request, Runner, RunnerOptions, Settings, StreamTable};

fn open(folder: &Path, name: &str) -> Result<Arc<StreamTable>, Box<dyn Error>> {
    let table = ArrowTable::open(&[folder.join(name).with_extension("arrow")])?;
    Ok(Arc::new(StreamTable::new(name, Arc::new(table))))
}

fn filter(source: &Source, column: usize, op: CompareOp, value: i128) -> Step {
    let value = Expr::Literal(Scalar::int(DataType::Int32, value));
    Step::Filter(Expr::compare(op, source.register(column), value))
}

/// Days of 1993, by their key.
fn days(source: Source) -> Pipeline {
    let key = NamedExpr { name: "d_datekey".into(), expr: source.register(0) };
    let steps = vec![filter(&source, 1, CompareOp::Eq, 1993)];
    let sink = Sink::Build { keys: vec![key], payload: vec![] };
    Pipeline { source, steps, sink }
}

/// Revenue that discounts of 1 to 3 per cent on fewer than 25 pieces have cost on those days.
fn revenue(source: Source) -> Pipeline {
    let [price, discount] = [3, 1].map(|c| source.register(c).cast(DataType::Int64));
    let product = Expr::arithmetic(ArithmeticOp::Multiply, price, discount);
    let sum = AggregateFunction::Sum;
    let calls = vec![AggregateCall::new("revenue", sum, Some(product), DataType::Int64)];
    let steps = vec![
        filter(&source, 1, CompareOp::Ge, 1),
        filter(&source, 1, CompareOp::Le, 3),
        filter(&source, 2, CompareOp::Lt, 25),
        Step::Probe(Probe::semi(0, vec![source.register(0)])),
    ];
    Pipeline { source, steps, sink: Sink::aggregate(vec![], calls) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: q1_1 FOLDER")?;
    let (date, lines) = (open(folder.as_ref(), "date")?, open(folder.as_ref(), "lineorder")?);
    let columns = ["lo_orderdate", "lo_discount", "lo_quantity", "lo_extendedprice"];
    let build = days(date.source_over(0, &["d_datekey", "d_year"])?);
    let program = Program::new(vec![build], revenue(lines.source_over(1, &columns)?));
    let answer = Mutex::new(Vec::new());
    let emit = |batch| answer.lock().map(|mut kept| kept.push(batch)).is_ok();
    let runner = Runner::new(&RunnerOptions::default());
    let request = Request {
        program: &program,
        parameters: &[],
        tables: &[date, lines],
        settings: &Settings::default(),
        token: &CancelToken::new(),
        known: None,
    };
    let report = runner.run(&request, &emit)?;
    println!("{:?}", answer.lock().map_err(|_| "poisoned")?[0].column(0));
    println!(
        "{} rows on {}, {:.1} ms",
        report.streamed.rows_in, report.streamed.processor, report.streamed.wall_ms
    );
    Ok(())
}
