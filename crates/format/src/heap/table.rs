//! Blocks in files, and rows that the server reads itself, as one table.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use arrow_array::RecordBatch;
use headrace_io::{FileIdentity, ReadAt, SourceFile};

use super::BlockOwner;
use super::parts::{HeapBlocks, Parts};
use super::server_pages::ServerPages;
use crate::batches::{BatchStream, ProducerError, Receiver};
use crate::{FormatError, Result};

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
    pub(super) fills_page_cache: bool,
    /// Pages from the server.
    pub(super) pages: Mutex<Option<Receiver<ServerPages>>>,
}

impl fmt::Debug for HeapTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeapTable({}, {} blocks)", self.name, self.decoded_blocks)
    }
}

pub(super) const NOWHERE: FileIdentity =
    FileIdentity { device: 0, inode: 0, size_bytes: 0, mtime_ns: 0, ctime_ns: 0 };

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
