//! The benchmark with a GPU as the target, and its kernels. Run with `--ignored --test-threads 1`.

use headrace_bench::transfer::{
    Bench, BenchPlan, BenchRun, CacheState, HostMemory, KERNELS, Operation, PathChoice, Pattern,
    Target,
};
use headrace_flow::Trace;
use headrace_gpu::Compiler;
use headrace_io::FaultPlan;
use headrace_io::system::{GpuFor, Taker};

use crate::support::{TestFile, twin};

const SIZE: u64 = 20_000_003;

fn plan(file: &TestFile, path: PathChoice) -> BenchPlan {
    BenchPlan {
        target: Target::Gpus(vec![0]),
        pattern: Pattern::Sequential { chunk_bytes: 1 << 20 },
        verify: true,
        ..file.plan(path)
    }
}

fn assert_whole(run: &BenchRun, bytes: u64) {
    assert_eq!((run.bytes, run.partial), (bytes, None), "{run:?}");
    let by = &run.bytes_by_path;
    assert_eq!(by.ram2gpu + by.ssd2gpu + by.cufile, bytes, "{run:?}");
    let verification = run.verification.as_ref().unwrap();
    assert_eq!((verification.bytes, verification.mismatch_count), (bytes, 0), "{run:?}");
}

#[test]
#[ignore = "needs NVRTC: set HEADRACE_NVRTC to its file or folder"]
fn nvrtc_compiles_the_kernels_of_the_benchmark() {
    let compiler = Compiler::load(None).unwrap();
    for arch in ["sm_80", "sm_90"] {
        let cubin = compiler.compile(&KERNELS, arch, &[]).unwrap();
        assert_eq!(cubin.warnings, "");
        let names = String::from_utf8_lossy(&cubin.image).into_owned();
        assert!(names.contains("headrace_checksum") && names.contains("headrace_fill"));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_sums_every_length_as_the_host_does() {
    let mut bench = Bench::new();
    for bytes in [0, 1, 7, 8, 4095, 4096, 1 << 20, SIZE] {
        for file in [TestFile::new(bytes), TestFile::in_memory(bytes)] {
            for path in [PathChoice::Auto, PathChoice::Pread, PathChoice::Mmap] {
                assert_whole(&bench.run(&plan(&file, path)).unwrap(), bytes);
            }
            if file.has_direct() {
                for path in [PathChoice::Uring, PathChoice::Direct] {
                    let run = bench.run(&plan(&file, path)).unwrap();
                    assert_whole(&run, bytes);
                    assert_eq!(run.bytes_by_path.ssd2gpu, bytes / 4096 * 4096, "{run:?}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_copies_from_registered_mappings() {
    let file = TestFile::in_memory(SIZE);
    let mut bench = Bench::new();
    for _ in 0..2 {
        let run = bench.run(&plan(&file, PathChoice::Registered)).unwrap();
        assert_whole(&run, SIZE);
        assert_eq!(run.bytes_by_path.registered, SIZE, "{run:?}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_finds_a_wrong_byte_and_names_its_chunk() {
    let file = TestFile::new(SIZE);
    let mut plan = plan(&file, PathChoice::Pread);
    let faults = FaultPlan { torn_blocks_permille: 1, seed: 5, ..FaultPlan::default() };
    plan.hooks.wrap = twin(faults);
    let run = Bench::new().run(&plan).unwrap();
    let verification = run.verification.unwrap();
    assert!(verification.mismatch_count > 0);
    for mismatch in &verification.mismatches {
        assert_eq!(mismatch.offset, (mismatch.chunk as u64) << 20);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_ordinary_memory_works_and_random_blocks_have_iops() {
    let file = TestFile::new(SIZE);
    let mut bench = Bench::new();
    let pageable = BenchPlan { memory: HostMemory::Pageable, ..plan(&file, PathChoice::Pread) };
    let run = bench.run(&pageable).unwrap();
    assert_whole(&run, SIZE);
    assert_eq!(run.memory, Some("pageable"));
    let random = BenchPlan {
        pattern: Pattern::Random { block_bytes: 4096 },
        limit_bytes: Some(1000 * 4096),
        ..plan(&file, PathChoice::Pread)
    };
    let run = bench.run(&random).unwrap();
    assert_whole(&run, 1000 * 4096);
    assert!(run.iops.unwrap() > 0.0 && run.latency.count == 1000, "{run:?}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_cold_run_is_traced_and_names_its_bottleneck() {
    let file = TestFile::new(SIZE);
    let trace = Trace::new("bench", 10_000);
    let plan = BenchPlan {
        cache: CacheState::Cold,
        trace: Some(trace.clone()),
        ..plan(&file, PathChoice::Auto)
    };
    let run = Bench::new().run(&plan).unwrap();
    assert_whole(&run, SIZE);
    assert!(run.bottleneck.is_some() && run.first_chunk_ns > 0, "{run:?}");
    assert!(run.ring.is_some() && run.stages.iter().any(|stage| stage.stage == "h2d"), "{run:?}");
    assert!(!trace.spans().is_empty());
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_writes_what_it_made() {
    let file = TestFile::new(0);
    let mut bench = Bench::new();
    for path in [PathChoice::Auto, PathChoice::Pread] {
        let plan = BenchPlan {
            operation: Operation::Write { bytes: SIZE, overwrite: false, keep: false },
            paths: vec![file.folder.path().join("new.bin")],
            ..plan(&file, path)
        };
        let run = bench.run(&plan).unwrap();
        assert_eq!((run.bytes, run.bytes_by_path.gpu2ssd), (SIZE, SIZE), "{run:?}");
        let verification = run.verification.as_ref().unwrap();
        assert_eq!((verification.bytes, verification.mismatch_count), (SIZE, 0), "{run:?}");
        assert!(run.stages.iter().any(|stage| stage.stage == "d2h"), "{run:?}");
        assert!(!file.folder.path().join("new.bin").exists());
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn two_gpus_share_the_chunks() {
    let file = TestFile::new(SIZE);
    let plan = BenchPlan {
        target: Target::Gpus(vec![0, 1]),
        gpu_for: GpuFor(vec![(file.path.clone(), Taker::Gpu(1))]),
        ..plan(&file, PathChoice::Pread)
    };
    let run = Bench::new().run(&plan).unwrap();
    assert_whole(&run, SIZE);
    assert!(run.notes.iter().any(|note| note.contains("chunks by GPU")), "{run:?}");
}
