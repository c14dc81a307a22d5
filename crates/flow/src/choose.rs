//! Which way an extent takes, and why not a better one.

use std::sync::Arc;

use headrace_io::{MappedFile, ReadAt, ReadMode, residency_sampled};

use crate::cache::{CacheKey, CachedRange, Reservation};
use crate::report::Reasons;
use crate::{AccessPath, RaceError, RaceOptions, ReadSpec};

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
    Cached(Arc<CachedRange>),
    /// It must be read; `admit` says whether into the host cache.
    Read { mode: ReadMode, admit: bool },
}

/// Chooses for one race.
pub(crate) struct Chooser<'a> {
    files: &'a [Arc<dyn ReadAt>],
    options: &'a RaceOptions,
    /// Whether resident extents can be used where they lie: not if they must be in a slot.
    in_place: bool,
    cache_race: u64,
    mappings: Vec<Option<Result<Arc<MappedFile>, String>>>,
    pub reasons: Reasons,
}

impl<'a> Chooser<'a> {
    pub fn new(files: &'a [Arc<dyn ReadAt>], options: &'a RaceOptions, in_place: bool) -> Self {
        Chooser {
            files,
            options,
            in_place,
            cache_race: options.cache.as_ref().map_or(0, |cache| cache.begin_race()),
            mappings: files.iter().map(|_| None).collect(),
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
        }
    }

    fn choose_auto(&mut self, read: &ReadSpec) -> Way {
        let file = &self.files[read.file];
        if let Some(cache) = &self.options.cache
            && let Some(range) = cache.get(&self.key(read), self.cache_race)
        {
            return Way::Cached(range);
        }
        if file.source().is_memory_backed() || self.is_resident(read) {
            return self.resident(read.file);
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

    fn resident(&mut self, file: usize) -> Way {
        let buffered = Way::Read { mode: ReadMode::Buffered, admit: false };
        if !self.in_place {
            return buffered;
        }
        match self.mapping(file) {
            Ok(mapped) => Way::Mapped(mapped),
            Err(why) => {
                self.reasons.add(why);
                buffered
            }
        }
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
        let (files, options) = (self.files, self.options);
        self.mappings[file]
            .get_or_insert_with(|| {
                let file = &files[file];
                match &options.mappings {
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

    fn unavailable(&self, read: &ReadSpec, reason: String) -> RaceError {
        RaceError::PathUnavailable {
            access: self.options.access,
            file: self.files[read.file].path().display().to_string(),
            reason,
        }
    }
}
