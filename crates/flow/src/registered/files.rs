//! Registered files for copies outside of races. A caller asks for an extent and gets it if it is registered. If not, a thread
//! registers it for the next time.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use headrace_gpu::HostCopies;
use headrace_io::{IoError, Kept, ReadAt};
use parking_lot::Mutex;

use super::{PieceKey, Refusal, RegisteredPiece, RegisteredPool, Registrars, part_in, pieces};
use crate::HostRegistrar;

/// Files of a pool, as one user sees them: none of its pieces is evicted for another of its own.
pub struct RegisteredFiles {
    pool: Arc<RegisteredPool>,
    race: u64,
    /// Pieces that were requested; a refused one is not requested again.
    requested: Mutex<HashSet<PieceKey>>,
    refusal: Arc<Mutex<Option<Refusal>>>,
    registrars: Registrars,
}

impl std::fmt::Debug for RegisteredFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisteredFiles").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// An extent of a file, registered as long as this lives.
#[derive(Debug)]
pub struct RegisteredExtent(Vec<(Range<u64>, Arc<Kept<RegisteredPiece>>)>);

impl RegisteredExtent {
    /// Adds the copies of the extent to a device address. The value must live until they are done.
    pub fn copies_to(&self, mut address: u64, copies: &mut HostCopies) {
        for (part, piece) in &self.0 {
            let from = piece.mapping().window(part.clone());
            copies.push(address, from.as_ptr(), from.bytes());
            address += from.bytes() as u64;
        }
    }
}

impl RegisteredFiles {
    /// Files that a registrar registers, one piece at a time.
    ///
    /// # Errors
    /// [`IoError::Thread`]: the system gives no thread.
    pub fn new(
        pool: &Arc<RegisteredPool>,
        registrar: Arc<dyn HostRegistrar>,
    ) -> Result<Self, IoError> {
        let race = pool.begin_race();
        let refusal = Arc::new(Mutex::new(None));
        let first = refusal.clone();
        let registrars = Registrars::start(1, pool, &registrar, (race, false), move |done| {
            if let Err(refused) = done.result {
                first.lock().get_or_insert(refused);
            }
        })?;
        let requested = Mutex::default();
        Ok(Self { pool: pool.clone(), race, requested, refusal, registrars })
    }

    /// An extent of a file, if all of it is registered; if not, and `request` says so, its pieces are registered beside.
    pub fn extent(
        &self,
        file: &Arc<dyn ReadAt>,
        (offset, bytes): (u64, u64),
        request: bool,
    ) -> Option<RegisteredExtent> {
        let (identity, piece_bytes) = (file.identity(), self.pool.piece_bytes());
        let found = pieces(offset, bytes, piece_bytes).map(|piece| {
            let found = self.pool.find(&PieceKey { identity, piece }, self.race)?;
            Some((part_in(piece, offset, bytes, piece_bytes), found))
        });
        let found: Option<Vec<_>> = found.collect();
        if found.is_none() && request {
            self.request(file, pieces(offset, bytes, piece_bytes));
        }
        found.map(RegisteredExtent)
    }

    fn request(&self, file: &Arc<dyn ReadAt>, pieces: Range<u64>) {
        let identity = file.identity();
        let mut requested = self.requested.lock();
        let new: Vec<u64> =
            pieces.filter(|&piece| requested.insert(PieceKey { identity, piece })).collect();
        drop(requested);
        if new.is_empty() {
            return;
        }
        match self.pool.mapping(file) {
            Ok(mapping) => new.into_iter().for_each(|piece| {
                self.registrars.want(mapping.clone(), piece, 0);
            }),
            Err(error) => {
                self.refusal.lock().get_or_insert(Refusal::Driver(error.to_string()));
            }
        }
    }

    /// Why a piece was not registered: the first refusal.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().as_ref().map(ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ptr::NonNull;
    use std::time::{Duration, Instant};

    use headrace_io::SourceFile;

    use super::*;
    use crate::{BoxError, Registration};

    /// Registers nothing, or refuses.
    #[derive(Debug)]
    struct Pretended {
        refuses: bool,
    }

    impl HostRegistrar for Pretended {
        unsafe fn register(&self, _: NonNull<u8>, _: usize) -> Result<Registration, BoxError> {
            if self.refuses { Err("no more memory is locked".into()) } else { Ok(Box::new(())) }
        }
    }

    fn until(what: impl Fn() -> bool) {
        let started = Instant::now();
        while !what() {
            assert!(started.elapsed() < Duration::from_secs(20), "it never came");
            std::thread::yield_now();
        }
    }

    fn file(bytes: usize) -> (tempfile::NamedTempFile, Arc<dyn ReadAt>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, vec![7; bytes]).unwrap();
        let opened = SourceFile::open(file.path()).unwrap();
        (file, opened)
    }

    #[test]
    fn an_extent_is_registered_beside_and_found_the_next_time() {
        let (_kept, file) = file(10_000);
        let pool = RegisteredPool::with_pieces(1 << 20, 4096);
        let files = RegisteredFiles::new(&pool, Arc::new(Pretended { refuses: false })).unwrap();
        assert!(files.extent(&file, (4000, 200), false).is_none());
        assert_eq!(pool.stats().held_bytes, 0, "nobody asked for it");
        assert!(files.extent(&file, (4000, 200), true).is_none());
        until(|| files.extent(&file, (4000, 200), true).is_some());
        let extent = files.extent(&file, (4000, 200), true).unwrap();
        let parts: Vec<_> = extent.0.iter().map(|(part, _)| part.clone()).collect();
        assert_eq!(parts, [4000..4096, 4096..4200]);
        let mut copies = HostCopies::default();
        extent.copies_to(1 << 20, &mut copies);
        assert!(!copies.is_empty());
        assert_eq!(pool.stats().registrations, 2);
        assert!(files.extent(&file, (9000, 1000), false).is_none(), "its piece was not requested");
        drop(extent);
        drop(files);
        pool.clear();
        assert_eq!(pool.stats().held_bytes, 0);
    }

    #[test]
    fn what_is_refused_is_requested_once_and_told() {
        let (_kept, file) = file(10_000);
        let pool = RegisteredPool::with_pieces(1 << 20, 4096);
        let files = RegisteredFiles::new(&pool, Arc::new(Pretended { refuses: true })).unwrap();
        assert!(files.extent(&file, (0, 10), true).is_none());
        until(|| files.refusal().is_some());
        assert!(files.extent(&file, (0, 10), true).is_none());
        assert!(files.refusal().unwrap().contains("no more memory is locked"));
        let small = RegisteredPool::with_pieces(4096, 4096);
        let files = RegisteredFiles::new(&small, Arc::new(Pretended { refuses: false })).unwrap();
        assert!(files.extent(&file, (0, 10_000), true).is_none());
        until(|| files.refusal().is_some());
        assert!(files.refusal().unwrap().contains("4096 bytes that may be registered"));
        assert_eq!(small.stats().held_bytes, 4096, "the budget is what it is");
        assert!(files.extent(&file, (0, 10), true).is_some());
    }
}
