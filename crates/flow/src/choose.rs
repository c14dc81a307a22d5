//! Which way an extent takes, and why not a better one.

use std::sync::Arc;

use headrace_io::{MappedFile, ReadAt, ReadMode, residency_sampled};

use crate::cache::{CacheKey, Cached, Reservation};
use crate::registered::SharedMapping;
use crate::report::Reasons;
use crate::{
    AccessPath, DeviceReader, MappingPool, Race, RaceError, RaceOptions, ReadSpec, RegisteredPool,
};

/// Stretches of 64 KiB per extent that are asked for in the page cache. A wrong guess costs time
/// (page faults, or reading what was there), never correctness.
const RESIDENCY_SAMPLES: u64 = 8;

/// An extent counts as resident if at least this share of the samples is.
const RESIDENT_SHARE: f64 = 0.9;

/// The way an extent takes.
#[derive(Debug)]
pub(crate) enum Way {
    /// It is empty.
    Nothing,
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

/// Where chosen extents must go.
pub(crate) enum Destination {
    /// Wherever they lie: a consumer on the host looks at them there.
    Anywhere,
    /// Into a device's memory, by these ways or through a slot's host memory.
    Device(DeviceWays),
}

/// A device's ways past the slots' host memory.
pub(crate) struct DeviceWays {
    /// Where registered mappings are kept; the reason if none are to be made.
    pub registered: Result<Arc<RegisteredPool>, String>,
    /// The device's own reader; the reason if there is none.
    pub reader: Result<Arc<dyn DeviceReader>, String>,
}

/// Chooses for one race.
pub(crate) struct Chooser<'a> {
    files: &'a [Arc<dyn ReadAt>],
    options: &'a RaceOptions,
    destination: Destination,
    cache_race: u64,
    pool: Option<Arc<MappingPool>>,
    /// By file: its mapping for the device, or why it has none.
    shared: Vec<Option<Result<Arc<SharedMapping>, String>>>,
    /// By file: whether the device's own reader can read it, or why not.
    readable: Vec<Option<Result<(), String>>>,
    mappings: Vec<Option<Result<Arc<MappedFile>, String>>>,
    pub reasons: Reasons,
}

impl<'a> Chooser<'a> {
    /// Lanes of one race share the number of the race in the host cache, and mappings if a pool is
    /// given.
    pub fn new(
        race: &'a Race,
        destination: Destination,
        cache_race: u64,
        pool: Option<Arc<MappingPool>>,
    ) -> Self {
        Chooser {
            files: &race.files,
            options: &race.options,
            destination,
            cache_race,
            pool,
            shared: race.files.iter().map(|_| None).collect(),
            readable: race.files.iter().map(|_| None).collect(),
            mappings: race.files.iter().map(|_| None).collect(),
            reasons: Reasons::default(),
        }
    }

    pub fn choose(&mut self, read: &ReadSpec) -> Result<Way, RaceError> {
        if read.bytes == 0 {
            return Ok(Way::Nothing);
        }
        match self.options.access {
            AccessPath::Auto => Ok(self.choose_auto(read)),
            AccessPath::Mapped => {
                self.mapping(read.file).map(Way::Mapped).map_err(|why| self.unavailable(read, why))
            }
            AccessPath::Buffered => Ok(Way::Read { mode: ReadMode::Buffered, admit: false }),
            AccessPath::Direct => match self.files[read.file].source().direct() {
                Ok(_) => Ok(Way::Read { mode: ReadMode::Direct, admit: false }),
                Err(why) => Err(self.unavailable(read, why.to_string())),
            },
            AccessPath::Registered => self
                .shared(read.file)
                .map(Way::Registered)
                .map_err(|why| self.unavailable(read, why)),
            AccessPath::CuFile => self
                .readable(read.file)
                .map(|()| Way::DeviceReader)
                .map_err(|why| self.unavailable(read, why)),
        }
    }

    fn choose_auto(&mut self, read: &ReadSpec) -> Way {
        let file = &self.files[read.file];
        if let Some(cache) = &self.options.cache
            && let Some(range) = cache.get(&self.key(read), self.cache_race)
        {
            return Way::Cached(range);
        }
        let memory_backed = file.source().is_memory_backed();
        if memory_backed || self.is_resident(read) {
            return self.resident(read.file, memory_backed);
        }
        if self.is_for_device_reader(read.file) {
            return Way::DeviceReader;
        }
        let file = &self.files[read.file];
        match file.source().direct() {
            Ok(_) => Way::Read { mode: ReadMode::Direct, admit: true },
            Err(why) => {
                self.reasons.add(format!("{}: no O_DIRECT: {why}", file.path().display()));
                Way::Read { mode: ReadMode::Buffered, admit: false }
            }
        }
    }

    fn resident(&mut self, file: usize, memory_backed: bool) -> Way {
        let found = match &self.destination {
            Destination::Anywhere => self.mapping(file).map(Way::Mapped),
            Destination::Device(_) if memory_backed => {
                let path = self.files[file].path().display().to_string();
                self.shared(file)
                    .map(Way::Registered)
                    .map_err(|why| format!("{path}: copied through slots: {why}"))
            }
            Destination::Device(_) => return Way::Read { mode: ReadMode::Buffered, admit: false },
        };
        found.unwrap_or_else(|why| {
            self.reasons.add(why);
            Way::Read { mode: ReadMode::Buffered, admit: false }
        })
    }

    /// Whether a cold extent of the file had better take the device's own reader.
    fn is_for_device_reader(&mut self, file: usize) -> bool {
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
        match self.readable(file) {
            Ok(()) => true,
            Err(why) => {
                let path = self.files[file].path().display();
                self.reasons.add(format!("{path}: not read by the device: {why}"));
                false
            }
        }
    }

    /// The file's mapping for the device.
    fn shared(&mut self, file: usize) -> Result<Arc<SharedMapping>, String> {
        let (files, destination) = (self.files, &self.destination);
        self.shared[file]
            .get_or_insert_with(|| match destination {
                Destination::Anywhere => Err("there is no device".to_string()),
                Destination::Device(ways) => {
                    let pool = ways.registered.as_ref().map_err(String::clone)?;
                    pool.mapping(&files[file]).map_err(|error| error.to_string())
                }
            })
            .clone()
    }

    /// Takes note that a mapping cannot be registered: the file's other extents take another way.
    pub fn cannot_register(&mut self, file: usize, reason: String) {
        self.shared[file] = Some(Err(reason));
    }

    fn readable(&mut self, file: usize) -> Result<(), String> {
        let (files, destination) = (self.files, &self.destination);
        self.readable[file]
            .get_or_insert_with(|| match destination {
                Destination::Anywhere => Err("there is no device".to_string()),
                Destination::Device(ways) => {
                    let reader = ways.reader.as_ref().map_err(String::clone)?;
                    reader.open(&files[file]).map_err(|error| error.to_string())
                }
            })
            .clone()
    }

    fn is_resident(&mut self, read: &ReadSpec) -> bool {
        let file = &self.files[read.file];
        match residency_sampled(&**file, read.offset, read.bytes, RESIDENCY_SAMPLES) {
            Ok(residency) => residency.share() >= RESIDENT_SHARE,
            Err(error) => {
                self.reasons.add(format!("taken for not in the page cache: {error}"));
                false
            }
        }
    }

    fn mapping(&mut self, file: usize) -> Result<Arc<MappedFile>, String> {
        let (files, pool) = (self.files, &self.pool);
        self.mappings[file]
            .get_or_insert_with(|| {
                let file = &files[file];
                match pool {
                    Some(pool) => pool.get(file),
                    None => MappedFile::map(file.clone()).map(Arc::new),
                }
                .map_err(|error| error.to_string())
            })
            .clone()
    }

    /// Memory of the cache to read a cold extent into.
    pub fn reserve(&mut self, read: &ReadSpec) -> Option<Reservation> {
        self.options.cache.as_ref()?.reserve(self.key(read), self.cache_race)
    }

    fn key(&self, read: &ReadSpec) -> CacheKey {
        let identity = self.files[read.file].identity();
        CacheKey { identity, offset: read.offset, bytes: read.bytes }
    }

    pub fn unavailable(&self, read: &ReadSpec, reason: String) -> RaceError {
        RaceError::PathUnavailable {
            access: self.options.access,
            file: self.files[read.file].path().display().to_string(),
            reason,
        }
    }
}
