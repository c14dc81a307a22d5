//! Which device takes which chunk: its own first, then stolen from the lane with the most left,
//! from the end of its list.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use headrace_io::{FedChunk, Lanes, ReadSpec};
use parking_lot::Mutex;

use crate::feed::Chunks;
use crate::{Race, RaceError};

/// Maximum of a feed's chunks waiting on the lists, per lane, not counting those that only some lanes may take: the
/// race's look-ahead.
const AHEAD_PER_LANE: usize = 16;

/// The device for a chunk, if the chunk's feed does not say: the one nearest to its file's storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affinity {
    by_file: Vec<Option<usize>>,
}

impl Affinity {
    /// No preference: chunks are dealt out in turn.
    pub fn none() -> Affinity {
        Affinity::default()
    }

    /// The preferred lane of each file of the race. Files beyond the end of the list, and those
    /// with an invalid lane, have none.
    pub fn by_file(lanes: Vec<Option<usize>>) -> Affinity {
        Affinity { by_file: lanes }
    }

    fn of<P>(&self, chunk: &FedChunk<P>, lanes: usize) -> Option<usize> {
        chunk.lane.or_else(|| self.of_files(&chunk.reads)).filter(|lane| *lane < lanes)
    }

    /// The lane preferred by the file that most of the chunk's bytes come from.
    fn of_files(&self, reads: &[ReadSpec]) -> Option<usize> {
        if self.by_file.is_empty() {
            return None;
        }
        let bytes_of = |file| -> u64 {
            reads.iter().filter(|read| read.file == file).map(|read| read.bytes).sum()
        };
        // The first of equals, so that the choice does not depend on anything else.
        let main = reads.iter().rev().max_by_key(|read| bytes_of(read.file))?;
        self.by_file.get(main.file).copied().flatten()
    }
}

/// The chunks that are not begun, one list per lane, which a feed fills while the race runs. A list
/// of chunks and an affinity always give the same lists, so that cached data on a device is found
/// again.
#[derive(Debug)]
pub(crate) struct Schedule<'a, P> {
    race: &'a Race<P>,
    affinity: &'a Affinity,
    lanes: usize,
    state: Mutex<State<P>>,
}

#[derive(Debug)]
struct State<P> {
    /// For each group of lanes that chunks may be stolen by: all, first, and what others came.
    lists: Vec<Lists<P>>,
    chunks: Chunks<P>,
    ahead_max: usize,
    in_turn: usize,
}

/// Chunks that wait, which some lanes may steal.
#[derive(Debug)]
struct Lists<P> {
    takers: Lanes,
    /// By the lane that takes them unless another steals them.
    by_lane: Vec<VecDeque<FedChunk<P>>>,
}

impl<P> Lists<P> {
    fn new(takers: Lanes, lanes: usize) -> Self {
        Self { takers, by_lane: (0..lanes).map(|_| VecDeque::new()).collect() }
    }

    fn len(&self) -> usize {
        self.by_lane.iter().map(VecDeque::len).sum()
    }
}

/// A chunk to work on.
#[derive(Debug)]
pub(crate) struct Taken<P> {
    pub chunk: FedChunk<P>,
    /// Whether it was on another lane's list.
    pub stolen: bool,
}

impl<'a, P: Default> Schedule<'a, P> {
    /// Lists for `lanes` lanes (at least 1).
    ///
    /// # Errors
    /// [`RaceError::Feed`] if the race's feed was taken before.
    pub fn new(race: &'a Race<P>, lanes: usize, affinity: &'a Affinity) -> Result<Self, RaceError> {
        let chunks = Chunks::of(race)?;
        let ahead_max = if chunks.is_list() { usize::MAX } else { lanes * AHEAD_PER_LANE };
        let lists = vec![Lists::new(Lanes::ALL, lanes)];
        let state = Mutex::new(State { lists, chunks, ahead_max, in_turn: 0 });
        Ok(Schedule { race, affinity, lanes, state })
    }

    /// The next chunk for a lane: each is given out once. If there is none, either all were given
    /// out, or the feed has none yet and will wake `waker`.
    ///
    /// # Errors
    /// Those of the feed.
    pub fn take(&self, lane: usize, waker: &Waker) -> Result<Option<Taken<P>>, RaceError> {
        let mut state = self.state.lock();
        let State { lists, chunks, ahead_max, in_turn } = &mut *state;
        // What others may not take comes first: they wait for the rest of it.
        if let Some(chunk) = lists.iter_mut().rev().find_map(|list| list.by_lane[lane].pop_front())
        {
            return Ok(Some(Taken { chunk, stolen: false }));
        }
        let mut ahead = lists[0].len();
        while ahead < *ahead_max
            && let Poll::Ready(Some(chunk)) = chunks.poll_next(self.race, waker)
        {
            let chunk = chunk?;
            let owner = self.affinity.of(&chunk, self.lanes).unwrap_or_else(|| {
                *in_turn += 1;
                (*in_turn - 1) % self.lanes
            });
            if owner == lane {
                return Ok(Some(Taken { chunk, stolen: false }));
            }
            // Those that some may not take do not count: they wait for their own, and the others look past them.
            let takers = chunk.takers.among(self.lanes);
            ahead += usize::from(takers == Lanes::ALL);
            let at = lists.iter().position(|list| list.takers == takers);
            let at = at.unwrap_or_else(|| {
                lists.push(Lists::new(takers, self.lanes));
                lists.len() - 1
            });
            lists[at].by_lane[owner].push_back(chunk);
        }
        // From the end: what its owner would come to last.
        let may_take = lists.iter_mut().filter(|list| list.takers.has(lane));
        let longest = may_take.flat_map(|list| &mut list.by_lane).max_by_key(|list| list.len());
        let chunk = longest.and_then(VecDeque::pop_back);
        Ok(chunk.map(|chunk| Taken { chunk, stolen: true }))
    }

    /// Whether every chunk that the lane may take was given out.
    pub fn is_finished(&self, lane: usize) -> bool {
        let state = self.state.lock();
        state.chunks.has_ended && !state.has_for(lane)
    }

    /// Whether a free slot would get a chunk now, as far as is known.
    pub fn has_more(&self, lane: usize) -> bool {
        let state = self.state.lock();
        state.has_for(lane) || !(state.chunks.has_ended || state.chunks.is_waiting)
    }
}

impl<P> State<P> {
    /// Whether a list has a chunk that the lane may take.
    fn has_for(&self, lane: usize) -> bool {
        let has = |list: &Lists<P>| {
            !list.by_lane[lane].is_empty() || (list.takers.has(lane) && list.len() > 0)
        };
        self.lists.iter().any(has)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use headrace_io::{ChunkFeed, FeedBounds, NextChunk};

    use crate::{CancelToken, ChunkSpec, RaceOptions};

    /// Chunks whose lanes are these, with who else may take them.
    #[derive(Debug)]
    struct Dealt(VecDeque<(Option<usize>, Lanes)>);

    impl ChunkFeed for Dealt {
        fn poll_next(&mut self, _waker: &Waker) -> NextChunk {
            let next = self.0.pop_front();
            let chunk = |(lane, takers)| Ok(FedChunk { lane, takers, ..FedChunk::default() });
            Poll::Ready(next.map(chunk))
        }
    }

    fn listed(chunks: usize) -> Race {
        let chunks = vec![ChunkSpec::default(); chunks];
        Race::new(Vec::new(), chunks, RaceOptions::default(), CancelToken::new()).unwrap()
    }

    fn fed(lanes: impl IntoIterator<Item = Option<usize>>, takers: Lanes) -> Race {
        feeding(lanes.into_iter().map(|lane| (lane, takers)).collect())
    }

    fn feeding(chunks: VecDeque<(Option<usize>, Lanes)>) -> Race {
        let feed = Box::new(Dealt(chunks));
        Race::fed(feed, FeedBounds::default(), RaceOptions::default(), CancelToken::new())
    }

    fn take(schedule: &Schedule<'_, ()>, lane: usize) -> Option<(usize, bool)> {
        let taken = schedule.take(lane, Waker::noop()).unwrap()?;
        Some((taken.chunk.number, taken.stolen))
    }

    fn all_of(schedule: &Schedule<'_, ()>, lane: usize) -> Vec<(usize, bool)> {
        std::iter::from_fn(|| take(schedule, lane)).collect()
    }

    #[test]
    fn a_lane_takes_its_own_in_order_and_then_the_last_of_the_longest() {
        let (race, none) = (listed(5), Affinity::none());
        let schedule = Schedule::new(&race, 2, &none).unwrap();
        assert_eq!(take(&schedule, 1), Some((1, false)));
        assert_eq!(all_of(&schedule, 1), [(3, false), (4, true), (2, true), (0, true)]);
        assert!(schedule.is_finished(0) && take(&schedule, 0).is_none());
    }

    #[test]
    fn chunks_follow_the_file_with_most_of_their_bytes() {
        let affinity = Affinity::by_file(vec![Some(0), Some(1), None, Some(7)]);
        let lane = |reads: &[(usize, u64)]| {
            let read = |&(file, bytes): &(usize, u64)| ReadSpec { file, offset: 0, bytes };
            let reads = reads.iter().map(read).collect();
            affinity.of(&FedChunk { reads, ..FedChunk::<()>::default() }, 2)
        };
        assert_eq!(lane(&[(0, 10), (1, 30)]), Some(1));
        assert_eq!(lane(&[(0, 10), (1, 3), (0, 1)]), Some(0));
        // File 2 prefers nobody, file 3 a lane that there is not: they are dealt out in turn.
        assert_eq!([lane(&[(2, 1)]), lane(&[(3, 1)]), lane(&[])], [None; 3]);
    }

    #[test]
    fn chunks_may_prefer_a_lane_of_their_own() {
        let (race, none) =
            (fed([Some(1), Some(1), Some(0), Some(7), None], Lanes::ALL), Affinity::none());
        let schedule = Schedule::new(&race, 2, &none).unwrap();
        // There is no lane 7, and nothing was said of the last: they are dealt out in turn.
        assert_eq!([take(&schedule, 0), take(&schedule, 0)], [Some((2, false)), Some((3, false))]);
        assert_eq!(all_of(&schedule, 1), [(0, false), (1, false), (4, false)]);
    }

    #[test]
    fn chunks_that_none_may_steal_wait_for_their_lane_and_keep_no_other_from_its_own() {
        let lanes = vec![Some(0); 1000].into_iter().chain([Some(1)]);
        let (race, none) = (fed(lanes, Lanes::NONE), Affinity::none());
        let schedule = Schedule::new(&race, 2, &none).unwrap();
        assert_eq!(all_of(&schedule, 1), [(1000, false)]);
        assert!(schedule.is_finished(1) && !schedule.has_more(1));
        assert!(!schedule.is_finished(0) && schedule.has_more(0));
        assert_eq!(all_of(&schedule, 0), (0..1000).map(|c| (c, false)).collect::<Vec<_>>());
        assert!(schedule.is_finished(0));
    }

    #[test]
    fn chunks_near_some_lanes_are_stolen_by_these_alone() {
        let near: Lanes = [0, 1].into_iter().collect();
        let chunks = vec![(Some(0), near); 3].into_iter().chain([(Some(2), Lanes::ALL)]);
        let (race, none) = (feeding(chunks.collect()), Affinity::none());
        let schedule = Schedule::new(&race, 4, &none).unwrap();
        // Lane 3 is near none of the first, and looks past them.
        assert_eq!(take(&schedule, 3), Some((3, true)));
        assert!(take(&schedule, 3).is_none() && schedule.is_finished(3) && !schedule.has_more(3));
        assert!(take(&schedule, 2).is_none() && !schedule.is_finished(1));
        assert_eq!(take(&schedule, 1), Some((2, true)));
        assert_eq!(all_of(&schedule, 0), [(0, false), (1, false)]);
        assert!((0..4).all(|lane| schedule.is_finished(lane)));
    }

    #[test]
    fn a_feed_is_asked_for_no_more_than_is_wanted_soon() {
        for takers in [Lanes::ALL, [0, 1].into_iter().collect()] {
            asked_for_what_is_wanted_soon(takers);
        }
    }

    fn asked_for_what_is_wanted_soon(takers: Lanes) {
        let (race, none) = (fed(vec![Some(0); 1000], takers), Affinity::none());
        let schedule = Schedule::new(&race, 2, &none).unwrap();
        // Lane 1 has nothing of its own: it looks a bounded way ahead, and takes the last of that.
        let ahead = 2 * AHEAD_PER_LANE;
        assert_eq!(take(&schedule, 1), Some((ahead - 1, true)));
        assert_eq!(take(&schedule, 1), Some((ahead, true)));
        assert_eq!(take(&schedule, 0), Some((0, false)));
        assert!(!schedule.is_finished(0) && schedule.has_more(1));
        let rest: Vec<usize> = all_of(&schedule, 0).into_iter().map(|(chunk, _)| chunk).collect();
        assert_eq!(rest, (1..1000).filter(|c| *c != ahead - 1 && *c != ahead).collect::<Vec<_>>());
        assert!(schedule.is_finished(0) && schedule.is_finished(1));
    }
}
