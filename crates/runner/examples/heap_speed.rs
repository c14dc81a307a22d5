//! Measures how fast a PostgreSQL segment file of the Star Schema Benchmark's `lineorder` is decoded,
//! and how fast pipelines run over it.
//!
//! ```text
//! heap_speed SEGMENT [RUNS [WHAT]]     the best of RUNS runs (5) of lines whose label has WHAT
//! ```
//!
//! Lines of a GPU, "cuda", come where there is one.
//!
//! The table's texts are `text`, its numbers `int4`, nothing may be NULL, and there are no checksums.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use headrace_cuda::CudaDevice;
use headrace_flow::CancelToken;
use headrace_format::batches::{BatchSender, batch_channel};
use headrace_format::heap::{
    Align, Attribute, Block, BlockOwner, HeapBlocks, HeapTable, HeapType, Length, Relation, Reroute,
};
use headrace_format::{Pages, Table};
use headrace_io::{MappedFile, SourceFile};
use headrace_ir::{
    AggregateCall, AggregateFunction, ArithmeticOp, CompareOp, DataType, Expr, NamedExpr, Pipeline,
    Program, Scalar, Sink, Source, Step,
};
use headrace_runner::{Fallback, Processor, Request, Runner, RunnerOptions, Settings, StreamTable};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BLOCK_BYTES: usize = 8192;
const CHUNK_BYTES: usize = 1 << 20;
const TEXTS: [&str; 3] = ["lo_orderpriority", "lo_shippriority", "lo_shipmode"];
const COLUMNS: [&str; 17] = [
    "lo_orderkey",
    "lo_linenumber",
    "lo_custkey",
    "lo_partkey",
    "lo_suppkey",
    "lo_orderdate",
    "lo_orderpriority",
    "lo_shippriority",
    "lo_quantity",
    "lo_extendedprice",
    "lo_ordtotalprice",
    "lo_discount",
    "lo_revenue",
    "lo_supplycost",
    "lo_tax",
    "lo_commitdate",
    "lo_shipmode",
];
const FILTERED: [&str; 4] = ["lo_orderdate", "lo_quantity", "lo_extendedprice", "lo_discount"];
const GROUPED: [&str; 6] =
    ["lo_custkey", "lo_suppkey", "lo_orderdate", "lo_partkey", "lo_revenue", "lo_supplycost"];

/// A server that reads nothing itself, and ends its rows when all blocks are done.
struct Owner {
    left: AtomicU32,
    rerouted: AtomicU32,
    sender: Mutex<Option<BatchSender>>,
}

impl BlockOwner for Owner {
    fn holds(&self, _block: Block) -> bool {
        true
    }

    fn reroute(&self, _block: Block, _why: Reroute) {
        self.rerouted.fetch_add(1, Ordering::Relaxed);
    }

    fn done(&self, blocks: u32) {
        if self.left.fetch_sub(blocks, Ordering::AcqRel) == blocks {
            let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(sender) = sender {
                sender.finish();
            }
        }
    }
}

fn table(path: &Path) -> Outcome<(Arc<HeapTable>, Arc<Owner>)> {
    let attribute = |name: &&str| {
        let is_text = TEXTS.contains(name);
        Attribute {
            name: name.to_string(),
            kind: Some(if is_text { HeapType::Text } else { HeapType::Int4 }),
            length: if is_text { Length::Varlena } else { Length::Fixed(4) },
            align: Align::Int,
            dropped: false,
            not_null: true,
            missing: None,
        }
    };
    let attributes = COLUMNS.iter().map(attribute).collect();
    let relation =
        Relation { block_bytes: BLOCK_BYTES, checksums: false, attributes, derived: Vec::new() };
    let blocks = (std::fs::metadata(path)?.len() / BLOCK_BYTES as u64) as u32;
    let files = vec![path.to_path_buf()];
    let direct = std::iter::once(0..blocks).collect();
    let heap = HeapBlocks { relation, files, blocks_per_file: 131_072, direct, stamps: None };
    let (sender, receiver) = batch_channel(1);
    let owner = Arc::new(Owner {
        left: blocks.into(),
        rerouted: 0.into(),
        sender: Mutex::new(Some(sender)),
    });
    let table = HeapTable::new("lineorder", vec![heap], Arc::clone(&owner) as _, receiver)?;
    Ok((Arc::new(table), owner))
}

/// How the bytes come to the decoder.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// From a mapping that was read before.
    Mapped,
    /// From a mapping that is made and gone with the run; each chunk populated first if asked.
    FreshMapping { populate: bool },
    /// By reads of so many bytes.
    Read(usize),
}

/// Decodes a file with some threads; rows.
fn decode(
    path: &Path,
    columns: &[&str],
    threads: usize,
    way: Way,
    kept: &MappedFile,
) -> Outcome<u64> {
    let (table, owner) = table(path)?;
    let ordinals =
        columns.iter().map(|name| table.schema().index_of(name)).collect::<Result<Vec<_>, _>>()?;
    let (next, rows) = (AtomicU32::new(0), AtomicU32::new(0));
    let file = File::open(path)?;
    let bytes_all = file.metadata()?.len() as usize;
    let fresh = match way {
        Way::FreshMapping { .. } => Some(MappedFile::map(SourceFile::open(path)?)?),
        _ => None,
    };
    let chunk_bytes = match way {
        Way::Read(bytes) => bytes,
        _ => CHUNK_BYTES,
    };
    let work = || -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut decoder = Arc::clone(&table).page_decoder(&ordinals)?.ok_or("no decoder")?;
        let mut buffer = vec![0; chunk_bytes];
        loop {
            let start = next.fetch_add(1, Ordering::Relaxed) as usize * chunk_bytes;
            if start >= bytes_all {
                break;
            }
            let bytes = chunk_bytes.min(bytes_all - start);
            let mapped = fresh.as_ref().unwrap_or(kept);
            let chunk = match way {
                Way::Read(_) => {
                    file.read_exact_at(&mut buffer[..bytes], start as u64)?;
                    &buffer[..bytes]
                }
                _ => mapped.bytes(start as u64, bytes as u64)?,
            };
            if let Way::FreshMapping { populate: true } = way {
                mapped.populate(start as u64..(start + bytes) as u64);
            }
            let mut pages = Pages { file: 0, offset: start as u64, bytes: chunk };
            while let Some(batch) = decoder.next_batch(&mut pages)? {
                rows.fetch_add(batch.num_rows() as u32, Ordering::Relaxed);
            }
        }
        if let Some(batch) = decoder.rest()? {
            rows.fetch_add(batch.num_rows() as u32, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|one| one.join().map_err(|_| "a panic")?)
    })
    .map_err(|error| error.to_string())?;
    drop(fresh);
    match owner.rerouted.load(Ordering::Relaxed) {
        0 => Ok(rows.into_inner().into()),
        rerouted => Err(format!("{rerouted} blocks were rerouted").into()),
    }
}

fn int(value: i64) -> Expr {
    Expr::Literal(Scalar::int(DataType::Int32, value.into()))
}

fn keep(op: CompareOp, left: Expr, right: Expr) -> Step {
    Step::Filter(Expr::compare(op, left, right))
}

fn sum(argument: Expr) -> AggregateCall {
    AggregateCall::new("total", AggregateFunction::Sum, Some(argument), DataType::Int64)
}

/// As query 1.1, without its join.
fn filtered(source: Source) -> Pipeline {
    let [quantity, price, discount] = [1, 2, 3].map(|column| source.register(column));
    let steps = vec![
        keep(CompareOp::Ge, discount.clone(), int(1)),
        keep(CompareOp::Le, discount.clone(), int(3)),
        keep(CompareOp::Lt, quantity, int(25)),
    ];
    let total = Expr::arithmetic(
        ArithmeticOp::Multiply,
        price.cast(DataType::Int64),
        discount.cast(DataType::Int64),
    );
    Pipeline { source, steps, sink: Sink::aggregate(vec![], vec![sum(total)]) }
}

/// About as query 4.1, without its joins.
fn grouped(source: Source) -> Pipeline {
    let register = |column| source.register(column);
    let steps = vec![
        keep(CompareOp::Lt, register(0), int(6000)),
        keep(CompareOp::Lt, register(1), int(400)),
        keep(CompareOp::Lt, register(3), int(80_000)),
    ];
    let total = Expr::arithmetic(
        ArithmeticOp::Subtract,
        register(4).cast(DataType::Int64),
        register(5).cast(DataType::Int64),
    );
    let keys = vec![NamedExpr { name: "lo_orderdate".into(), expr: register(2) }];
    Pipeline { source, steps, sink: Sink::aggregate(keys, vec![sum(total)]) }
}

/// Runs a pipeline over a file; rows of the table.
fn run(
    runner: &Runner,
    path: &Path,
    columns: &[&str],
    pipeline: fn(Source) -> Pipeline,
    (processor, threads): (Processor, usize),
) -> Outcome<u64> {
    let (table, owner) = table(path)?;
    let table = Arc::new(StreamTable::new("lineorder", table));
    let source = table.source_over(0, columns)?;
    let program = Program::new(vec![], pipeline(source));
    let settings =
        Settings { processor, fallback: Fallback::Forbid, threads, ..Settings::default() };
    let (tables, token) = (&[table][..], &CancelToken::new());
    let request = Request {
        program: &program,
        parameters: &[],
        tables,
        children: &[],
        settings: &settings,
        token,
    };
    let report = runner.run(&request, &|_| true)?;
    if std::env::var_os("HEAP_SPEED_REPORT").is_some() {
        println!("{report:?}");
    }
    match owner.rerouted.load(Ordering::Relaxed) {
        0 => Ok(report.rows_in),
        rerouted => Err(format!("{rerouted} blocks were rerouted").into()),
    }
}

/// Prints the best of some runs.
fn best(what: &str, runs: usize, bytes: u64, mut run: impl FnMut() -> Outcome<u64>) -> Outcome<()> {
    if std::env::args().nth(3).is_some_and(|wanted| !what.contains(&wanted)) {
        return Ok(());
    }
    let (mut best_s, mut rows) = (f64::INFINITY, 0);
    for _ in 0..runs {
        let start = Instant::now();
        rows = run()?;
        best_s = best_s.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{what:<52} {:6.1} ms {:6.2} ns/row {:6.2} GB/s",
        best_s * 1e3,
        best_s * 1e9 / rows as f64,
        bytes as f64 / best_s / 1e9
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = Path::new(arguments.first().ok_or("usage: heap_speed SEGMENT [RUNS [WHAT]]")?);
    let runs = arguments.get(1).map_or(Ok(5), |runs| runs.parse())?;
    let bytes = std::fs::metadata(path)?.len();
    let kept = MappedFile::map(SourceFile::open(path)?)?;
    let ways = [
        Way::Mapped,
        Way::FreshMapping { populate: false },
        Way::FreshMapping { populate: true },
        Way::Read(128 << 10),
    ];
    let runner = Runner::new(&RunnerOptions::default());
    let pipelines = [
        ("filter, sum", &FILTERED[..], filtered as fn(Source) -> Pipeline),
        ("filter, group by", &GROUPED, grouped),
    ];
    for threads in [1, 2] {
        for (name, columns, pipeline) in pipelines {
            let label = |what: &dyn std::fmt::Debug| format!("{threads} threads, {name}: {what:?}");
            for way in ways {
                best(&label(&way), runs, bytes, || decode(path, columns, threads, way, &kept))?;
            }
            let on = (Processor::Cpu, threads);
            best(&label(&"run"), runs, bytes, || run(&runner, path, columns, pipeline, on))?;
        }
    }
    if CudaDevice::count() > 0 {
        for (name, columns, pipeline) in pipelines {
            let on = (Processor::Cuda, 2);
            let label = format!("cuda, {name}: run");
            best(&label, runs, bytes, || run(&runner, path, columns, pipeline, on))?;
        }
    }
    Ok(())
}
