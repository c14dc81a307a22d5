//! Which streamed rows have a match that satisfies a residual, where only that is asked.
//!
//! Chains are walked side by side: every pass offers some build rows of each chain to the
//! residual, twice as many as the pass before, and a streamed row that found its match leaves.
//! So a row costs at most about twice the pairs up to its first match, and batches stay wide.

use crate::ExecError;
use crate::bound::BoundProbe;
use crate::build::fetch::NO_MATCH;
use crate::cpu::context::Context;
use crate::cpu::pairs::{PAIRS_MAX, next_of, push_pairs};

/// One byte a streamed row, 1 where any pair satisfies the residual. `heads` are the first build
/// rows of each row's key.
pub fn any_match<'a>(
    context: &mut Context<'a>,
    probe: &'a BoundProbe,
    heads: &[u32],
) -> Result<Vec<u8>, ExecError> {
    // A residual that fails for some pair fails whichever pair comes first.
    let stops = !probe.residual.as_ref().is_some_and(|residual| residual.can_fail());
    let mut matched = vec![0u8; heads.len()];
    let mut walks = Walks::new(heads);
    let depth = context.depth();
    while !walks.left.is_empty() {
        let (rows, entries) = walks.pairs(|entry| next_of(probe, entry));
        for row in push_pairs(context, probe, rows, entries)? {
            matched[row as usize] = 1;
        }
        context.truncate(depth);
        walks.leave(|row| stops && matched[row as usize] != 0);
    }
    Ok(matched)
}

/// Chains on their way.
struct Walks {
    /// Streamed row and the next build row of its chain.
    left: Vec<(u32, u32)>,
    /// Build rows of a chain that this pass offers.
    step: usize,
    /// How many of `left` this pass has served.
    served: usize,
}

impl Walks {
    fn new(heads: &[u32]) -> Self {
        let rows = heads.iter().enumerate().filter(|(_, head)| **head != NO_MATCH);
        Self { left: rows.map(|(row, &head)| (row as u32, head)).collect(), step: 1, served: 0 }
    }

    /// The next pairs: streamed rows, ascending, and their build rows.
    fn pairs(&mut self, next_of: impl Fn(u32) -> u32) -> (Vec<u32>, Vec<u32>) {
        let (mut rows, mut entries) = (Vec::new(), Vec::new());
        for (row, entry) in &mut self.left[self.served..] {
            if rows.len() >= PAIRS_MAX {
                break;
            }
            self.served += 1;
            for _ in 0..self.step {
                rows.push(*row);
                entries.push(*entry);
                *entry = next_of(*entry);
                if *entry == NO_MATCH {
                    break;
                }
            }
        }
        (rows, entries)
    }

    /// After a pass drops chains that have ended, and those of rows that are done.
    fn leave(&mut self, done: impl Fn(u32) -> bool) {
        if self.served == self.left.len() {
            self.left.retain(|&(row, entry)| entry != NO_MATCH && !done(row));
            self.step = (self.step * 2).min(PAIRS_MAX);
            self.served = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rows` streamed rows that share one chain of `length` build rows; a pair matches where
    /// `matches` says so of the build row. Answers the pairs offered and the rows that matched.
    fn walk(rows: usize, length: u32, matches: impl Fn(u32) -> bool) -> (usize, usize) {
        let mut walks = Walks::new(&vec![0; rows]);
        let mut matched = vec![false; rows];
        let mut offered = 0;
        while !walks.left.is_empty() {
            let next = |entry| if entry + 1 < length { entry + 1 } else { NO_MATCH };
            let (rows, entries) = walks.pairs(next);
            assert!(rows.len() < PAIRS_MAX * 2 && rows.is_sorted());
            offered += rows.len();
            for (row, entry) in rows.into_iter().zip(entries) {
                matched[row as usize] |= matches(entry);
            }
            walks.leave(|row| matched[row as usize]);
        }
        (offered, matched.iter().filter(|&&matched| matched).count())
    }

    #[test]
    fn a_row_is_done_with_its_first_match() {
        assert_eq!(walk(4096, 100_000, |_| true), (4096, 4096));
        let (offered, matched) = walk(4096, 100_000, |entry| entry == 20);
        assert_eq!(matched, 4096);
        assert!(offered <= 4096 * 2 * 21, "{offered}");
    }

    #[test]
    fn every_pair_is_offered_once_where_none_matches() {
        for (rows, length) in [(1, 1), (3, 100_000), (4096, 100)] {
            assert_eq!(walk(rows, length, |_| false), (rows * length as usize, 0));
        }
        assert_eq!(Walks::new(&[NO_MATCH; 3]).left, []);
    }
}
