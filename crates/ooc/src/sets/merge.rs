//! Merges of sorted keys in memory.
//!
//! Each step of a merge depends on the last comparison. So a stretch is cut into lanes that are merged side
//! by side, and their outputs are compacted.
//!
//! Four lanes of neighbouring stretches run side by side.

use super::SetOperation;
use super::cut::at_diagonal;
use crate::Number;

/// Merges two sorted lists into the third, which must have room for all keys of both; returns the number of keys
/// written. `None`: the lists contradict themselves although they were checked; they may be mapped files that
/// others write.
pub(super) type Merge<K> = fn(&[K], &[K], &mut [K]) -> Option<usize>;

/// Lanes that are merged side by side: their state fits in the registers.
const LANES: usize = 4;

/// Number of keys below which lanes do not pay off.
const LANES_KEYS_MIN: usize = 256;

/// The fastest merge on this machine for an operation.
pub(super) fn merge_of<K: Number>(operation: SetOperation) -> Merge<K> {
    match operation {
        SetOperation::Intersection => in_lanes::<K, false, false, true>,
        SetOperation::Union => in_lanes::<K, true, true, true>,
        SetOperation::Difference => in_lanes::<K, true, false, false>,
        SetOperation::SymmetricDifference => in_lanes::<K, true, true, false>,
    }
}

/// A stretch of both lists, and the destination of its output.
#[derive(Clone, Copy)]
struct Lane {
    a: usize,
    b: usize,
    out: usize,
    a_end: usize,
    b_end: usize,
}

impl Lane {
    /// Steps that cannot reach the end of either list.
    fn safe_steps(&self) -> usize {
        (self.a_end - self.a).min(self.b_end - self.b)
    }

    /// Compares the next two keys, writes one of them, and advances in the list, or lists, that have it. The
    /// constants say whether a key of the first list alone, of the second alone, or of both is output.
    ///
    /// # Safety
    /// There is a next key in both lists, and room for one in `out`.
    #[inline(always)]
    unsafe fn step<K: Number, const A: bool, const B: bool, const BOTH: bool>(
        &mut self,
        a: &[K],
        b: &[K],
        out: &mut [K],
    ) {
        // SAFETY: as the caller says.
        let (of_a, of_b) = unsafe { (*a.get_unchecked(self.a), *b.get_unchecked(self.b)) };
        let (x, y) = (of_a.ordered(), of_b.ordered());
        let (takes_a, takes_b) = (x <= y, y <= x);
        // SAFETY: as the caller says.
        unsafe { *out.get_unchecked_mut(self.out) = if takes_a { of_a } else { of_b } };
        let puts_out =
            (A & takes_a & !takes_b) | (B & takes_b & !takes_a) | (BOTH & takes_a & takes_b);
        // None ends behind a list's end; a check of each would be a third of the work.
        self.out = self.out.wrapping_add(usize::from(puts_out));
        self.a = self.a.wrapping_add(usize::from(takes_a));
        self.b = self.b.wrapping_add(usize::from(takes_b));
    }
}

/// Merges lanes side by side.
fn in_lanes<K: Number, const A: bool, const B: bool, const BOTH: bool>(
    a: &[K],
    b: &[K],
    out: &mut [K],
) -> Option<usize> {
    let all = a.len() + b.len();
    assert!(out.len() >= all, "room for {} of {all} keys", out.len());
    let count = if all < LANES_KEYS_MIN { 1 } else { LANES };
    // Each is looked for once: what lies between two of them stays so, whatever becomes of the keys.
    let cuts: [(usize, usize); LANES + 1] =
        std::array::from_fn(|number| at_diagonal(a, b, all * number.min(count) / count));
    let is_path = |pair: &[(usize, usize)]| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1;
    if !cuts.windows(2).all(is_path) {
        return None;
    }
    let lane = |number: usize| {
        let ((a, b), (a_end, b_end)) = (cuts[number], cuts[number + 1]);
        Lane { a, b, out: a + b, a_end, b_end }
    };
    let mut lanes: [Lane; LANES] = std::array::from_fn(lane);
    let starts = lanes.map(|lane| lane.out);
    if count == LANES {
        loop {
            let steps = lanes.iter().map(Lane::safe_steps).min().unwrap_or(0);
            if steps == 0 {
                break;
            }
            for _ in 0..steps {
                for lane in &mut lanes {
                    // SAFETY: no list of a lane ends within so many steps; a lane has written no more
                    // keys than it has taken, and begins to write where as many lie before it.
                    unsafe { lane.step::<K, A, B, BOTH>(a, b, out) };
                }
            }
        }
    }
    let mut keys = 0;
    for (lane, start) in lanes[..count].iter_mut().zip(starts) {
        while lane.safe_steps() > 0 {
            for _ in 0..lane.safe_steps() {
                // SAFETY: as above.
                unsafe { lane.step::<K, A, B, BOTH>(a, b, out) };
            }
        }
        let rest_a = if A { &a[lane.a..lane.a_end] } else { &[] };
        let rest_b = if B { &b[lane.b..lane.b_end] } else { &[] };
        for rest in [rest_a, rest_b] {
            out[lane.out..lane.out + rest.len()].copy_from_slice(rest);
            lane.out += rest.len();
        }
        out.copy_within(start..lane.out, keys);
        keys += lane.out - start;
    }
    Some(keys)
}
