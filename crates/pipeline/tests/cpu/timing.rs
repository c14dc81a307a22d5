//! How long pipelines shaped like the Star Schema Benchmark take over 6 million rows in
//! memory with one thread. Run with `--ignored --nocapture --test-threads=1`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use headrace_spill::SpillFolder;

use headrace_ir::{
    AggregateFunction, ArithmeticOp, CastFailure, CompareOp, DataType, Expr, Sink, Step,
};
use headrace_pipeline::cpu::{CpuProgram, WorkerOptions};
use headrace_pipeline::{BuildOptions, BuildTable};

use crate::support::*;

const ROWS: usize = 6_000_000;

struct Random(u64);

impl Random {
    fn next(&mut self, below: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * u64::from(below)) >> 32) as u32
    }
}

fn days() -> Vec<i32> {
    let month_days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    (1992..1999)
        .flat_map(|year| {
            month_days.iter().enumerate().flat_map(move |(month, &days)| {
                (1..=days).map(move |day| year * 10_000 + (month as i32 + 1) * 100 + day)
            })
        })
        .collect()
}

fn lineorder() -> Table {
    let mut random = Random(42);
    let days = days();
    let mut column = |f: &mut dyn FnMut(&mut Random) -> i32| -> Vec<i32> {
        (0..ROWS).map(|_| f(&mut random)).collect()
    };
    let orderdate = column(&mut |r| days[r.next(days.len() as u32) as usize]);
    let custkey = column(&mut |r| 1 + r.next(30_000) as i32);
    let suppkey = column(&mut |r| 1 + r.next(2_000) as i32);
    let partkey = column(&mut |r| 1 + r.next(200_000) as i32);
    let quantity = column(&mut |r| 1 + r.next(50) as i32);
    let discount = column(&mut |r| r.next(11) as i32);
    let price = column(&mut |r| 90_000 + r.next(10_000_000) as i32);
    let revenue = column(&mut |r| 90_000 + r.next(10_000_000) as i32);
    let cost = column(&mut |r| 50_000 + r.next(80_000) as i32);
    Table::new("lineorder", ROWS)
        .int32("lo_orderdate", &orderdate)
        .int32("lo_custkey", &custkey)
        .int32("lo_suppkey", &suppkey)
        .int32("lo_partkey", &partkey)
        .int32("lo_quantity", &quantity)
        .int32("lo_discount", &discount)
        .int32("lo_extendedprice", &price)
        .int32("lo_revenue", &revenue)
        .int32("lo_supplycost", &cost)
}

/// A dimension with keys `1..=rows` of which `keep` of `of` are kept, and a payload of
/// `distinct` values.
fn dimension(name: &str, rows: i32, keep: i32, of: i32, distinct: i32) -> Arc<BuildTable> {
    let mut random = Random(rows as u64);
    let keys: Vec<i32> = (1..=rows).collect();
    let class: Vec<i32> = keys.iter().map(|_| random.next(of as u32) as i32).collect();
    let attribute: Vec<i32> = keys.iter().map(|_| random.next(distinct as u32) as i32).collect();
    let table = Table::new(name, rows as usize)
        .int32("key", &keys)
        .int32("class", &class)
        .int32("attribute", &attribute);
    let filter = Step::Filter(compare(CompareOp::Lt, table.col("class"), int(keep.into())));
    build(&table, vec![filter], &["key"], &["attribute"])
}

fn dates(first_year: i32, last_year: i32) -> Arc<BuildTable> {
    let days = days();
    let years: Vec<i32> = days.iter().map(|d| d / 10_000).collect();
    let table = Table::new("date", days.len()).int32("d_datekey", &days).int32("d_year", &years);
    let filters = vec![
        Step::Filter(compare(CompareOp::Ge, table.col("d_year"), int(first_year.into()))),
        Step::Filter(compare(CompareOp::Le, table.col("d_year"), int(last_year.into()))),
    ];
    build(&table, filters, &["d_datekey"], &["d_year"])
}

fn sum(argument: Expr) -> headrace_ir::AggregateCall {
    let wide = Expr::Cast {
        value: Box::new(argument),
        to: DataType::Int64,
        on_failure: CastFailure::Error,
    };
    call(AggregateFunction::Sum, Some(wide), DataType::Int64)
}

/// Keeps only the columns that a query reads, as a planner does.
fn projected(table: &Table, names: &[&str]) -> Table {
    let mut output = Table::new(&table.name, table.rows);
    for name in names {
        let index = table.fields.iter().position(|f| f.name == *name).unwrap();
        output.fields.push(table.fields[index].clone());
        output.columns.push(table.columns[index].clone());
    }
    output
}

fn time(name: &str, table: &Table, steps: Vec<Step>, sink: Sink, builds: &[Arc<BuildTable>]) {
    let program = CpuProgram::compile(bound(table, steps, sink, builds)).unwrap();
    let segment = table.segment();
    let mut best = f64::MAX;
    let mut groups = 0;
    for _ in 0..7 {
        let start = Instant::now();
        let mut worker = program.worker(&WorkerOptions::new(u64::MAX)).unwrap();
        worker.execute(&segment).unwrap();
        let output = program.finish(vec![worker], BuildOptions::default()).unwrap();
        best = best.min(start.elapsed().as_secs_f64());
        let headrace_pipeline::state::Output::Batches(batches) = output else { panic!() };
        groups = batches.iter().map(|b| b.num_rows()).sum();
    }
    let bytes = (table.columns.len() * ROWS * 4) as f64;
    println!(
        "{name}: {:.2} ms, {:.2} GB/s of columns, {groups} groups",
        best * 1e3,
        bytes / best / 1e9
    );
}

#[test]
#[ignore = "a measurement"]
fn star_schema_queries() {
    let all = lineorder();
    let between = |table: &Table, name: &str, low: i64, high: i64| {
        Step::Filter(Expr::And(vec![
            compare(CompareOp::Ge, table.col(name), int(low)),
            compare(CompareOp::Le, table.col(name), int(high)),
        ]))
    };

    let t = projected(&all, &["lo_orderdate", "lo_quantity", "lo_discount", "lo_extendedprice"]);
    let steps = vec![
        inner(0, t.col("lo_orderdate"), vec![]),
        between(&t, "lo_discount", 1, 3),
        Step::Filter(compare(CompareOp::Lt, t.col("lo_quantity"), int(25))),
    ];
    let product =
        arithmetic(ArithmeticOp::Multiply, t.col("lo_extendedprice"), t.col("lo_discount"));
    let sink = Sink::aggregate(vec![], vec![sum(product)]);
    time("Q1.1", &t, steps, sink, &[dates(1993, 1993)]);

    let t = projected(&all, &["lo_orderdate", "lo_partkey", "lo_suppkey", "lo_revenue"]);
    let steps = vec![
        inner(0, t.col("lo_orderdate"), vec![0]),
        inner(1, t.col("lo_partkey"), vec![0]),
        inner(2, t.col("lo_suppkey"), vec![]),
    ];
    let key = |i, name: &str| named(name, reg(i, DataType::Int32, false, name));
    let sink =
        Sink::aggregate(vec![key(4, "d_year"), key(5, "p_brand")], vec![sum(t.col("lo_revenue"))]);
    let builds = [
        dates(1992, 1998),
        dimension("part", 200_000, 1, 25, 40),
        dimension("supplier", 2_000, 1, 5, 25),
    ];
    time("Q2.1", &t, steps, sink, &builds);

    let t = projected(&all, &["lo_orderdate", "lo_custkey", "lo_suppkey", "lo_revenue"]);
    let steps = vec![
        inner(0, t.col("lo_custkey"), vec![0]),
        inner(1, t.col("lo_suppkey"), vec![0]),
        inner(2, t.col("lo_orderdate"), vec![0]),
    ];
    let sink = Sink::aggregate(
        vec![key(4, "c_nation"), key(5, "s_nation"), key(6, "d_year")],
        vec![sum(t.col("lo_revenue"))],
    );
    let builds = [
        dimension("customer", 30_000, 1, 5, 5),
        dimension("supplier", 2_000, 1, 5, 5),
        dates(1992, 1997),
    ];
    time("Q3.1", &t, steps, sink, &builds);

    let t = projected(
        &all,
        &["lo_orderdate", "lo_custkey", "lo_suppkey", "lo_partkey", "lo_revenue", "lo_supplycost"],
    );
    let steps = vec![
        inner(0, t.col("lo_orderdate"), vec![0]),
        inner(1, t.col("lo_custkey"), vec![0]),
        inner(2, t.col("lo_suppkey"), vec![]),
        inner(3, t.col("lo_partkey"), vec![]),
    ];
    let profit = arithmetic(ArithmeticOp::Subtract, t.col("lo_revenue"), t.col("lo_supplycost"));
    let sink = Sink::aggregate(vec![key(6, "d_year"), key(7, "c_nation")], vec![sum(profit)]);
    let builds = [
        dates(1992, 1998),
        dimension("customer", 30_000, 1, 5, 5),
        dimension("supplier", 2_000, 1, 5, 25),
        dimension("part", 200_000, 2, 5, 25),
    ];
    time("Q4.1", &t, steps, sink, &builds);
}

/// One thread, 6 million rows, groups that do not fit a dense array.
#[test]
#[ignore = "a measurement"]
fn hashed_groups() {
    let mut random = Random(7);
    for groups in [1_000u32, 100_000, 2_000_000] {
        let mut column = |spread: u32| -> Vec<i32> {
            (0..ROWS).map(|_| random.next(groups).wrapping_mul(spread) as i32).collect()
        };
        let (one, two) = (column(0x9e37_79b1), column(77_777));
        let table = Table::new("t", ROWS).int32("k", &one).int32("v", &two);
        let sink = Sink::aggregate(
            vec![named("k", table.col("k"))],
            vec![call(AggregateFunction::Count, None, DataType::Int64), sum(table.col("v"))],
        );
        time(&format!("{groups} groups"), &table, vec![], sink, &[]);
    }
}

/// Groups of 10 million rows by `THREADS` threads (2): what each takes in, then what they merge.
#[test]
#[ignore = "a measurement"]
fn groups_of_many_threads() {
    let threads = std::env::var("THREADS").map_or(2, |text| text.parse::<usize>().unwrap());
    const ROWS: usize = 10_000_000;
    let mut random = Random(11);
    let users: Vec<i32> =
        (0..ROWS).map(|_| random.next(2_500_000).wrapping_mul(0x9e37_79b1) as i32).collect();
    let phrases: Vec<String> = (0..ROWS)
        .map(|_| match random.next(3) {
            0 => format!("phrase number {} of many", random.next(1_000_000)),
            _ => String::new(),
        })
        .collect();
    let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
    let addresses: Vec<String> = (0..ROWS)
        .map(|_| {
            // A few come often, most once or twice.
            let most = 1 + random.next(4_000_000);
            format!("https://www.example.org/section/{}/page-{}", most % 977, random.next(most))
        })
        .collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let table = Table::new("t", ROWS).int32("user", &users).text("phrase", &phrases);
    let table = table.text("address", &addresses);
    let count = || call(AggregateFunction::Count, None, DataType::Int64);
    for keys in [&["user"][..], &["phrase"], &["address"], &["user", "phrase"]]
        .into_iter()
        .filter(|keys| std::env::var("KEYS").map_or(true, |k| k == keys.join(",")))
    {
        let t = projected(&table, keys);
        let by = keys.iter().map(|name| named(name, t.col(name))).collect();
        let bound = bound(&t, vec![], Sink::aggregate(by, vec![count()]), &[]);
        let program = CpuProgram::compile(bound).unwrap();
        let mut best = (f64::MAX, 0.0);
        let mut groups = 0;
        for _ in 0..5 {
            let mut options = WorkerOptions::new(64 << 30);
            options.workers = threads;
            let home = tempfile::tempdir().unwrap();
            options.spill = Some(SpillFolder::new(home.path(), u64::MAX, ""));
            let start = Instant::now();
            let part = (ROWS / threads).next_multiple_of(8);
            let workers: Vec<_> = std::thread::scope(|scope| {
                let work = |thread: usize| {
                    let (program, options, t) = (&program, &options, &t);
                    let part = t.part(thread * part, ROWS.min((thread + 1) * part));
                    scope.spawn(move || {
                        let mut worker = program.worker(options).unwrap();
                        worker.execute(&part).unwrap();
                        worker
                    })
                };
                let handles: Vec<_> = (0..threads).map(work).collect();
                handles.into_iter().map(|handle| handle.join().unwrap()).collect()
            });
            let streamed = start.elapsed().as_secs_f64();
            let rows = AtomicU64::new(0);
            let emit = |batch: RecordBatch| {
                rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                true
            };
            let build = BuildOptions { threads, ..BuildOptions::default() };
            program.finish_each(workers, build, &emit).unwrap();
            let all = start.elapsed().as_secs_f64();
            best = if all < best.0 { (all, streamed) } else { best };
            groups = rows.into_inner();
        }
        let (all, streamed) = best;
        println!(
            "{keys:?}, {threads} threads, {groups} groups: {:.1} ms to take in, {:.1} ms to merge",
            streamed * 1e3,
            (all - streamed) * 1e3
        );
    }
}

/// A line of `/proc/self/status` in bytes.
fn status_bytes(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1000
}

/// `MILLION_GROUPS` million groups (10), each seen by two workers, under `MEMORY_MB` MB (32).
#[test]
#[ignore = "a measurement"]
fn many_groups_in_little_memory() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap())
    };
    let (groups, memory) =
        (number("MILLION_GROUPS", 10) * 1_000_000, number("MEMORY_MB", 32) * 1_000_000);
    let keys: Vec<i32> =
        (0..groups * 2).map(|i| ((i % groups) as u32).wrapping_mul(0x9e37_79b1) as i32).collect();
    let total: i64 = keys.iter().map(|&key| i64::from(key)).sum();
    let table = Table::new("t", keys.len()).int32("k", &keys);
    drop(keys);
    let sink = Sink::aggregate(
        vec![named("k", table.col("k"))],
        vec![call(AggregateFunction::Count, None, DataType::Int64), sum(table.col("k"))],
    );
    let program = CpuProgram::compile(bound(&table, vec![], sink, &[])).unwrap();
    let home = tempfile::tempdir().unwrap();
    let folder = SpillFolder::new(home.path(), u64::MAX, "");
    let mut options = WorkerOptions::new(memory);
    options.workers = 2;
    let spill = number("SPILL", 1) == 1;
    options.spill = spill.then_some(folder);
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status_bytes("VmRSS");
    let start = Instant::now();
    let middle = groups as usize;
    let workers = std::thread::scope(|scope| {
        let handles = [(0, middle), (middle, 2 * middle)].map(|(from, to)| {
            let (program, options, table) = (&program, &options, &table);
            scope.spawn(move || {
                let mut worker = program.worker(options).unwrap();
                worker.execute(&table.part(from, to)).unwrap();
                worker
            })
        });
        handles.map(|handle| handle.join().unwrap()).into()
    });
    let streamed = start.elapsed();
    let (rows, sums) = (AtomicU64::new(0), AtomicI64::new(0));
    let emit = |batch: RecordBatch| {
        rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        let counts = batch.column(1).as_primitive::<Int64Type>();
        assert!(counts.values().iter().all(|&count| count == 2));
        let column = batch.column(2).as_primitive::<Int64Type>();
        sums.fetch_add(column.values().iter().sum::<i64>(), Ordering::Relaxed);
        true
    };
    program.finish_each(workers, BuildOptions::default(), &emit).unwrap();
    assert_eq!((rows.into_inner(), sums.into_inner()), (groups, total));
    println!(
        "{groups} groups, {memory} bytes: {:.2} s + {:.2} s to merge, {:.0} ns a row; account \
         {} bytes at most, resident {} bytes more than before; {:?}",
        streamed.as_secs_f64(),
        (start.elapsed() - streamed).as_secs_f64(),
        start.elapsed().as_nanos() as f64 / (groups * 2) as f64,
        options.memory.peak_bytes(),
        status_bytes("VmHWM") - before,
        options.spilled,
    );
}
