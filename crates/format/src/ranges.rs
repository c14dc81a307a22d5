//! Record batches by their numbers.

use std::ops::Range;

/// Record batches of files, or row groups: for each file, by its number, ranges of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchRanges(Vec<Vec<Range<u32>>>);

impl BatchRanges {
    /// Adds batches of a file.
    pub fn add(&mut self, file: usize, batches: Range<u32>) {
        if self.0.len() <= file {
            self.0.resize_with(file + 1, Vec::new);
        }
        self.0[file].push(batches);
    }

    /// Whether a batch is one of them.
    pub fn has(&self, file: usize, batch: usize) -> bool {
        let ranges = self.0.get(file).into_iter().flatten();
        u32::try_from(batch).is_ok_and(|batch| ranges.into_iter().any(|it| it.contains(&batch)))
    }
}
