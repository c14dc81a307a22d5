//! The kernels on the CPU (`crate::emulated`), launched like `device` does.

use headrace_flow::DeviceSlice;
use headrace_io::random::Random;

use super::device::{Call, OUTCOME_BYTES, THREADS, TILE_KEYS, scratch_bytes, source};
use super::{Repeats, SetOperation};
use crate::Number;
use crate::emulated::Emulated;

/// A sorted list of keys with a mean distance of `distance`, 0 if all are equal.
fn list(keys: usize, distance: u64, repeats: Repeats, seed: u64) -> Vec<u32> {
    let (mut random, mut key) = (Random(seed), 0);
    let step = |_| {
        let step = random.below((2 * distance).max(1));
        key += step.max(u64::from(repeats == Repeats::Refused)) as u32;
        key
    };
    (0..keys).map(step).collect()
}

/// A sequential merge.
fn expected<K: Number>(a: &[K], b: &[K], operation: SetOperation) -> Vec<K> {
    let (of_a, of_b, of_both) = operation.puts_out();
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        let (x, y) = (a.get(i).map(|key| key.ordered()), b.get(j).map(|key| key.ordered()));
        let takes_a = x.is_some() && (y.is_none() || x <= y);
        let takes_b = y.is_some() && (x.is_none() || y <= x);
        if if takes_a && takes_b {
            of_both
        } else if takes_a {
            of_a
        } else {
            of_b
        } {
            out.push(if takes_a { a[i] } else { b[j] });
        }
        i += usize::from(takes_a);
        j += usize::from(takes_b);
    }
    out
}

/// Keys, and the first pair that is out of order, of pairs that are processed consecutively.
fn run<K: Number>(device: &mut Emulated, pairs: &[[Vec<K>; 2]]) -> (Vec<K>, u64, u64) {
    let keys: usize = pairs.iter().flatten().map(Vec::len).sum();
    let out = device.alloc(size_of::<K>() * keys);
    let tiles_max = keys.div_ceil(TILE_KEYS) + 1;
    let scratch = device.alloc(scratch_bytes(tiles_max));
    for (number, pair) in pairs.iter().enumerate() {
        let slices = [0, 1].map(|list| DeviceSlice {
            address: device.upload(bytemuck::cast_slice(&pair[list])),
            bytes: size_of_val(&pair[list][..]),
        });
        let call = Call::new((number, slices), size_of::<K>(), out, (scratch, tiles_max));
        for (kernel, blocks) in ["cut_tiles_0", "merge_tiles_0"].into_iter().zip(call.blocks) {
            device.launch(kernel, (blocks, THREADS, 0), bytemuck::cast_slice(&call.words));
        }
    }
    let outcome: Vec<u64> = bytemuck::pod_collect_to_vec(&device.read(scratch, OUTCOME_BYTES));
    let out = bytemuck::pod_collect_to_vec(&device.read(out, size_of::<K>() * keys));
    device.clear();
    (out, outcome[0], outcome[1])
}

fn check<K: Number>(
    operation: SetOperation,
    repeats: Repeats,
    counts_only: bool,
    key: fn(u32) -> K,
) {
    let text = source(K::TYPE, operation, repeats, counts_only);
    let mut device = Emulated::new(&[(text, &["cut_tiles", "merge_tiles"])]);
    device.workers = 3;
    let keys = |keys: usize, distance, seed| -> Vec<K> {
        list(keys, distance, repeats, seed).into_iter().map(key).collect()
    };
    let few = if repeats == Repeats::Allowed { 0 } else { 3 };
    let pairs = [
        [keys(5, 2, 1), keys(0, 1, 2)],
        [keys(TILE_KEYS + 3, 1, 3), keys(2 * TILE_KEYS, 2, 4)],
        [keys(9, few, 5), keys(TILE_KEYS - 9, few, 6)],
        [keys(3000, few, 7), keys(7001, few, 8)],
        [keys(1, 1, 9), keys(TILE_KEYS, 4, 10)],
    ];
    let expected: Vec<K> = pairs.iter().flat_map(|[a, b]| expected(a, b, operation)).collect();
    // In some of these a tile is behind the next ones.
    for _ in 0..10 {
        let (found, found_keys, unsorted) = run(&mut device, &pairs);
        assert_eq!((found_keys, unsorted), (expected.len() as u64, u64::MAX));
        if !counts_only {
            let found = &found[..expected.len()];
            assert!(
                bytemuck::cast_slice::<K, u8>(found) == bytemuck::cast_slice::<K, u8>(&expected)
            );
        }
    }
    let mut wrong = pairs;
    wrong[1][1].swap(TILE_KEYS - 1, TILE_KEYS + 1);
    assert_eq!(run(&mut device, &wrong).2, 1, "the first pair that is out of order");
}

#[test]
fn emulated_kernels_merge_lists_with_repeats() {
    let float = |key: u32| if key > 9000 { f32::NAN } else { key as f32 - 500.0 };
    check(SetOperation::Intersection, Repeats::Allowed, false, float);
    check(SetOperation::Union, Repeats::Allowed, false, |key| i64::from(key) - 700);
}

#[test]
fn emulated_kernels_merge_lists_without_repeats() {
    check(SetOperation::SymmetricDifference, Repeats::Refused, false, |key| f64::from(key) - 9.0);
    check(SetOperation::Difference, Repeats::Refused, true, |key| key);
}
