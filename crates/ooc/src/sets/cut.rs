//! Cuts of two sorted lists into pieces that can be processed independently.
//!
//! Equal keys are distinguished by their rank, the number of equal keys before them in their list. A cut is
//! at a key and a rank: in both lists it lies after everything smaller. So the copies of a key are paired
//! off, the first of one list with the first of the other, for any number of cuts, and any set operation on
//! the pieces is the operation on the lists. (Merge path: Odeh, Green, Mwassi, Shmueli, Birk 2012; the
//! ranks make it the balanced path of Baxter's moderngpu.)

use std::cmp::Ordering;

use crate::Number;

/// The cut of two lists whose pieces before it have `diagonal` keys together, or one more.
pub(super) fn at_diagonal<K: Number>(a: &[K], b: &[K], diagonal: usize) -> (usize, usize) {
    assert!(diagonal <= a.len() + b.len(), "a cut behind the ends of both lists");
    // Where a merge stands that takes equal keys of the first list first.
    let (mut low, mut high) = (diagonal.saturating_sub(b.len()), diagonal.min(a.len()));
    while low < high {
        let middle = low + (high - low) / 2;
        match a[middle].ordered() <= b[diagonal - 1 - middle].ordered() {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    let (i, j) = (low, diagonal - low);
    let next = match (a.get(i).map(|key| key.ordered()), b.get(j).map(|key| key.ordered())) {
        (Some(x), Some(y)) => x.min(y),
        (Some(key), None) | (None, Some(key)) => key,
        (None, None) => return (i, j),
    };
    // The merge has taken so many of the next key from either list: they are paired off anew.
    let (first_a, first_b) = (run_start(a, i, next), run_start(b, j, next));
    let taken = (i - first_a) + (j - first_b);
    if taken == 0 {
        return (i, j);
    }
    let (run_a, run_b) = (run_end(a, i, next) - first_a, run_end(b, j, next) - first_b);
    let paired = run_a.min(run_b);
    match taken.cmp(&(2 * paired)) {
        Ordering::Less => (first_a + taken.div_ceil(2), first_b + taken.div_ceil(2)),
        _ if run_a > run_b => (first_a + taken - paired, first_b + paired),
        _ => (first_a + paired, first_b + taken - paired),
    }
}

/// Start of the keys equal to `key` that end before `end`.
fn run_start<K: Number>(keys: &[K], end: usize, key: K::Ordered) -> usize {
    keys[..end].partition_point(|other| other.ordered() < key)
}

/// End of the keys equal to `key` that begin at `start`.
fn run_end<K: Number>(keys: &[K], start: usize, key: K::Ordered) -> usize {
    start + keys[start..].partition_point(|other| other.ordered() <= key)
}
