//! The search for levels on the CPU (`crate::emulated`), launched like `device_search` does: the levels of the cores.

use std::sync::atomic::Ordering::Relaxed;

use headrace_flow::{FedChunk, HostConsumer};
use headrace_io::MemoryBudget;

use super::emulated::{Case, run, shapes};
use super::faults::Faults;
use super::launches::{KERNELS, SearchMemory, source};
use super::plan::Plan;
use super::search::{Searcher, State};
use crate::NumberType;
use crate::emulated::Emulated;

type Types = (NumberType, NumberType, Option<NumberType>);

/// What is known after a level: levels, vertices found, chunks that are open.
type Known = (Vec<i32>, u64, Vec<bool>);

/// After each level, on the cores.
fn on_cores(case: &Case, plan: &Plan, source: usize) -> Vec<Known> {
    let (memory, faults) = (MemoryBudget::new(1 << 24), Faults::default());
    let mut state = State::of_vertices(&memory, (case.csr.rows, plan.chunks()), source).unwrap();
    let mut known = Vec::new();
    loop {
        let mut searcher = Searcher::new(&case.csr, &state, 1 + known.len() as i32, &faults);
        for chunk in (0..plan.chunks()).rev().filter(|chunk| !state.is_done[*chunk].load(Relaxed)) {
            let fed = FedChunk { payload: plan.piece(chunk), ..FedChunk::default() };
            searcher.consume(&fed, &case.buffers(plan, chunk)).unwrap();
        }
        let (vertices, _) = state.advance();
        let levels = state.levels.iter().map(|level| level.load(Relaxed)).collect();
        let open = state.is_done.iter().map(|is_done| !is_done.load(Relaxed)).collect();
        known.push((levels, vertices, open));
        if vertices == 0 {
            return known;
        }
    }
}

/// After each level, by the kernels, or what these find to be wrong.
fn on_device(
    case: &Case,
    device: &mut Emulated,
    plan: &Plan,
    source: usize,
) -> Result<Vec<Known>, [u64; 2]> {
    let (vertices, chunks) = (case.csr.rows, plan.chunks());
    let words = vertices.div_ceil(64);
    let mut bits = vec![0u64; words];
    bits[source / 64] = 1 << (source % 64);
    let mut levels = vec![-1i32; vertices];
    levels[source] = 0;
    let levels_at = device.upload(bytemuck::cast_slice(&levels));
    let bits_at = [device.upload(bytemuck::cast_slice(&bits)), device.alloc(words * 8)];
    let (open_at, counts_at) = (device.alloc(chunks * 8), device.alloc(16));
    let faults_at = device.upload(&[0xff; 16]);
    let (mut known, mut is_open): (Vec<Known>, _) = (Vec::new(), vec![true; chunks]);
    loop {
        let level = 1 + known.len();
        let (frontier, next) = (bits_at[1 - level % 2], bits_at[level % 2]);
        device.write(next, &vec![0; words * 8]);
        device.write(open_at, &vec![0; chunks * 8]);
        device.write(counts_at, &[0; 16]);
        let memory = SearchMemory {
            levels: levels_at,
            frontier,
            next,
            open: open_at,
            counts: counts_at,
            faults: faults_at,
        };
        for chunk in (0..chunks).rev().filter(|chunk| is_open[*chunk]) {
            let arrays = case.buffers(plan, chunk);
            let addresses: Vec<u64> =
                arrays.into_iter().map(|bytes| device.upload(bytes)).collect();
            let piece = plan.piece(chunk);
            run(device, memory.search(&case.csr, piece, &addresses, level as u64));
        }
        let words_of = |device: &mut Emulated, at, words: usize| -> Vec<u64> {
            bytemuck::pod_collect_to_vec(&device.read(at, words * 8))
        };
        let faults = words_of(device, faults_at, 2);
        if faults != [u64::MAX; 2] {
            device.clear();
            return Err([faults[0], faults[1]]);
        }
        let counts = words_of(device, counts_at, 2);
        let found: u64 =
            words_of(device, next, words).iter().map(|w| u64::from(w.count_ones())).sum();
        assert_eq!(counts[1], found, "vertices counted are those of the bits");
        assert!(counts[0] >= found && counts[0] <= case.csr.entries as u64, "{counts:?}");
        is_open = words_of(device, open_at, chunks).iter().map(|open| *open != 0).collect();
        let levels = bytemuck::pod_collect_to_vec(&device.read(levels_at, vertices * 4));
        known.push((levels, found, is_open.clone()));
        if found == 0 {
            device.clear();
            return Ok(known);
        }
    }
}

fn check(types: Types) {
    let mut device = Emulated::new(&[(source(types.0, types.1, None), &KERNELS)]);
    // Threads of several blocks at a time meet in long rows.
    device.workers = 3;
    for (shape, lengths) in shapes().into_iter().enumerate().filter(|(_, l)| !l.is_empty()) {
        let rows = lengths.len();
        let case = Case::with_columns((types.0, types.1, None), &lengths, (rows, 1));
        for chunk_bytes in [1 << 30, 6000] {
            let plan = case.plan(chunk_bytes);
            for source in [0, rows / 2, rows - 1] {
                let wanted = on_cores(&case, &plan, source);
                let found = on_device(&case, &mut device, &plan, source);
                assert_eq!(found, Ok(wanted), "{types:?}, shape {shape} from {source}");
            }
        }
    }
    wrong(types, &mut device);
}

/// What was damaged after it was planned is found where it is looked at, and nothing is read or written elsewhere.
fn wrong(types: Types, device: &mut Emulated) {
    let lengths = shapes().remove(5);
    for (array, at, value, wanted) in [
        (1, 700, lengths.len() as u64, 700),
        (1, 3, u64::MAX, 3),
        (0, 4, u64::MAX, 4),
        (0, 300, 1, 300),
    ] {
        let mut case = Case::with_columns((types.0, types.1, None), &lengths, (lengths.len(), 1));
        let plan = case.plan(6000);
        let width = [types.0, types.1][array].bytes();
        let begin = [&case.csr.indptr, &case.csr.indices][array].offset as usize;
        case.bytes[array][begin + at * width..][..width]
            .copy_from_slice(&u64::to_le_bytes(value)[..width]);
        // The last row has few entries: the first level settles little.
        let found = on_device(&case, device, &plan, lengths.len() - 1).unwrap_err();
        assert_eq!(found[usize::from(array == 1)], wanted, "{array} {at}");
    }
}

#[test]
fn emulated_kernels_search_levels_of_wide_graphs() {
    check((NumberType::I64, NumberType::U64, None));
}

#[test]
fn emulated_kernels_search_levels_of_narrow_graphs() {
    check((NumberType::U32, NumberType::I32, None));
}
