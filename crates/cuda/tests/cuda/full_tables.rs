//! Tables of hashed groups that fill: their groups leave as partial states, and every row counts
//! once.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use headrace_cuda::parts::rehash_source;
use headrace_cuda::{CudaDevice, CudaOptions, CudaProgram, Tuning};
use headrace_flow::CancelToken;
use headrace_ir::Sink;
use headrace_pipeline::bound::Bound;
use headrace_pipeline::cpu::WorkerOptions;
use headrace_spill::{SpillFolder, TemporaryFile};

use crate::corpus::{self, Case};
use crate::data::{Random, Shape, Table};
use crate::differential::{
    assert_same, batches_on_cpu, bound_of, lines, on_cpu, shapes, text_shapes,
};
use crate::gpu::{Stored, stream_and_run_resident, write_file};
use crate::shim::{
    LeftOnShim, build_library, run_on_shim, run_segments, segments, table_of_texts, tuning_of,
};

/// A temporary file whose first write cancels the query.
struct Cancelling(std::fs::File, CancelToken);

impl FileExt for Cancelling {
    fn read_at(&self, into: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.read_at(into, offset)
    }

    fn write_at(&self, from: &[u8], offset: u64) -> std::io::Result<usize> {
        self.1.cancel();
        self.0.write_at(from, offset)
    }
}

/// Memory for a small part of the groups, and a place for the others.
struct Spilling {
    folder: Arc<SpillFolder>,
    options: WorkerOptions,
    home: tempfile::TempDir,
}

fn spilling(memory_bytes: u64) -> Spilling {
    let home = tempfile::tempdir().unwrap();
    let folder = SpillFolder::new(home.path(), u64::MAX, "raise the spill limit");
    let mut options = WorkerOptions::new(memory_bytes);
    options.workers = 4;
    options.spill = Some(Arc::clone(&folder));
    Spilling { folder, options, home }
}

impl Spilling {
    /// The first write to a temporary file cancels.
    fn cancelled(mut self) -> Self {
        let cancel = self.options.cancel.clone();
        let make = move |folder: &Path| -> std::io::Result<Box<dyn TemporaryFile>> {
            Ok(Box::new(Cancelling(tempfile::tempfile_in(folder)?, cancel.clone())))
        };
        self.folder = SpillFolder::of_files(self.home.path(), u64::MAX, "", make);
        self.options.spill = Some(Arc::clone(&self.folder));
        self
    }

    /// Nothing may be left when all is done.
    fn assert_nothing_is_left(&self) {
        assert_eq!((self.folder.used_bytes(), self.options.memory.uses().total_bytes()), (0, 0));
    }
}

/// Rows of so many segments, of which about a million have a key of their own.
const MILLION: [usize; 4] = [800_000, 700_000, 1, 400_000];

fn plain() -> Shape {
    shapes()[1]
}

/// Nearly a million groups by a wide integer, NULL among them.
fn by_wide_integer() -> Case {
    let calls = vec![corpus::count(), corpus::sum(corpus::reg("k"))];
    let sink = corpus::aggregate(vec![("c", corpus::reg("c"))], calls);
    Case { name: "a million groups", steps: vec![], sink }
}

/// Key, number of rows and total of each group, sorted.
fn totals(batches: &[RecordBatch]) -> Vec<(Option<i64>, i64, i64)> {
    let mut totals = Vec::new();
    for batch in batches {
        let [keys, counts, sums] =
            [0, 1, 2].map(|column| batch.column(column).as_primitive::<Int64Type>());
        for row in 0..batch.num_rows() {
            let key = keys.is_valid(row).then(|| keys.value(row));
            totals.push((key, counts.value(row), sums.value(row)));
        }
    }
    totals.sort_unstable();
    totals
}

/// Nine of ten rows have one key.
fn skewed(rows: &[usize]) -> Table {
    let mut table = Table::random(shapes()[0], rows);
    let column = table.fields.iter().position(|field| field.name == "c").unwrap();
    let mut random = Random(9);
    for segment in &mut table.segments {
        for value in segment.columns[column].values.chunks_exact_mut(8) {
            if random.below(10) != 0 {
                value.copy_from_slice(&7i64.to_le_bytes());
            }
        }
    }
    table
}

fn program(bound: &Arc<Bound>, table: &Table, tuning: Tuning) -> CudaProgram {
    CudaProgram::compile(Arc::clone(bound), &table.layout(), tuning).unwrap()
}

/// Texts are part of groups that leave, and are found again by launches that go on.
#[test]
fn host_shim_tables_that_fill_with_texts_answer_as_the_cpu_processor_does() {
    let has_keys =
        |case: &Case| matches!(&case.sink, Sink::Aggregate { keys, .. } if !keys.is_empty());
    let mut all_flushes = 0;
    for (number, case) in corpus::plain_texts().into_iter().filter(has_keys).enumerate() {
        let shape = text_shapes()[number % 2];
        let table = Table::random(shape, &[1000, 130, 7, 1]);
        let bound = bound_of(&case, &table, &corpus::builds()).unwrap();
        let program = program(&bound, &table, tuning_of(shape));
        let options = WorkerOptions::new(1 << 30);
        let (batches, flushes) =
            run_on_shim((&bound, &program), &table, &[], ((1, u64::MAX), &options)).unwrap();
        let answer = Ok(lines(&batches));
        assert_same(case.name, shape, &on_cpu(&bound, &table), &answer, &program.source);
        all_flushes += flushes;
    }
    assert!(all_flushes > 5, "{all_flushes}");
}

/// The room of the texts that groups keep fills before their table does, or cannot be made to do.
#[test]
fn host_shim_texts_that_fill_their_room_answer_as_the_cpu_processor_does() {
    let text = |i: usize, length: usize| format!("{:0>length$}", i * 7919 % 300);
    for (length, flushes_min) in [(500, Some(3)), (9_000, None)] {
        let texts: Vec<String> = (0..1000).map(|i| text(i, length)).collect();
        let table = table_of_texts(&texts);
        let bound = bound_of(&corpus::by_text(), &table, &[]).unwrap();
        let program = program(&bound, &table, Tuning::FULL);
        let options = WorkerOptions::new(1 << 30);
        let setting = ((u64::MAX, 64 << 10), &options);
        let outcome = run_on_shim((&bound, &program), &table, &[], setting);
        let Some(flushes_min) = flushes_min else {
            assert!(outcome.is_err_and(|why| why.contains("take more device memory")));
            continue;
        };
        let (batches, flushes) = outcome.unwrap();
        let answer = Ok(lines(&batches));
        assert_same("by text", table.shape, &on_cpu(&bound, &table), &answer, &program.source);
        assert!(flushes >= flushes_min && batches[0].num_rows() == 300, "{flushes}");
    }
}

#[test]
fn host_shim_tables_of_two_tiles_answer_as_the_cpu_processor_does() {
    let builds = corpus::builds();
    for shape in shapes() {
        let table = Table::random(shape, &[1000, 130, 7, 1]);
        for case in corpus::hashed_groups() {
            let bound = bound_of(&case, &table, &builds).unwrap();
            let program = program(&bound, &table, tuning_of(shape));
            let options = WorkerOptions::new(1 << 30);
            let (batches, flushes) =
                run_on_shim((&bound, &program), &table, &[], ((1, u64::MAX), &options)).unwrap();
            let answer = Ok(lines(&batches));
            assert_same(case.name, shape, &on_cpu(&bound, &table), &answer, &program.source);
            let has_groups = case.name != "hashed by nothing that is left";
            assert_eq!(flushes > 5, has_groups, "{}: {flushes}", case.name);
        }
    }
}

/// Tables that begin with two tiles and become larger as often as they are full.
#[test]
fn host_shim_tables_that_grow_answer_as_the_cpu_processor_does() {
    let folder = tempfile::tempdir().unwrap();
    let rehash = build_library(folder.path(), rehash_source().text, "headrace_rehash");
    let builds = corpus::builds();
    let options = WorkerOptions::new(1 << 30);
    let grown = |bound: &Arc<Bound>, table: &Table, program: &CudaProgram, first, max| {
        let mut memory = Vec::new();
        let segments = segments(table, &[], &mut memory);
        let room = ((first, &options), Some((&*rehash, max)));
        let mut left = 0;
        let mut take = |groups: &LeftOnShim| left = groups.rows;
        let (batches, flushes, _) =
            run_segments((bound, program), &segments, room, &mut take).unwrap();
        (Ok(lines(&batches)), flushes, left)
    };
    let all = (u64::MAX, u64::MAX);
    for shape in [shapes()[1], shapes()[2], text_shapes()[0]] {
        let table = Table::random(shape, &[1000, 130, 7, 1]);
        let cases = match shape.plain_texts {
            true => corpus::plain_texts(),
            false => corpus::hashed_groups(),
        };
        for case in cases {
            let bound = bound_of(&case, &table, &builds).unwrap();
            let program = program(&bound, &table, tuning_of(shape));
            if program.group_table.is_none() {
                continue;
            }
            let (answer, flushes, left) = grown(&bound, &table, &program, (1, u64::MAX), all);
            let cpu = on_cpu(&bound, &table);
            assert_same(case.name, shape, &cpu, &answer, &program.source);
            assert_eq!((flushes, left), (0, cpu.unwrap().len() as u64), "{}", case.name);
            // One that may not grow enough is emptied.
            let few = (200, u64::MAX);
            let (answer, flushes, left) = grown(&bound, &table, &program, (1, u64::MAX), few);
            assert_same(case.name, shape, &on_cpu(&bound, &table), &answer, &program.source);
            assert!(flushes == 0 || left == 0, "{}: {flushes} {left}", case.name);
        }
    }
}

/// Joins whose rows multiply, to buffers of two tiles.
#[test]
fn host_shim_rows_that_fill_their_buffers_answer_as_the_cpu_processor_does() {
    let builds = corpus::builds();
    let hands_on = |case: &Case| !matches!(case.sink, Sink::Aggregate { .. });
    let mut all_left = 0;
    for shape in shapes() {
        let table = Table::random(shape, &[1000, 130, 7, 1]);
        for case in corpus::several_matches().into_iter().filter(hands_on) {
            let bound = bound_of(&case, &table, &builds).unwrap();
            let program = program(&bound, &table, tuning_of(shape));
            let options = WorkerOptions::new(1 << 30);
            let (batches, left) =
                run_on_shim((&bound, &program), &table, &[], ((1, u64::MAX), &options)).unwrap();
            let answer = Ok(lines(&batches));
            assert_same(case.name, shape, &on_cpu(&bound, &table), &answer, &program.source);
            assert!(left == 0 || program.matches_max > 1, "{}: {left}", case.name);
            all_left += left;
        }
    }
    assert!(all_left > 100, "{all_left}");
}

#[test]
fn host_shim_a_million_groups_go_through_a_table_of_a_thousand_and_to_disk() {
    for table in [Table::random(plain(), &MILLION), skewed(&MILLION)] {
        let bound = bound_of(&by_wide_integer(), &table, &[]).unwrap();
        let program = program(&bound, &table, Tuning::FULL);
        let spilling = spilling(16 << 20);
        let setting = ((1000, u64::MAX), &spilling.options);
        let (batches, flushes) = run_on_shim((&bound, &program), &table, &[], setting).unwrap();
        let (found, expected) =
            (totals(&batches), totals(&batches_on_cpu(&bound, &table).unwrap()));
        assert!(found == expected, "{} groups of {}", found.len(), expected.len());
        assert!(flushes > found.len() as u64 / 1000, "{flushes} for {}", found.len());
        assert!(found.len() < 300_000 || found.len() > 1_000_000, "{}", found.len());
        let spilled = &spilling.options.spilled;
        assert!(found.len() < 1_000_000 || spilled.spilled_bytes() > 1_000_000, "{spilled:?}");
        spilling.assert_nothing_is_left();
    }
}

/// Portions that are divided at once, others that are not, and what was finished by nobody else.
#[test]
fn host_shim_large_portions_are_divided_among_the_partitions() {
    let table = Table::random(plain(), &[60_000, 50_000]);
    let bound = bound_of(&by_wide_integer(), &table, &[]).unwrap();
    let program = program(&bound, &table, Tuning::FULL);
    let expected = totals(&batches_on_cpu(&bound, &table).unwrap());
    for (workers, groups_max) in [(1, 3000), (4, 30_000), (4, u64::MAX)] {
        let mut spilling = spilling(1 << 30);
        // Of few partitions.
        spilling.options.groups_max = 2000;
        spilling.options.workers = workers;
        let setting = ((groups_max, u64::MAX), &spilling.options);
        let (batches, flushes) = run_on_shim((&bound, &program), &table, &[], setting).unwrap();
        assert!(totals(&batches) == expected, "{groups_max}");
        assert_eq!(flushes > 0, groups_max < u64::MAX);
        spilling.assert_nothing_is_left();
    }
}

/// Devices that think they have memory for few groups.
fn small_tables(count: usize) -> Vec<Arc<CudaDevice>> {
    let options =
        CudaOptions { memory_bytes: Some(4 << 30), groups_max: 1000, ..CudaOptions::default() };
    (0..count).map(|_| CudaDevice::open(0, options).unwrap()).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_tables_that_fill_answer_as_the_cpu_processor_does() {
    stream_and_run_resident(&small_tables(1), corpus::hashed_groups());
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_tables_that_fill_on_two_devices_of_one_gpu() {
    stream_and_run_resident(&small_tables(2), corpus::hashed_groups());
}

#[test]
#[ignore = "needs two GPUs"]
fn two_gpus_whose_tables_fill_answer_as_the_cpu_processor_does() {
    let options = CudaOptions { groups_max: 1000, ..CudaOptions::default() };
    let devices = [0, 1].map(|ordinal| CudaDevice::open(ordinal, options).unwrap());
    stream_and_run_resident(&devices, corpus::hashed_groups());
    a_million_groups(&devices);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_million_groups_go_through_a_small_table_and_to_disk() {
    a_million_groups(&small_tables(1));
    a_million_groups(&small_tables(2));
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_small_table_becomes_large_enough_for_a_million_groups() {
    let options =
        CudaOptions { memory_bytes: Some(4 << 30), groups_first: 1000, ..CudaOptions::default() };
    a_million_groups_in(&[CudaDevice::open(0, options).unwrap()], true);
}

fn a_million_groups(devices: &[Arc<CudaDevice>]) {
    a_million_groups_in(devices, false);
}

/// Streamed and resident, with memory for all groups and for few. Whether the table grows: it is never emptied then.
fn a_million_groups_in(devices: &[Arc<CudaDevice>], grows: bool) {
    for (name, table) in
        [("different", Table::random(plain(), &MILLION)), ("skewed", skewed(&MILLION))]
    {
        let bound = bound_of(&by_wide_integer(), &table, &[]).unwrap();
        let expected = totals(&batches_on_cpu(&bound, &table).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let sources = write_file(&table, &format!("{name} {}", devices.len()), &path);
        let stored = Stored { devices, bound: &bound, sources: &sources, left: &[] };
        for memory_bytes in [1 << 30, 16 << 20] {
            let check = |spilling: Spilling, found: Vec<RecordBatch>, way: &str| {
                let found = totals(&found);
                assert!(found == expected, "{name} {way}: {} groups", found.len());
                let spilled = &spilling.options.spilled;
                println!("{name}, {way}, {memory_bytes} bytes: {spilled:?}");
                match grows {
                    true => assert_eq!(spilled.flushes(), 0, "{name} {way}: {spilled:?}"),
                    false => assert!(spilled.flushes() > 2, "{name} {way}: {spilled:?}"),
                }
                let must_spill = memory_bytes < 1 << 30 && name == "different" && !grows;
                assert!(!must_spill || spilled.spilled_bytes() > 1_000_000, "{spilled:?}");
                spilling.assert_nothing_is_left();
            };
            let fed = spilling(memory_bytes);
            let found = stored.stream_fed(&fed.options).unwrap();
            check(fed, found, "fed");
            devices.iter().for_each(|device| device.resident().clear());
            let streamed = spilling(memory_bytes);
            let found = stored.stream_with(&streamed.options).unwrap();
            check(streamed, found, "streamed");
            let mut runs = stored.made_resident(name, || panic!("a column did not stay"));
            for _ in 0..2 {
                let resident = spilling(memory_bytes);
                let found = stored.resident_with(&mut runs, &resident.options).unwrap();
                check(resident, found, "resident");
            }
            devices.iter().for_each(|device| device.resident().clear());
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_query_that_is_cancelled_while_its_table_is_emptied_ends_and_leaves_nothing() {
    let table = Table::random(plain(), &MILLION);
    let bound = bound_of(&by_wide_integer(), &table, &[]).unwrap();
    let expected = totals(&batches_on_cpu(&bound, &table).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    let sources = write_file(&table, "cancelled", &path);
    let devices = small_tables(1);
    let stored = Stored { devices: &devices, bound: &bound, sources: &sources, left: &[] };
    let cancelled = spilling(16 << 20).cancelled();
    let error = stored.stream_with(&cancelled.options).unwrap_err();
    assert!(error.contains("cancelled"), "{error}");
    cancelled.assert_nothing_is_left();
    // The same device answers afterwards, streamed and then resident, which is cancelled too.
    let found = stored.stream_with(&spilling(1 << 30).options).unwrap();
    assert!(totals(&found) == expected);
    let mut runs = stored.made_resident("cancelled", || panic!("a column did not stay"));
    let cancelled = spilling(16 << 20).cancelled();
    let error = stored.resident_with(&mut runs, &cancelled.options).unwrap_err();
    assert!(error.contains("cancelled"), "{error}");
    cancelled.assert_nothing_is_left();
    let found = stored.resident_with(&mut runs, &spilling(1 << 30).options).unwrap();
    assert!(totals(&found) == expected);
}
