//! On a GPU: against the CPU processor, and how fast.
//!
//! `HEADRACE_GPU_ROWS` sets the rows of the timing (600,037,902 unless set: scale factor 100,
//! which takes 22 GB of device memory).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use headrace_flow::{CancelToken, Race, RaceOptions};
use headrace_gpu::DeviceBuffer;
use headrace_io::{ReadAt, SourceFile};
use headrace_ir::{ColumnExtents, Encoding, Extent, Segment, Sink};
use headrace_pipeline::bound::Bound;
use headrace_pipeline::cpu::{CpuProgram, WorkerOptions};
use headrace_pipeline::cuda::{
    CudaAnswer, CudaDevice, CudaExecution, CudaLane, CudaOptions, CudaProgram, DeviceColumn,
    DeviceSegment, SegmentSource, StreamPlan, Tuning, run_resident,
};
use headrace_pipeline::state::{Output, finish_dense};
use headrace_pipeline::{ColumnView, SegmentView};

use crate::corpus;
use crate::data::{Random, Table};
use crate::differential::{Answer, assert_same, bound_of, lines, on_cpu, shapes};
use crate::ssb;

fn open() -> Arc<CudaDevice> {
    CudaDevice::open(0, CudaOptions::default()).unwrap()
}

fn answer(bound: &Bound, answer: CudaAnswer) -> Answer {
    let mut batches = answer.batches;
    if let Some(state) = answer.state {
        batches.push(finish_dense(bound, &state).map_err(|e| e.to_string())?);
    }
    Ok(lines(&batches))
}

/// Runs over segments that are uploaded as they lie, misaligned starts included.
fn on_gpu(device: &Arc<CudaDevice>, bound: &Arc<Bound>, table: &Table) -> Answer {
    let skew = table.shape.skew as u64;
    let mut buffers: Vec<Arc<DeviceBuffer>> = Vec::new();
    let mut upload = |bytes: &[u8]| {
        let buffer = device.upload(bytes).unwrap();
        let address = buffer.ptr() + skew;
        buffers.push(buffer);
        address
    };
    let mut segments = Vec::new();
    for segment in &table.segments {
        let columns = segment
            .columns
            .iter()
            .map(|c| DeviceColumn {
                values: upload(&c.values),
                validity: c.validity.as_ref().map(|v| upload(v)),
                remap: c.remap,
            })
            .collect();
        segments.push(DeviceSegment { rows: segment.rows as u32, columns });
    }
    let layout = table.layout();
    let run = || {
        let mut execution = CudaExecution::new(device, bound, std::slice::from_ref(&layout))?;
        // SAFETY: the buffers hold the table's segments in its layout and outlive the call.
        let mut batches = unsafe { execution.run(&layout, &segments, 100_000) }?;
        batches.extend(execution.take_groups()?);
        let (state, stats) = execution.finish()?;
        Ok(CudaAnswer { state, batches, stats })
    };
    match run() {
        Ok(found) => answer(bound, found),
        Err(error) => {
            let error: headrace_pipeline::ExecError = error;
            Err(error.to_string())
        }
    }
}

/// Rows are compared as text, which takes its time.
fn emits_rows(case: &corpus::Case) -> bool {
    matches!(case.sink, Sink::Rows { .. })
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_answers_as_the_cpu_processor_does() {
    let device = open();
    let builds = corpus::builds();
    let mut failed = Vec::new();
    for case in corpus::cases() {
        for shape in shapes() {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let large = [70_000, 4096, 1, 7, 130_001];
                let small = [6000, 4096, 1, 7, 3001];
                let table = Table::random(shape, if emits_rows(&case) { &small } else { &large });
                let bound = bound_of(&case, &table, &builds).unwrap();
                let cpu = on_cpu(&bound, &table);
                let cuda = on_gpu(&device, &bound, &table);
                let layout = table.layout();
                let program = CudaProgram::compile(bound, &layout, Tuning::FULL).unwrap();
                assert_same(case.name, shape, &cpu, &cuda, &program.source);
            }));
            if outcome.is_err() {
                failed.push(format!("{} {shape:?}", case.name));
            }
        }
    }
    assert!(failed.is_empty(), "{} differ: {failed:#?}", failed.len());
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_corrupt_codes_are_an_error() {
    let device = open();
    for (shape, table) in corpus::corrupt_tables() {
        let bound = bound_of(&corpus::by_text(), &table, &[]).unwrap();
        let cuda = on_gpu(&device, &bound, &table);
        assert!(cuda.as_ref().is_err_and(|e| e.contains("corrupt")), "{shape:?}: {cuda:?}");
    }
}

/// The table's segments as one file, each buffer at an odd multiple of 8 bytes.
fn write_file(table: &Table, identity: &str, path: &std::path::Path) -> Vec<Vec<SegmentSource>> {
    let mut bytes: Vec<u8> = vec![0; 8];
    let skew = table.shape.skew;
    let mut append = |from: &[u8]| {
        let extent = Extent { offset: bytes.len() as u64, bytes: (from.len() - skew) as u64 };
        bytes.extend_from_slice(&from[skew..]);
        bytes.resize(bytes.len().next_multiple_of(16) + 8, 0);
        extent
    };
    let columns: Arc<[u32]> = (0..table.fields.len() as u32).collect();
    let chunks = table
        .segments
        .iter()
        .enumerate()
        .map(|(batch, segment)| {
            let columns_at = segment
                .columns
                .iter()
                .map(|c| ColumnExtents {
                    encoding: c.encoding.clone(),
                    values: append(&c.values),
                    offsets: None,
                    validity: c.validity.as_ref().map(|v| append(v)),
                    remap: c.remap,
                })
                .collect();
            let segment = Segment {
                file: 0,
                batch: batch as u32,
                first_row: 0,
                rows: segment.rows as u32,
                columns: columns_at,
            };
            SegmentSource {
                segment,
                file: identity.as_bytes().into(),
                columns: Arc::clone(&columns),
            }
        })
        .collect::<Vec<_>>();
    std::fs::write(path, &bytes).unwrap();
    // Two segments a chunk.
    chunks.chunks(2).map(<[SegmentSource]>::to_vec).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_streams_and_then_finds_the_columns_resident() {
    let device = open();
    let builds = corpus::builds();
    for case in corpus::cases() {
        for shape in [shapes()[0], shapes()[2]] {
            let large = [50_000, 3, 70_000, 4096, 64, 33_333];
            let small = [5000, 3, 4000, 4096, 64, 3333];
            let rows = if emits_rows(&case) { small } else { large };
            let table = Table::random(shape, &rows);
            let bound = bound_of(&case, &table, &builds).unwrap();
            let cpu = on_cpu(&bound, &table);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("table");
            let chunks = write_file(&table, &format!("{} {shape:?}", case.name), &path);
            let layout = table.layout();
            for round in 0..2 {
                let run = || -> Result<CudaAnswer, String> {
                    let text = |e: headrace_pipeline::ExecError| e.to_string();
                    let mut execution =
                        CudaExecution::new(&device, &bound, std::slice::from_ref(&layout))
                            .map_err(text)?;
                    let plan = StreamPlan::new(&mut execution, &chunks).map_err(text)?;
                    if round == 1 && cpu.is_ok() {
                        assert!(plan.is_resident(), "{}", case.name);
                        return run_resident(execution, &plan, 1 << 20).map_err(text);
                    }
                    let specs = plan.chunk_specs();
                    let mut lane = CudaLane::new(execution, plan, 3).map_err(text)?;
                    let file: Arc<dyn ReadAt> = SourceFile::open(&path).unwrap();
                    let options = RaceOptions::default();
                    let race = Race::new(vec![file], specs, options, CancelToken::new()).unwrap();
                    race.run_device(&mut lane).map_err(|e| {
                        match std::error::Error::source(&e) {
                            Some(source) => source.to_string(),
                            None => e.to_string(),
                        }
                    })?;
                    lane.finish().map_err(text)
                };
                let cuda = run().and_then(|found| answer(&bound, found));
                assert_same(case.name, shape, &cpu, &cuda, "");
            }
        }
    }
}

/// Rows of the block that is generated on the host and repeated on the device.
const BLOCK_ROWS: usize = 1 << 24;

/// Rows of a segment: a record batch of 4 MiB a column.
const SEGMENT_ROWS: usize = 1 << 20;

/// A lineorder column: dates and customers are those of an order of four lines.
fn lineorder_column(name: &str, sizes: &ssb::Sizes) -> Vec<u8> {
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
            _ => random.between(80_000, 10_000_000),
        };
        if row % 4 == 0 || !matches!(name, "lo_orderdate" | "lo_custkey") {
            kept = value;
        }
        bytes.extend_from_slice(&(kept as i32).to_le_bytes());
    }
    bytes
}

struct Lineorder {
    names: Vec<&'static str>,
    blocks: Vec<Vec<u8>>,
    buffers: Vec<DeviceBuffer>,
    rows: usize,
}

impl Lineorder {
    fn generate(device: &Arc<CudaDevice>, sizes: &ssb::Sizes, rows: usize) -> Self {
        let names = vec![
            "lo_orderdate",
            "lo_custkey",
            "lo_suppkey",
            "lo_partkey",
            "lo_discount",
            "lo_quantity",
            "lo_extendedprice",
            "lo_revenue",
            "lo_supplycost",
        ];
        let blocks: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                names.iter().map(|n| scope.spawn(|| lineorder_column(n, sizes))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let stream = device.device().stream().unwrap();
        let buffers = blocks
            .iter()
            .map(|block| {
                let buffer = device.alloc(rows * 4).unwrap();
                let first = block.len().min(rows * 4);
                stream.upload(&buffer, 0, &block[..first]).unwrap();
                for at in (first..rows * 4).step_by(block.len()) {
                    let bytes = block.len().min(rows * 4 - at);
                    // SAFETY: the buffer outlives the wait below.
                    unsafe { stream.copy_d2d_async(&buffer, at, &buffer, 0, bytes) }.unwrap();
                }
                stream.synchronize().unwrap();
                buffer
            })
            .collect();
        Self { names, blocks, buffers, rows }
    }

    fn index(&self, bound: &Bound, register: usize) -> usize {
        let name = &bound.registers[register].name;
        self.names.iter().position(|n| n == name).unwrap()
    }

    fn segments(&self, bound: &Bound, rows: usize) -> Vec<DeviceSegment> {
        (0..rows.min(self.rows))
            .step_by(SEGMENT_ROWS)
            .map(|start| DeviceSegment {
                rows: SEGMENT_ROWS.min(rows - start) as u32,
                columns: (0..bound.source_registers)
                    .map(|register| DeviceColumn {
                        values: self.buffers[self.index(bound, register)].ptr() + start as u64 * 4,
                        ..DeviceColumn::default()
                    })
                    .collect(),
            })
            .collect()
    }

    fn on_cpu(&self, bound: &Arc<Bound>, rows: usize) -> arrow_array::RecordBatch {
        let program = CpuProgram::compile(Arc::clone(bound)).unwrap();
        let mut worker = program.worker(&WorkerOptions::new(1 << 30)).unwrap();
        let columns = (0..bound.source_registers)
            .map(|register| ColumnView {
                encoding: Encoding::Plain,
                values: &self.blocks[self.index(bound, register)][..rows * 4],
                offsets: None,
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

fn total(batch: &arrow_array::RecordBatch) -> i64 {
    let column = batch.column(batch.num_columns() - 1).as_primitive::<Int64Type>();
    column.iter().flatten().sum()
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_times_the_star_schema_benchmark_resident() {
    let rows = std::env::var("HEADRACE_GPU_ROWS")
        .map_or(600_037_902, |rows| rows.parse::<usize>().unwrap());
    let device = open();
    println!("{:?}", device.device().info());
    let sizes = ssb::SF100;
    let lineorder = Lineorder::generate(&device, &sizes, rows);
    let block = BLOCK_ROWS.min(rows);
    let (repeats, rest) = (rows / block, rows % block);
    let mut sum_ms = 0.0;
    for query in ssb::queries(&sizes) {
        let bound = &query.bound;
        let run = |rows: usize| {
            let segments = lineorder.segments(bound, rows);
            let mut execution =
                CudaExecution::new(&device, bound, std::slice::from_ref(&query.layout)).unwrap();
            // SAFETY: the segments lie inside the lineorder's buffers, which outlive the call.
            unsafe { execution.run(&query.layout, &segments, 0) }.unwrap();
            let kernel = execution.kernels().next().unwrap().clone();
            let (state, stats) = execution.finish().unwrap();
            (finish_dense(bound, &state.unwrap()).unwrap(), stats, kernel)
        };
        let expected = lineorder.on_cpu(bound, block);
        assert_eq!(
            lines(&[run(block).0]),
            lines(std::slice::from_ref(&expected)),
            "{}",
            query.name
        );
        let tail = lineorder.on_cpu_total(bound, rest);
        let expected_total = total(&expected) * repeats as i64 + tail;
        let mut best = f64::INFINITY;
        let mut kernel = None;
        let wall = std::time::Instant::now();
        for _ in 0..5 {
            let (batch, stats, used) = run(rows);
            assert_eq!(total(&batch), expected_total, "{}", query.name);
            best = best.min(stats.kernel_ms);
            kernel = Some(used);
        }
        let wall_ms = wall.elapsed().as_secs_f64() * 1e3 / 5.0;
        let kernel = kernel.unwrap();
        let bytes = rows as f64 * 4.0 * bound.source_registers as f64;
        println!(
            "{}: {best:.3} ms, {:.0} GB/s of {:.2} GB, {} threads, {} registers, {} B shared, \
             {} blocks, wall {wall_ms:.1} ms",
            query.name,
            bytes / best / 1e6,
            bytes / 1e9,
            kernel.program.tuning.block_threads,
            kernel.function.info().registers,
            kernel.program.shared_bytes,
            kernel.blocks_max,
        );
        sum_ms += best;
    }
    println!("13 queries over {rows} rows: {sum_ms:.2} ms");
}

impl Lineorder {
    fn on_cpu_total(&self, bound: &Arc<Bound>, rows: usize) -> i64 {
        if rows == 0 { 0 } else { total(&self.on_cpu(bound, rows)) }
    }
}
