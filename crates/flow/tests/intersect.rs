//! The operator of `examples/intersect`, on the host and on a GPU: what a program of an hour finds. Run what needs a
//! GPU with `--ignored gpu_`.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use headrace_flow::{CancelToken, CudaSlots, Race, RaceOptions};
use headrace_gpu::{Compiler, Device, DevicePool, Source};
use headrace_io::write::SinkFile;
use headrace_io::{ReadAt, SourceFile};
use proptest::prelude::*;

#[path = "../examples/intersect/operator.rs"]
mod operator;
#[path = "../examples/intersect/schedule.rs"]
mod schedule;

use operator::{KEY_BYTES, OnGpu, OnHost};

const SLOTS: usize = 3;

fn write(path: &Path, keys: &[i64]) -> Arc<dyn ReadAt> {
    let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    std::fs::write(path, bytes).unwrap();
    SourceFile::open(path).unwrap()
}

/// What the operator puts out for these lists, in chunks of so many bytes a list.
fn intersected(lists: [&[i64]; 2], chunk_bytes: usize, gpu: Option<&Arc<DevicePool>>) -> Vec<i64> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let files = vec![write(&path("a"), lists[0]), write(&path("b"), lists[1])];
    let chunks = schedule::chunks(&files, chunk_bytes as u64).unwrap();
    let sink = SinkFile::growing(path("out")).unwrap();
    let output_slot_bytes = chunk_bytes + (64 << 10);
    let options = RaceOptions { output_slots: 2, output_slot_bytes, ..RaceOptions::default() };
    let race = Race::new(files, chunks, options, CancelToken::new()).unwrap();
    let race = race.with_appended(vec![sink.clone()]);
    match gpu {
        None => drop(race.run_host_writing(vec![OnHost, OnHost, OnHost]).unwrap()),
        Some(pool) => {
            let slot_bytes = 2 * chunk_bytes + (64 << 10);
            let mut slots = CudaSlots::new(pool, SLOTS, slot_bytes).unwrap();
            let program = OnGpu::new(pool, SLOTS, slot_bytes).unwrap();
            race.run_device(&mut slots.lane(program)).unwrap();
        }
    }
    sink.commit(false).unwrap();
    let bytes = std::fs::read(path("out")).unwrap();
    bytes.as_chunks::<KEY_BYTES>().0.iter().map(|key| i64::from_le_bytes(*key)).collect()
}

/// Sorted keys without duplicates: every `step`th number on average, from `first` on.
fn keys(seed: u64, count: usize, first: i64, step: u64) -> Vec<i64> {
    let mut state = seed;
    let mut key = first;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        key += 1 + (state >> 33) as i64 % (2 * step as i64 - 1).max(1);
        key
    };
    (0..count).map(next).collect()
}

fn wanted([a, b]: [&[i64]; 2]) -> Vec<i64> {
    a.iter().filter(|key| b.binary_search(key).is_ok()).copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn lists_intersect_as_sets_do(
        (seed, counts) in (any::<u64>(), [0..20_000_usize, 0..20_000_usize]),
        (firsts, steps) in ([-9000..9000_i64, -9000..9000_i64], [1..9_u64, 1..9_u64]),
        chunk_keys in 1..3000_usize,
    ) {
        let lists = [0, 1].map(|list| keys(seed + list as u64, counts[list], firsts[list], steps[list]));
        let lists = [&lists[0][..], &lists[1][..]];
        // Tiny chunks of much are slow, and show nothing more.
        let chunk_keys = chunk_keys.max((counts[0] + counts[1]) / 100 + 1);
        prop_assert!(intersected(lists, chunk_keys * KEY_BYTES, None) == wanted(lists));
    }
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_compiles_the_kernels() {
    let source = Source { name: "intersect.cu", text: operator::KERNELS, headers: &[] };
    Compiler::load(None).unwrap().compile(&source, "sm_90", &[]).unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_intersects_as_the_host_does() {
    let pool = DevicePool::new(&Device::open(0).unwrap(), 1 << 30);
    let counts = [0, 1, 31, 32, 33, 1023, 1024, 1025, 4096, 100_000];
    for (number, &a) in counts.iter().enumerate() {
        for &b in &counts {
            let lists = [keys(number as u64, a, -500, 3), keys(b as u64, b, -700, 4)];
            let lists = [&lists[0][..], &lists[1][..]];
            for chunk_keys in [1024, 1500, 50_000] {
                let found = intersected(lists, chunk_keys * KEY_BYTES, Some(&pool));
                assert!(found == wanted(lists), "{a} and {b} keys, chunks of {chunk_keys}");
            }
        }
    }
    let all = keys(1, 300_000, i64::MIN, 1);
    assert!(intersected([&all, &all], 1 << 20, Some(&pool)) == all, "all of it");
}
