//! Set operations against counting maps, over shapes at every boundary, with faults at every stage.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use headrace_format::arrow::{ArrowWriter, WriterOptions};
use headrace_io::random::Random;
use headrace_io::write::{FaultySink, SinkFile, WriteAt};
use headrace_io::{FaultPlan, FaultyFile, ReadAt, SourceFile};
use headrace_ooc::sets::{self, KeyList, Repeats, SetJob, SetOperation, SetReport};
use headrace_ooc::{Files, Number, OocError, Options, PlainFiles, Processor};
use proptest::prelude::*;

/// Lists on disk, and where the result goes.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn write<K: Number>(&self, lists: [&[K]; 2]) {
        for (name, list) in ["a", "b"].iter().zip(lists) {
            std::fs::write(self.0.path().join(name), bytemuck::cast_slice::<K, u8>(list)).unwrap();
        }
    }

    fn job<K: Number>(
        &self,
        operation: SetOperation,
        repeats: Repeats,
        files: &dyn Files,
    ) -> SetJob {
        let list = |name: &str| KeyList::raw(&self.0.path().join(name), K::TYPE, files).unwrap();
        let output = Some(self.0.path().join("out"));
        SetJob { lists: [list("a"), list("b")], operation, repeats, output, fence_bytes: None }
    }

    fn result<K: Number>(&self) -> Vec<K> {
        bytemuck::pod_collect_to_vec(&std::fs::read(self.0.path().join("out")).unwrap())
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn options(chunk_bytes: usize) -> Options {
    let processor = Processor::Cpu;
    Options { processor, chunk_bytes: Some(chunk_bytes), threads: Some(3), ..Options::default() }
}

/// The result as counts say it.
fn wanted<K: Number>(lists: [&[K]; 2], operation: SetOperation) -> Vec<K::Ordered> {
    let mut counts: BTreeMap<K::Ordered, [usize; 2]> = BTreeMap::new();
    for (number, list) in lists.iter().enumerate() {
        for key in *list {
            counts.entry(key.ordered()).or_default()[number] += 1;
        }
    }
    let times = |[m, n]: [usize; 2]| match operation {
        SetOperation::Intersection => m.min(n),
        SetOperation::Union => m.max(n),
        SetOperation::Difference => m.saturating_sub(n),
        SetOperation::SymmetricDifference => m.abs_diff(n),
    };
    let repeated = |(key, counts)| std::iter::repeat_n(key, times(counts));
    counts.into_iter().flat_map(repeated).collect()
}

/// Runs all operations on two lists, and compares.
fn check<K: Number>(
    lists: [&[K]; 2],
    repeats: Repeats,
    options: &Options,
    fence_bytes: Option<u64>,
) {
    let folder = Folder::new();
    folder.write(lists);
    for operation in SetOperation::ALL {
        let mut job = folder.job::<K>(operation, repeats, &PlainFiles);
        job.fence_bytes = fence_bytes;
        let told = sets::run(&job, options).unwrap();
        let found: Vec<K::Ordered> = folder.result::<K>().iter().map(|key| key.ordered()).collect();
        let wanted = wanted(lists, operation);
        assert!(
            found == wanted,
            "{operation} of {} and {} keys, {options:?}",
            lists[0].len(),
            lists[1].len()
        );
        assert_eq!(told.keys, wanted.len() as u64);
        let counted = sets::run(&SetJob { output: None, ..job }, options).unwrap();
        assert_eq!(counted.keys, told.keys, "{operation}, counted");
        assert!(told.report.host_peak_bytes <= told.report.host_limit_bytes);
    }
}

/// Sorted keys: steps of up to `step`, and every key repeated up to `repeat` times.
fn keys(seed: u64, count: usize, first: i64, step: u64, repeat: u64) -> Vec<i64> {
    let mut random = Random(seed);
    let mut next = |below: u64| random.below(below.max(1));
    let (mut key, mut keys) = (first, Vec::with_capacity(count));
    while keys.len() < count {
        key += 1 + next(step) as i64;
        let times = (1 + next(repeat) as usize).min(count - keys.len());
        keys.extend(std::iter::repeat_n(key, times));
    }
    keys
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn results_are_what_counts_say(
        (seed, counts) in (any::<u64>(), [0..20_000_usize, 0..20_000_usize]),
        (firsts, steps) in ([-9000..9000_i64, -9000..9000_i64], [1..200_u64, 1..200_u64]),
        repeats in [prop_oneof![Just(1), 1..4_u64, 1..5000_u64], prop_oneof![Just(1), 1..4_u64, 1..5000_u64]],
        (chunk_keys, fence_keys) in (16..4000_usize, 1..1000_u64),
    ) {
        let list = |number: usize| {
            keys(seed + number as u64, counts[number], firsts[number], steps[number], repeats[number])
        };
        let (a, b) = (list(0), list(1));
        // Tiny chunks of much are slow, and show nothing more.
        let options = options(8 * chunk_keys.max((a.len() + b.len()) / 300));
        let repeats = if repeats == [1, 1] { Repeats::Refused } else { Repeats::Allowed };
        check([&a[..], &b[..]], repeats, &options, Some(8 * fence_keys));
    }
}

#[test]
fn lists_of_every_shape_at_every_boundary() {
    let chunk = 64;
    let options = options(8 * chunk);
    let counts = [0, 1, 2, 7, 8, 9, 31, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1000];
    for &a in &counts {
        for &b in &counts {
            let (dense, other) = (keys(1, a, 0, 1, 1), keys(2, b, 0, 2, 1));
            check([&dense[..], &other[..]], Repeats::Refused, &options, None);
        }
    }
    let all_equal = vec![7i64; 1000];
    let more = keys(3, 500, -100, 3, 1);
    for lists in [[&all_equal, &all_equal], [&all_equal, &more], [&more, &all_equal]] {
        check(lists.map(|list| &list[..]), Repeats::Allowed, &options, None);
    }
    // Disjoint, nested, the same.
    let (low, high, inner) =
        (keys(4, 900, 0, 3, 1), keys(5, 900, 100_000, 3, 1), keys(6, 50, 900, 9, 1));
    for lists in [[&low, &high], [&high, &low], [&low, &inner], [&inner, &low], [&low, &low]] {
        check(lists.map(|list| &list[..]), Repeats::Refused, &options, None);
    }
}

#[test]
fn lists_that_grow_unevenly() {
    let options = options(512 << 10);
    let power = |exponent: u32, count: i64| (1..count).map(move |key| key.pow(exponent));
    let square: Vec<i64> = power(2, 200_000).collect();
    let fourth: Vec<i64> = power(4, 50_000).collect();
    // Most of it far from where an even list would have it, on either side.
    let negative: Vec<i64> =
        fourth.iter().rev().map(|key| -key).chain(square.iter().copied()).collect();
    // Steps within each block: what a list should have in the middle of it is at its beginning, or at its end.
    let steps = |before: i64| -> Vec<i64> {
        let step = |key: i64| if key % 8192 < before { 0 } else { 900_000_000 };
        (0..200_000).map(|key| key / 8192 * 1_000_000_000 + step(key) + key % 8192).collect()
    };
    let even: Vec<i64> = (0..150_001).map(|key| key * 163_841).collect();
    for lists in [[&steps(7000), &even], [&even, &steps(1000)], [&steps(7000), &steps(1000)]] {
        check(lists.map(|list| &list[..]), Repeats::Refused, &options, Some(1 << 20));
    }
    for lists in [[&square, &fourth], [&fourth, &negative], [&negative, &square]] {
        check(lists.map(|list| &list[..]), Repeats::Refused, &options, Some(1 << 20));
    }
}

/// The least and the greatest of every type, the zeros, what is no number.
fn check_extremes(options: &Options) {
    let floats = |more: f64| {
        let mut floats = vec![
            f64::NEG_INFINITY,
            -1e300,
            -1.5,
            -0.0,
            0.0,
            1e-300,
            more,
            f64::INFINITY,
            f64::NAN,
            -f64::NAN,
        ];
        floats.sort_by_key(|float| float.ordered());
        floats
    };
    check([&floats(3.0)[..], &floats(4.0)], Repeats::Allowed, options, None);
    let singles =
        |more: f32| vec![f32::NEG_INFINITY, -2.0, 0.0, more, f32::MAX, f32::NAN, -f32::NAN];
    check([&singles(3.0)[..], &singles(4.0)], Repeats::Allowed, options, None);
    let unique = Repeats::Refused;
    check([&[i64::MIN, -1, 0, i64::MAX][..], &[i64::MIN, 0, 5, i64::MAX]], unique, options, None);
    check([&[i32::MIN, -1, 0, i32::MAX][..], &[i32::MIN, 0, 5, i32::MAX]], unique, options, None);
    check([&[0, 1, u32::MAX][..], &[0, u32::MAX - 1, u32::MAX]], unique, options, None);
    check([&[0, 1, u64::MAX][..], &[0, u64::MAX - 1, u64::MAX]], unique, options, None);
}

#[test]
fn every_type_with_its_extremes() {
    check_extremes(&options(256));
}

#[test]
fn a_list_may_be_replaced_by_the_result_and_both_may_be_the_same() {
    let folder = Folder::new();
    let (a, b) = (keys(1, 30_000, 0, 3, 1), keys(2, 30_000, 0, 3, 1));
    folder.write([&a[..], &b[..]]);
    let path = folder.0.path().join("a");
    let mut job = folder.job::<i64>(SetOperation::Union, Repeats::Refused, &PlainFiles);
    job.output = Some(path.clone());
    sets::run(&job, &options(8 << 10)).unwrap();
    let read = || -> Vec<i64> { bytemuck::pod_collect_to_vec(&std::fs::read(&path).unwrap()) };
    let union: Vec<u64> = read().iter().map(|key| key.ordered()).collect();
    assert!(union == wanted([&a[..], &b], SetOperation::Union));
    let list = || KeyList::raw(&path, i64::TYPE, &PlainFiles).unwrap();
    let job = SetJob { lists: [list(), list()], operation: SetOperation::Intersection, ..job };
    let before = read();
    sets::run(&job, &options(8 << 10)).unwrap();
    assert!(read() == before);
}

#[test]
fn what_cannot_meet_is_not_read() {
    let folder = Folder::new();
    let (dense, sparse) = (keys(1, 100_000, 0, 1, 1), [5000i64, 5001, 90_000]);
    folder.write([&dense[..], &sparse[..]]);
    let run = |operation| {
        let mut job = folder.job::<i64>(operation, Repeats::Refused, &PlainFiles);
        job.fence_bytes = Some(1024);
        sets::run(&job, &options(64 << 10)).unwrap()
    };
    let read = |told: &SetReport| told.report.passes[0].race.bytes_by_path.total() / 8;
    let intersection = run(SetOperation::Intersection);
    assert_eq!((intersection.keys, folder.result::<i64>()), (3, sparse.to_vec()));
    assert!(read(&intersection) < 1000, "{} keys were read", read(&intersection));
    assert_eq!(read(&intersection) + intersection.dropped_keys, 100_003);
    assert_eq!(read(&run(SetOperation::Difference)), 100_003);
}

#[test]
fn fences_are_kept_beside_a_list_as_long_as_it_is_the_same() {
    let folder = Folder::new();
    let (dense, sparse) = (keys(1, 200_000, 0, 1, 1), [5000i64, 5001, 150_000]);
    folder.write([&dense[..], &sparse[..]]);
    let job = || folder.job::<i64>(SetOperation::Intersection, Repeats::Refused, &PlainFiles);
    let run = || sets::run(&job(), &options(1 << 20)).unwrap();
    let read = |told: &SetReport| told.report.passes[0].race.bytes_by_path.total() / 8;
    let without = run();
    assert!(read(&without) > 10_000 && without.report.notes.is_empty());
    let kept = sets::keep_fences(&job().lists[0], 1024, &options(1 << 20)).unwrap();
    assert_eq!((kept.blocks, kept.block_keys), (1563, 128));
    let with = run();
    assert_eq!((with.keys, folder.result::<i64>()), (3, sparse.to_vec()));
    assert!(read(&with) < 1000 && with.report.notes.is_empty(), "{} keys were read", read(&with));
    // Whatever is wrong with them, they are left aside, and that is told.
    let path = sets::fences_path(&folder.0.path().join("a"));
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let cut = [&whole[..whole.len() - 8], &whole[..whole.len() - 3]];
    for damaged in [cut[0], cut[1], b"", b"{}\n", &flipped] {
        std::fs::write(&path, damaged).unwrap();
        let told = run();
        assert_eq!((told.keys, read(&told)), (3, read(&without)));
        assert!(told.report.notes[0].contains("damaged"), "{:?}", told.report.notes);
    }
    std::fs::write(&path, &whole).unwrap();
    folder.write([&keys(7, 200_000, 3, 1, 1)[..], &sparse[..]]);
    assert!(run().report.notes[0].contains("older version"));
    // As many blocks as before, which are said to end elsewhere.
    folder.write([&dense[..1000], &sparse[..]]);
    sets::keep_fences(&job().lists[0], 1024, &options(1 << 20)).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let line = whole.iter().position(|byte| *byte == b'\n').unwrap();
    let head = std::str::from_utf8(&whole[..line]).unwrap();
    let edited = head.replace("\"block_keys\":128,", "\"block_keys\":130,");
    assert_ne!(head, edited);
    std::fs::write(&path, [edited.as_bytes(), &whole[line..]].concat()).unwrap();
    assert!(run().report.notes[0].contains("damaged"));
}

fn failure<K: Number>(lists: [&[K]; 2], repeats: Repeats) -> String {
    let folder = Folder::new();
    folder.write(lists);
    let job = folder.job::<K>(SetOperation::Union, repeats, &PlainFiles);
    let error = sets::run(&job, &options(512)).unwrap_err();
    assert_eq!(folder.names(), ["a", "b"], "{error}");
    error.to_string()
}

/// A column of an Arrow file, in batches of these lengths.
fn write_arrow(path: &Path, keys: &[i64], batch_rows: usize, nullable: bool) {
    let field = Field::new("id", DataType::Int64, nullable);
    let other = Field::new("other", DataType::Utf8, false);
    let schema = Arc::new(Schema::new(vec![other, field]));
    let options = WriterOptions { rows_per_batch: batch_rows, ..WriterOptions::default() };
    let mut writer = ArrowWriter::create(path, &schema, options).unwrap();
    for batch in keys.chunks(batch_rows) {
        let text: StringArray = batch.iter().map(|key| Some(key.to_string())).collect();
        let ids: Int64Array =
            batch.iter().map(|key| (*key != 3000 || !nullable).then_some(*key)).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(text), Arc::new(ids)];
        writer.write(&RecordBatch::try_new(schema.clone(), columns).unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn columns_of_arrow_files_are_lists() {
    let folder = Folder::new();
    let (a, b) = (keys(1, 20_000, 0, 3, 1), keys(2, 15_000, 0, 3, 1));
    folder.write([&a[..], &b[..]]);
    let table = folder.0.path().join("table.arrow");
    for batch_rows in [333, 1024, 100_000] {
        write_arrow(&table, &a, batch_rows, false);
        for operation in SetOperation::ALL {
            let mut job = folder.job::<i64>(operation, Repeats::Refused, &PlainFiles);
            job.lists[0] = KeyList::open(&table, None, Some("id"), &PlainFiles).unwrap();
            let told = sets::run(&job, &options(16 << 10)).unwrap();
            let found: Vec<u64> = folder.result::<i64>().iter().map(|key| key.ordered()).collect();
            assert!(
                found == wanted([&a[..], &b], operation),
                "{operation}, batches of {batch_rows}"
            );
            assert_eq!(told.list_keys, [20_000, 15_000]);
        }
    }
    let list = |column| KeyList::open(&table, None, column, &PlainFiles).unwrap_err().to_string();
    assert!(list(Some("nix")).contains("its columns are other, id"));
    assert!(list(Some("other")).contains("is of type Utf8"));
    assert!(list(None).contains("which column"));
    write_arrow(&table, &[1, 2, 3000], 10, true);
    assert!(list(Some("id")).contains("NULLs"));
}

#[test]
fn a_key_out_of_order_is_found_wherever_it_is() {
    let sorted = keys(1, 2000, 0, 3, 1);
    for position in [1, 2, 63, 64, 65, 500, 1023, 1024, 1025, 1998, 1999] {
        let mut keys = sorted.clone();
        keys[position] = keys[position - 1] - 1;
        let told = failure([&sorted[..], &keys], Repeats::Allowed);
        // The key behind may be the one that is told of, if the pieces show it first.
        assert!(told.contains(&format!("at position {position} ")), "{position}: {told}");
        assert!(told.contains("headrace sort") && told.contains("/b: "), "{told}");
        keys[position] = keys[position - 1];
        let told = failure([&keys[..], &sorted], Repeats::Refused);
        assert!(told.contains(&format!("repeated at position {position} ")), "{position}: {told}");
    }
    // Wherever chunks are cut, and tiles of chunks.
    let long = keys(1, 40_000, 0, 3, 1);
    for (list, positions, chunk_bytes) in [(&sorted, 1..300, 512), (&long, 8150..8230, 1 << 20)] {
        for position in positions {
            let mut keys = list.clone();
            keys[position] = keys[position - 1] - 1;
            let folder = Folder::new();
            folder.write([&list[..], &keys]);
            let job = folder.job::<i64>(SetOperation::Union, Repeats::Allowed, &PlainFiles);
            let told = sets::run(&job, &options(chunk_bytes)).unwrap_err().to_string();
            assert!(told.contains(&format!("at position {position} ")), "{position}: {told}");
        }
    }
    // Among copies, too, which are paired off where chunks are cut.
    let copies = vec![7i64; 400];
    for position in 1..400 {
        let mut keys = copies.clone();
        keys[position] = 6;
        let before = [&[1, 2, 3][..], &copies].concat();
        for lists in [[&keys, &copies], [&copies, &keys], [&before, &keys], [&keys, &before]] {
            let told = failure(lists.map(|list| &list[..]), Repeats::Allowed);
            assert!(told.contains(&format!("at position {position} ")), "{position}: {told}");
        }
    }
    let reversed: Vec<i64> = sorted.iter().rev().copied().collect();
    assert!(failure([&reversed[..], &sorted], Repeats::Allowed).contains("follows"));
}

#[test]
fn what_is_wrong_with_an_input_is_told_with_the_remedy() {
    let folder = Folder::new();
    std::fs::write(folder.0.path().join("a"), [1u8; 15]).unwrap();
    let open = |name: &str| KeyList::raw(&folder.0.path().join(name), i64::TYPE, &PlainFiles);
    let told = open("a").unwrap_err().to_string();
    assert!(told.contains("15 bytes are no whole number of keys of 8 bytes"), "{told}");
    assert!(matches!(open("missing"), Err(OocError::Io(_))));
    folder.write([&[1i64, 2][..], &[2, 3]]);
    let mut job = folder.job::<i64>(SetOperation::Union, Repeats::Allowed, &PlainFiles);
    job.lists[1] = KeyList::raw(&folder.0.path().join("b"), u64::TYPE, &PlainFiles).unwrap();
    let told = sets::run(&job, &options(512)).unwrap_err().to_string();
    assert!(told.contains("i64 and u64"), "{told}");
    let small = Options { memory_limit_bytes: Some(1 << 20), ..options(512) };
    let job = folder.job::<i64>(SetOperation::Union, Repeats::Allowed, &PlainFiles);
    let told = sets::run(&job, &Options { chunk_bytes: None, ..small }).unwrap_err().to_string();
    assert!(told.contains("the limit is 1048576 bytes") && told.contains("hint: "), "{told}");
}

/// Files whose reads and writes fail, as planned.
#[derive(Debug)]
struct Faulty {
    reads: FaultPlan,
    writes: FaultPlan,
}

impl Files for Faulty {
    fn open(&self, path: &Path) -> headrace_ooc::Result<Arc<dyn ReadAt>> {
        Ok(FaultyFile::new(SourceFile::open(path)?, self.reads.clone()))
    }

    fn growing(&self, path: &Path) -> headrace_ooc::Result<Arc<dyn WriteAt>> {
        Ok(FaultySink::new(SinkFile::growing(path)?, self.writes.clone()))
    }
}

/// Faults of every stage; whether the operation may still end well.
fn faults() -> Vec<(&'static str, FaultPlan, FaultPlan, bool)> {
    let (read, write) = (FaultPlan::default, FaultPlan::default);
    vec![
        ("short reads", FaultPlan { short_permille: 500, ..read() }, write(), true),
        ("interrupted reads", FaultPlan { interrupted_permille: 300, ..read() }, write(), true),
        ("a lost page", FaultPlan { io_error_at: Some(70_000), ..read() }, write(), false),
        ("a file cut short", FaultPlan { truncated_at: Some(90_000), ..read() }, write(), false),
        ("a file that changes", FaultPlan { changed: true, ..read() }, write(), false),
        ("no O_DIRECT", FaultPlan { direct_refused: true, ..read() }, write(), true),
        ("torn blocks", FaultPlan { torn_blocks_permille: 300, ..read() }, write(), false),
        ("short writes", read(), FaultPlan { short_permille: 500, ..write() }, true),
        ("a bad block", read(), FaultPlan { io_error_at: Some(50_000), ..write() }, false),
        ("a full disk", read(), FaultPlan { full_at: Some(60_000), ..write() }, false),
        ("no O_DIRECT out", read(), FaultPlan { direct_refused: true, ..write() }, true),
        ("a failed commit", read(), FaultPlan { commit_fails: true, ..write() }, false),
    ]
}

#[test]
fn faults_end_in_the_right_result_or_in_an_error_without_output() {
    let folder = Folder::new();
    let (a, b) = (keys(1, 15_000, 0, 3, 1), keys(2, 15_000, 0, 3, 1));
    folder.write([&a[..], &b[..]]);
    let wanted = wanted([&a[..], &b], SetOperation::Union);
    for (name, reads, writes, may_end_well) in faults() {
        let files = Faulty { reads, writes };
        let job = folder.job::<i64>(SetOperation::Union, Repeats::Allowed, &files);
        let options = Options { files: Arc::new(files), ..options(8 << 10) };
        match sets::run(&job, &options) {
            Ok(_) => {
                assert!(may_end_well, "{name} went unnoticed");
                let found: Vec<u64> =
                    folder.result::<i64>().iter().map(|key| key.ordered()).collect();
                assert!(found == wanted, "{name}");
                std::fs::remove_file(folder.0.path().join("out")).unwrap();
            }
            Err(error) => assert!(!may_end_well, "{name}: {error}"),
        }
        assert_eq!(folder.names(), ["a", "b"], "{name}");
    }
}

#[test]
fn a_cancelled_operation_leaves_nothing() {
    let folder = Folder::new();
    folder.write([&keys(1, 15_000, 0, 3, 1)[..], &keys(2, 15_000, 0, 3, 1)]);
    let options = options(1 << 10);
    options.token.cancel();
    let job = folder.job::<i64>(SetOperation::Union, Repeats::Allowed, &PlainFiles);
    assert!(matches!(sets::run(&job, &options), Err(OocError::Cancelled)));
    assert_eq!(folder.names(), ["a", "b"]);
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_compiles_every_operation_on_every_type() {
    let compiler = headrace_gpu::Compiler::load(None).unwrap();
    let shapes = [(Repeats::Allowed, false), (Repeats::Refused, false), (Repeats::Refused, true)];
    for number in sets::KEY_TYPES {
        for operation in SetOperation::ALL {
            // What differs from type to type is the same in all shapes.
            let shapes = if number == i64::TYPE { &shapes[..] } else { &shapes[..1] };
            for &(repeats, counts_only) in shapes {
                let text = sets::device_source(number, operation, repeats, counts_only);
                let source = headrace_gpu::Source { name: "sets.cu", text: &text, headers: &[] };
                compiler.compile(&source, "sm_90", &[]).unwrap();
            }
        }
    }
}

fn on_gpu(chunk_bytes: usize) -> Options {
    Options { processor: Processor::Cuda, chunk_bytes: Some(chunk_bytes), ..Options::default() }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_results_are_what_counts_say() {
    for chunk_keys in [500, 5000, 40_000] {
        for (seed, (a, b)) in
            [(0, 0), (1, 0), (0, 5), (4095, 1), (4096, 4096), (30_000, 50_000), (100_000, 77)]
                .into_iter()
                .enumerate()
        {
            for repeat in [1, 3, 3000] {
                let seed = seed as u64;
                let (a, b) = (keys(seed, a, -500, 3, repeat), keys(seed + 9, b, -700, 4, repeat));
                let repeats = if repeat == 1 { Repeats::Refused } else { Repeats::Allowed };
                check(
                    [&a[..], &b[..]],
                    repeats,
                    &on_gpu(8 * chunk_keys),
                    Some(8 * chunk_keys as u64 / 9),
                );
            }
        }
    }
    let all_equal = vec![7i64; 60_000];
    let more = keys(3, 50_000, -100, 3, 1);
    for lists in [[&all_equal, &all_equal], [&all_equal, &more], [&more, &all_equal]] {
        check(lists.map(|list| &list[..]), Repeats::Allowed, &on_gpu(100_000), None);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_takes_every_type_with_its_extremes() {
    check_extremes(&on_gpu(64 << 10));
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_finds_keys_out_of_order() {
    let sorted = keys(1, 60_000, 0, 3, 1);
    for position in [1, 63, 4095, 4096, 4097, 20_000, 59_999] {
        let mut unsorted = sorted.clone();
        unsorted[position] = unsorted[position - 1] - 1;
        let folder = Folder::new();
        folder.write([&sorted[..], &unsorted]);
        let job = folder.job::<i64>(SetOperation::Union, Repeats::Allowed, &PlainFiles);
        let told = sets::run(&job, &on_gpu(128 << 10)).unwrap_err().to_string();
        assert!(told.contains(&format!("at position {position} ")), "{position}: {told}");
        assert_eq!(folder.names(), ["a", "b"]);
    }
}
