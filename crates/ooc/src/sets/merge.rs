//! Sorted keys in memory, merged.

use super::{Repeats, SetOperation};
use crate::Number;

/// Merges two sorted lists; the number of keys that it has written to the start of the third, which must have
/// room for [`SetOperation::keys_max`] keys.
pub(super) type Merge<K> = fn(&[K], &[K], &mut [K]) -> usize;

/// The fastest merge of this machine for an operation.
pub(super) fn merge_of<K: Number>(operation: SetOperation, _repeats: Repeats) -> Merge<K> {
    match operation {
        SetOperation::Intersection => merge::<K, false, false, true>,
        SetOperation::Union => merge::<K, true, true, true>,
        SetOperation::Difference => merge::<K, true, false, false>,
        SetOperation::SymmetricDifference => merge::<K, true, true, false>,
    }
}

/// Puts out keys of the first list alone, of the second alone, of both: as the constants say.
fn merge<K: Number, const A: bool, const B: bool, const BOTH: bool>(
    a: &[K],
    b: &[K],
    out: &mut [K],
) -> usize {
    let (mut i, mut j, mut keys) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i].ordered(), b[j].ordered());
        let (takes_a, takes_b) = (x <= y, y <= x);
        out[keys] = if takes_a { a[i] } else { b[j] };
        keys += usize::from(match (takes_a, takes_b) {
            (true, true) => BOTH,
            (true, false) => A,
            _ => B,
        });
        i += usize::from(takes_a);
        j += usize::from(takes_b);
    }
    let rest = [if A { &a[i..] } else { &[] }, if B { &b[j..] } else { &[] }];
    for rest in rest {
        out[keys..keys + rest.len()].copy_from_slice(rest);
        keys += rest.len();
    }
    keys
}
