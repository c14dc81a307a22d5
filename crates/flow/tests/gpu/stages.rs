//! All five stages on a real device, its own ways to device memory, and several lanes.

use std::sync::Arc;
use std::time::Instant;

use headrace_flow::{
    AccessPath, Affinity, BoxError, CancelToken, ChunkSpec, CudaSlots, DeviceLane, DeviceOutput,
    DeviceProgram, DeviceSlice, OutputSpec, Race, RaceError, RaceOptions, RegisteredPool,
    SlotChunk, Trace, Verdict, WriteAccess,
};
use headrace_gpu::{
    Compiler, Device, DeviceBuffer, DevicePool, Function, Grid, LaunchArgs, Module, Source, Stream,
    launch, measure,
};
use headrace_io::write::SinkFile;
use headrace_io::{FaultPlan, FaultyFile, ReadAt};

use crate::{Bench, CHUNK, CopyBack, Ignore, SIZE, TestFile};

const KERNELS: &str = r#"
extern "C" __global__ void plus_one(unsigned char* bytes, unsigned long long count) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    unsigned long long step = gridDim.x * (unsigned long long)blockDim.x;
    for (; at < count; at += step) bytes[at] += 1;
}

// A sum of bytes weighted by their place: it sees a byte that changed or moved.
extern "C" __global__ void checksum(
    const unsigned char* bytes, unsigned long long count, unsigned long long* sum) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    unsigned long long step = gridDim.x * (unsigned long long)blockDim.x;
    unsigned long long own = 0;
    for (; at < count; at += step) own += (bytes[at] + 1ull) * (at * 2654435761ull + 1ull);
    atomicAdd(sum, own);
}
"#;

const GRID: Grid = Grid { blocks: 264, threads: 256, shared_bytes: 0 };

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().zip(0u64..).fold(0, |sum, (byte, at)| {
        let weight = at.wrapping_mul(2_654_435_761).wrapping_add(1);
        sum.wrapping_add((u64::from(*byte) + 1).wrapping_mul(weight))
    })
}

fn module(device: &Arc<Device>) -> Arc<Module> {
    let source = Source { name: "stages.cu", text: KERNELS, headers: &[] };
    let cubin = Compiler::load(None).unwrap().compile(&source, &device.info().arch(), &[]).unwrap();
    Module::load(device, &cubin).unwrap()
}

/// Adds one to every byte and puts the chunk out where it came from.
struct PlusOne {
    kernel: Function,
    chunks: Vec<ChunkSpec>,
}

impl PlusOne {
    fn new(module: &Arc<Module>, race: &Race) -> PlusOne {
        PlusOne { kernel: module.function("plus_one").unwrap(), chunks: race.chunks().to_vec() }
    }
}

// SAFETY: its output is one of the chunk's own buffers, in the slot's memory.
unsafe impl DeviceProgram for PlusOne {
    fn launch(
        &mut self,
        stream: &Stream,
        _at: SlotChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), BoxError> {
        for buffer in buffers.iter().filter(|buffer| buffer.bytes > 0) {
            let mut args = LaunchArgs::new();
            args.push_ptr(buffer.address).push_u64(buffer.bytes as u64);
            // SAFETY: the arguments are the kernel's, and the buffer is the slot's until the
            // chunk is retired.
            unsafe { launch(&self.kernel, GRID, stream, &mut args)? };
        }
        Ok(())
    }

    fn output(
        &mut self,
        chunk: usize,
        buffers: &[DeviceSlice],
    ) -> Result<Option<DeviceOutput>, BoxError> {
        let read = self.chunks[chunk].reads[0];
        let to = OutputSpec { sink: 0, offset: read.offset, bytes: read.bytes };
        Ok(Some(DeviceOutput { address: buffers[0].address, to }))
    }
}

/// One buffer a chunk.
fn whole_chunks(file: &TestFile, chunk_bytes: usize) -> Vec<ChunkSpec> {
    let mut chunks = file.chunks(chunk_bytes);
    for chunk in &mut chunks {
        let bytes = chunk.bytes();
        chunk.reads.truncate(1);
        chunk.reads[0].bytes = bytes;
    }
    chunks
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_file_goes_through_five_stages_into_a_file() {
    // Whole blocks, so that outputs can be written by O_DIRECT.
    const CHUNK: usize = 4 << 20;
    let bench = Bench::new();
    let module = module(&bench.device);
    let file = TestFile::new(".", SIZE);
    let wanted: Vec<u8> = file.content.iter().map(|byte| byte.wrapping_add(1)).collect();
    let mut slots = CudaSlots::new(&bench.pool, 3, CHUNK + 65_536).unwrap();
    for (access, write_access) in [
        (AccessPath::Auto, WriteAccess::Auto),
        (AccessPath::Buffered, WriteAccess::Buffered),
        (AccessPath::Mapped, WriteAccess::Auto),
    ] {
        let dir = tempfile::tempdir_in(".").unwrap();
        let path = dir.path().join("out.bin");
        let sink = SinkFile::create(&path, SIZE as u64).unwrap();
        let trace = Trace::new("five stages", 100_000);
        let options = RaceOptions {
            access,
            write_access,
            trace: Some(trace.clone()),
            ..RaceOptions::default()
        };
        let chunks = whole_chunks(&file, CHUNK);
        let race = Race::new(vec![file.file.clone()], chunks, options, CancelToken::new())
            .unwrap()
            .with_outputs(vec![sink.clone()]);
        let program = PlusOne::new(&module, &race);
        let report = race.run_device(&mut slots.lane(program)).unwrap();
        sink.commit(false).unwrap();
        assert!(std::fs::read(&path).unwrap() == wanted, "{access:?}, {write_access:?}");
        assert_eq!((report.written_bytes, report.d2h_bytes), (SIZE as u64, SIZE as u64));
        assert!(report.h2d_ns > 0 && report.kernel_ns > 0 && report.d2h_ns > 0, "{report:?}");
        let names = ["read", "copy to device", "execute", "copy to host", "write"];
        for name in names {
            let spans = trace.spans().iter().filter(|span| span.name == name).count();
            assert_eq!(spans, race.chunks().len(), "{name}");
        }
        println!("{access:?}, {write_access:?}: {report:?}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn alone_a_registered_mapping_fills_the_link() {
    const BYTES: usize = 4_000_000_000;
    const CHUNK: usize = 24 << 20;
    let bench = Bench::new();
    let link_gb_per_s = measure::h2d(&bench.device).unwrap().gb_per_s;
    println!("read-only registration: {}", bench.device.info().read_only_host_register);
    let file = TestFile::new("/dev/shm", BYTES);
    let pool = RegisteredPool::new(8 << 30);
    let mut slots = CudaSlots::new(&bench.pool, 6, CHUNK + 65_536).unwrap();
    slots.wait_until_ready().unwrap();
    let mut best = 0f64;
    for round in 0..5 {
        let options = RaceOptions {
            access: AccessPath::Registered,
            registered: Some(pool.clone()),
            ..RaceOptions::default()
        };
        let files: Vec<Arc<dyn ReadAt>> = vec![file.file.clone()];
        let race = Race::new(files, file.chunks(CHUNK), options, CancelToken::new()).unwrap();
        let report = race.run_device(&mut slots.lane(Ignore)).unwrap();
        assert_eq!(report.bytes_by_path.registered, BYTES as u64, "{report:?}");
        println!(
            "round {round}: {:.1} GB/s of {link_gb_per_s:.1}; first chunk {} us; {:?}",
            report.gb_per_s(),
            report.first_chunk_ns / 1000,
            pool.stats()
        );
        best = best.max(report.gb_per_s());
    }
    // The right bytes, too.
    let options = RaceOptions { registered: Some(pool), ..RaceOptions::default() };
    let race = Race::new(
        vec![file.file.clone()],
        file.chunks(CHUNK)[..20].to_vec(),
        options,
        CancelToken::new(),
    )
    .unwrap();
    let mut program = CopyBack::new(&bench.device, &race);
    let report = race.run_device(&mut slots.lane(&mut program)).unwrap();
    assert_eq!(report.bytes_by_path.registered, race.bytes(), "{report:?}");
    program.assert_same(&race, &file.content);
    // The benchmark holds it against the link; here it only must not have gone through slots.
    assert!(best > link_gb_per_s * 0.9, "{best:.1} of {link_gb_per_s:.1} GB/s");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_shrinking_file_under_a_registered_mapping_is_an_error() {
    let bench = Bench::new();
    let file = TestFile::new("/dev/shm", SIZE);
    let pool = RegisteredPool::with_pieces(1 << 30, 1 << 20);
    let mut slots = CudaSlots::new(&bench.pool, 3, CHUNK + 65_536).unwrap();
    let options = RaceOptions {
        access: AccessPath::Registered,
        registered: Some(pool),
        ..RaceOptions::default()
    };
    let race = Race::new(vec![file.file.clone()], file.chunks(CHUNK), options, CancelToken::new())
        .unwrap();
    race.run_device(&mut slots.lane(Ignore)).unwrap();
    let handle = std::fs::OpenOptions::new().write(true).open(file.file.path()).unwrap();
    handle.set_len(1_000_000).unwrap();
    let error = race.run_device(&mut slots.lane(Ignore)).unwrap_err();
    assert!(matches!(error, RaceError::Changed(_)), "{error}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_two_lanes_share_the_chunks() {
    let bench = Bench::new();
    let devices = headrace_gpu::probe().devices.len();
    let other = Device::open(usize::from(devices > 1)).unwrap();
    let pools = [bench.pool.clone(), DevicePool::new(&other, 1 << 30)];
    let file = TestFile::new("/dev/shm", SIZE);
    let [mut first, mut second] =
        [0, 1].map(|lane: usize| CudaSlots::new(&pools[lane], 3, CHUNK + 65_536).unwrap());
    for access in [AccessPath::Auto, AccessPath::Registered] {
        let options = RaceOptions { access, ..RaceOptions::default() };
        let race =
            Race::new(vec![file.file.clone()], file.chunks(CHUNK), options, CancelToken::new())
                .unwrap();
        let mut programs = [CopyBack::new(&bench.device, &race), CopyBack::new(&other, &race)];
        let [one, two] = &mut programs;
        let mut lanes = (first.lane(one), second.lane(two));
        let lanes: Vec<&mut (dyn DeviceLane + Send)> = vec![&mut lanes.0, &mut lanes.1];
        let report = race.run_devices(lanes, &Affinity::none()).unwrap();
        assert_eq!(report.merged.chunks as usize, race.chunks().len());
        assert!(report.lanes.iter().all(|lane| lane.chunks > 0), "{report:?}");
        let [one, two] = &programs;
        assert_eq!(one.retired + two.retired, race.chunks().len());
        for (chunk, spec) in race.chunks().iter().enumerate() {
            for (buffer, read) in spec.reads.iter().enumerate() {
                let wanted = &file.content[read.offset as usize..][..read.bytes as usize];
                // Whichever lane had it; the other's memory is zeros.
                let arrived = programs
                    .iter()
                    .any(|p| &p.buffers[chunk][buffer].as_slice()[..wanted.len()] == wanted);
                assert!(arrived, "{access:?}: chunk {chunk}, buffer {buffer}");
            }
        }
        println!("{access:?} on {devices} devices: {:.1} GB/s", report.merged.gb_per_s());
    }
}

/// Sums every buffer on the device.
struct Checksums {
    kernel: Function,
    sums: DeviceBuffer,
    buffers: usize,
}

// SAFETY: it has no output.
unsafe impl DeviceProgram for &mut Checksums {
    fn launch(
        &mut self,
        stream: &Stream,
        SlotChunk { chunk, .. }: SlotChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), BoxError> {
        for (number, buffer) in buffers.iter().enumerate().filter(|(_, b)| b.bytes > 0) {
            let sum = self.sums.ptr() + 8 * (chunk * self.buffers + number) as u64;
            let mut args = LaunchArgs::new();
            args.push_ptr(buffer.address).push_u64(buffer.bytes as u64).push_ptr(sum);
            // SAFETY: the arguments are the kernel's; the buffer is the slot's until the chunk is
            // retired, and the sums outlive the race.
            unsafe { launch(&self.kernel, GRID, stream, &mut args)? };
        }
        Ok(())
    }

    fn retire(&mut self, _at: SlotChunk) -> Result<Verdict, BoxError> {
        Ok(Verdict::Continue)
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_checksums_find_a_corrupted_byte() {
    let bench = Bench::new();
    let module = module(&bench.device);
    let file = TestFile::new(".", SIZE);
    let mut slots = CudaSlots::new(&bench.pool, 3, CHUNK + 65_536).unwrap();
    let stream = bench.device.stream().unwrap();
    for torn in [0, 1000] {
        let plan = FaultPlan { torn_blocks_permille: torn, ..FaultPlan::default() };
        let twin = FaultyFile::new(file.file.clone(), plan);
        let options = RaceOptions { access: AccessPath::Buffered, ..RaceOptions::default() };
        let race = Race::new(vec![twin], file.chunks(CHUNK), options, CancelToken::new()).unwrap();
        let buffers = race.chunks()[0].reads.len();
        let bytes = race.chunks().len() * buffers * 8;
        let sums = bench.pool.alloc(bytes).unwrap();
        stream.upload(&sums, 0, &vec![0; bytes]).unwrap();
        let mut program = Checksums { kernel: module.function("checksum").unwrap(), sums, buffers };
        race.run_device(&mut slots.lane(&mut program)).unwrap();
        let mut words = vec![0; bytes];
        stream.download(&program.sums, 0, &mut words).unwrap();
        let mut wrong = 0;
        for (chunk, spec) in race.chunks().iter().enumerate() {
            for (buffer, read) in spec.reads.iter().enumerate() {
                let at = 8 * (chunk * buffers + buffer);
                let sum = u64::from_le_bytes(words[at..at + 8].try_into().unwrap());
                let content = &file.content[read.offset as usize..][..read.bytes as usize];
                wrong += usize::from(sum != checksum(content));
            }
        }
        let some = race.chunks().iter().flat_map(|c| &c.reads).filter(|r| r.bytes > 0).count();
        assert_eq!(wrong, if torn == 0 { 0 } else { some });
    }
}

/// The first chunk must not wait for the last slot to be pinned.
#[test]
#[ignore = "needs a GPU"]
fn gpu_the_first_chunk_is_early() {
    let bench = Bench::new();
    let file = TestFile::new("/dev/shm", 500_000_000);
    let begun = Instant::now();
    let mut slots = CudaSlots::new(&bench.pool, 16, (24 << 20) + 65_536).unwrap();
    let made = begun.elapsed();
    let files: Vec<Arc<dyn ReadAt>> = vec![file.file.clone()];
    let race = Race::new(files, file.chunks(24 << 20), RaceOptions::default(), CancelToken::new())
        .unwrap();
    let report = race.run_device(&mut slots.lane(Ignore)).unwrap();
    let first_ms = made.as_secs_f64() * 1e3 + report.first_chunk_ns as f64 / 1e6;
    println!("slots made in {made:?}; the first chunk was launched after {first_ms:.1} ms");
    assert!(first_ms < 100.0, "{first_ms:.1} ms");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_cufile_brings_the_right_bytes_or_says_why_not() {
    let bench = Bench::new();
    let file = TestFile::new(".", SIZE);
    let mut slots = CudaSlots::new(&bench.pool, 3, CHUNK + 65_536).unwrap();
    for forbids_other_paths in [false, true] {
        let options = RaceOptions {
            access: AccessPath::CuFile,
            forbids_other_paths,
            ..RaceOptions::default()
        };
        let token = CancelToken::new();
        let race = Race::new(vec![file.file.clone()], file.chunks(CHUNK), options, token).unwrap();
        let mut program = CopyBack::new(&bench.device, &race);
        match race.run_device(&mut slots.lane(&mut program)) {
            Ok(report) => {
                program.assert_same(&race, &file.content);
                assert_eq!(report.bytes_by_path.cufile, SIZE as u64);
                let bounces = report.engines.iter().any(|engine| engine.contains("Compatibility"));
                assert!(!(forbids_other_paths && bounces), "{report:?}");
                println!("{report:?}");
            }
            Err(RaceError::PathUnavailable { reason, .. }) => println!("no cuFile: {reason}"),
            Err(error) => panic!("{error}"),
        }
    }
}
