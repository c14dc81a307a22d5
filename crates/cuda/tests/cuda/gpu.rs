//! On a GPU: against the CPU processor.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use arrow_array::RecordBatch;
use headrace_cuda::parts::{ColumnForm, CudaExecution, DeviceColumn, DeviceSegment, base_of};
use headrace_cuda::{
    ChunkLimits, Chunker, CudaAnswer, CudaDevice, CudaError, CudaOptions, CudaProgram, CudaRun,
    ResidentRuns, Rest, RowOutput, RunSource, SegmentSource, Tuning, chunked,
};
use headrace_flow::{ChunkFeed, FedChunk, NextChunk, RaceOptions};
use headrace_gpu::DeviceBuffer;
use headrace_io::{Kept, ReadAt, SourceFile};
use headrace_ir::{ColumnExtents, Extent, Segment, Sink};
use headrace_pipeline::BuildTable;
use headrace_pipeline::bound::Bound;
use headrace_pipeline::cpu::WorkerOptions;
use headrace_pipeline::state::finish_dense;

use crate::corpus;
use crate::data::{Shape, Table};
use crate::differential::{
    Answer, assert_left, assert_same, bound_of, failed_of, left_on_cpu, lines, on_cpu, shapes,
    text_shapes,
};

fn open() -> Arc<CudaDevice> {
    // One rung of the ladder: kernels differ in registers alone, and all three take three times as long to compile.
    let options =
        CudaOptions { borrows_max: 0, tuning: Some(Tuning::FULL), ..CudaOptions::default() };
    CudaDevice::open(0, options).unwrap()
}

/// What `run` leaves and puts out.
fn answer_of(
    bound: &Arc<Bound>,
    run: impl FnOnce(&RowOutput<'_>) -> Result<CudaAnswer, String>,
) -> Answer {
    batches_of(bound, &WorkerOptions::new(1 << 30), run).map(|batches| lines(&batches))
}

/// As above, groups held as `options` say.
fn batches_of(
    bound: &Arc<Bound>,
    options: &WorkerOptions,
    run: impl FnOnce(&RowOutput<'_>) -> Result<CudaAnswer, String>,
) -> Result<Vec<RecordBatch>, String> {
    let rows = Mutex::new(Vec::new());
    let emit = |batch| {
        rows.lock().unwrap().push(batch);
        true
    };
    let output = RowOutput::new(bound, options, &emit).unwrap();
    let answer = run(&output)?;
    output.finish().map_err(|e| e.to_string())?;
    let mut batches = rows.into_inner().unwrap();
    if let Some(state) = answer.state {
        batches.push(finish_dense(bound, &state).map_err(|e| e.to_string())?);
    }
    Ok(batches)
}

/// Runs over segments that are uploaded as they lie, misaligned starts included.
pub fn on_gpu(device: &Arc<CudaDevice>, bound: &Arc<Bound>, table: &Table) -> Answer {
    let skew = table.shape.skew as u64;
    let mut buffers: Vec<Arc<Kept<DeviceBuffer>>> = Vec::new();
    let mut upload = |bytes: &[u8]| {
        let buffer = device.upload(bytes).unwrap();
        let address = buffer.ptr() + skew;
        buffers.push(buffer);
        address
    };
    let mut segments = Vec::new();
    for (index, segment) in table.segments.iter().enumerate() {
        let columns = segment
            .columns
            .iter()
            .map(|c| {
                let texts = c.texts(table.shape, index % 2 == 1, |bytes| upload(bytes) - skew);
                DeviceColumn {
                    values: texts.map_or_else(|| upload(&c.values), |(values, _)| values),
                    form: ColumnForm::of(&c.encoding),
                    base: base_of(&c.encoding, c.offsets_base.into()),
                    validity: c.validity.as_ref().map(|v| upload(v)),
                    remap: c.remap,
                    bytes: texts.and_then(|(_, bytes)| bytes),
                }
            })
            .collect();
        segments.push(DeviceSegment { rows: segment.rows as u32, columns });
    }
    let layout = table.layout();
    let run = |output: &RowOutput<'_>| {
        let mut execution = CudaExecution::new(device, bound, std::slice::from_ref(&layout))?;
        // SAFETY: the buffers hold the table's segments in its layout and outlive the call.
        unsafe { execution.run(&layout, &segments, 100_000, output) }?;
        execution.hand_over(output, true)?;
        let state = execution.take_dense()?;
        let steps = execution.steps_left()?;
        assert_left("uploaded", bound, &left_on_cpu(bound, table), steps.as_ref().unwrap());
        Ok(CudaAnswer { state, steps, stats: execution.stats, by_device: Vec::new() })
    };
    answer_of(bound, |output| run(output).map_err(|e: CudaError| e.to_string()))
}

/// Rows are compared as text, which takes its time.
fn emits_rows(case: &corpus::Case) -> bool {
    matches!(case.sink, Sink::Rows { .. })
}

fn compare_on_gpu(
    device: &Arc<CudaDevice>,
    case: &corpus::Case,
    shape: Shape,
    builds: &[Arc<BuildTable>],
) {
    let large = [70_000, 4096, 1, 7, 130_001];
    let small = [6000, 4096, 1, 7, 3001];
    let table = Table::random(shape, if emits_rows(case) { &small } else { &large });
    let bound = bound_of(case, &table, builds).unwrap();
    let cpu = on_cpu(&bound, &table);
    let cuda = on_gpu(device, &bound, &table);
    let program = CudaProgram::compile(bound, &table.layout(), Tuning::FULL).unwrap();
    assert_same(case.name, shape, &cpu, &cuda, &program.source);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_answers_as_the_cpu_processor_does() {
    compare_all_on_gpu(corpus::cases(), &shapes());
}

/// On all cores: compilation is what takes its time.
fn compare_all_on_gpu(cases: Vec<corpus::Case>, shapes: &[Shape]) {
    let (device, builds) = (open(), corpus::builds());
    let shaped = |case: corpus::Case| shapes.iter().map(move |shape| (case.clone(), *shape));
    let work = cases.into_iter().flat_map(shaped);
    let work = work.map(|(case, shape)| (format!("{} {shape:?}", case.name), (case, shape)));
    let failed = failed_of(work, |(case, shape)| compare_on_gpu(&device, &case, shape, &builds));
    assert!(failed.is_empty(), "{} differ: {failed:#?}", failed.len());
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_plain_texts_answer_as_the_cpu_processor_does() {
    compare_all_on_gpu(corpus::plain_texts(), &text_shapes());
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_offsets_outside_their_bytes_are_an_error() {
    let device = open();
    for (shape, table) in corpus::corrupt_texts() {
        let bound = bound_of(&corpus::plain_texts()[0], &table, &[]).unwrap();
        let cuda = on_gpu(&device, &bound, &table);
        assert!(cuda.as_ref().is_err_and(|e| e.contains("corrupt")), "{shape:?}: {cuda:?}");
    }
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
pub fn write_file(table: &Table, identity: &str, path: &std::path::Path) -> Vec<SegmentSource> {
    let mut bytes: Vec<u8> = vec![0; 8];
    let skew = table.shape.skew;
    let mut append = |from: &[u8]| {
        let extent = Extent { offset: bytes.len() as u64, bytes: (from.len() - skew) as u64 };
        bytes.extend_from_slice(&from[skew..]);
        bytes.resize(bytes.len().next_multiple_of(16) + 8, 0);
        extent
    };
    let columns: Arc<[u32]> = (0..table.fields.len() as u32).collect();
    let segments = table
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
                    offsets: c.offsets.as_ref().map(|offsets| append(offsets)),
                    offsets_base: c.offsets_base.into(),
                    validity: c.validity.as_ref().map(|v| append(v)),
                    remap: c.remap,
                })
                .collect();
            Segment {
                file: 0,
                batch: batch as u32,
                first_row: 0,
                rows: segment.rows as u32,
                columns: columns_at,
            }
        })
        .collect::<Vec<_>>();
    std::fs::write(path, &bytes).unwrap();
    let from: Arc<dyn ReadAt> = SourceFile::open(path).unwrap();
    let source = |segment| SegmentSource {
        segment,
        from: Some(Arc::clone(&from)),
        file: Some(identity.as_bytes().into()),
        columns: Arc::clone(&columns),
        stamp: 0,
        kept: None,
        near: headrace_io::Lanes::ALL,
    };
    segments.into_iter().map(source).collect()
}

/// Segments one by one, each of them late.
#[derive(Debug)]
struct Fed {
    sources: Vec<SegmentSource>,
    next: usize,
    is_late: bool,
}

impl ChunkFeed<Vec<SegmentSource>> for Fed {
    fn poll_next(&mut self, waker: &Waker) -> NextChunk<Vec<SegmentSource>> {
        self.is_late = !self.is_late;
        if !self.is_late {
            waker.wake_by_ref();
            return Poll::Pending;
        }
        let source = self.sources.get(self.next).cloned();
        self.next += 1;
        Poll::Ready(
            source.map(|source| Ok(FedChunk { payload: vec![source], ..FedChunk::default() })),
        )
    }
}

/// A stored table, and what runs over it on some devices.
pub struct Stored<'a> {
    pub devices: &'a [Arc<CudaDevice>],
    pub bound: &'a Arc<Bound>,
    pub sources: &'a [SegmentSource],
    /// What the steps leave, to be compared; nothing: it is not.
    pub left: &'a [u64],
}

impl Stored<'_> {
    /// A run, two segments a chunk.
    pub fn prepared(&self) -> Result<CudaRun, String> {
        let limits = ChunkLimits { slot_bytes: u64::MAX, segments: 2, rows: u64::MAX };
        let chunks = chunked(self.sources.to_vec(), self.devices.len(), limits);
        CudaRun::new(self.devices, self.bound, RunSource::of(chunks)).map_err(|e| e.to_string())
    }

    fn assert_left(&self, what: &str, answer: &CudaAnswer) {
        let steps = answer.steps.as_ref().expect("steps in one order");
        assert_left(what, self.bound, self.left, steps);
    }

    /// A run over resident columns. `stream` brings those that a limit may have left out.
    pub fn made_resident(&self, name: &str, stream: impl Fn()) -> ResidentRuns {
        let mut run = self.prepared().unwrap();
        for _ in 0..3 {
            if !run.is_resident() {
                stream();
                run = self.prepared().unwrap();
            }
        }
        assert!(run.is_resident(), "{name}");
        run.into_resident().unwrap()
    }

    fn stream(&self) -> Answer {
        self.stream_with(&WorkerOptions::new(1 << 30)).map(|batches| lines(&batches))
    }

    pub fn stream_with(&self, options: &WorkerOptions) -> Result<Vec<RecordBatch>, String> {
        self.stream_run(self.prepared()?, options, true)
    }

    /// As [`Self::stream_with`], the segments coming a few at a time while the race runs; nobody
    /// knows how many.
    pub fn stream_fed(&self, options: &WorkerOptions) -> Result<Vec<RecordBatch>, String> {
        let limits = ChunkLimits { slot_bytes: 1 << 20, segments: 2, rows: 1 << 20 };
        let slot_bytes = |source: &SegmentSource| -> u64 {
            source.segment.extents().map(|extent| extent.bytes + 3 * 4096).sum()
        };
        let bytes = |source: &SegmentSource| source.segment.extents().map(|e| e.bytes).sum::<u64>();
        let rest = Rest {
            feed: Box::new(Fed { sources: self.sources.to_vec(), next: 0, is_late: true }),
            chunker: Chunker::new(self.devices.len(), limits),
            segment_slot_bytes: self.sources.iter().map(slot_bytes).max().unwrap_or(0),
            bytes: Some(self.sources.iter().map(bytes).sum()),
            chunks: None,
            pages: None,
        };
        let layout = RunSource::of(chunked(self.sources.to_vec(), 1, limits)).layout;
        let source = RunSource { layout, planned: Vec::new(), rest: Some(rest) };
        let run = CudaRun::new(self.devices, self.bound, source).map_err(|e| e.to_string())?;
        assert!(!run.is_resident());
        self.stream_run(run, options, false)
    }

    /// `is_exact`: the run knows exactly how many bytes it is over, and not only how many at most.
    fn stream_run(
        &self,
        run: CudaRun,
        options: &WorkerOptions,
        is_exact: bool,
    ) -> Result<Vec<RecordBatch>, String> {
        let bytes = run.bytes();
        let (race, token) = (RaceOptions::default(), &options.cancel);
        batches_of(self.bound, options, |output| match run.stream(race, token, output, None) {
            Ok((answer, report)) => {
                let read = report.bytes_by_path.total();
                let as_known = if is_exact { bytes == Some(read) } else { Some(read) <= bytes };
                assert!(report.ended_early || as_known, "{read} bytes of {bytes:?}");
                self.assert_left("streamed", &answer);
                Ok(answer)
            }
            Err(error) => Err(match std::error::Error::source(&error) {
                Some(source) => source.to_string(),
                None => error.to_string(),
            }),
        })
    }

    fn resident(&self, runs: &mut ResidentRuns) -> Answer {
        let options = WorkerOptions::new(1 << 30);
        self.resident_with(runs, &options).map(|batches| lines(&batches))
    }

    pub fn resident_with(
        &self,
        runs: &mut ResidentRuns,
        options: &WorkerOptions,
    ) -> Result<Vec<RecordBatch>, String> {
        batches_of(self.bound, options, |output| {
            let (answer, report) = runs.run(output, None).map_err(|e| e.to_string())?.unwrap();
            assert_eq!(report.bytes_by_path.total(), report.bytes_by_path.resident_device);
            self.assert_left("resident", &answer);
            Ok(answer)
        })
    }
}

/// Streams cases through the devices, and runs them over what that left there, twice.
pub fn stream_and_run_resident(devices: &[Arc<CudaDevice>], cases: Vec<corpus::Case>) {
    let builds = corpus::builds();
    for case in cases {
        for shape in [shapes()[0], shapes()[2]] {
            let large = [50_000, 3, 70_000, 4096, 64, 33_333];
            let small = [5000, 3, 4000, 4096, 64, 3333];
            let rows = if emits_rows(&case) { small } else { large };
            let table = Table::random(shape, &rows);
            let bound = bound_of(&case, &table, &builds).unwrap();
            let cpu = on_cpu(&bound, &table);
            let left = left_on_cpu(&bound, &table);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("table");
            let identity = format!("{} {shape:?} {}", case.name, devices.len());
            let sources = write_file(&table, &identity, &path);
            let stored = Stored { devices, bound: &bound, sources: &sources, left: &left };
            assert_same(case.name, shape, &cpu, &stored.stream(), "");
            if cpu.is_err() {
                continue;
            }
            let streamed = || assert_same(case.name, shape, &cpu, &stored.stream(), "");
            let mut runs = stored.made_resident(case.name, streamed);
            for _ in 0..2 {
                assert_same(case.name, shape, &cpu, &stored.resident(&mut runs), "");
            }
            // Once a column has left, the run says so, and streaming still answers.
            devices.iter().for_each(|device| device.resident().clear());
            let emit = |_| panic!("rows of columns that are not there");
            let output = RowOutput::new(&bound, &WorkerOptions::new(0), &emit).unwrap();
            assert!(runs.run(&output, None).unwrap().is_none());
            // Segments that come while the race runs: none of their columns are there, then some.
            for _ in 0..2 {
                let fed = stored.stream_fed(&WorkerOptions::new(1 << 30)).map(|b| lines(&b));
                assert_same(case.name, shape, &cpu, &fed, "");
            }
            assert_same(case.name, shape, &cpu, &stored.stream(), "");
        }
    }
    for device in devices {
        let pinned = device.pinned_bytes();
        assert!(pinned < 400 << 20, "{pinned} bytes stay pinned");
        device.trim_pinned();
        assert_eq!(device.pinned_bytes(), 0);
    }
}

/// All cases, each thread with devices of its own: nearly all of the time, kernels are compiled.
fn on_several_threads(open: impl Fn() -> Vec<Arc<CudaDevice>> + Sync) {
    const THREADS: usize = 12;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let open = &open;
            scope.spawn(move || {
                let cases = corpus::cases().into_iter().skip(thread).step_by(THREADS);
                stream_and_run_resident(&open(), cases.collect());
            });
        }
    });
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_streams_and_then_finds_the_columns_resident() {
    on_several_threads(|| vec![open()]);
}

#[test]
#[ignore = "needs two GPUs"]
fn two_gpus_answer_as_the_cpu_processor_does() {
    let open = |ordinal| CudaDevice::open(ordinal, CudaOptions::default()).unwrap();
    on_several_threads(|| vec![open(0), open(1)]);
}

/// Two lanes on one GPU: as two GPUs, but for where the memory is.
#[test]
#[ignore = "needs a GPU"]
fn gpu_two_devices_of_one_gpu_answer_as_one() {
    let half = || {
        let options = CudaOptions {
            memory_bytes: Some(16 << 30),
            tuning: Some(Tuning::FULL),
            ..CudaOptions::default()
        };
        CudaDevice::open(0, options).unwrap()
    };
    on_several_threads(|| vec![half(), half()]);
}
