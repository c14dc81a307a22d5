//! Blocks in files, and rows that the server reads itself, as one table.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use headrace_io::{FileIdentity, InputPolicy, ReadAt, SourceFile};
use serde::{Deserialize, Serialize};

use super::BlockOwner;
use super::block_decoder::BlockDecoder;
use super::feed::HeapFeed;
use super::page_source::BlockSource;
use super::parts::Parts;
use super::relation::Relation;
use super::server_pages::ServerPages;
use crate::arrow::{ChunkOptions, ColumnBound};
use crate::batches::{BatchStream, ProducerError, Receiver};
use crate::{Feed, FormatError, PageDecoder, PageSource, Result, Table};

/// The location of a relation's blocks, and which of them are decoded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeapBlocks {
    /// The table.
    pub relation: Relation,
    /// Its segment files in order. They are examined when a run is planned; blocks that a file does
    /// not have then (all of them if it is missing) are rerouted. From then on they may grow, but a
    /// shorter file fails the run.
    pub files: Vec<PathBuf>,
    /// Blocks of a full file (`segment_size`, usually 131072).
    pub blocks_per_file: u32,
    /// The blocks that are read from the files, by their numbers in the relation: ascending,
    /// disjoint ranges. The rows of all others come through the stream.
    pub direct: Vec<Range<u32>>,
    /// `None`: their rows must not be cached for a later run.
    pub stamps: Option<Stamps>,
}

/// Stamps that identify versions of a relation's blocks: a block that two runs list under the same
/// non-zero stamp has the same rows in both.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stamps {
    /// The identity of the files: another relation, or the same one rewritten, has another.
    pub identity: String,
    /// Number of consecutive blocks that share a stamp.
    pub blocks: u32,
    /// The stamps of this many blocks each; blocks behind the last have none.
    pub stamps: Vec<u64>,
}

/// Number of segments per stamp. Every run must cut alike, because rows are cached by segment.
const SEGMENTS_PER_STAMP: u32 = 32;

impl Stamps {
    /// A block's stamp, if it has one.
    pub(super) fn of(&self, block: u32) -> Option<u64> {
        let stamp = self.stamps.get((block / self.blocks) as usize);
        stamp.copied().filter(|stamp| *stamp != 0)
    }

    /// The end of the segment with this block.
    pub(super) fn segment_end(&self, block: u32) -> u32 {
        let segment_blocks = self.blocks.div_ceil(SEGMENTS_PER_STAMP);
        let place = block % self.blocks;
        let end = (place / segment_blocks + 1) * segment_blocks;
        (block - place).saturating_add(end.min(self.blocks))
    }
}

/// A heap, or several as one table, whose blocks are decoded by the workers where possible, and read by
/// the owning server otherwise: for one run, because the server's rows come once.
///
/// The columns are the decodable attributes of the first heap that were not dropped, in order; other
/// heaps match by name, in any position. Several heaps form one stream, one after the other. Nothing of
/// the files is cached for later runs, and they may change during one: a block is copied, its
/// [owner](BlockOwner) asked whether it holds, and then the copy decoded.
///
/// The stream's batches have the columns of the one feed, in its order, with the table's types;
/// other types are an error.
pub struct HeapTable {
    name: String,
    pub(super) parts: Parts,
    identities: Vec<OnceLock<FileIdentity>>,
    owner: Arc<dyn BlockOwner>,
    /// Blocks that the workers decode, from the files or from the server's pages.
    decoded_blocks: u64,
    done_blocks: AtomicU64,
    stream: Mutex<Option<Box<dyn BatchStream>>>,
    fills_page_cache: bool,
    /// Pages from the server.
    pages: Mutex<Option<Receiver<ServerPages>>>,
}

impl fmt::Debug for HeapTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeapTable({}, {} blocks)", self.name, self.decoded_blocks)
    }
}

impl HeapTable {
    /// A table of the blocks of these heaps, and of the rows that the owner sends through the stream;
    /// `name` is for errors.
    ///
    /// # Errors
    /// [`FormatError::Argument`] if a description is inconsistent, or there is none.
    pub fn new(
        name: &str,
        heaps: Vec<HeapBlocks>,
        owner: Arc<dyn BlockOwner>,
        stream: impl BatchStream + 'static,
    ) -> Result<Self> {
        let parts = Parts::new(heaps)?;
        Ok(Self {
            name: name.to_string(),
            identities: (0..parts.file_count()).map(|_| OnceLock::new()).collect(),
            owner,
            decoded_blocks: parts.direct_blocks(),
            done_blocks: AtomicU64::new(0),
            stream: Mutex::new(Some(Box::new(stream))),
            fills_page_cache: false,
            pages: Mutex::new(None),
            parts,
        })
    }

    /// Blocks that are not in the page cache are read through it, and stay there.
    pub fn filling_page_cache(self, fills_page_cache: bool) -> Self {
        Self { fills_page_cache, ..self }
    }

    /// The server hands over this many blocks as pages, each once, besides the rows that it sends: for runs
    /// on the CPU. They are [done](BlockOwner) like those of the files, and may be rerouted.
    pub fn with_pages(self, pages: Receiver<ServerPages>, blocks: u64) -> Self {
        let decoded_blocks = self.decoded_blocks + blocks;
        Self { pages: Mutex::new(Some(pages)), decoded_blocks, ..self }
    }

    /// Those pages, for the first caller.
    pub(super) fn take_pages(&self) -> Option<Receiver<ServerPages>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn owner(&self) -> &dyn BlockOwner {
        &*self.owner
    }

    /// This many blocks are done: see [`BlockOwner`].
    pub(super) fn done(&self, blocks: u32) {
        // First, so that it is seen by whoever sees what the owner does about it.
        self.done_blocks.fetch_add(blocks.into(), Ordering::AcqRel);
        self.owner.done(blocks);
    }

    /// A file as it was when it was first examined; a missing one has no bytes.
    pub(super) fn identity(&self, file: usize) -> Result<FileIdentity> {
        let (path, place) = (self.path(file)?, &self.identities[file]);
        if let Some(known) = place.get() {
            return Ok(*known);
        }
        let is_missing =
            || std::fs::metadata(path).is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound);
        let identity = match FileIdentity::of_path(path) {
            Err(_) if is_missing() => NOWHERE,
            // When it was written says nothing: it is written all the time, and believed block by block.
            found => FileIdentity { mtime_ns: 0, ctime_ns: 0, ..found? },
        };
        Ok(*place.get_or_init(|| identity))
    }

    /// A file for reading, which need not be open.
    pub(super) fn open(&self, file: u32) -> Result<Arc<dyn ReadAt>> {
        let file = file as usize;
        Ok(SourceFile::known_as(self.path(file)?, self.identity(file)?, false))
    }

    fn path(&self, file: usize) -> Result<&Path> {
        let path = self.parts.path(file);
        path.ok_or_else(|| FormatError::Argument(format!("there is no file {file}")))
    }
}

const NOWHERE: FileIdentity =
    FileIdentity { device: 0, inode: 0, size_bytes: 0, mtime_ns: 0, ctime_ns: 0 };

impl HeapBlocks {
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |cause: String| Err(FormatError::Argument(format!("heap blocks: {cause}")));
        self.relation.check(&[])?;
        if self.blocks_per_file == 0 || self.stamps.as_ref().is_some_and(|s| s.blocks == 0) {
            return refuse("files of no blocks, or stamps".to_string());
        }
        let blocks_max = self.files.len() as u64 * u64::from(self.blocks_per_file);
        let mut end = 0;
        for range in &self.direct {
            if range.start < end || range.end <= range.start {
                return refuse(format!("range {range:?} is empty, or not behind the one before"));
            }
            end = range.end;
        }
        if u64::from(end) > blocks_max {
            return refuse(format!("block {end} is beyond the end of {} files", self.files.len()));
        }
        Ok(())
    }
}

/// The rows that the server reads: not requested before a run begins, and not over before all
/// blocks are done.
pub(super) struct ServerRows {
    table: Arc<HeapTable>,
    stream: Option<Box<dyn BatchStream>>,
}

impl ServerRows {
    pub(super) fn new(table: Arc<HeapTable>) -> Self {
        Self { table, stream: None }
    }

    fn stream(&mut self) -> std::result::Result<&mut Box<dyn BatchStream>, ProducerError> {
        if self.stream.is_none() {
            self.stream = self.table.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        let why = "its rows come once, and were read before: make another table";
        self.stream.as_mut().ok_or_else(|| why.into())
    }
}

impl BatchStream for ServerRows {
    fn poll_next(
        &mut self,
        waker: &Waker,
    ) -> Poll<Option<std::result::Result<RecordBatch, ProducerError>>> {
        let polled = match self.stream() {
            Ok(stream) => stream.poll_next(waker),
            Err(why) => return Poll::Ready(Some(Err(why))),
        };
        if !matches!(polled, Poll::Ready(None)) {
            return polled;
        }
        // Blocks that are rerouted now would be lost.
        let done = self.table.done_blocks.load(Ordering::Acquire);
        match self.table.decoded_blocks {
            all if done == all => polled,
            all => {
                let why = format!("the server's rows ended when {done} of {all} blocks were done");
                Poll::Ready(Some(Err(why.into())))
            }
        }
    }
}

impl Table for HeapTable {
    fn schema(&self) -> &SchemaRef {
        self.parts.schema()
    }

    fn comes_once(&self) -> bool {
        true
    }

    fn policy(&self) -> InputPolicy {
        // Copied page by page by the decoder: not before.
        let (check_identity, cached, copy_first) = (false, false, false);
        InputPolicy { check_identity, cached, copy_first, fills_page_cache: self.fills_page_cache }
    }

    fn column_support(&self, column: usize) -> std::result::Result<(), String> {
        self.parts.column_support(column)
    }

    /// Nothing is pulled from the stream before the first chunk is requested; the first feed that
    /// does so owns it, and any other gets an error.
    fn feed(
        self: Arc<Self>,
        columns: &[usize],
        _conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        let schema = Arc::clone(self.parts.decoder(0, columns)?.schema());
        for &column in columns {
            let refused = |cause| FormatError::Argument(format!("column {column}: {cause}"));
            self.column_support(column).map_err(refused)?;
        }
        options.check()?;
        Ok(Box::new(HeapFeed::new(self, &schema, options)))
    }

    fn page_decoder(self: Arc<Self>, columns: &[usize]) -> Result<Option<Box<dyn PageDecoder>>> {
        Ok(Some(Box::new(BlockDecoder::new(self, columns)?)))
    }

    fn page_source(self: Arc<Self>, columns: &[usize]) -> Result<Option<Box<dyn PageSource>>> {
        if self.pages.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            let why = "heap blocks: pages of the server are for the CPU";
            return Err(FormatError::Argument(why.to_string()));
        }
        let plan = self.parts.page_plan(columns)?;
        Ok(Some(Box::new(BlockSource { table: self, plan })))
    }

    fn file_count(&self) -> usize {
        self.parts.file_count()
    }

    /// A file that cannot be examined has no bytes here, and is an error when it is read.
    fn file_identity(&self, file: usize) -> FileIdentity {
        self.identity(file).unwrap_or(NOWHERE)
    }
}
