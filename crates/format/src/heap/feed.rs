//! Chunks of blocks, and between them chunks of the rows that the server reads.
//!
//! Columns that a device keeps from a heap are told from older ones by a stamp, which the owner gives with the list
//! of blocks, not by a file's time. Segments are cut where stamps are cut, so that every run finds them again. A
//! segment whose columns are all kept is a chunk of its own kind and is not read.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use arrow_schema::Schema;
use headrace_ir::{Chunk, ColumnExtents, Encoding, Extent, Segment};

use headrace_io::{MemoryFile, SourceFile};

use super::Reroute;
use super::parts::Block;
use super::server_pages::{IN_MEMORY, ServerPages};
use super::table::{HeapTable, ServerRows};
use crate::arrow::{CHUNK_EXTRA_SHARE, ChunkOptions, Filling};
use crate::batches::{BatchFeed, BatchTable, Receiver};
use crate::feed::{ChunkTotals, FedChunk, Feed, FeedBounds};
use crate::{FormatError, Result};

/// Chunks of a [`HeapTable`]: alternately of its blocks and of its stream, as long as both have
/// any.
pub(super) struct HeapFeed {
    table: Arc<HeapTable>,
    options: ChunkOptions,
    /// The current part, the number of its block ranges already given, and its first block that was
    /// not.
    part: usize,
    ranges: usize,
    next: u32,
    streamed: BatchFeed,
    /// Pages from the server, set when the first chunk is requested.
    pages: Option<Receiver<ServerPages>>,
    pages_name: Arc<SourceFile>,
    /// Whether the last chunk came from the stream.
    was_streamed: bool,
    has_ended: bool,
    /// Of the blocks.
    totals: ChunkTotals,
}

impl fmt::Debug for HeapFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeapFeed({:?}, {:?})", self.table, self.totals)
    }
}

impl HeapFeed {
    /// A feed of columns of this schema.
    pub(super) fn new(table: Arc<HeapTable>, columns: &Schema, options: ChunkOptions) -> Self {
        let rows = BatchTable::new(table.name(), columns, ServerRows::new(Arc::clone(&table)));
        let all: Vec<usize> = (0..columns.fields().len()).collect();
        Self {
            streamed: BatchFeed::new(Arc::new(rows), &all, options),
            pages: None,
            pages_name: MemoryFile::named(&format!("pages of {}", table.name())),
            table,
            options,
            part: 0,
            ranges: 0,
            next: 0,
            was_streamed: false,
            has_ended: false,
            totals: ChunkTotals::default(),
        }
    }

    fn block_bytes(&self) -> u64 {
        self.table.parts.block_bytes() as u64
    }

    /// Target bytes of a chunk of blocks.
    fn wanted_bytes(&self) -> u64 {
        self.options.chunk_bytes_wanted.min(self.options.chunk_bytes_max)
    }

    /// The next blocks of one range and one file of the current part, as many as fit a chunk with
    /// `filled_bytes`.
    fn next_run(&mut self, filled_bytes: u64) -> Option<Range<u32>> {
        let (range, file_blocks) = loop {
            let blocks = &self.table.parts.get(self.part)?.blocks;
            match blocks.direct.get(self.ranges) {
                None => (self.part, self.ranges, self.next) = (self.part + 1, 0, 0),
                Some(range) if self.next < range.end => {
                    break (range.clone(), blocks.blocks_per_file);
                }
                Some(_) => self.ranges += 1,
            }
        };
        self.next = self.next.max(range.start);
        let fitting = self.wanted_bytes().saturating_sub(filled_bytes) / self.block_bytes();
        let fitting = u32::try_from(fitting).unwrap_or(u32::MAX).max(1);
        let to_file_end = file_blocks - self.next % file_blocks;
        let mut blocks = (range.end - self.next).min(to_file_end);
        let stamps = self.table.parts.get(self.part)?.blocks.stamps.as_ref();
        if let Some(stamps) = stamps {
            blocks = blocks.min(stamps.segment_end(self.next) - self.next);
            // What may be kept is not cut otherwise if that can be helped.
            if filled_bytes > 0 && blocks > fitting {
                return None;
            }
        }
        Some(self.next..self.next + blocks.min(fitting))
    }

    /// The part of a run that exists in its file; the rest is rerouted to the server.
    fn segment(&self, run: &Range<u32>) -> Result<Option<Segment>> {
        let Some(part) = self.table.parts.get(self.part) else { return Ok(None) };
        let (file_blocks, block_bytes) = (part.blocks.blocks_per_file, self.block_bytes());
        let file = part.first_file + run.start / file_blocks;
        let offset = u64::from(run.start % file_blocks) * block_bytes;
        let size_bytes = self.table.identity(file as usize)?.size_bytes;
        let there = size_bytes.saturating_sub(offset) / block_bytes;
        if there == 0 {
            self.reroute(run, size_bytes.saturating_sub(offset) as usize);
            return Ok(None);
        }
        let bytes = there.min(run.len() as u64) * block_bytes;
        Ok(Some(self.pages_segment(file, Extent { offset, bytes })))
    }

    /// Reroutes blocks that the file does not have to the server; it has `found_bytes` of the
    /// first.
    fn reroute(&self, run: &Range<u32>, found_bytes: usize) {
        let block_bytes = self.table.parts.block_bytes();
        for number in run.clone() {
            let found_bytes = if number == run.start { found_bytes } else { 0 };
            let block = Block { part: self.part as u32, number };
            self.table.owner().reroute(block, Reroute::Length { found_bytes, block_bytes });
        }
        self.table.done(run.len() as u32);
    }

    fn encoding(&self) -> Encoding {
        // At most 32 kB.
        Encoding::Pages { block_bytes: self.block_bytes() as u32 }
    }

    /// The next chunk of blocks; `None` after the last.
    fn next_blocks(&mut self) -> Result<Option<FedChunk>> {
        let (mut chunk, mut filling) = (Chunk::default(), Filling::default());
        while let Some(run) = self.next_run(filling.bytes) {
            let Some(segment) = self.segment(&run)? else {
                self.next = run.end;
                continue;
            };
            let bytes = segment.extents().map(|extent| extent.bytes).sum::<u64>();
            if !filling.takes(&self.options, 0, bytes, 1) {
                break;
            }
            self.next += (bytes / self.block_bytes()) as u32;
            chunk.segments.push(segment);
        }
        if chunk.segments.is_empty() {
            return Ok(None);
        }
        self.totals.add(chunk.segments.len() as u64, 0, filling.bytes);
        Ok(Some(FedChunk { chunk, memory: None }))
    }

    /// Rows and pages from the server.
    fn poll_server(&mut self, waker: &Waker) -> Poll<Option<Result<FedChunk>>> {
        let streamed = self.streamed.poll_next(waker);
        // Rows end last.
        let (Poll::Pending, Some(pages)) = (&streamed, &mut self.pages) else { return streamed };
        match pages.poll_next(waker) {
            Poll::Ready(Some(Ok(pages))) => Poll::Ready(Some(Ok(self.chunk_of(pages)))),
            Poll::Ready(Some(Err(cause))) => {
                let failed = format!("pages of {}: {cause}", self.table.name());
                Poll::Ready(Some(Err(FormatError::Argument(failed))))
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn chunk_of(&mut self, pages: ServerPages) -> FedChunk {
        let (offset, bytes) = (pages.as_ref().as_ptr().addr() as u64, pages.as_ref().len() as u64);
        let segment = self.pages_segment(IN_MEMORY, Extent { offset, bytes });
        self.totals.add(1, 0, bytes);
        let memory = MemoryFile::new(&self.pages_name, vec![Box::new(pages)]);
        FedChunk { chunk: Chunk { segments: vec![segment] }, memory: Some(memory) }
    }

    fn pages_segment(&self, file: u32, values: Extent) -> Segment {
        let encoding = self.encoding();
        let column = ColumnExtents {
            encoding,
            values,
            offsets: None,
            offsets_base: 0,
            validity: None,
            remap: None,
        };
        Segment { file, batch: 0, first_row: 0, rows: 0, columns: vec![column] }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Option<Result<FedChunk>>> {
        // Blocks have a turn after each chunk of the stream, and whenever it has nothing.
        if self.was_streamed {
            self.was_streamed = false;
            if let Some(next) = self.next_blocks().transpose() {
                return Poll::Ready(Some(next));
            }
        }
        let streamed = self.poll_server(waker);
        self.was_streamed = matches!(streamed, Poll::Ready(Some(_)));
        if self.was_streamed {
            return streamed;
        }
        match self.next_blocks().transpose() {
            Some(next) => Poll::Ready(Some(next)),
            None => streamed,
        }
    }
}

impl Feed for HeapFeed {
    /// A chunk of blocks has the wanted size, rounded up to a block, in one segment or in many
    /// small ones; a chunk of the stream has the size of batch chunks.
    fn bounds(&self) -> FeedBounds {
        let (options, block_bytes) = (self.options, self.block_bytes());
        let (wanted, extra) = (self.wanted_bytes().max(1), options.extent_extra_bytes);
        let segment = wanted.max(block_bytes).saturating_add(extra);
        let extras = (options.chunk_segments_max as u64).saturating_mul(extra);
        let by_bytes = wanted.saturating_add(block_bytes).saturating_add(extras);
        let by_room = wanted.saturating_mul(CHUNK_EXTRA_SHARE).saturating_add(segment);
        let blocks = by_bytes.min(by_room).min(options.chunk_bytes_max).max(segment);
        let streamed = self.streamed.bounds();
        FeedBounds {
            rows: None,
            bytes: None,
            chunks: None,
            chunk_bytes: blocks.max(streamed.chunk_bytes),
            segment_bytes: segment.max(streamed.segment_bytes),
            encodings: streamed.encodings,
        }
    }

    fn remaps(&self) -> &[Arc<[i32]>] {
        self.streamed.remaps()
    }

    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<FedChunk>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if self.pages.is_none() {
            self.pages = self.table.take_pages();
        }
        let polled = self.poll(waker);
        self.has_ended = matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled
    }

    fn totals(&self) -> ChunkTotals {
        let (blocks, streamed) = (self.totals, self.streamed.totals());
        ChunkTotals {
            chunks: blocks.chunks + streamed.chunks,
            segments: blocks.segments + streamed.segments,
            rows: blocks.rows + streamed.rows,
            bytes: blocks.bytes + streamed.bytes,
            bytes_max: blocks.bytes_max.max(streamed.bytes_max),
            ..streamed
        }
    }
}
