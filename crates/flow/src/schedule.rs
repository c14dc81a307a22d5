//! Which device takes which chunk: its own first, then the last of whoever has most left.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::ChunkSpec;

/// Which device a chunk goes to, if that is free to take it: the one nearest to its file's storage,
/// or the one that keeps its columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affinity {
    by_file: Vec<Option<usize>>,
    by_chunk: Vec<usize>,
}

impl Affinity {
    /// No file is nearer to one device than to another: chunks are dealt out in turn.
    pub fn none() -> Affinity {
        Affinity::default()
    }

    /// For each file of the race the number of the preferred lane. Files beyond the end of the
    /// list, and those with a lane that there is not, have none.
    pub fn by_file(lanes: Vec<Option<usize>>) -> Affinity {
        Affinity { by_file: lanes, by_chunk: Vec::new() }
    }

    /// For each chunk of the race the number of the preferred lane. Chunks beyond the end of the
    /// list, and those with a lane that there is not, have none.
    pub fn by_chunk(lanes: Vec<usize>) -> Affinity {
        Affinity { by_file: Vec::new(), by_chunk: lanes }
    }

    fn of(&self, number: usize, chunk: &ChunkSpec, lanes: usize) -> Option<usize> {
        let own = self.by_chunk.get(number).copied();
        own.or_else(|| self.of_files(chunk)).filter(|lane| *lane < lanes)
    }

    /// The lane preferred by the file that most of the chunk's bytes come from.
    fn of_files(&self, chunk: &ChunkSpec) -> Option<usize> {
        let bytes_of = |file| -> u64 {
            chunk.reads.iter().filter(|read| read.file == file).map(|read| read.bytes).sum()
        };
        // The first of equals, so that the choice does not depend on anything else.
        let main = chunk.reads.iter().rev().max_by_key(|read| bytes_of(read.file))?;
        self.by_file.get(main.file).copied().flatten()
    }
}

/// The chunks that nobody has begun yet, one list a lane. The same race and affinity give the same
/// lists, so that what a device keeps is found again.
#[derive(Debug)]
pub(crate) struct Schedule {
    lists: Mutex<Vec<VecDeque<usize>>>,
}

/// A chunk to work on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub chunk: usize,
    /// Whether it was on another lane's list.
    pub stolen: bool,
}

impl Schedule {
    /// Lists for `lanes` lanes (at least 1).
    pub fn new(chunks: &[ChunkSpec], lanes: usize, affinity: &Affinity) -> Schedule {
        let mut lists: Vec<VecDeque<usize>> = vec![VecDeque::new(); lanes];
        let mut in_turn = 0;
        for (number, chunk) in chunks.iter().enumerate() {
            let lane = affinity.of(number, chunk, lanes).unwrap_or_else(|| {
                in_turn += 1;
                (in_turn - 1) % lanes
            });
            lists[lane].push_back(number);
        }
        Schedule { lists: Mutex::new(lists) }
    }

    /// The next chunk for a lane: each is given out once.
    pub fn take(&self, lane: usize) -> Option<Taken> {
        let mut lists = self.lists.lock();
        if let Some(chunk) = lists[lane].pop_front() {
            return Some(Taken { chunk, stolen: false });
        }
        // From the end: what its owner would come to last.
        let chunk = lists.iter_mut().max_by_key(|list| list.len())?.pop_back()?;
        Some(Taken { chunk, stolen: true })
    }

    /// Whether every chunk was given out.
    pub fn is_empty(&self) -> bool {
        self.lists.lock().iter().all(VecDeque::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReadSpec;

    fn chunk(reads: &[(usize, u64)]) -> ChunkSpec {
        let read =
            |(file, bytes): &(usize, u64)| ReadSpec { file: *file, offset: 0, bytes: *bytes };
        ChunkSpec { reads: reads.iter().map(read).collect() }
    }

    fn chunks_of(schedule: &Schedule, lane: usize) -> Vec<(usize, bool)> {
        std::iter::from_fn(|| schedule.take(lane)).map(|t| (t.chunk, t.stolen)).collect()
    }

    #[test]
    fn a_lane_takes_its_own_in_order_and_then_the_last_of_the_longest() {
        let chunks = vec![ChunkSpec::default(); 5];
        let schedule = Schedule::new(&chunks, 2, &Affinity::none());
        assert_eq!(schedule.take(1), Some(Taken { chunk: 1, stolen: false }));
        let rest = [(3, false), (4, true), (2, true), (0, true)];
        assert_eq!(chunks_of(&schedule, 1), rest);
        assert!(schedule.is_empty() && schedule.take(0).is_none());
    }

    #[test]
    fn chunks_follow_the_file_with_most_of_their_bytes() {
        let chunks = [
            chunk(&[(0, 10), (1, 30)]),
            chunk(&[(0, 10), (1, 3), (0, 1)]),
            chunk(&[(2, 1)]),
            chunk(&[(3, 1)]),
            chunk(&[]),
        ];
        let affinity = Affinity::by_file(vec![Some(0), Some(1), None, Some(7)]);
        let schedule = Schedule::new(&chunks, 2, &affinity);
        // File 2 prefers nobody, file 3 a lane that there is not: they are dealt out in turn.
        assert_eq!(schedule.lists.lock().clone(), [vec![1, 2, 4], vec![0, 3]]);
    }

    #[test]
    fn chunks_may_prefer_a_lane_of_their_own() {
        let chunks = vec![ChunkSpec::default(); 5];
        let schedule = Schedule::new(&chunks, 2, &Affinity::by_chunk(vec![1, 1, 0, 7]));
        // There is no lane 7, and nothing was said of the last: they are dealt out in turn.
        assert_eq!(schedule.lists.lock().clone(), [vec![2, 3], vec![0, 1, 4]]);
    }
}
