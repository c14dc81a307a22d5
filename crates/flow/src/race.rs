//! A race: chunks, options.

use std::collections::HashMap;
use std::sync::Arc;

use headrace_io::write::WriteAt;
use headrace_io::{ChunkFeed, FedChunk, FeedBounds, ReadAt, ReadSpec};
use parking_lot::Mutex;

use crate::{AccessPath, CancelToken, ChunkSpec, RaceError, RaceOptions, slots};

/// Chunks on their way to a processor. A race over a list of chunks can be run more than once.
#[derive(Debug)]
pub struct Race<P = ()> {
    pub(crate) files: Vec<Arc<dyn ReadAt>>,
    pub(crate) chunks: Vec<ChunkSpec>,
    /// The producer of the chunks, until a run takes it; `None`: they are listed.
    pub(crate) feed: Option<Mutex<Option<Box<dyn ChunkFeed<P>>>>>,
    pub(crate) bounds: FeedBounds,
    /// Files of a feed's chunks, by the feed's numbers.
    fed_files: Mutex<HashMap<usize, Arc<dyn ReadAt>>>,
    pub(crate) options: RaceOptions,
    pub(crate) token: CancelToken,
    pub(crate) sinks: Vec<Arc<dyn WriteAt>>,
    /// Whether chunks append to the sinks, in order.
    pub(crate) appends: bool,
}

impl Race {
    /// A race over `chunks` of `files`. Nothing is read yet.
    ///
    /// # Errors
    /// [`RaceError::BadChunk`] if an extent names no file or lies outside of it;
    /// [`RaceError::ChunkTooLarge`] if a chunk does not fit `options.slot_bytes`.
    pub fn new(
        files: Vec<Arc<dyn ReadAt>>,
        chunks: Vec<ChunkSpec>,
        options: RaceOptions,
        token: CancelToken,
    ) -> Result<Race, RaceError> {
        for (chunk, spec) in chunks.iter().enumerate() {
            check(chunk, &spec.reads, |_, read| files.get(read.file))?;
        }
        // What is mapped needs no slot.
        let past_slots = matches!(
            options.access,
            AccessPath::Mapped | AccessPath::Registered | AccessPath::CuFile
        );
        if let (Some(slot_bytes), false) = (options.slot_bytes, past_slots) {
            let fits = |(chunk, spec): (usize, &ChunkSpec)| {
                slots::check_fits(chunk, &spec.reads, slot_bytes)
            };
            chunks.iter().enumerate().try_for_each(fits)?;
        }
        let bounds = FeedBounds {
            bytes: Some(chunks.iter().map(ChunkSpec::bytes).sum()),
            chunks: Some(chunks.len() as u64),
            slot_bytes: chunks.iter().map(ChunkSpec::slot_bytes).max().unwrap_or(0),
        };
        Ok(Race { files, chunks, ..Race::fed_by(None, bounds, options, token) })
    }
}

impl<P> Race<P> {
    /// The token that ends it early.
    pub fn token(&self) -> &CancelToken {
        &self.token
    }

    /// A race over the chunks that a feed makes. It can be run once.
    pub fn fed(
        feed: Box<dyn ChunkFeed<P>>,
        bounds: FeedBounds,
        options: RaceOptions,
        token: CancelToken,
    ) -> Self {
        Race::fed_by(Some(Mutex::new(Some(feed))), bounds, options, token)
    }

    fn fed_by(
        feed: Option<Mutex<Option<Box<dyn ChunkFeed<P>>>>>,
        bounds: FeedBounds,
        options: RaceOptions,
        token: CancelToken,
    ) -> Self {
        Race {
            files: Vec::new(),
            chunks: Vec::new(),
            feed,
            bounds,
            fed_files: Mutex::default(),
            options: options.obeying_policy(),
            token,
            sinks: Vec::new(),
            appends: false,
        }
    }

    /// Sends the chunks' output to these sinks, which [`OutputSpec`](crate::OutputSpec) names by
    /// index. When a run has ended well, all output is written; the caller commits the sinks. After
    /// an error their content is unspecified.
    pub fn with_outputs(mut self, sinks: Vec<Arc<dyn WriteAt>>) -> Self {
        (self.sinks, self.appends) = (sinks, false);
        self
    }

    /// Lets the chunks append to these sinks, with sizes that are known after processing
    /// ([`Outbox::append`](crate::Outbox::append)): a sink then holds the first chunk's data, then the second's,
    /// in whatever order they finished. Chunks are begun in order. When a run has ended well, growing sinks
    /// ([`SinkFile::growing`](headrace_io::write::SinkFile::growing)) know their size; after an early end they
    /// hold the data of the chunks before it.
    pub fn with_appended(self, sinks: Vec<Arc<dyn WriteAt>>) -> Self {
        Race { sinks, appends: true, ..self }
    }

    /// The chunks, if they are listed.
    pub fn chunks(&self) -> &[ChunkSpec] {
        &self.chunks
    }

    /// Wanted bytes of all chunks, if known; an upper bound for a feed.
    pub fn bytes(&self) -> u64 {
        self.bounds.bytes.unwrap_or(0)
    }

    /// Records files to be checked after the race.
    pub(crate) fn note_files(&self, chunk: &FedChunk<P>) {
        let mut fed_files = self.fed_files.lock();
        for (read, file) in chunk.reads.iter().zip(&chunk.files) {
            if !file.is_in_memory() && !fed_files.contains_key(&read.file) {
                fed_files.insert(read.file, file.clone());
            }
        }
    }

    /// Whatever the error, a changed file is the better explanation: its bytes may have been a
    /// mixture of two versions.
    pub(crate) fn verify_files(&self, error: Option<RaceError>) -> Result<(), RaceError> {
        if matches!(error, Some(RaceError::Cancelled)) {
            return Err(RaceError::Cancelled);
        }
        let fed_files = self.fed_files.lock();
        for file in self.files.iter().chain(fed_files.values()) {
            file.check_unchanged().map_err(RaceError::Changed)?;
        }
        error.map_or(Ok(()), Err)
    }
}

/// Error unless every read lies inside of its file.
pub(crate) fn check<'f>(
    chunk: usize,
    reads: &[ReadSpec],
    file_of: impl Fn(usize, &ReadSpec) -> Option<&'f Arc<dyn ReadAt>>,
) -> Result<(), RaceError> {
    for (buffer, read) in reads.iter().enumerate() {
        let bad = |what| Err(RaceError::BadChunk { chunk, buffer, what });
        let Some(file) = file_of(buffer, read) else {
            return bad(format!("there is no file {}", read.file));
        };
        let end = read.offset.checked_add(read.bytes);
        let inside = match file.is_in_memory() {
            true => read.bytes == 0 || file.bytes_in_memory(read.offset, read.bytes).is_some(),
            false => end.is_some_and(|end| end <= file.size_bytes()),
        };
        if !inside {
            let (path, size_bytes) = (file.path().display(), file.size_bytes());
            return bad(format!(
                "{} bytes at offset {} do not lie inside {path} of {size_bytes} bytes",
                read.bytes, read.offset,
            ));
        }
    }
    Ok(())
}
