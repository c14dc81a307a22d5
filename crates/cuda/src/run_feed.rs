//! The chunks of a run on their way into a race: those that were planned, then those of a feed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_flow::{BoxError, ChunkFeed, FedChunk, NextChunk};
use headrace_io::Lanes;
use headrace_ir::pages::PagePlan;

use crate::device::CudaDevice;
use crate::pages::PageOwner;
use crate::stream_chunks::{ChunkSource, Chunker, SegmentSource};
use crate::stream_plan::{kept_pages, resident_bytes};

/// The segments that were not there when the run was made.
pub struct Rest {
    /// Gives them, some at a time. The run decides which of their columns are read.
    pub feed: Box<dyn ChunkFeed<Vec<SegmentSource>>>,
    /// How they become chunks, for as many devices as the run has.
    pub chunker: Chunker,
    /// Bytes of a slot that the largest segment takes at most, all columns read.
    pub segment_slot_bytes: u64,
    /// Bytes of all at most, if anybody knows.
    pub bytes: Option<u64>,
    /// Chunks at most, if anybody knows.
    pub chunks: Option<u64>,
    /// How those that are pages are decoded; `None`: none is.
    pub pages: Option<StreamPages>,
}

/// Pages among the segments of a stream.
#[derive(Clone, Debug)]
pub struct StreamPages {
    /// How they are taken apart.
    pub plan: PagePlan,
    /// Whose they are.
    pub owner: Arc<dyn PageOwner>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rest({:?})", self.feed)
    }
}

/// Chunks for a race.
pub(crate) struct RunFeed {
    /// Those that every device has planned, with the device that takes each.
    pub planned: VecDeque<(ChunkSource, usize)>,
    /// Whether all of those are to stay on their devices.
    pub can_stay: bool,
    pub rest: Option<Rest>,
    /// Columns that the kernels read.
    pub read: Vec<usize>,
    pub devices: Vec<Arc<CudaDevice>>,
    /// By device: the number of the query there.
    pub queries: Vec<u64>,
    /// Of the rest, chunks that are full.
    pub full: VecDeque<ChunkSource>,
    pub has_ended: bool,
}

impl fmt::Debug for RunFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunFeed({} planned, then {:?})", self.planned.len(), self.rest)
    }
}

impl RunFeed {
    fn fed(&self, payload: ChunkSource, lane: usize, stays: bool) -> FedChunk<ChunkSource> {
        let (reads, files) = payload.reads(&self.read);
        let takers = if stays { Lanes::NONE } else { payload.near() };
        FedChunk { reads, files, lane: Some(lane), takers, payload, ..FedChunk::default() }
    }

    /// A segment of pages whose rows a device has kept comes with them.
    fn with_kept(&self, source: SegmentSource) -> SegmentSource {
        if !source.segment.is_pages() || source.file.is_none() {
            return source;
        }
        let mut devices = self.devices.iter().zip(&self.queries).enumerate();
        let kept = devices
            .find_map(|(n, (device, query))| kept_pages((n, device), *query, &self.read, &source));
        SegmentSource { kept, ..source }
    }

    /// The device that has most of a chunk, or else the one that it was dealt to.
    fn owner(&self, chunk: &ChunkSource) -> usize {
        if self.devices.len() <= 1 || chunk.is_kept() {
            return chunk.device;
        }
        let has = |device: &usize| resident_bytes(&self.devices[*device], &self.read, chunk);
        // The last of equals is taken.
        let others = (0..self.devices.len()).filter(|device| *device != chunk.device);
        others.chain([chunk.device]).max_by_key(has).unwrap_or(chunk.device)
    }

    /// The next chunk of the rest.
    fn poll_rest(&mut self, waker: &Waker) -> Poll<Option<Result<ChunkSource, BoxError>>> {
        loop {
            let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
            if let Some(chunk) = self.full.pop_front() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            if self.has_ended {
                return Poll::Ready(rest.chunker.take().map(Ok));
            }
            match rest.feed.poll_next(waker) {
                // What came so far need not wait for the rest.
                Poll::Pending => match rest.chunker.take() {
                    Some(chunk) => return Poll::Ready(Some(Ok(chunk))),
                    None => return Poll::Pending,
                },
                Poll::Ready(None) => self.has_ended = true,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(fed))) => {
                    let sources: Vec<_> =
                        fed.payload.into_iter().map(|source| self.with_kept(source)).collect();
                    if let Some(rest) = &mut self.rest {
                        let full = sources.into_iter().filter_map(|s| rest.chunker.push(s));
                        self.full.extend(full);
                    }
                }
            }
        }
    }
}

impl ChunkFeed<ChunkSource> for RunFeed {
    fn poll_next(&mut self, waker: &Waker) -> NextChunk<ChunkSource> {
        if let Some((chunk, lane)) = self.planned.pop_front() {
            return Poll::Ready(Some(Ok(self.fed(chunk, lane, self.can_stay))));
        }
        let next = self.poll_rest(waker);
        next.map(|next| {
            next.map(|chunk| {
                let chunk = chunk?;
                let (lane, is_kept) = (self.owner(&chunk), chunk.is_kept());
                Ok(self.fed(chunk, lane, is_kept))
            })
        })
    }
}
