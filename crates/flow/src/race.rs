//! A race: chunks, options.

use std::collections::HashMap;
use std::sync::Arc;

use headrace_io::ReadAt;
use headrace_io::write::WriteAt;
use parking_lot::Mutex;

use crate::feed::{self, FeedBounds};
use crate::spec::Silent;
use crate::{
    AccessPath, Affinity, CancelToken, ChunkFeed, ChunkSpec, DeviceLane, DevicesReport,
    HostConsumer, HostProducer, RaceError, RaceOptions, RaceReport, device, host, slots,
};

/// Chunks on their way to a processor. A race over a list of chunks can be run more than once.
#[derive(Debug)]
pub struct Race {
    pub(crate) files: Vec<Arc<dyn ReadAt>>,
    pub(crate) chunks: Vec<ChunkSpec>,
    /// The producer of the chunks, until a run takes it; `None`: they are listed.
    pub(crate) feed: Option<Mutex<Option<Box<dyn ChunkFeed>>>>,
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
    /// The token that ends it early.
    pub fn token(&self) -> &CancelToken {
        &self.token
    }

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
            feed::check(chunk, spec, |_, read| files.get(read.file))?;
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
        let bounds = FeedBounds::of(&chunks);
        Ok(Race { files, chunks, ..Race::fed_by(None, bounds, options, token) })
    }

    /// A race over the chunks that a feed makes. It can be run once.
    pub fn fed(
        feed: Box<dyn ChunkFeed>,
        bounds: FeedBounds,
        options: RaceOptions,
        token: CancelToken,
    ) -> Race {
        Race::fed_by(Some(Mutex::new(Some(feed))), bounds, options, token)
    }

    fn fed_by(
        feed: Option<Mutex<Option<Box<dyn ChunkFeed>>>>,
        bounds: FeedBounds,
        options: RaceOptions,
        token: CancelToken,
    ) -> Race {
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
    pub fn with_outputs(mut self, sinks: Vec<Arc<dyn WriteAt>>) -> Race {
        (self.sinks, self.appends) = (sinks, false);
        self
    }

    /// Lets the chunks append to these sinks, with sizes that are known after processing
    /// ([`Outbox::append`](crate::Outbox::append)): a sink then holds the first chunk's data, then the second's,
    /// in whatever order they finished. Chunks are begun in order. When a run has ended well, growing sinks
    /// ([`SinkFile::growing`](headrace_io::write::SinkFile::growing)) know their size; after an early end they
    /// hold the data of the chunks before it.
    pub fn with_appended(self, sinks: Vec<Arc<dyn WriteAt>>) -> Race {
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
    pub(crate) fn note_files(&self, spec: &ChunkSpec, files: &[Arc<dyn ReadAt>]) {
        let mut fed_files = self.fed_files.lock();
        for (read, file) in spec.reads.iter().zip(files) {
            if !file.is_in_memory() && !fed_files.contains_key(&read.file) {
                fed_files.insert(read.file, file.clone());
            }
        }
    }

    /// Hands every chunk to one of the consumers, each on its own thread, and returns the
    /// consumers. The calling thread drives the reads.
    ///
    /// # Errors
    /// The first error; see [`RaceError`]. The consumers' results are then invalid.
    pub fn run_host<C: HostConsumer>(
        &self,
        consumers: Vec<C>,
    ) -> Result<(Vec<C>, RaceReport), RaceError> {
        let silent = consumers.into_iter().map(Silent).collect();
        let (consumers, report) = host::run(self, silent)?;
        Ok((consumers.into_iter().map(|Silent(consumer)| consumer).collect(), report))
    }

    /// Like [`run_host`](Race::run_host), with consumers that produce output: see
    /// [`with_outputs`](Race::with_outputs). The calling thread drives reads and writes.
    ///
    /// # Errors
    /// The first error; see [`RaceError`].
    pub fn run_host_writing<P: HostProducer>(
        &self,
        producers: Vec<P>,
    ) -> Result<(Vec<P>, RaceReport), RaceError> {
        host::run(self, producers)
    }

    /// Streams every chunk through the slots of a device lane. The calling thread drives reads,
    /// copies, launches and writes.
    ///
    /// # Errors
    /// The first error; see [`RaceError`]. The lane is synchronised in any case.
    pub fn run_device<L: DeviceLane + ?Sized>(
        &self,
        lane: &mut L,
    ) -> Result<RaceReport, RaceError> {
        device::run(self, lane)
    }

    /// Streams every chunk, exactly once, through one of several lanes, each driven by its own
    /// thread. A lane begins the chunks that `affinity` gives it in order; an idle lane steals the
    /// last chunk of the lane with the most left. The first error ends all lanes.
    ///
    /// Reader threads are divided among the lanes; each lane has its own slots, queues and
    /// in-flight reads.
    ///
    /// # Errors
    /// The first error; see [`RaceError`]. All lanes are synchronised in any case.
    pub fn run_devices(
        &self,
        lanes: Vec<&mut (dyn DeviceLane + Send)>,
        affinity: &Affinity,
    ) -> Result<DevicesReport, RaceError> {
        device::run_many(self, lanes, affinity)
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
