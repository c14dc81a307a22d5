//! Finds keys that are out of order and reports their position.

use std::ops::Range;

use super::Repeats;
use super::list::KeyList;
use crate::{Number, OocError, Result};

/// Keys that are read at a time to find the first one out of order.
const KEYS_AT_A_TIME: u64 = 1 << 16;

/// Whether `after` may follow `before`.
#[inline(always)]
pub(super) fn in_order<K: Number>(before: K, after: K, repeats: Repeats) -> bool {
    match repeats {
        Repeats::Allowed => before.ordered() <= after.ordered(),
        Repeats::Refused => before.ordered() < after.ordered(),
    }
}

/// The first of these keys that is out of order with the one before it.
pub(super) fn first_out_of_order<K: Number>(keys: &[K], repeats: Repeats) -> Option<usize> {
    /// Keys that are checked without a branch.
    const BLOCK: usize = 512;
    let mut start = 0;
    while start + 1 < keys.len() {
        let block = &keys[start..keys.len().min(start + BLOCK + 1)];
        let pairs = || block.iter().zip(&block[1..]);
        let is_right = pairs().fold(true, |right, (x, y)| right & in_order(*x, *y, repeats));
        if !is_right {
            let at = pairs().position(|(x, y)| !in_order(*x, *y, repeats));
            return at.map(|at| start + at + 1);
        }
        start += BLOCK;
    }
    None
}

/// The key before a position, which must be in order with the one at it.
///
/// # Errors
/// Errors of reading; keys that are not in order.
pub(super) fn check_pair<K: Number>(
    list: &KeyList,
    position: u64,
    repeats: Repeats,
) -> Result<K::Ordered> {
    let pair = list.keys_at::<K>(position - 1..(position + 1).min(list.keys()))?;
    match pair[..] {
        [before, after] if !in_order(before, after, repeats) => {
            Err(unsorted(list, position, before, after))
        }
        _ => Ok(pair[0].ordered()),
    }
}

/// The error of the first position of a range whose key is out of order with the one before it; `None` if all
/// are in order.
///
/// # Errors
/// Those of reading.
pub(super) fn first_unsorted<K: Number>(
    list: &KeyList,
    positions: Range<u64>,
    repeats: Repeats,
) -> Result<Option<OocError>> {
    let mut start = positions.start.max(1);
    while start < positions.end {
        let end = (start + KEYS_AT_A_TIME).min(positions.end);
        let keys = list.keys_at::<K>(start - 1..end)?;
        if let Some(at) = first_out_of_order(&keys, repeats) {
            return Ok(Some(unsorted(list, start - 1 + at as u64, keys[at - 1], keys[at])));
        }
        start = end;
    }
    Ok(None)
}

/// The error of lists that contradict themselves: the first position out of order in these ranges, in the
/// first list that has one.
pub(super) fn unsorted_within<K: Number>(
    lists: [(&KeyList, Range<u64>); 2],
    repeats: Repeats,
) -> OocError {
    let path = lists[0].0.path().to_path_buf();
    for (list, positions) in lists {
        match first_unsorted::<K>(list, positions, repeats) {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return error,
        }
    }
    let what = "keys were out of order when they were read first, and are not now";
    OocError::input(path, what, "let nothing write to the lists meanwhile")
}

fn unsorted<K: Number>(list: &KeyList, position: u64, before: K, after: K) -> OocError {
    let (what, remedy) = match before.ordered() == after.ordered() {
        true => (
            format!("the key {after} is repeated at position {position} (counted from 0)"),
            "leave --unique out to have the lists taken as multisets",
        ),
        false => (
            format!("the key {after} at position {position} (counted from 0) follows {before}"),
            "sort it first: headrace sort IN -o OUT",
        ),
    };
    OocError::input(list.path(), what, remedy)
}
