//! Which access path an extent takes, and why not a better one.
//!
//! The choice is made for each extent, not for each chunk: a chunk that is half in the page cache reads only its
//! missing half.

use std::collections::HashMap;
use std::sync::Arc;

use headrace_io::{
    EXTENT_ALIGN_BYTES, MappedFile, ReadAt, ReadMode, Transferred, residency_sampled,
};

use crate::cache::{CacheKey, Cached, Reservation};
use crate::registered::SharedMapping;
use crate::report::Reasons;
use crate::{
    AccessPath, DeviceReader, MappingPool, RaceError, RaceOptions, ReadSpec, RegisteredPool,
};

/// Stretches of 64 KiB per extent that are sampled in the page cache. A wrong guess costs time
/// (page faults, or reading resident bytes), never correctness.
const RESIDENCY_SAMPLES: u64 = 8;

/// An extent counts as resident if at least this share of the samples is.
const RESIDENT_SHARE: f64 = 0.9;

/// Files with known access paths: all are forgotten when there are more.
const FILES_MAX: usize = 1024;

/// The access path of an extent.
#[derive(Debug)]
pub(crate) enum Way {
    /// It is empty.
    Nothing,
    /// Another producer supplied it in memory.
    Memory(Arc<dyn ReadAt>),
    /// It lies in a mapping.
    Mapped(Arc<MappedFile>),
    /// It lies in the host cache.
    Cached(Cached),
    /// It must be read; `admit` says whether into the host cache.
    Read { mode: ReadMode, admit: bool },
    /// It is copied straight from a mapping, piece by piece as they are registered.
    Registered(Arc<SharedMapping>),
    /// The device's own reader reads it.
    DeviceReader,
}

/// The destination of chosen extents.
pub(crate) enum Destination {
    /// Anywhere: a consumer on the host reads them in place.
    Anywhere,
    /// A device's memory, by these paths or through a slot's host memory.
    Device(DeviceWays),
}

impl Destination {
    fn ways(&self) -> Result<&DeviceWays, String> {
        match self {
            Destination::Anywhere => {
                Err("there is no device: the processor itself takes the bytes".to_string())
            }
            Destination::Device(ways) => Ok(ways),
        }
    }
}

/// A device's paths that bypass the slots' host memory.
pub(crate) struct DeviceWays {
    /// The pool of registered mappings, and the race's number there; the reason if none are to be
    /// made.
    pub registered: Result<(Arc<RegisteredPool>, u64), String>,
    /// The device's own reader; the reason if there is none.
    pub reader: Result<Arc<dyn DeviceReader>, String>,
}

/// Chooses for one race.
pub(crate) struct Chooser<'a> {
    options: &'a RaceOptions,
    destination: Destination,
    cache_race: u64,
    pool: Option<Arc<MappingPool>>,
    /// By file number.
    files: HashMap<usize, FileWays>,
    pub reasons: Reasons,
}

/// How one file can be accessed, or why not, as far as it was needed.
#[derive(Default)]
struct FileWays {
    /// Its mapping for the device.
    shared: Option<Result<Arc<SharedMapping>, String>>,
    /// Whether the device's own reader can read it.
    readable: Option<Result<(), String>>,
    mapping: Option<Result<Arc<MappedFile>, String>>,
}

impl<'a> Chooser<'a> {
    /// Lanes of one race share the race's number in the host cache, and mappings if a pool is
    /// given.
    pub fn new(
        options: &'a RaceOptions,
        destination: Destination,
        cache_race: u64,
        pool: Option<Arc<MappingPool>>,
    ) -> Self {
        Chooser {
            options,
            destination,
            cache_race,
            pool,
            files: HashMap::new(),
            reasons: Reasons::default(),
        }
    }

    pub fn choose(&mut self, read: &ReadSpec, file: &Arc<dyn ReadAt>) -> Result<Way, RaceError> {
        if read.bytes == 0 {
            return Ok(Way::Nothing);
        }
        let buffered = Way::Read { mode: ReadMode::Buffered, admit: false };
        if file.is_made() {
            return match self.options.access {
                AccessPath::Auto | AccessPath::Buffered => Ok(buffered),
                _ if self.options.forbids_other_paths => {
                    let why = "its bytes are decoded on the way, by threads that read through the page cache";
                    Err(self.unavailable(file, why.to_string()))
                }
                _ => Ok(buffered),
            };
        }
        if file.is_in_memory() {
            let in_place = !self.must_copy();
            return Ok(if in_place { Way::Memory(file.clone()) } else { buffered });
        }
        if file.source().is_remote() {
            return self.choose_remote(read, file);
        }
        match self.options.access {
            AccessPath::Auto => Ok(self.choose_auto(read, file)),
            AccessPath::Mapped if self.must_copy() => {
                let why = "the input is to be copied before it is looked at".to_string();
                Err(self.unavailable(file, why))
            }
            AccessPath::Mapped => self
                .mapping(read.file, file)
                .map(Way::Mapped)
                .map_err(|why| self.unavailable(file, why)),
            AccessPath::Buffered => Ok(buffered),
            AccessPath::Direct => match file.source().direct() {
                Ok(_) => Ok(Way::Read { mode: ReadMode::Direct, admit: false }),
                Err(why) => Err(self.unavailable(file, why.to_string())),
            },
            AccessPath::Registered => self
                .shared(read.file, file)
                .map(Way::Registered)
                .map_err(|why| self.unavailable(file, why)),
            AccessPath::CuFile => self
                .readable(read.file, file)
                .and_then(|()| self.goes_straight(file))
                .map(|()| Way::DeviceReader)
                .map_err(|why| self.unavailable(file, why)),
        }
    }

    /// Error if the device's own reader is known to pass host memory, and must not.
    fn goes_straight(&self, file: &Arc<dyn ReadAt>) -> Result<(), String> {
        if !self.options.forbids_other_paths {
            return Ok(());
        }
        let reader = self.destination.ways()?.reader.clone()?;
        reader.detour(file).map_or(Ok(()), Err)
    }

    /// Error if the page cache brought more of a read than it must, and must not. O_DIRECT moves whole blocks, all
    /// but a file's partial last one.
    pub fn check_read(
        &self,
        read: &ReadSpec,
        file: &Arc<dyn ReadAt>,
        done: &Transferred,
    ) -> Result<(), RaceError> {
        let RaceOptions { access, forbids_other_paths, .. } = *self.options;
        if access != AccessPath::Direct || !forbids_other_paths || file.is_in_memory() {
            return Ok(());
        }
        let size_bytes = file.size_bytes();
        let last_block = size_bytes - size_bytes % EXTENT_ALIGN_BYTES as u64;
        let end_bytes = (read.offset + read.bytes).saturating_sub(last_block.max(read.offset));
        let others_bytes = done.buffered_bytes.saturating_sub(end_bytes);
        if others_bytes == 0 {
            return Ok(());
        }
        let offset = read.offset;
        let why = match done.direct_refused_bytes {
            0 => "O_DIRECT reads stopped inside of a block",
            _ => "O_DIRECT reads were refused (EINVAL)",
        };
        let why = format!(
            "{others_bytes} bytes at offset {offset} came through the page cache: {why}\nhint: headrace doctor says what \
             the file system can do"
        );
        Err(self.unavailable(file, why))
    }

    /// It is fetched with any access path, unless the path bypasses this machine's memory.
    fn choose_remote(&self, read: &ReadSpec, file: &Arc<dyn ReadAt>) -> Result<Way, RaceError> {
        match self.options.access {
            AccessPath::Auto => {
                let cache = self.options.cache.as_ref();
                let cached = cache.and_then(|cache| cache.get(&key(read, file), self.cache_race));
                let fetch = Way::Read { mode: ReadMode::Buffered, admit: true };
                Ok(cached.map_or(fetch, Way::Cached))
            }
            AccessPath::Buffered => Ok(Way::Read { mode: ReadMode::Buffered, admit: false }),
            _ => Err(self.unavailable(file, "it does not lie on this machine".to_string())),
        }
    }

    /// Whether bytes must not be used in place. Bytes for a device are copied in any case.
    fn must_copy(&self) -> bool {
        self.options.policy.copy_first && matches!(self.destination, Destination::Anywhere)
    }

    fn choose_auto(&mut self, read: &ReadSpec, file: &Arc<dyn ReadAt>) -> Way {
        if let Some(cache) = &self.options.cache
            && let Some(range) = cache.get(&key(read, file), self.cache_race)
        {
            return Way::Cached(range);
        }
        let memory_backed = file.source().is_memory_backed();
        if memory_backed || self.is_resident(read, file) {
            return self.resident(read, file, memory_backed);
        }
        if self.is_for_device_reader(read.file, file) {
            return Way::DeviceReader;
        }
        if self.options.policy.fills_page_cache {
            return Way::Read { mode: ReadMode::Buffered, admit: false };
        }
        match file.source().direct() {
            Ok(_) => Way::Read { mode: ReadMode::Direct, admit: true },
            Err(why) => {
                self.reasons.add(format!("{}: no O_DIRECT: {why}", file.path().display()));
                Way::Read { mode: ReadMode::Buffered, admit: false }
            }
        }
    }

    fn resident(&mut self, read: &ReadSpec, file: &Arc<dyn ReadAt>, memory_backed: bool) -> Way {
        let buffered = Way::Read { mode: ReadMode::Buffered, admit: false };
        let found = match &self.destination {
            Destination::Anywhere if self.must_copy() => return buffered,
            Destination::Anywhere => self.mapping(read.file, file).map(Way::Mapped),
            Destination::Device(ways) if memory_backed => {
                let path = file.path().display();
                if let Ok((pool, race)) = &ways.registered
                    && !pool.is_worth(file.identity(), read.offset, *race)
                {
                    let why = "wanted for the first time, not registered";
                    self.reasons.add(format!("{path}: copied through slots: {why}"));
                    return buffered;
                }
                self.shared(read.file, file)
                    .map(Way::Registered)
                    .map_err(|why| format!("{path}: copied through slots: {why}"))
            }
            Destination::Device(_) => return buffered,
        };
        found.unwrap_or_else(|why| {
            self.reasons.add(why);
            buffered
        })
    }

    /// Whether the device's own reader is the better choice for a cold extent of the file.
    fn is_for_device_reader(&mut self, number: usize, file: &Arc<dyn ReadAt>) -> bool {
        let Destination::Device(ways) = &self.destination else {
            return false;
        };
        // Then they are wanted there.
        if self.options.cache.is_some() {
            return false;
        }
        let bounces = match &ways.reader {
            Ok(reader) if reader.is_direct() => None,
            Ok(reader) => Some(reader.describe()),
            Err(why) => Some(why.clone()),
        };
        if let Some(why) = bounces {
            self.reasons.add(format!("cold extents go through slots: {why}"));
            return false;
        }
        match self.readable(number, file) {
            Ok(()) => true,
            Err(why) => {
                let path = file.path().display();
                self.reasons.add(format!("{path}: not read by the device: {why}"));
                false
            }
        }
    }

    /// The file's mapping for the device.
    fn shared(
        &mut self,
        number: usize,
        file: &Arc<dyn ReadAt>,
    ) -> Result<Arc<SharedMapping>, String> {
        let destination = &self.destination;
        let find = || {
            let (pool, _) = destination.ways()?.registered.clone()?;
            pool.mapping(file).map_err(|error| error.to_string())
        };
        known(&mut self.files, number).shared.get_or_insert_with(find).clone()
    }

    /// Records that a mapping cannot be registered: the file's other extents take another path.
    pub fn cannot_register(&mut self, number: usize, reason: String) {
        known(&mut self.files, number).shared = Some(Err(reason));
    }

    fn readable(&mut self, number: usize, file: &Arc<dyn ReadAt>) -> Result<(), String> {
        let destination = &self.destination;
        let find = || {
            let reader = destination.ways()?.reader.clone()?;
            reader.open(file).map_err(|error| error.to_string())
        };
        known(&mut self.files, number).readable.get_or_insert_with(find).clone()
    }

    fn is_resident(&mut self, read: &ReadSpec, file: &Arc<dyn ReadAt>) -> bool {
        match residency_sampled(&**file, read.offset, read.bytes, RESIDENCY_SAMPLES) {
            Ok(residency) => residency.share() >= RESIDENT_SHARE,
            Err(error) => {
                self.reasons.add(format!("taken for not in the page cache: {error}"));
                false
            }
        }
    }

    fn mapping(
        &mut self,
        number: usize,
        file: &Arc<dyn ReadAt>,
    ) -> Result<Arc<MappedFile>, String> {
        let pool = &self.pool;
        let map = || {
            let mapped = match pool {
                Some(pool) => pool.get(file),
                None => MappedFile::map(file.clone()).map(Arc::new),
            };
            mapped.map_err(|error| error.to_string())
        };
        known(&mut self.files, number).mapping.get_or_insert_with(map).clone()
    }

    /// Cache memory for a cold extent.
    pub fn reserve(&mut self, read: &ReadSpec, file: &Arc<dyn ReadAt>) -> Option<Reservation> {
        self.options.cache.as_ref()?.reserve(key(read, file), self.cache_race)
    }

    /// The error of a race whose reads passed host memory, although they looked as if they would not.
    pub fn detoured(&self, detours: u64, reader: &str) -> RaceError {
        let why = format!("{detours} of the reads meanwhile passed host memory: {reader}");
        self.unavailable_for("the files of the race".to_string(), why)
    }

    pub fn unavailable(&self, file: &Arc<dyn ReadAt>, reason: String) -> RaceError {
        self.unavailable_for(file.path().display().to_string(), reason)
    }

    fn unavailable_for(&self, file: String, reason: String) -> RaceError {
        let access = self.options.access;
        let reason = match access {
            AccessPath::CuFile => with_hint(reason, "headrace doctor --gds says what is missing"),
            _ => reason,
        };
        RaceError::PathUnavailable { access, file, reason }
    }
}

/// A reason with one remedy more.
fn with_hint(reason: String, hint: &str) -> String {
    let begin = if reason.contains("\nhint: ") { "; " } else { "\nhint: " };
    format!("{reason}{begin}{hint}")
}

/// The known facts of a file.
fn known(files: &mut HashMap<usize, FileWays>, number: usize) -> &mut FileWays {
    if files.len() >= FILES_MAX && !files.contains_key(&number) {
        files.clear();
    }
    files.entry(number).or_default()
}

fn key(read: &ReadSpec, file: &Arc<dyn ReadAt>) -> CacheKey {
    CacheKey { identity: file.identity(), offset: read.offset, bytes: read.bytes }
}
