//! Sorted files against std's stable sort of the same records, with memory for all of them and for few, and with
//! files that fail.

#![allow(clippy::unwrap_used)]

#[path = "sort/gpu.rs"]
mod gpu;
#[path = "sort/support.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use headrace_flow::{AccessPath, CancelToken};
use headrace_io::FaultPlan;

use headrace_ooc::sort::{Order, RecordLayout, SortJob, sort};
use headrace_ooc::{NumberType, OocError, Options, Report};
use proptest::prelude::*;
use support::{FaultyFiles, LyingFiles, Random, Shape, is_clean, job, on_cores, oracle, records};

const KEYS: [NumberType; 6] = [
    NumberType::I32,
    NumberType::U32,
    NumberType::I64,
    NumberType::U64,
    NumberType::F32,
    NumberType::F64,
];

/// Sorts records and compares them with the oracle's.
fn check(layout: RecordLayout, order: Order, input: &[u8], options: &Options) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path(), layout, order);
    std::fs::write(&job.input, input).unwrap();
    let report = sort(&job, options).unwrap();
    let output = std::fs::read(&job.output).unwrap();
    assert_eq!(output.len(), input.len());
    assert!(output == oracle(layout, order, input), "{layout:?} {order:?}, {} bytes", input.len());
    assert!(report.host_peak_bytes <= report.host_limit_bytes);
    assert!(is_clean(dir.path(), &["in", "out"]), "temporary files are left");
    assert_eq!((report.input_bytes, report.output_bytes), (input.len() as u64, input.len() as u64));
    report
}

fn layout(record_bytes: usize, key: NumberType, key_offset: usize) -> RecordLayout {
    RecordLayout { record_bytes, key, key_offset }
}

#[test]
fn every_width_key_order_and_shape_is_sorted_as_std_does() {
    let mut random = Random(1);
    for key in KEYS {
        let own = key.bytes();
        for (record_bytes, offset) in
            [(own, 0), (8, 8 - own), (12, 3), (16, 16 - own), (own + 1, 1), (29, 7), (100, 40)]
        {
            for shape in Shape::ALL {
                let layout = layout(record_bytes, key, offset);
                let count = 1 + random.below(3000) as usize;
                let input = records(layout, shape, count, &mut random);
                for order in [Order::Ascending, Order::Descending] {
                    check(layout, order, &input, &on_cores(2, 64 << 20));
                }
            }
        }
    }
}

#[test]
fn numbers_of_records_around_every_boundary() {
    let mut random = Random(2);
    for (record_bytes, key) in [(4, NumberType::U32), (8, NumberType::I64), (12, NumberType::F32)] {
        let layout = layout(record_bytes, key, 0);
        for bytes in [0, record_bytes, 4096, 65536, 1 << 20, 3 << 20] {
            let count = bytes / record_bytes;
            for count in [count.saturating_sub(1), count, count + 1] {
                let input = records(layout, Shape::Random, count, &mut random);
                check(layout, Order::Ascending, &input, &on_cores(3, 64 << 20));
            }
        }
    }
}

#[test]
fn a_sixteenth_of_the_memory_is_enough() {
    let mut random = Random(3);
    for (shape, record_bytes, key) in [
        (Shape::Random, 8, NumberType::I64),
        (Shape::Zipf, 4, NumberType::F32),
        (Shape::Lonely, 24, NumberType::U64),
    ] {
        let layout = layout(record_bytes, key, record_bytes - key.bytes());
        let input = records(layout, shape, (32 << 20) / record_bytes, &mut random);
        let report = check(layout, Order::Ascending, &input, &on_cores(2, 2 << 20));
        assert!(report.temporary_bytes >= 32 << 20, "{shape:?}: {}", report.temporary_bytes);
        let told = report.notes.iter().any(|note| note.contains("temporary files were in"));
        assert!(told, "{:?}", report.notes);
    }
}

#[test]
fn every_shape_is_sorted_by_temporary_files_too() {
    let mut random = Random(4);
    for shape in Shape::ALL {
        let layout = layout(12, NumberType::I64, 4);
        let input = records(layout, shape, 300_000, &mut random);
        let report = check(layout, Order::Descending, &input, &on_cores(2, 2 << 20));
        assert!(report.temporary_bytes > 0, "{shape:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_sizes_threads_and_limits(
        seed in any::<u64>(),
        key in prop::sample::select(KEYS.to_vec()),
        more in prop::sample::select(vec![0usize, 1, 4, 8, 11, 250]),
        at in 0.0..1.0f64,
        bytes in 0usize..1 << 20,
        memory in 600_000u64..3_000_000,
        threads in 1usize..5,
        chunk in prop::option::of(1usize..100_000),
        shape in prop::sample::select(Shape::ALL.to_vec()),
        descends in any::<bool>(),
        access in prop::sample::select(vec![AccessPath::Auto, AccessPath::Buffered, AccessPath::Mapped]),
    ) {
        let layout = layout(key.bytes() + more, key, (at * (more + 1) as f64) as usize);
        let input = records(layout, shape, bytes / layout.record_bytes, &mut Random(seed));
        let order = if descends { Order::Descending } else { Order::Ascending };
        let options = Options { chunk_bytes: chunk, access, ..on_cores(threads, memory) };
        check(layout, order, &input, &options);
    }
}

#[test]
fn a_sample_that_does_not_show_what_is_there_costs_time_and_not_the_answer() {
    let keys = RecordLayout::keys(NumberType::U64);
    let input = records(keys, Shape::Random, 4 << 17, &mut Random(10));
    for (memory, is_enough) in [(64 << 20, true), (17 << 20, false), (2 << 20, false)] {
        let options = Options {
            files: Arc::new(LyingFiles),
            access: AccessPath::Buffered,
            ..on_cores(2, memory)
        };
        let report = check(keys, Order::Ascending, &input, &options);
        assert_eq!(report.temporary_bytes == 0, is_enough, "{memory}: {:?}", report.notes);
        let told = report.notes.iter().any(|note| note.contains("the sample did not show"));
        assert_eq!(told, memory == 17 << 20, "{:?}", report.notes);
    }
}

/// Options under which all of the input fits the memory, and under which it does not.
fn one_pass_and_two() -> [Options; 2] {
    [on_cores(2, 64 << 20), on_cores(2, 2 << 20)]
}

#[test]
fn faults_that_pass_change_nothing() {
    let mut random = Random(5);
    let layout = layout(8, NumberType::F64, 0);
    let input = records(layout, Shape::Random, 500_000, &mut random);
    for seed in 0..4 {
        for options in one_pass_and_two() {
            let read = FaultPlan {
                seed,
                short_permille: 300,
                interrupted_permille: 100,
                direct_refused: seed % 2 == 0,
                ..FaultPlan::default()
            };
            let write = FaultPlan {
                seed,
                short_permille: 300,
                interrupted_permille: 100,
                direct_refused: seed % 2 == 1,
                ..FaultPlan::default()
            };
            let files = FaultyFiles {
                input: read.clone(),
                read_back: read,
                unnamed: write.clone(),
                output: write,
            };
            let access = AccessPath::Buffered;
            let options = Options { files: Arc::new(files), access, ..options };
            check(layout, Order::Ascending, &input, &options);
        }
    }
}

/// What becomes of a sort whose files have faults: an error, and nothing is left.
fn fails(options: Options, files: FaultyFiles, says: &str) {
    let layout = layout(8, NumberType::I64, 0);
    let input = records(layout, Shape::Random, 500_000, &mut Random(6));
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path(), layout, Order::Ascending);
    std::fs::write(&job.input, &input).unwrap();
    std::fs::write(&job.output, "before").unwrap();
    let access = AccessPath::Buffered;
    let options = Options { files: Arc::new(files), access, ..options };
    let error = sort(&job, &options).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
    assert_eq!(std::fs::read(&job.output).unwrap(), b"before");
    assert!(is_clean(dir.path(), &["in", "out"]), "temporary files are left");
}

#[test]
fn a_fault_at_any_stage_is_an_error_and_leaves_nothing() {
    let lost = || FaultPlan { io_error_at: Some(3_000_000), ..FaultPlan::default() };
    let changed = || FaultPlan { changed: true, ..FaultPlan::default() };
    let broken = || FaultPlan { io_error_at: Some(3_000_000), ..FaultPlan::default() };
    let full = || FaultPlan { full_at: Some(3_000_000), ..FaultPlan::default() };
    let uncommitted = || FaultPlan { commit_fails: true, ..FaultPlan::default() };
    let none = FaultyFiles::default;
    for options in one_pass_and_two() {
        fails(options.clone(), FaultyFiles { input: lost(), ..none() }, "/in: reading");
        fails(options.clone(), FaultyFiles { input: changed(), ..none() }, "/in: the file changed");
        fails(options.clone(), FaultyFiles { output: broken(), ..none() }, "/out: writing");
        fails(options.clone(), FaultyFiles { output: full(), ..none() }, "No space left");
        fails(options, FaultyFiles { output: uncommitted(), ..none() }, "/out: cannot");
    }
    let [_, options] = one_pass_and_two();
    fails(options.clone(), FaultyFiles { unnamed: broken(), ..none() }, "writing");
    fails(options.clone(), FaultyFiles { unnamed: full(), ..none() }, "No space left");
    fails(options, FaultyFiles { read_back: lost(), ..none() }, "a temporary file in this folder");
}

#[test]
fn a_sort_that_is_cancelled_at_any_time_leaves_nothing() {
    let layout = layout(8, NumberType::I64, 0);
    let input = records(layout, Shape::Random, 1_000_000, &mut Random(7));
    let mut random = Random(8);
    let mut cancelled = 0;
    for options in one_pass_and_two() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let job = job(dir.path(), layout, Order::Ascending);
            std::fs::write(&job.input, &input).unwrap();
            let options = Options { token: CancelToken::new(), ..options.clone() };
            let (token, wait) = (options.token.clone(), random.below(60_000));
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(wait));
                token.cancel();
            });
            let outcome = sort(&job, &options);
            killer.join().unwrap();
            match outcome {
                Ok(_) => assert!(is_clean(dir.path(), &["in", "out"])),
                Err(error) => {
                    assert!(matches!(error, OocError::Cancelled), "{error}");
                    assert!(is_clean(dir.path(), &["in"]), "something is left");
                    cancelled += 1;
                }
            }
        }
    }
    assert!(cancelled > 10, "{cancelled} of 40");
}

#[test]
fn a_file_is_sorted_in_its_place() {
    let layout = layout(16, NumberType::U64, 8);
    let input = records(layout, Shape::Random, 200_000, &mut Random(9));
    for options in one_pass_and_two() {
        let dir = tempfile::tempdir().unwrap();
        let mut job = job(dir.path(), layout, Order::Ascending);
        job.output = job.input.clone();
        std::fs::write(&job.input, &input).unwrap();
        sort(&job, &options).unwrap();
        assert!(std::fs::read(&job.input).unwrap() == oracle(layout, job.order, &input));
        assert!(is_clean(dir.path(), &["in"]));
    }
}

#[test]
fn what_cannot_be_sorted_is_an_error_that_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let error = |layout: RecordLayout, bytes: usize, limit: Option<u64>, options: &Options| {
        let mut job = job(dir.path(), layout, Order::Ascending);
        job.temporary_limit_bytes = limit;
        std::fs::write(&job.input, vec![7; bytes]).unwrap();
        let error = sort(&job, options).unwrap_err().to_string();
        assert!(is_clean(dir.path(), &["in"]), "something is left after {error}");
        error
    };
    let roomy = on_cores(2, 64 << 20);
    let keys = RecordLayout::keys(NumberType::I64);
    let text = error(keys, 81, None, &roomy);
    assert!(text.contains("/in: 81 bytes are 10 records of 8 bytes and 1 bytes more"), "{text}");
    let text = error(RecordLayout::keys(NumberType::Bf16), 8, None, &roomy);
    assert!(text.contains("bf16"), "{text}");
    let text = error(layout(12, NumberType::I64, 5), 12, None, &roomy);
    assert!(text.contains("does not lie inside a record of 12"), "{text}");
    let text = error(layout(1 << 20, NumberType::I64, 5), 1 << 20, None, &roomy);
    assert!(text.contains("65536 are the most"), "{text}");
    let text = error(keys, 8 << 20, Some(4 << 20), &on_cores(2, 2 << 20));
    assert!(text.contains("temporary files") && text.contains("4194304"), "{text}");
    let text = error(keys, 8 << 20, None, &on_cores(2, 4096));
    assert!(text.contains("memory"), "{text}");
}

#[test]
fn temporary_files_are_made_where_they_are_wanted() {
    let layout = RecordLayout::keys(NumberType::I32);
    let dir = tempfile::tempdir().unwrap();
    let mut job = job(dir.path(), layout, Order::Ascending);
    std::fs::write(&job.input, records(layout, Shape::Random, 1 << 20, &mut Random(1))).unwrap();
    job.temporary_folder = Some("/nowhere/at all".into());
    let error = sort(&job, &on_cores(2, 2 << 20)).unwrap_err().to_string();
    assert!(error.contains("/nowhere/at all"), "{error}");
    let elsewhere = tempfile::tempdir().unwrap();
    job.temporary_folder = Some(elsewhere.path().to_path_buf());
    let report = sort(&job, &on_cores(2, 2 << 20)).unwrap();
    let names = elsewhere.path().to_str().unwrap();
    assert!(report.notes.iter().any(|note| note.contains(names)), "{:?}", report.notes);
}

#[test]
fn a_limit_that_has_no_room_for_a_window_is_refused_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    let keys: Vec<u8> =
        (0..200_000u64).flat_map(|key| (key * 77_777 % 65_537).to_le_bytes()).collect();
    std::fs::write(&input, &keys).unwrap();
    for limit_bytes in [50_000, 100_000, 300_000, 327_000, 328_000, 400_000, 1_000_000] {
        let job = SortJob {
            input: input.clone(),
            output: output.clone(),
            layout: RecordLayout::keys(NumberType::U64),
            order: Order::Ascending,
            temporary_folder: None,
            temporary_limit_bytes: None,
        };
        let options = Options { memory_limit_bytes: Some(limit_bytes), ..Options::default() };
        match sort(&job, &options) {
            Ok(report) => assert!(report.host_peak_bytes <= limit_bytes),
            Err(error) => assert!(limit_bytes < 1_000_000, "{limit_bytes}: {error}"),
        }
    }
}
