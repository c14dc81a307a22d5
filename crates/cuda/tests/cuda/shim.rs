//! Generated kernels compiled by the host's C++ compiler, one thread a block: the logic of the
//! generated code, races of blocks among it, is tested where there is no GPU. (Those within a warp
//! and the memory of a GPU are not.)

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use headrace_columns::repr::Repr;
use headrace_cuda::parts::{
    BuildPiece, ColumnForm, DeviceAccumulator, DeviceColumn, DeviceGroups, DeviceSegment,
    Downloaded, GroupAddresses, GroupRoom, HEADERS, HashedKeys, KERNEL_NAME, Param, RowRoom,
    TEXT_VALUE_BYTES, accumulator_state, base_of, hash_table_source, piece_bytes, rehash_params,
    text_lengths,
};
use headrace_cuda::{CudaProgram, RowOutput, StepsLeft, Tuning};
use headrace_ir::{DataType, Field};
use headrace_pipeline::bound::{Bound, BoundSink, BoundStep, Grouping};
use headrace_pipeline::build::{BuildIndex, BuildTable, Chains};
use headrace_pipeline::cpu::WorkerOptions;
use headrace_pipeline::state::{DenseState, finish_dense};

use crate::corpus;
use crate::data::{Shape, Table};
use crate::differential::{
    Answer, assert_left, assert_same, bound_of, failed_of, left_on_cpu, lines, on_cpu, shapes,
    text_shapes,
};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlclose(library: *mut c_void) -> c_int;
}
const RTLD_NOW: c_int = 2;

/// Calls the kernel KERNEL, a thread a block.
const ENTRY: &str = r#"
#include <pthread.h>
struct Block { const Params* params; unsigned number; pthread_t thread; };
static void* run_block(void* of)
{
    alignas(16) u8 shared[1 << 18];
    hr_shared_memory = shared;
    blockIdx.x = static_cast<Block*>(of)->number;
    KERNEL(*static_cast<Block*>(of)->params);
    return nullptr;
}
extern "C" int headrace_run(const Params* p, unsigned blocks)
{
    gridDim.x = blocks;
    Block all[16];
    unsigned begun = 0;
    for (; begun < blocks && begun < 16; ++begun) {
        all[begun].params = p;
        all[begun].number = begun;
        if (pthread_create(&all[begun].thread, nullptr, run_block, all + begun) != 0) break;
    }
    for (unsigned block = 0; block < begun; ++block) pthread_join(all[block].thread, nullptr);
    return begun == blocks;
}
"#;

pub fn build_library(folder: &Path, kernel_source: &str, kernel: &str) -> PathBuf {
    let headers = folder.join("headrace");
    std::fs::create_dir_all(&headers).unwrap();
    for (name, text) in HEADERS {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let shim = include_str!("../../kernels/host_shim.h");
    std::fs::write(headers.join("host_shim.h"), shim).unwrap();
    let source = folder.join("pipeline.cpp");
    let entry = ENTRY.replace("KERNEL", kernel);
    std::fs::write(&source, format!("{kernel_source}{entry}")).unwrap();
    let library = folder.join("pipeline.so");
    // A sanitizer's, whose library the test must be started with.
    let flags = std::env::var("HEADRACE_SHIM_FLAGS").unwrap_or_default();
    let output = Command::new("g++")
        .args(flags.split_whitespace())
        .args(["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-pthread", "-ffp-contract=off"])
        .args(["-DHEADRACE_HOST_SHIM", "-DBLOCK_THREADS=1", "-I"])
        .arg(folder)
        .arg(&source)
        .arg("-o")
        .arg(&library)
        .output()
        .expect("g++ runs");
    assert!(
        output.status.success(),
        "{}\n{kernel_source}",
        String::from_utf8_lossy(&output.stderr),
    );
    library
}

/// 16-byte aligned bytes.
pub struct Memory {
    words: Vec<u128>,
}

impl Memory {
    pub fn of(bytes: &[u8]) -> Self {
        let mut memory = Self::zeroed(bytes.len() + 15);
        memory.fill(bytes);
        memory
    }
    /// Writes over what is there, where it is.
    pub fn fill(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.words.len() * 16);
        for (word, chunk) in self.words.iter_mut().zip(bytes.chunks(16)) {
            let mut filled = [0; 16];
            filled[..chunk.len()].copy_from_slice(chunk);
            *word = u128::from_le_bytes(filled);
        }
    }
    /// Writes over its start, and leaves the rest.
    pub fn fill_start(&mut self, bytes: &[u8]) {
        let mut all = self.bytes(bytes.len().next_multiple_of(16).min(self.words.len() * 16));
        all[..bytes.len()].copy_from_slice(bytes);
        self.fill(&all);
    }
    pub fn zeroed(bytes: usize) -> Self {
        Self { words: vec![0; bytes / 16 + 1] }
    }
    pub fn address(&mut self) -> u64 {
        self.words.as_mut_ptr() as u64
    }
    pub fn bytes(&self, count: usize) -> Vec<u8> {
        self.words.iter().flat_map(|w| w.to_le_bytes()).take(count).collect()
    }
}

/// Blocks of a launch, and tiles that each takes in a row.
const BLOCKS: u64 = 3;
const RUN_TILES: u64 = 5;

/// What the generated code answers.
pub fn on_shim(bound: &Arc<Bound>, table: &Table, program: &CudaProgram) -> Answer {
    on_shim_narrow(bound, table, program, &[])
}

/// A column of a segment as narrow differences.
pub struct NarrowColumn {
    pub bytes: Vec<u8>,
    pub form: ColumnForm,
    pub base: i64,
}

/// As above, where some columns, by segment, are narrow.
pub fn on_shim_narrow(
    bound: &Arc<Bound>,
    table: &Table,
    program: &CudaProgram,
    narrow: &[Vec<Option<NarrowColumn>>],
) -> Answer {
    let options = WorkerOptions::new(1 << 30);
    let all = (u64::MAX, u64::MAX);
    run_on_shim((bound, program), table, narrow, (all, &options)).map(|(b, _)| lines(&b))
}

/// What texts of the host's memory point to.
pub fn texts_of(values: &[u8]) -> Vec<&[u8]> {
    let addresses = values
        .chunks_exact(TEXT_VALUE_BYTES)
        .map(|value| u64::from_le_bytes(value[..8].try_into().unwrap()) as *const u8);
    let text = |(address, length)| match length {
        0 => &[][..],
        // SAFETY: the kernel made it of a text of the table, of a constant or of the room of its groups, which are
        // still there.
        _ => unsafe { std::slice::from_raw_parts(address, length) },
    };
    addresses.zip(text_lengths(values)).map(text).collect()
}

/// Batches, and how often the table of hashed groups or the buffers of output rows were full, which have room
/// for so many groups or rows, and for bytes of groups.
pub fn run_on_shim(
    (bound, program): (&Arc<Bound>, &CudaProgram),
    table: &Table,
    narrow: &[Vec<Option<NarrowColumn>>],
    room: ((u64, u64), &WorkerOptions),
) -> Result<(Vec<RecordBatch>, u64), String> {
    let mut memory: Vec<Memory> = Vec::new();
    let segments = segments(table, narrow, &mut memory);
    let (batches, flushes, left) =
        run_segments((bound, program), &segments, (room, None), &mut |_| {})?;
    assert_left("on the shim", bound, &left_on_cpu(bound, table), &left);
    Ok((batches, flushes))
}

/// Where a run left all of its groups.
pub struct LeftOnShim {
    pub groups: GroupAddresses,
    pub rows: u64,
}

/// The segments of a table in memory.
pub fn segments(
    table: &Table,
    narrow: &[Vec<Option<NarrowColumn>>],
    memory: &mut Vec<Memory>,
) -> Vec<DeviceSegment> {
    let mut keep = |mut m: Memory| {
        let address = m.address();
        memory.push(m);
        address
    };
    let skew = table.shape.skew as u64;
    let mut segments = Vec::new();
    for (index, segment) in table.segments.iter().enumerate() {
        let mut columns = Vec::new();
        for (register, column) in segment.columns.iter().enumerate() {
            let narrow = narrow.get(index).and_then(|columns| columns[register].as_ref());
            let texts = column.texts(table.shape, index % 2 == 1, |bytes| keep(Memory::of(bytes)));
            columns.push(DeviceColumn {
                values: match (narrow, texts) {
                    (Some(narrow), _) => keep(Memory::of(&narrow.bytes)),
                    (None, Some((values, _))) => values,
                    (None, None) => keep(Memory::of(&column.values)) + skew,
                },
                bytes: texts.and_then(|(_, bytes)| bytes),
                form: narrow.map_or(ColumnForm::of(&column.encoding), |narrow| narrow.form),
                base: narrow.map_or_else(
                    || base_of(&column.encoding, column.offsets_base.into()),
                    |narrow| narrow.base,
                ),
                validity: column.validity.as_ref().map(|v| keep(Memory::of(v)) + skew),
                remap: column.remap,
            });
        }
        segments.push(DeviceSegment { rows: segment.rows as u32, columns });
    }
    segments
}

/// The table of hashed groups in memory.
struct GroupMemory {
    room: GroupRoom,
    slots: Memory,
    keys: Memory,
    texts: Memory,
    accumulators: Vec<Memory>,
}

/// The hash table of a build, as the kernel for it makes it, where its keys and texts begin, and whether keys were none.
fn hash_table(build: &BuildTable, chains: &Chains) -> (Memory, [u64; 2], bool) {
    static LIBRARY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, library) = LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = hash_table_source().text;
        let library = build_library(folder.path(), source, "headrace_hash_table");
        (folder, library)
    });
    let hashed = HashedKeys::of(build, chains).unwrap();
    let texts_at = hashed.layout.texts_at();
    let mut first = vec![0xff; texts_at as usize];
    first.extend(hashed.texts().unwrap_or_default());
    assert_eq!(first.len() as u64, hashed.table_bytes());
    let mut table = Memory::of(&first);
    let mut memory = hashed.scratch().map(|scratch| match (&scratch.from, scratch.bytes) {
        (_, 0) => None,
        (Some(from), _) => Some(Memory::of(from)),
        (None, bytes) => Some(Memory::of(&vec![0xee; bytes])),
    });
    let addresses = memory.each_mut().map(|memory| memory.as_mut().map_or(0, Memory::address));
    for (params, _) in hashed.launches(table.address(), addresses) {
        run(library, &params, 3);
    }
    let is_broken = matches!(&memory, [.., Some(broken)] if broken.bytes(4) != [0; 4]);
    (table, [hashed.layout.keys_at(), texts_at], is_broken)
}

impl GroupMemory {
    /// An empty one; of dense groups, where a program has none.
    fn new(program: &CudaProgram, room: Option<GroupRoom>) -> Self {
        let none = GroupRoom::default();
        let entries = room.map_or(program.groups, |room| room.capacity);
        let room = room.unwrap_or(none);
        let words = program.group_table.as_ref().map_or(1, |table| table.keys.words);
        let accumulators =
            program.accumulators.iter().map(|a| Memory::of(&first_entries(*a, entries)));
        Self {
            room,
            slots: Memory::of(&vec![0xff; room.slots() as usize * 4]),
            keys: Memory::zeroed(entries as usize * words * 8),
            texts: Memory::zeroed(room.texts_bytes as usize),
            accumulators: accumulators.collect(),
        }
    }

    /// Without a group.
    fn clear(&mut self, program: &CudaProgram) {
        self.slots.fill(&vec![0xff; self.room.slots() as usize * 4]);
        for (kind, memory) in program.accumulators.iter().zip(&mut self.accumulators) {
            memory.fill(&first_entries(*kind, self.room.capacity));
        }
    }

    /// One with more room that has these groups, as a device makes it; `None`: there is no more room.
    fn larger(
        &self,
        (program, rehash): (&CudaProgram, &Path),
        (max, tile_groups): ((u64, u64), u64),
        (used, texts_used): (u32, u64),
    ) -> Option<Self> {
        let layout = program.group_table.as_ref()?;
        let room = layout.larger(&self.room, used, max, tile_groups)?;
        let (mut larger, used) = (Self::new(program, Some(room)), self.room.groups(used) as u64);
        larger.keys.fill_start(&self.keys.bytes(used as usize * layout.keys.words * 8));
        larger.texts.fill_start(&self.texts.bytes(texts_used as usize));
        let to = larger.accumulators.iter_mut();
        for ((to, from), kind) in to.zip(&self.accumulators).zip(&program.accumulators) {
            to.fill_start(&from.bytes((used * kind.bytes()) as usize));
        }
        let slots = (larger.slots.address(), larger.room.slots() - 1);
        let keys = (larger.keys.address(), used);
        run(rehash, &rehash_params(slots, keys, (layout.keys.words, layout.keys.texts)), 3);
        Some(larger)
    }

    /// Where all of it lies.
    fn params(&mut self, program: &CudaProgram, params: &mut [u64]) {
        for (param, word) in program.params.iter().zip(params) {
            *word = match *param {
                Param::Accumulator(i) => self.accumulators[i].address(),
                Param::GroupSlots => self.slots.address(),
                Param::GroupSlotMask => self.room.slots() - 1,
                Param::GroupKeys => self.keys.address(),
                Param::GroupCapacity => self.room.capacity,
                Param::GroupTexts => self.texts.address(),
                Param::GroupTextsCapacity => self.room.texts_bytes,
                _ => continue,
            };
        }
    }
}

fn first_entries(kind: DeviceAccumulator, entries: u64) -> Vec<u8> {
    let entry: Vec<u8> = kind.initial_words().iter().flat_map(|w| w.to_le_bytes()).collect();
    entry.repeat((kind.bytes() * entries / 8) as usize)
}

/// How much room there is at first, with how the host takes groups; and how a full table grows, to how much
/// room, if it does.
pub type Room<'a> = (((u64, u64), &'a WorkerOptions), Option<(&'a Path, (u64, u64))>);

/// As [`run_on_shim`] over segments; `take` is shown the groups that were never handed over.
pub fn run_segments(
    (bound, program): (&Arc<Bound>, &CudaProgram),
    segments: &[DeviceSegment],
    ((table_max, options), growth): Room<'_>,
    take: &mut dyn FnMut(&LeftOnShim),
) -> Result<(Vec<RecordBatch>, u64, StepsLeft), String> {
    let folder = tempfile::tempdir().unwrap();
    let library = build_library(folder.path(), &program.source, KERNEL_NAME);
    let mut memory: Vec<Memory> = Vec::new();
    let mut keep = |mut m: Memory| {
        let address = m.address();
        memory.push(m);
        address
    };
    let remaps: Vec<(u64, u64)> = bound
        .remaps
        .iter()
        .map(|codes| {
            let bytes: Vec<u8> = codes.iter().flat_map(|c| c.to_le_bytes()).collect();
            (keep(Memory::of(&bytes)), codes.len() as u64)
        })
        .collect();
    let (words, tiles) =
        program.describe(segments, u64::from(program.tuning.rows_per_thread), &remaps).unwrap();
    let word_bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let descriptors = keep(Memory::of(&word_bytes));
    let rows: u64 = segments.iter().map(|s| u64::from(s.rows)).sum();

    let mut status_memory = Memory::zeroed(16);
    let table_room = program.group_table.as_ref().map(|layout| {
        let tile_groups = u64::from(program.tuning.rows_per_thread) * program.matches_max;
        let room = layout.room(table_max, tile_groups);
        (room, room.shape((BLOCKS, RUN_TILES), tile_groups).unwrap())
    });
    let mut table = GroupMemory::new(program, table_room.map(|(room, _)| room));
    let tile_rows = u64::from(program.tuning.rows_per_thread);
    let rows = if program.outputs.is_empty() { 0 } else { rows };
    let row_room = RowRoom::of(rows, program.matches_max, tile_rows, table_max.0);
    let output_rows = row_room.capacity;
    let mut values: Vec<Memory> = program
        .outputs
        .iter()
        .map(|o| Memory::zeroed((output_rows * u64::from(o.value_bytes)) as usize))
        .collect();
    let mut validity: Vec<Memory> =
        program.outputs.iter().map(|_| Memory::zeroed(output_rows as usize)).collect();
    let mut group_count = Memory::zeroed(16);
    let shape = match table_room {
        Some((_, shape)) => shape,
        None => row_room.shape((BLOCKS, RUN_TILES)).unwrap(),
    };
    let mut rows_left = Memory::zeroed(bound.steps.len() * 8);
    let mut runs_left = Memory::zeroed(shape.blocks_max as usize * 4);
    let mut hash_tables: HashMap<usize, (u64, [u64; 2])> = HashMap::new();
    let mut params: Vec<u64> = program
        .params
        .iter()
        .map(|param| match *param {
            Param::Segments => descriptors,
            Param::Tiles | Param::FirstTile | Param::LastWanted => 0,
            Param::Error => status_memory.address(),
            Param::FirstPlace => 0,
            Param::RunTiles => shape.run_tiles,
            Param::Constant(i) => program.constants[i],
            Param::RowsLeft(step) => rows_left.address() + 8 * step as u64,
            Param::RowsUsed => status_memory.address() + 8,
            Param::RowsCapacity => output_rows,
            Param::RowLimit => shape.limit.unwrap_or(u64::MAX),
            Param::Build { step, piece } => {
                let BoundStep::Probe(probe) = &bound.steps[step] else { panic!("no probe") };
                match (piece, &probe.build.index) {
                    (
                        BuildPiece::HashRows | BuildPiece::HashKeys | BuildPiece::HashTexts,
                        BuildIndex::Chains(chains),
                    ) => {
                        let (table, [keys_at, texts_at]) =
                            hash_tables.entry(step).or_insert_with(|| {
                                let (table, places, is_broken) = hash_table(&probe.build, chains);
                                assert!(!is_broken, "keys of {}", probe.build.name);
                                (keep(table), places)
                            });
                        *table
                            + match piece {
                                BuildPiece::HashKeys => *keys_at,
                                BuildPiece::HashTexts => *texts_at,
                                _ => 0,
                            }
                    }
                    _ => {
                        let mut bytes = piece_bytes(&probe.build, piece).unwrap().concat();
                        bytes.resize(bytes.len().next_multiple_of(16).max(16), 0);
                        keep(Memory::of(&bytes))
                    }
                }
            }
            Param::Table(i) => keep(Memory::of(&program.tables[i])),
            Param::GroupsUsed => group_count.address(),
            Param::GroupTextsUsed => group_count.address() + 8,
            // `GroupMemory` tells.
            Param::Accumulator(_)
            | Param::GroupSlots
            | Param::GroupSlotMask
            | Param::GroupKeys
            | Param::GroupCapacity
            | Param::GroupTexts
            | Param::GroupTextsCapacity => 0,
            Param::GroupLimit => shape.limit.unwrap_or(u64::from(u32::MAX)),
            Param::RunsLeft => 0,
            Param::RunsLeave => runs_left.address(),
            Param::RowsValues(i) => values[i].address(),
            Param::RowsValidity(i) => validity[i].address(),
        })
        .collect();

    table.params(program, &mut params);
    let mut limit = shape.limit;
    let batches = Mutex::new(Vec::new());
    let emit = |batch| {
        batches.lock().unwrap().push(batch);
        true
    };
    let output = RowOutput::new(bound, options, &emit).unwrap();
    let mut flushes = 0;
    // Rows in an order come in several launches, each of which knows what the ones before left.
    let is_sorted = program.params.contains(&Param::LastWanted);
    let ends = if is_sorted { vec![1, 3, tiles] } else { vec![tiles] };
    let mut ends = ends.into_iter().filter(|end| *end <= tiles);
    let mut first_tile = 0;
    let begin = |params: &mut [u64], first_tile: u64, end: u64, output: &RowOutput<'_>| {
        for (word, param) in params.iter_mut().zip(&program.params) {
            match param {
                Param::FirstTile => *word = first_tile,
                Param::Tiles => *word = end,
                Param::LastWanted => *word = output.last_wanted() as u64,
                Param::RunsLeft => *word = 0,
                _ => {}
            }
        }
    };
    let mut end = ends.next().unwrap_or(tiles);
    begin(&mut params, first_tile, end, &output);
    loop {
        run(&library, &params, shape.blocks_max);
        let status = status_memory.bytes(16);
        let error = u32::from_le_bytes(status[..4].try_into().unwrap());
        if let Some(error) = program.error_of(error) {
            return Err(error.to_string());
        }
        let at = program.params.iter().position(|param| *param == Param::RunsLeft);
        let (Some(layout), Some((first_room, _))) = (&program.group_table, table_room) else {
            if let BoundSink::Rows { columns, .. } | BoundSink::Sorted { columns, .. } = &bound.sink
            {
                let used = u64::from_le_bytes(status[8..].try_into().unwrap());
                assert!(used <= output_rows, "{used} rows where {output_rows} fit");
                take_rows(&output, program, columns.len(), (&values, &validity), used as usize)?;
                if shape.limit.is_some_and(|limit| used > limit) {
                    flushes += 1;
                    assert!(flushes <= tiles, "a launch that went on did nothing");
                    status_memory.fill(&[0; 16]);
                    params[at.unwrap()] = runs_left.address();
                    continue;
                }
                if let Some(next) = ends.next() {
                    (first_tile, end) = (end, next);
                    status_memory.fill(&[0; 16]);
                    begin(&mut params, first_tile, end, &output);
                    continue;
                }
            }
            break;
        };
        let counts = group_count.bytes(16);
        let used = u32::from_le_bytes(counts[..4].try_into().unwrap());
        let texts_used = u64::from_le_bytes(counts[8..].try_into().unwrap());
        let count = table.room.groups(used);
        let left: Vec<Vec<u8>> = program
            .accumulators
            .iter()
            .zip(&table.accumulators)
            .map(|(a, memory)| memory.bytes(a.bytes() as usize * count))
            .collect();
        let kinds = program.accumulators.iter().copied();
        let keys = table.keys.bytes(count * layout.keys.words * 8);
        let entries_of = kinds.zip(left.iter().map(Vec::as_slice));
        let is_full = limit.is_some_and(|limit| u64::from(used) > limit);
        if !is_full && flushes == 0 {
            let accumulators: Vec<u64> =
                table.accumulators.iter_mut().map(Memory::address).collect();
            let (keys, texts) = (table.keys.address(), table.texts.address());
            let groups = GroupAddresses { keys, texts, accumulators };
            take(&LeftOnShim { groups, rows: count as u64 });
        }
        if let (true, Some((rehash, max))) = (is_full, growth) {
            let tile_groups = u64::from(program.tuning.rows_per_thread) * program.matches_max;
            let held = (used, texts_used);
            if let Some(larger) = table.larger((program, rehash), (max, tile_groups), held) {
                table = larger;
                table.params(program, &mut params);
                let first = (shape.blocks_max, shape.run_tiles);
                let again = table.room.shape(first, tile_groups).unwrap();
                assert_eq!((again.blocks_max, again.run_tiles), first);
                limit = again.limit;
                let at_limit = program.params.iter().position(|p| *p == Param::GroupLimit);
                params[at_limit.unwrap()] = limit.unwrap_or(u64::from(u32::MAX));
                params[at.unwrap()] = runs_left.address();
                let words = [(count as u64).to_le_bytes(), texts_used.to_le_bytes()];
                group_count.fill(words.as_flattened());
                let (now, first) = (table.room, first_room);
                assert!(now.capacity > first.capacity || now.texts_bytes > first.texts_bytes);
                continue;
            }
        }
        let kept = (table.texts.address(), texts_used);
        let values = layout.kept_texts(&keys, entries_of.clone(), kept).unwrap();
        let texts: Vec<Vec<&[u8]>> = values.iter().map(|values| texts_of(values)).collect();
        let texts = texts.iter().map(Vec::as_slice).collect();
        let groups = DeviceGroups::new(layout, &keys, entries_of, texts).unwrap();
        output.take_groups(&groups, !is_full).map_err(|e| e.to_string())?;
        if !is_full {
            break;
        }
        flushes += 1;
        assert!(flushes <= tiles, "a launch that went on did nothing");
        group_count.fill(&[0; 16]);
        table.clear(program);
        params[at.unwrap()] = runs_left.address();
    }
    let left = rows_left.bytes(bound.steps.len() * 8);
    let rows = |at: usize| u64::from_le_bytes(left[8 * at..][..8].try_into().unwrap());
    let left = StepsLeft::new(program, rows);
    if let BoundSink::Aggregate { grouping: Grouping::Dense { .. }, .. } = &bound.sink {
        let states = program
            .accumulators
            .iter()
            .zip(&table.accumulators)
            .map(|(a, m)| accumulator_state(*a, &m.bytes((a.bytes() * program.groups) as usize)))
            .collect();
        let batch = finish_dense(bound, &DenseState { accumulators: states });
        return batch.map(|batch| (vec![batch], flushes, left)).map_err(|e| e.to_string());
    }
    output.finish().map_err(|e| e.to_string())?;
    Ok((batches.into_inner().unwrap(), flushes, left))
}

/// Hands on the rows that a launch left.
fn take_rows(
    output: &RowOutput<'_>,
    program: &CudaProgram,
    columns: usize,
    (values, validity): (&[Memory], &[Memory]),
    used: usize,
) -> Result<(), String> {
    let sizes = program.outputs.iter().map(|o| used * o.value_bytes as usize);
    let values: Vec<Vec<u8>> =
        values.iter().zip(sizes).map(|(values, bytes)| values.bytes(bytes)).collect();
    let valid: Vec<Vec<u8>> = validity.iter().map(|v| v.bytes(used)).collect();
    let texts: Vec<Vec<u8>> = program
        .outputs
        .iter()
        .zip(&values)
        .map(|(o, values)| if o.is_text { texts_of(values).concat() } else { vec![] })
        .collect();
    let downloaded = (0..columns).map(|c| Downloaded {
        values: &values[c],
        texts: &texts[c],
        validity: program.outputs[c].nullable.then_some(valid[c].as_slice()),
    });
    output.take_rows(downloaded.collect(), used).map_err(|e| e.to_string())
}

pub fn run(library: &Path, params: &[u64], blocks: u64) {
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library was just made from the generated source; its entry takes a pointer to
    // the parameter struct, whose fields are all 8 bytes, in the order of `params`; every address
    // in it is live memory of the size that the program asks for.
    unsafe {
        let handle = dlopen(path.as_ptr(), RTLD_NOW);
        assert!(!handle.is_null(), "{} does not load", library.display());
        let entry = dlsym(handle, c"headrace_run".as_ptr());
        assert!(!entry.is_null());
        let entry: extern "C" fn(*const u64, u32) -> c_int = std::mem::transmute(entry);
        let have_run = entry(params.as_ptr(), blocks as u32);
        dlclose(handle);
        assert!(have_run == 1, "not every block had a thread");
    }
}

/// With each shape another way: rows one by one never, from the start, or once some are gone.
pub fn tuning_of(shape: Shape) -> Tuning {
    match shape.seed {
        1 => Tuning::FULL,
        2 => Tuning { queue_percent: 100, ..Tuning::FULL },
        3 => Tuning { queue_percent: 0, rows_per_thread: 4, ..Tuning::FULL },
        _ => Tuning { queue_percent: 70, ahead: false, ..Tuning::FULL },
    }
}

#[test]
fn host_shim_answers_as_the_cpu_processor_does() {
    let builds = corpus::builds();
    let only = std::env::var("HEADRACE_CASE").ok();
    let cases = corpus::cases().into_iter().map(Arc::new);
    let cases = cases.filter(|case| only.as_ref().is_none_or(|only| only == case.name));
    let work = cases.flat_map(|case| {
        let shapes = shapes().into_iter();
        shapes.map(move |shape| (format!("{} {shape:?}", case.name), (Arc::clone(&case), shape)))
    });
    let refused = Mutex::new(Vec::new());
    let failed = failed_of(work, |(case, shape)| {
        let table = Table::random(shape, &[1000, 130, 7, 1]);
        let bound = bound_of(&case, &table, &builds).unwrap();
        match CudaProgram::compile(Arc::clone(&bound), &table.layout(), tuning_of(shape)) {
            Err(why) => refused.lock().unwrap().push(format!("{}: {why}", case.name)),
            Ok(program) => {
                let cpu = on_cpu(&bound, &table);
                let cuda = on_shim(&bound, &table, &program);
                assert_same(case.name, shape, &cpu, &cuda, &program.source);
            }
        }
    });
    assert!(failed.is_empty(), "{} differ: {failed:#?}", failed.len());
    let refused = refused.into_inner().unwrap();
    assert!(refused.is_empty(), "refused: {refused:#?}");
}

#[test]
fn host_shim_keys_that_are_not_as_their_types_say_are_told() {
    let is_broken = |reprs: Vec<Repr>| {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["", "a", "a text of more bytes"]));
        let field = Field::new("t", DataType::Utf8, false);
        let mut build = corpus::build("texts", &[field], &[], vec![texts]);
        build.key_reprs = reprs;
        let BuildIndex::Chains(chains) = &build.index else { panic!("chains") };
        hash_table(&build, chains).2
    };
    assert!(!is_broken(vec![Repr::Str]));
    let others = [
        vec![Repr::I64, Repr::Str],
        vec![Repr::Str, Repr::Bool],
        vec![Repr::I128, Repr::I128],
        vec![Repr::I32],
        vec![],
    ];
    for reprs in others {
        assert!(is_broken(reprs.clone()), "{reprs:?}");
    }
}

/// Compares a case over plain texts; why not, where it is refused.
fn compare_texts(case: &corpus::Case, shape: Shape) -> Option<String> {
    let table = Table::random(shape, &[1000, 130, 7, 1, 300]);
    let bound = bound_of(case, &table, &corpus::builds()).unwrap();
    let layout = table.layout();
    match CudaProgram::compile(Arc::clone(&bound), &layout, tuning_of(shape)) {
        Err(why) => Some(why.to_string()),
        Ok(program) => {
            let cuda = on_shim(&bound, &table, &program);
            assert_same(case.name, shape, &on_cpu(&bound, &table), &cuda, &program.source);
            None
        }
    }
}

#[test]
fn host_shim_plain_texts_answer_as_the_cpu_processor_does() {
    for (number, case) in corpus::plain_texts().into_iter().enumerate() {
        let refused = compare_texts(&case, text_shapes()[number % 2]);
        assert_eq!(refused, None, "{}", case.name);
    }
}

#[test]
fn what_is_not_taken_is_refused() {
    for (case, reason) in corpus::refused() {
        let refused = compare_texts(&case, text_shapes()[0]).unwrap_or_default();
        assert!(refused.contains(reason), "{}: {refused}", case.name);
    }
}

#[test]
fn host_shim_offsets_outside_their_bytes_are_an_error() {
    for (shape, table) in corpus::corrupt_texts() {
        let bound = bound_of(&corpus::plain_texts()[0], &table, &[]).unwrap();
        let layout = table.layout();
        let program = CudaProgram::compile(Arc::clone(&bound), &layout, tuning_of(shape)).unwrap();
        let cuda = on_shim(&bound, &table, &program);
        assert!(cuda.as_ref().is_err_and(|e| e.contains("corrupt")), "{shape:?}: {cuda:?}");
        assert!(on_cpu(&bound, &table).is_err());
    }
}

/// A table of which the column of texts has these.
pub fn table_of_texts(texts: &[String]) -> Table {
    let mut table = Table::random(Shape { nulls: false, ..text_shapes()[0] }, &[texts.len()]);
    let column = &mut table.segments[0].columns[5];
    let mut end = 0u32;
    let ends = texts.iter().map(|text| {
        end += text.len() as u32;
        end
    });
    column.offsets =
        Some(std::iter::once(0).chain(ends).flat_map(|offset| offset.to_le_bytes()).collect());
    (column.values, column.offsets_base) = (texts.concat().into_bytes(), 0);
    table
}

/// Texts around the length from which on they lie beside the keys, equal but for their first or last byte.
#[test]
fn host_shim_groups_by_texts_of_any_length_answer_as_the_cpu_processor_does() {
    let text = |i: usize| {
        let (length, byte) = (29 + i % 7, char::from(b'a' + (i / 7 % 3) as u8));
        match i % 2 {
            0 => format!("{byte}{}", "l".repeat(length - 1)),
            _ => format!("{}{byte}", "l".repeat(length - 1)),
        }
    };
    let table = table_of_texts(&(0..700).map(text).collect::<Vec<_>>());
    let bound = bound_of(&corpus::by_text(), &table, &[]).unwrap();
    let program = CudaProgram::compile(Arc::clone(&bound), &table.layout(), Tuning::FULL).unwrap();
    let (cuda, cpu) = (on_shim(&bound, &table, &program), on_cpu(&bound, &table));
    assert_same("by text", table.shape, &cpu, &cuda, &program.source);
    assert!(cuda.is_ok_and(|lines| lines.len() == 42));
}

#[test]
fn host_shim_corrupt_codes_are_an_error() {
    for (shape, table) in corpus::corrupt_tables() {
        let bound = bound_of(&corpus::by_text(), &table, &[]).unwrap();
        let layout = table.layout();
        let program = CudaProgram::compile(Arc::clone(&bound), &layout, Tuning::FULL).unwrap();
        let cuda = on_shim(&bound, &table, &program);
        assert!(cuda.as_ref().is_err_and(|e| e.contains("corrupt")), "{shape:?}: {cuda:?}");
        assert!(on_cpu(&bound, &table).is_err());
    }
}
