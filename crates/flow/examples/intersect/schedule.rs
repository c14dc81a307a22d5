//! Chunks of two sorted lists: a range of the first, and what of the second its keys may be found in.

use std::cmp::Ordering;
use std::sync::Arc;

use headrace_flow::{BoxError, ChunkSpec, ReadSpec};
use headrace_io::{ReadAt, ReadMode};

use crate::operator::KEY_BYTES;

/// Chunks of up to `chunk_bytes` bytes of each list that cover both where they may meet. The lists are cut where
/// either has that much, at the same key.
///
/// # Errors
/// A list that cannot be read, or ends within a key.
pub fn chunks(lists: &[Arc<dyn ReadAt>], chunk_bytes: u64) -> Result<Vec<ChunkSpec>, BoxError> {
    let lists = [List::of(0, &lists[0])?, List::of(1, &lists[1])?];
    let (mut at, keys_max) = ([0, 0], chunk_bytes / KEY_BYTES as u64);
    let mut chunks = Vec::new();
    while at[0] < lists[0].keys && at[1] < lists[1].keys {
        // The first key behind the chunk: the smaller of those that either list can go to.
        let mut ends = [0, 1].map(|list| (at[list] + keys_max).min(lists[list].keys));
        let [a, b] = [lists[0].key(ends[0])?, lists[1].key(ends[1])?];
        let later = match (a, b) {
            (Some(a), Some(b)) => a.cmp(&b),
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (None, None) => Ordering::Equal,
        };
        match (later, a, b) {
            (Ordering::Less, Some(a), _) => ends[1] = lists[1].first_from(a, at[1]..ends[1])?,
            (Ordering::Greater, _, Some(b)) => ends[0] = lists[0].first_from(b, at[0]..ends[0])?,
            _ => {}
        }
        let reads = [0, 1].map(|list| lists[list].read(at[list]..ends[list]));
        // A range without a counterpart has nothing in common with anything.
        if reads.iter().all(|read| read.bytes > 0) {
            chunks.push(ChunkSpec { reads: reads.to_vec() });
        }
        at = ends;
    }
    Ok(chunks)
}

struct List<'a> {
    number: usize,
    file: &'a Arc<dyn ReadAt>,
    keys: u64,
}

impl<'a> List<'a> {
    fn of(number: usize, file: &'a Arc<dyn ReadAt>) -> Result<Self, BoxError> {
        let bytes = file.size_bytes();
        if !bytes.is_multiple_of(KEY_BYTES as u64) {
            return Err(
                format!("{}: {bytes} bytes are no whole keys", file.path().display()).into()
            );
        }
        Ok(Self { number, file, keys: bytes / KEY_BYTES as u64 })
    }

    /// A key by its number; `None` behind the last.
    fn key(&self, number: u64) -> Result<Option<i64>, BoxError> {
        if number >= self.keys {
            return Ok(None);
        }
        let (mut bytes, offset) = ([0; KEY_BYTES], number * KEY_BYTES as u64);
        let read = self.file.read_at(ReadMode::Buffered, offset, &mut bytes)?;
        if read < KEY_BYTES {
            return Err(format!("{} has become shorter", self.file.path().display()).into());
        }
        Ok(Some(i64::from_le_bytes(bytes)))
    }

    /// The number of the first key of a range that is not below `key`; the range's end if there is none.
    fn first_from(&self, key: i64, range: std::ops::Range<u64>) -> Result<u64, BoxError> {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle)? {
                Some(found) if found < key => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    fn read(&self, keys: std::ops::Range<u64>) -> ReadSpec {
        let bytes = (keys.end - keys.start) * KEY_BYTES as u64;
        ReadSpec { file: self.number, offset: keys.start * KEY_BYTES as u64, bytes }
    }
}
