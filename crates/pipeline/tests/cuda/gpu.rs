//! On a GPU: against the CPU processor.

use std::sync::Arc;

use headrace_flow::{CancelToken, Race, RaceOptions};
use headrace_gpu::DeviceBuffer;
use headrace_io::{ReadAt, SourceFile};
use headrace_ir::{ColumnExtents, Extent, Segment, Sink};
use headrace_pipeline::bound::Bound;
use headrace_pipeline::cuda::{
    ColumnForm, CudaAnswer, CudaDevice, CudaExecution, CudaLane, CudaOptions, CudaProgram,
    DeviceColumn, DeviceSegment, SegmentSource, StreamPlan, Tuning, run_resident,
};
use headrace_pipeline::state::finish_dense;

use crate::corpus;
use crate::data::Table;
use crate::differential::{Answer, assert_same, bound_of, lines, on_cpu, shapes};

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
                form: ColumnForm::of(&c.encoding),
                base: 0,
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
