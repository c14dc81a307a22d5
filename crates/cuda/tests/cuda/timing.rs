//! How fast the pipelines of the Star Schema Benchmark run over resident columns, each answer
//! compared with the CPU processor's.
//!
//! `HEADRACE_GPU_ROWS` sets the rows (600,037,902 unless set: scale factor 100, which takes 40 GB
//! of device memory), `HEADRACE_GPU_TUNINGS=all` compares ways to cut the kernels.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use headrace_columns::repr::Repr;
use headrace_columns::segment::{ColumnView, SegmentView};
use headrace_cuda::parts::{ColumnForm, CudaExecution, DeviceColumn, DeviceSegment, Narrowing};
use headrace_cuda::{CudaDevice, CudaOptions, SegmentLayout, Tuning};
use headrace_gpu::DeviceBuffer;
use headrace_ir::Encoding;
use headrace_pipeline::bound::Bound;
use headrace_pipeline::cpu::{CpuProgram, WorkerOptions};
use headrace_pipeline::state::{Output, finish_dense};

use crate::data::Random;
use crate::differential::{lines, rows_of_none};
use crate::ssb::{self, Query};

/// Rows of the block that is generated on the host and repeated on the device.
pub const BLOCK_ROWS: usize = 1 << 24;

/// Rows of a segment: a record batch of 4 MiB a column.
pub const SEGMENT_ROWS: usize = 1 << 20;

/// A lineorder column: dates and customers are those of an order of four lines.
pub fn lineorder_column(name: &str, sizes: &ssb::Sizes) -> Vec<u8> {
    let seed = name.bytes().fold(7u64, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(b)));
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(BLOCK_ROWS * 4);
    let mut kept = 0;
    for row in 0..BLOCK_ROWS {
        let value = match name {
            "lo_orderdate" => {
                let (year, month, day) =
                    (random.between(1992, 1998), random.between(1, 12), random.between(1, 28));
                year * 10_000 + month * 100 + day
            }
            "lo_custkey" => random.between(1, sizes.customers as i64),
            "lo_suppkey" => random.between(1, sizes.suppliers as i64),
            "lo_partkey" => random.between(1, sizes.parts as i64),
            "lo_discount" => random.between(0, 10),
            "lo_quantity" => random.between(1, 50),
            "lo_extendedprice" => random.between(90_000, 10_494_950),
            "lo_supplycost" => random.between(54_000, 125_939),
            _ => random.between(81_000, 10_474_950),
        };
        if row % 4 == 0 || !matches!(name, "lo_orderdate" | "lo_custkey") {
            kept = value;
        }
        bytes.extend_from_slice(&(kept as i32).to_le_bytes());
    }
    bytes
}

/// A column on the device, plain and narrow.
struct Column {
    name: &'static str,
    block: Vec<u8>,
    plain: DeviceBuffer,
    narrow: DeviceBuffer,
    narrowing: Narrowing,
}

struct Lineorder {
    columns: Vec<Column>,
    rows: usize,
}

const COLUMNS: [&str; 9] = [
    "lo_orderdate", "lo_custkey", "lo_suppkey", "lo_partkey", "lo_discount", "lo_quantity",
    "lo_extendedprice", "lo_revenue", "lo_supplycost",
];

/// The block over and over.
fn repeated(device: &Arc<CudaDevice>, block: &[u8], bytes: usize) -> DeviceBuffer {
    let stream = device.device().stream().unwrap();
    let buffer = device.alloc(bytes).unwrap();
    stream.upload(&buffer, 0, &block[..block.len().min(bytes)]).unwrap();
    for at in (block.len()..bytes).step_by(block.len()) {
        let length = block.len().min(bytes - at);
        // SAFETY: the buffer outlives the wait below.
        unsafe { stream.copy_d2d_async(&buffer, at, &buffer, 0, length) }.unwrap();
    }
    stream.synchronize().unwrap();
    buffer
}

/// Rows of each segment, by first row.
fn segments_of(rows: usize) -> impl Iterator<Item = (usize, u32)> {
    (0..rows).step_by(SEGMENT_ROWS).map(move |at| (at, SEGMENT_ROWS.min(rows - at) as u32))
}

fn narrowed(
    device: &Arc<CudaDevice>,
    plain: &DeviceBuffer,
    narrowing: Narrowing,
    rows: usize,
) -> DeviceBuffer {
    let stride = narrowing.bytes(SEGMENT_ROWS as u32);
    let narrow = device.alloc(rows.div_ceil(SEGMENT_ROWS) * stride as usize).unwrap();
    let misfit = device.upload(&[0; 16]).unwrap();
    let stream = device.device().stream().unwrap();
    for (at, count) in segments_of(rows) {
        let to = narrow.ptr() + (at / SEGMENT_ROWS) as u64 * stride;
        let from = (plain.ptr() + at as u64 * 4, 0);
        // SAFETY: both buffers hold the segment, and outlive the wait below.
        unsafe { narrowing.queue(device, &stream, count, from, to, misfit.ptr()) }.unwrap();
    }
    let mut flag = [0; 4];
    stream.synchronize().unwrap();
    stream.download(&misfit, 0, &mut flag).unwrap();
    assert_eq!(flag, [0; 4], "a value does not fit");
    narrow
}

impl Lineorder {
    fn generate(device: &Arc<CudaDevice>, sizes: &ssb::Sizes, rows: usize) -> Self {
        let blocks: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let generate = |name: &'static str| scope.spawn(|| lineorder_column(name, sizes));
            let threads: Vec<_> = COLUMNS.into_iter().map(generate).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let column = |(name, block): (&'static str, Vec<u8>)| {
            let plain = repeated(device, &block, rows * 4);
            let range = ssb::lineorder_range(name, sizes);
            let narrowing = Narrowing::of_plain(&Repr::I32, range).unwrap();
            let narrow = narrowed(device, &plain, narrowing, rows);
            Column { name, block, plain, narrow, narrowing }
        };
        Self { columns: COLUMNS.into_iter().zip(blocks).map(column).collect(), rows }
    }

    fn column(&self, bound: &Bound, register: usize) -> &Column {
        let name = &bound.registers[register].name;
        self.columns.iter().find(|column| column.name == name).unwrap()
    }

    fn segments(&self, bound: &Bound, layout: &SegmentLayout, rows: usize) -> Vec<DeviceSegment> {
        let device_column = |register: usize, at: usize| {
            let column = self.column(bound, register);
            match layout.columns[register].form {
                ColumnForm::Plain => DeviceColumn {
                    values: column.plain.ptr() + at as u64 * 4,
                    ..DeviceColumn::default()
                },
                form => {
                    let stride = column.narrowing.bytes(SEGMENT_ROWS as u32);
                    DeviceColumn {
                        values: column.narrow.ptr() + (at / SEGMENT_ROWS) as u64 * stride,
                        form,
                        base: column.narrowing.base,
                        ..DeviceColumn::default()
                    }
                }
            }
        };
        let segment = |(at, count): (usize, u32)| DeviceSegment {
            rows: count,
            columns: (0..bound.source_registers).map(|r| device_column(r, at)).collect(),
        };
        segments_of(rows.min(self.rows)).map(segment).collect()
    }

    fn on_cpu(&self, bound: &Arc<Bound>, rows: usize) -> RecordBatch {
        let program = CpuProgram::compile(Arc::clone(bound)).unwrap();
        let mut worker = program.worker(&WorkerOptions::new(1 << 30)).unwrap();
        let columns = (0..bound.source_registers)
            .map(|register| ColumnView {
                encoding: Encoding::Plain,
                values: &self.column(bound, register).block[..rows * 4],
                offsets: None,
                offsets_base: 0,
                validity: None,
                remap: None,
            })
            .collect();
        worker.execute(&SegmentView { rows, columns }).unwrap();
        match program.finish(vec![worker], Default::default()).unwrap() {
            Output::Batches(mut batches) => batches.remove(0),
            Output::Build(_) => panic!("a build"),
        }
    }
}

fn total(batch: &RecordBatch) -> i64 {
    let column = batch.column(batch.num_columns() - 1).as_primitive::<Int64Type>();
    column.iter().flatten().sum()
}

/// A query with what the CPU processor answers.
struct Expected {
    query: Query,
    /// Over one block.
    block: RecordBatch,
    /// Over all rows.
    total: i64,
}

fn expected(lineorder: &Lineorder, query: Query) -> Expected {
    let block_rows = BLOCK_ROWS.min(lineorder.rows);
    let (repeats, rest) = (lineorder.rows / block_rows, lineorder.rows % block_rows);
    let block = lineorder.on_cpu(&query.bound, block_rows);
    let tail = if rest == 0 { 0 } else { total(&lineorder.on_cpu(&query.bound, rest)) };
    let total = total(&block) * repeats as i64 + tail;
    Expected { query, block, total }
}

/// Milliseconds of the fastest of a few runs.
fn time(
    device: &Arc<CudaDevice>,
    lineorder: &Lineorder,
    expected: &Expected,
    layout: &SegmentLayout,
) -> f64 {
    let Expected { query, block, total: expected_total } = expected;
    let bound = &query.bound;
    let run = |rows: usize| {
        let segments = lineorder.segments(bound, layout, rows);
        let mut execution =
            CudaExecution::new(device, bound, std::slice::from_ref(layout)).unwrap();
        let output = rows_of_none(bound);
        // SAFETY: the segments lie inside the lineorder's buffers, which outlive the call.
        unsafe { execution.run(layout, &segments, 0, &output) }.unwrap();
        let kernel = execution.kernels().next().unwrap().clone();
        let state = execution.take_dense().unwrap().unwrap();
        (finish_dense(bound, &state).unwrap(), execution.stats.kernel_ms, kernel)
    };
    let small = run(BLOCK_ROWS.min(lineorder.rows)).0;
    assert_eq!(lines(&[small]), lines(std::slice::from_ref(block)), "{}", query.name);
    let mut best_ms = f64::INFINITY;
    for _ in 0..7 {
        let (batch, kernel_ms, kernel) = run(lineorder.rows);
        assert_eq!(total(&batch), *expected_total, "{}", query.name);
        if best_ms == f64::INFINITY {
            let info = kernel.function.info();
            print!(
                "{} ({} registers, {} stack, {} KB shared, {} blocks) ",
                query.name,
                info.registers,
                info.local_bytes,
                kernel.program.shared_bytes / 1024,
                kernel.blocks_max
            );
        }
        best_ms = best_ms.min(kernel_ms);
    }
    println!("{best_ms:.3} ms");
    best_ms
}

fn tunings() -> Vec<(&'static str, Option<Tuning>)> {
    let full = Tuning::FULL;
    let half =
        Tuning { blocks_per_sm: 2, rows_per_thread: 4, shared_bytes_max: 110 * 1024, ..full };
    let three =
        Tuning { block_threads: 512, blocks_per_sm: 3, shared_bytes_max: 74 * 1024, ..full };
    let four = Tuning { blocks_per_sm: 4, shared_bytes_max: 55 * 1024, ..three };
    let queue = |queue_percent, tuning| Some(Tuning { queue_percent, ..tuning });
    let mut tunings = vec![("ladder", None)];
    if std::env::var_os("HEADRACE_GPU_TUNINGS").is_some() {
        tunings.extend([
            ("1 block of 1024", Some(full)),
            ("1 block of 1024, queue at 25 %", queue(25, full)),
            ("1 block of 1024, queue at 5 %", queue(5, full)),
            ("3 blocks of 512", Some(three)),
            ("3 blocks of 512, queue at 25 %", queue(25, three)),
            ("4 blocks of 512", Some(four)),
            ("4 rows of twice the threads", Some(half)),
        ]);
    }
    tunings
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_times_the_star_schema_benchmark_resident() {
    let rows = std::env::var("HEADRACE_GPU_ROWS")
        .map_or(600_037_902, |rows| rows.parse::<usize>().unwrap());
    let open = |tuning| {
        let options = CudaOptions { tuning, borrows_max: 0, ..CudaOptions::default() };
        CudaDevice::open(0, options).unwrap()
    };
    let device = open(None);
    println!("{:?}", device.device().info());
    let lineorder = Lineorder::generate(&device, &ssb::SF100, rows);
    let queries = ssb::queries(&ssb::SF100).into_iter();
    let queries: Vec<Expected> = queries.map(|query| expected(&lineorder, query)).collect();
    for (name, tuning) in tunings() {
        let device = open(tuning);
        for narrow in [true, false] {
            let lies = if narrow { "narrow" } else { "plain" };
            println!("{name}, {lies} columns");
            let layout = |query: &Query| match narrow {
                true => ssb::narrow_layout(query),
                false => query.layout.clone(),
            };
            let of_query = |expected| time(&device, &lineorder, expected, &layout(&expected.query));
            let sum_ms: f64 = queries.iter().map(of_query).sum();
            println!("{name}, {lies} columns: 13 queries over {rows} rows: {sum_ms:.2} ms");
        }
    }
}
