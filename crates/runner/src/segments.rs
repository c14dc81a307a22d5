//! A table's segments on their way to the GPUs: as many as can be planned at once, then the rest as
//! the race wants it.
//!
//! Whether all columns are resident, and one launch for all of them, depend on every segment. So up to half a
//! million columns of segments are planned before the race. The rest of a larger table is planned by the device
//! that begins a chunk.

use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_cuda::{SegmentFeed, SegmentSource};
use headrace_flow::BoxError;
use headrace_format::{FedChunk, FeedBounds, FormatError};
use headrace_io::FileIdentity;

use crate::chunks::TableFeed;
use crate::error::RunError;
use crate::pages::TablePages;
use crate::task::Task;

/// Columns of segments that are planned before a race: of a table with at most so many it is known
/// whether all is on the GPUs, so that it can run in one launch a GPU; of a larger one the race
/// finds that chunk by chunk. About 100 MB of plan.
const PLANNED_COLUMNS_MAX: usize = 1 << 19;

/// The segments of a task.
#[derive(Debug)]
pub struct Segments {
    feed: TableFeed,
    /// Columns are numbered as the table has them, which another table over the same file may order
    /// differently: their names are part of the identity.
    names: String,
    /// The last file's, and its number.
    identity: Option<(u32, Option<Arc<[u8]>>)>,
    columns: Arc<[u32]>,
    keeps: bool,
    is_stream: bool,
    pages: Option<Arc<TablePages>>,
}

impl Segments {
    /// Those of a feed over the task's table, whose rows may lie in pages.
    pub fn of(task: &Task<'_>, feed: TableFeed, pages: Option<&Arc<TablePages>>) -> Self {
        let table = task.table.source();
        let names: Vec<_> = table.schema().fields().iter().map(|f| f.name().as_str()).collect();
        Self {
            feed,
            names: format!("{names:?}"),
            identity: None,
            columns: task.pipeline.source.ordinals.iter().map(|&c| c as u32).collect(),
            keeps: table.policy().keeps(),
            is_stream: table.comes_once(),
            pages: pages.cloned(),
        }
    }

    /// What is known before the first.
    pub fn bounds(&self) -> FeedBounds {
        self.feed.bounds()
    }

    /// The first segments, and whether they are all. Of batches that come once there are none: what
    /// is pulled of them is for the race alone.
    ///
    /// # Errors
    /// Those of the feed.
    pub fn first(&mut self) -> Result<(Vec<SegmentSource>, bool), RunError> {
        let mut first = Vec::new();
        if self.is_stream {
            return Ok((first, false));
        }
        while first.len() * self.columns.len().max(1) < PLANNED_COLUMNS_MAX {
            match self.poll(Waker::noop()) {
                Poll::Ready(Some(segments)) => first.extend(segments?),
                Poll::Ready(None) => return Ok((first, true)),
                // It comes while the race runs.
                Poll::Pending => break,
            }
        }
        Ok((first, false))
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Option<Result<Vec<SegmentSource>, FormatError>>> {
        let polled = self.feed.poll_next(waker);
        polled.map(|next| next.map(|fed| fed.and_then(|fed| self.sources(fed))))
    }

    fn sources(&mut self, fed: FedChunk) -> Result<Vec<SegmentSource>, FormatError> {
        let FedChunk { chunk, memory } = fed;
        let source = |segment: headrace_ir::Segment| {
            let from = self.feed.file_of(&segment, memory.as_ref())?;
            let (file, stamp) = match &self.pages {
                Some(pages) if segment.is_pages() => pages.stamp(&segment).unzip(),
                _ => (self.identity(segment.file, from.identity()), None),
            };
            let (columns, stamp) = (Arc::clone(&self.columns), stamp.unwrap_or(0));
            Ok(SegmentSource { segment, from, file, columns, stamp, kept: None })
        };
        chunk.segments.into_iter().map(source).collect()
    }

    /// What makes columns of a file the same in a later query; `None` where none are kept.
    fn identity(&mut self, file: u32, identity: FileIdentity) -> Option<Arc<[u8]>> {
        match &self.identity {
            Some((known, bytes)) if *known == file => bytes.clone(),
            _ => {
                let bytes = || format!("{identity:?} {}", self.names).into_bytes().into();
                let bytes: Option<Arc<[u8]>> = self.keeps.then(bytes);
                self.identity = Some((file, bytes.clone()));
                bytes
            }
        }
    }
}

impl SegmentFeed for Segments {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<Vec<SegmentSource>, BoxError>>> {
        self.poll(waker).map(|next| next.map(|segments| segments.map_err(BoxError::from)))
    }
}
