//! A table's segments on their way to the GPUs: as many as can be planned at once, then the rest as
//! the race wants it.
//!
//! Whether all columns are resident, and one launch for all of them, depend on every segment. So up to half a
//! million columns of segments are planned before the race. The rest of a larger table is planned by the device
//! that begins a chunk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_cuda::SegmentSource;
use headrace_flow::RaceError;
use headrace_format::{FeedFacts, Table};
use headrace_io::{ChunkFeed, FedChunk, Lanes, NextChunk};
use headrace_ir::Chunk;
use parking_lot::Mutex;

use crate::chunks::TableFeed;
use crate::error::RunError;
use crate::near::NearGpus;
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
    table: Arc<dyn Table>,
    /// Columns are numbered as the table has them, which another table over the same file may order
    /// differently: their names are part of the identity, unless each has a number of its own.
    names: String,
    /// The last file's, and its number.
    identity: Option<(u32, Option<Arc<[u8]>>)>,
    columns: Arc<[u32]>,
    keeps: bool,
    is_stream: bool,
    pages: Option<Arc<TablePages>>,
    /// Which GPUs are near, once it is known which take part.
    near: Option<NearGpus>,
}

impl Segments {
    /// Those of a feed over the task's table, whose rows may lie in pages.
    pub fn of(task: &Task<'_>, feed: TableFeed, pages: Option<&Arc<TablePages>>) -> Self {
        let (table, ordinals) = (task.table.source(), &task.pipeline.source.ordinals);
        let (names, columns) = match kept_numbers(&**table, ordinals) {
            Some(numbers) => (String::new(), numbers),
            None => {
                let names = table.schema().fields().iter().map(|field| field.name().as_str());
                let names = format!("{:?}", names.collect::<Vec<_>>());
                (names, ordinals.iter().map(|&column| column as u32).collect())
            }
        };
        Self {
            feed,
            table: Arc::clone(table),
            names,
            identity: None,
            columns,
            keeps: table.policy().keeps(),
            is_stream: table.comes_once(),
            pages: pages.cloned(),
            near: None,
        }
    }

    /// Deals those that are not planned to the nearest GPUs.
    pub fn dealt_to(self, near: Option<NearGpus>) -> Self {
        Self { near, ..self }
    }

    /// What is known before the first.
    pub fn facts(&self) -> FeedFacts {
        self.feed.facts()
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
            match self.poll_next(Waker::noop()) {
                Poll::Ready(Some(Ok(fed))) => first.extend(fed.payload),
                Poll::Ready(Some(Err(source))) => return Err(RaceError::Feed { source }.into()),
                Poll::Ready(None) => return Ok((first, true)),
                // It comes while the race runs.
                Poll::Pending => break,
            }
        }
        Ok((first, false))
    }

    fn sources(&mut self, fed: FedChunk<Chunk>) -> Vec<SegmentSource> {
        let mut at = 0;
        let source = |segment: headrace_ir::Segment| {
            let extents = segment.extents().count();
            let from = fed.files[at..at + extents].first().cloned();
            at += extents;
            let (file, stamp) = match &self.pages {
                Some(pages) if segment.is_pages() => pages.stamp(&segment).unzip(),
                _ => (self.identity(segment.file), None),
            };
            let (columns, stamp) = (Arc::clone(&self.columns), stamp.unwrap_or(0));
            let near = Lanes::ALL;
            SegmentSource { segment, from, file, columns, stamp, kept: None, near }
        };
        let sources: Vec<_> = fed.payload.segments.into_iter().map(source).collect();
        match &mut self.near {
            Some(near) => near.deal(sources),
            None => sources,
        }
    }

    /// What makes columns of a file the same in a later query; `None` where none are kept.
    fn identity(&mut self, file: u32) -> Option<Arc<[u8]>> {
        match &self.identity {
            Some((known, bytes)) if *known == file => bytes.clone(),
            _ => {
                let identity = || self.table.file_identity(file as usize);
                let bytes = || format!("{:?} {}", identity(), self.names).into_bytes().into();
                let bytes: Option<Arc<[u8]>> = self.keeps.then(bytes);
                self.identity = Some((file, bytes.clone()));
                bytes
            }
        }
    }
}

/// Numbers of the names under which columns are kept, the same as long as the process lives; `None`: they have none.
fn kept_numbers(table: &dyn Table, ordinals: &[usize]) -> Option<Arc<[u32]>> {
    static NUMBERS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());
    let names: Option<Vec<_>> = ordinals.iter().map(|&column| table.kept_name(column)).collect();
    let names = names.filter(|names| !names.is_empty())?;
    let mut numbers = NUMBERS.lock();
    let number = |name| {
        let next = numbers.len() as u32;
        *numbers.entry(name).or_insert(next)
    };
    Some(names.into_iter().map(number).collect())
}

impl ChunkFeed<Vec<SegmentSource>> for Segments {
    fn poll_next(&mut self, waker: &Waker) -> NextChunk<Vec<SegmentSource>> {
        let fed = |payload| FedChunk { payload, ..FedChunk::default() };
        let polled = self.feed.poll_next(waker);
        polled.map(|next| next.map(|chunk| chunk.map(|chunk| fed(self.sources(chunk)))))
    }
}
