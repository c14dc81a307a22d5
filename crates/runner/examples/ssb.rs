//! The thirteen queries of the Star Schema Benchmark on the CPU, without SQL:
//! `cargo run --release -p headrace-runner --example ssb -- FOLDER [SCALE [RUNS [THREADS [QUERY]]]]`.
//!
//! Generates FOLDER if it is empty. Prints for each query the median and the least of its warm
//! runs, the least that its threads computed in one, its rows, and a hash of its answer.

use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_format::arrow::ArrowTable;
use headrace_io::system::CpuTimes;
use headrace_ir::{
    AggregateCall, AggregateFunction, ArithmeticOp, BuildPlan, BuildSource, CompareOp, DataType,
    Expr, Field, NamedExpr, Pipeline, Probe, ProbeKind, Program, Scalar, Sink, Source, Step,
};
use headrace_runner::{Processor, Request, Runner, RunnerOptions, Settings, StreamTable};
use headrace_suites::{GenerateOptions, Suite};

type Failure = Box<dyn Error>;

/// A condition on one column: any of these intervals of numbers or texts, bounds included.
#[derive(Clone, Copy)]
enum Where {
    Numbers(&'static str, i128, i128),
    Texts(&'static str, &'static str, &'static str),
    Either(&'static str, [&'static str; 2]),
}

use Where::{Either, Numbers, Texts};

/// A dimension that is joined: its table, the conditions, and the column that is a group key.
struct Dimension(&'static str, Vec<Where>, Option<&'static str>);

/// What is summed.
#[derive(Clone, Copy, PartialEq)]
enum Sum {
    Discounted,
    Revenue,
    Profit,
}

struct Query {
    name: &'static str,
    filters: Vec<Where>,
    dimensions: Vec<Dimension>,
    sum: Sum,
}

fn q1(
    name: &'static str,
    day: Vec<Where>,
    discount: (i128, i128),
    quantity: (i128, i128),
) -> Query {
    let filters = vec![
        Numbers("lo_discount", discount.0, discount.1),
        Numbers("lo_quantity", quantity.0, quantity.1),
    ];
    let dimensions = vec![Dimension("date", day, None)];
    Query { name, filters, dimensions, sum: Sum::Discounted }
}

fn joins(name: &'static str, sum: Sum, dimensions: Vec<Dimension>) -> Query {
    Query { name, filters: vec![], dimensions, sum }
}

fn q2(name: &'static str, part: Where, region: &'static str) -> Query {
    let dimensions = vec![
        Dimension("date", vec![], Some("d_year")),
        Dimension("part", vec![part], Some("p_brand1")),
        Dimension("supplier", vec![text("s_region", region)], None),
    ];
    joins(name, Sum::Revenue, dimensions)
}

fn q3(
    name: &'static str,
    (customer, supplier): (Where, Where),
    keys: [&'static str; 2],
    day: Where,
) -> Query {
    let dimensions = vec![
        Dimension("customer", vec![customer], Some(keys[0])),
        Dimension("supplier", vec![supplier], Some(keys[1])),
        Dimension("date", vec![day], Some("d_year")),
    ];
    joins(name, Sum::Revenue, dimensions)
}

fn text(column: &'static str, value: &'static str) -> Where {
    Texts(column, value, value)
}

fn queries() -> Vec<Query> {
    let year = |from, to| Numbers("d_year", from, to);
    let six_years = year(1992, 1997);
    let (kings, america) = (["UNITED KI1", "UNITED KI5"], "AMERICA");
    let cities = (Either("c_city", kings), Either("s_city", kings));
    let states = (text("c_nation", "UNITED STATES"), text("s_nation", "UNITED STATES"));
    let makers = Either("p_mfgr", ["MFGR#1", "MFGR#2"]);
    let by = |table, condition, key| Dimension(table, vec![condition], Some(key));
    let only = |table, condition| Dimension(table, vec![condition], None);
    let two_years = |name, supplier, part| {
        let day = by("date", year(1997, 1998), "d_year");
        let customer = only("customer", text("c_region", america));
        joins(name, Sum::Profit, vec![day, customer, supplier, part])
    };
    vec![
        q1("1.1", vec![year(1993, 1993)], (1, 3), (i32::MIN.into(), 24)),
        q1("1.2", vec![Numbers("d_yearmonthnum", 199_401, 199_401)], (4, 6), (26, 35)),
        q1("1.3", vec![Numbers("d_weeknuminyear", 6, 6), year(1994, 1994)], (5, 7), (36, 40)),
        q2("2.1", text("p_category", "MFGR#12"), america),
        q2("2.2", Texts("p_brand1", "MFGR#2221", "MFGR#2228"), "ASIA"),
        q2("2.3", text("p_brand1", "MFGR#2221"), "EUROPE"),
        q3(
            "3.1",
            (text("c_region", "ASIA"), text("s_region", "ASIA")),
            ["c_nation", "s_nation"],
            six_years,
        ),
        q3("3.2", states, ["c_city", "s_city"], six_years),
        q3("3.3", cities, ["c_city", "s_city"], six_years),
        q3("3.4", cities, ["c_city", "s_city"], text("d_yearmonth", "Dec1997")),
        joins(
            "4.1",
            Sum::Profit,
            vec![
                Dimension("date", vec![], Some("d_year")),
                by("customer", text("c_region", america), "c_nation"),
                only("supplier", text("s_region", america)),
                only("part", makers),
            ],
        ),
        two_years(
            "4.2",
            by("supplier", text("s_region", america), "s_nation"),
            by("part", makers, "p_category"),
        ),
        two_years(
            "4.3",
            by("supplier", text("s_nation", "UNITED STATES"), "s_city"),
            by("part", text("p_category", "MFGR#14"), "p_brand1"),
        ),
    ]
}

impl Where {
    fn column(&self) -> &'static str {
        match self {
            Numbers(column, ..) | Texts(column, ..) | Either(column, _) => column,
        }
    }

    fn steps(&self, column: Expr) -> Vec<Step> {
        let number = |value| Expr::Literal(Scalar::int(DataType::Int32, value));
        let text = |value| Expr::Literal(Scalar::utf8(value));
        let is = |op, value| Expr::compare(op, column.clone(), value);
        let conditions = match self {
            Numbers(_, from, to) if from == to => vec![is(CompareOp::Eq, number(*from))],
            Numbers(_, from, to) => {
                let bounds = [(CompareOp::Ge, *from), (CompareOp::Le, *to)];
                let bounds = bounds.into_iter().filter(|(_, v)| *v != i32::MIN.into());
                bounds.map(|(op, value)| is(op, number(value))).collect()
            }
            Texts(_, from, to) if from == to => vec![is(CompareOp::Eq, text(*from))],
            Texts(_, from, to) => {
                vec![is(CompareOp::Ge, text(*from)), is(CompareOp::Le, text(*to))]
            }
            Either(_, values) => {
                vec![Expr::Or(values.map(|value| is(CompareOp::Eq, text(value))).to_vec())]
            }
        };
        conditions.into_iter().map(Step::Filter).collect()
    }
}

/// The tables, by [`Source::table_id`].
const TABLES: [(&str, &str, &str); 5] = [
    ("date", "d_datekey", "lo_orderdate"),
    ("customer", "c_custkey", "lo_custkey"),
    ("supplier", "s_suppkey", "lo_suppkey"),
    ("part", "p_partkey", "lo_partkey"),
    ("lineorder", "", ""),
];

struct Star {
    tables: Vec<Arc<StreamTable>>,
}

impl Star {
    fn open(folder: &Path) -> Result<Self, Failure> {
        let open = |(name, ..): &(&str, _, _)| -> Result<_, Failure> {
            let table = ArrowTable::open(&[folder.join(name).with_extension("arrow")])?;
            Ok(Arc::new(StreamTable::new(*name, Arc::new(table))))
        };
        Ok(Self { tables: TABLES.iter().map(open).collect::<Result<_, _>>()? })
    }

    fn table(&self, name: &str) -> Result<usize, Failure> {
        let found = TABLES.iter().position(|(table, ..)| *table == name);
        found.ok_or_else(|| format!("no table {name}").into())
    }

    fn build(&self, Dimension(name, filters, payload): &Dimension) -> Result<BuildPlan, Failure> {
        let table = self.table(name)?;
        let mut columns = vec![TABLES[table].1];
        columns.extend(payload);
        let mut position = |column| match columns.iter().position(|c| *c == column) {
            Some(position) => position,
            None => {
                columns.push(column);
                columns.len() - 1
            }
        };
        let filtered: Vec<_> = filters.iter().map(|f| (f, position(f.column()))).collect();
        let source = self.tables[table].source_over(table, &columns)?;
        let steps = filtered.iter().flat_map(|(f, at)| f.steps(source.register(*at))).collect();
        let fields = source.columns.clone();
        let named =
            |at: usize| NamedExpr { name: fields[at].name.clone(), expr: source.register(at) };
        let payload_columns = 1..1 + usize::from(payload.is_some());
        let sink = Sink::Build {
            keys: vec![named(0)],
            payload: payload_columns.clone().map(named).collect(),
        };
        let pipeline = Pipeline { source, steps, sink };
        Ok(BuildPlan {
            name: (*name).into(),
            source: BuildSource::Pipeline(Box::new(pipeline)),
            keys: vec![fields[0].clone()],
            payload: fields[payload_columns].to_vec(),
        })
    }

    fn program(&self, query: &Query) -> Result<Program, Failure> {
        let lines = self.table("lineorder")?;
        let mut columns: Vec<&str> = match query.sum {
            Sum::Discounted => vec!["lo_extendedprice", "lo_discount", "lo_quantity"],
            Sum::Revenue => vec!["lo_revenue"],
            Sum::Profit => vec!["lo_revenue", "lo_supplycost"],
        };
        for Dimension(name, ..) in &query.dimensions {
            columns.push(TABLES[self.table(name)?].2);
        }
        let source = self.tables[lines].source_over(lines, &columns)?;
        let register = |name| column_of(&source, name);
        let mut steps = Vec::new();
        for filter in &query.filters {
            steps.extend(filter.steps(register(filter.column())?));
        }
        let mut builds = Vec::new();
        let mut keys = Vec::new();
        for dimension in &query.dimensions {
            let build = self.build(dimension)?;
            let key = register(TABLES[self.table(dimension.0)?].2)?;
            let mut probe = Probe::semi(builds.len(), vec![key]);
            probe.kind = ProbeKind::Inner;
            for Field { name, data_type, nullable } in build.payload.clone() {
                let index = columns.len() + keys.len();
                let expr = Expr::Register { index, data_type, nullable, name: name.clone() };
                probe.payload.push(probe.payload.len());
                keys.push(NamedExpr { name, expr });
            }
            steps.push(Step::Probe(probe));
            builds.push(build);
        }
        let first = register(columns[0])?;
        let value = match query.sum {
            Sum::Revenue => first,
            Sum::Discounted => {
                Expr::arithmetic(ArithmeticOp::Multiply, first, register("lo_discount")?)
            }
            Sum::Profit => {
                Expr::arithmetic(ArithmeticOp::Subtract, first, register("lo_supplycost")?)
            }
        };
        let argument = Some(value.cast(DataType::Int64));
        let sum = AggregateCall::new("sum", AggregateFunction::Sum, argument, DataType::Int64);
        let sink = Sink::aggregate(keys, vec![sum]);
        Ok(Program::new(builds, Pipeline { source, steps, sink }))
    }
}

fn column_of(source: &Source, name: &str) -> Result<Expr, Failure> {
    let position = source.columns.iter().position(|column| column.name == name);
    Ok(source.register(position.ok_or_else(|| format!("no column {name}"))?))
}

/// Rows, and a hash of them in any order.
fn answer(batches: &[RecordBatch]) -> (usize, u64) {
    let mut hash = 0u64;
    let mut rows = 0;
    for batch in batches {
        for row in 0..batch.num_rows() {
            let mut hasher = DefaultHasher::new();
            format!("{:?}", batch.slice(row, 1).columns()).hash(&mut hasher);
            hash = hash.wrapping_add(hasher.finish());
            rows += 1;
        }
    }
    (rows, hash)
}

struct Run {
    wall_ms: f64,
    cpu_ms: f64,
    answer: (usize, u64),
}

fn run(
    runner: &Runner,
    star: &Star,
    program: &Program,
    settings: &Settings,
) -> Result<Run, Failure> {
    let batches = Mutex::new(Vec::new());
    let emit = |batch| batches.lock().map(|mut kept| kept.push(batch)).is_ok();
    let token = CancelToken::new();
    let request = Request {
        program,
        tables: &star.tables,
        parameters: &[],
        children: &[],
        settings,
        token: &token,
    };
    let (started, cpu_before) = (Instant::now(), CpuTimes::of_process());
    runner.run(&request, &emit)?;
    let wall_ms = started.elapsed().as_secs_f64() * 1e3;
    let cpu_ms = CpuTimes::of_process().since(&cpu_before).total_ns() as f64 / 1e6;
    let batches = batches.into_inner().map_err(|_| "poisoned")?;
    Ok(Run { wall_ms, cpu_ms, answer: answer(&batches) })
}

fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp()
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = arguments.first().ok_or("usage: ssb FOLDER [SCALE [RUNS [THREADS [QUERY]]]]")?;
    let number = |at: usize, default: f64| {
        arguments.get(at).map_or(Ok(default), |text: &String| text.parse::<f64>())
    };
    let (scale, runs) = (number(1, 1.0)?, number(2, 20.0)? as usize);
    let mut settings = Settings { processor: Processor::Cpu, ..Settings::default() };
    settings.threads = number(3, settings.threads as f64)? as usize;
    headrace_suites::generate(&GenerateOptions::new(Suite::Ssb, scale, folder))?;
    let star = Star::open(folder.as_ref())?;
    let runner = Runner::new(&RunnerOptions::default());
    println!("query   median   least     cpu   rows  answer    (ms, {} threads)", settings.threads);
    let (mut medians, mut least, mut cpus) = (vec![], vec![], vec![]);
    for query in queries() {
        if arguments.get(4).is_some_and(|name| name != query.name) {
            continue;
        }
        let program = star.program(&query)?;
        let first = run(&runner, &star, &program, &settings)?;
        let mut measured = (0..runs.max(1))
            .map(|_| run(&runner, &star, &program, &settings))
            .collect::<Result<Vec<_>, _>>()?;
        if measured.iter().any(|run| run.answer != first.answer) {
            return Err(format!("{}: two answers", query.name).into());
        }
        measured.sort_by(|a, b| a.wall_ms.total_cmp(&b.wall_ms));
        let (median, best) = (measured[measured.len() / 2].wall_ms, measured[0].wall_ms);
        let cpu = measured.iter().map(|run| run.cpu_ms).fold(f64::MAX, f64::min);
        let ((rows, hash), name) = (first.answer, query.name);
        println!("{name}    {median:7.3} {best:7.3} {cpu:7.3} {rows:6}  {hash:016x}");
        medians.push(median);
        least.push(best);
        cpus.push(cpu);
    }
    let [median, least, cpu] = [medians, least, cpus].map(|values| geometric_mean(&values));
    println!("mean   {median:7.3} {least:7.3} {cpu:7.3}         (geometric)");
    Ok(())
}
