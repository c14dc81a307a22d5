//! How batches of a file get their bytes: from a mapping that lives as long as a pool or a batch
//! keeps it, or by reading.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use headrace_io::{IoError, MappedFile, MappingPool, PoisonMark, ReadAt};

use super::file::BatchReads;
use crate::error::Result;

/// A file's mapping, and what was taken from it.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    state: Mutex<State>,
    pub mapped_bytes: AtomicU64,
    pub copied_bytes: AtomicU64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Untried,
    Refused(String),
    /// There is at most one at a time, so that none is forgotten that batches lie in.
    Mapped {
        last: Weak<MappedFile>,
        mark: PoisonMark,
    },
}

impl State {
    /// The mapping, if it lives and shows the file.
    fn live(&self, path: &Path) -> Result<Option<Arc<MappedFile>>> {
        let Self::Mapped { last, mark } = self else { return Ok(None) };
        let live = last.upgrade();
        match &live {
            Some(mapped) => mapped.check()?,
            None => mark.check(path)?,
        }
        Ok(live)
    }
}

impl Mapping {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file mapped, kept by the pool and whoever uses it; the reason if it cannot be had.
    ///
    /// # Errors
    /// If the file changed, or a page of it could not be delivered.
    pub fn get(
        &self,
        file: Arc<dyn ReadAt>,
        pool: &MappingPool,
    ) -> Result<std::result::Result<Arc<MappedFile>, String>> {
        let mut state = self.state();
        if let Some(mapped) = state.live(file.path())? {
            return Ok(Ok(mapped));
        }
        if let State::Refused(reason) = &*state {
            return Ok(Err(reason.clone()));
        }
        match pool.get(&file) {
            Ok(mapped) => {
                *state = State::Mapped { last: Arc::downgrade(&mapped), mark: mapped.mark() };
                Ok(Ok(mapped))
            }
            Err(changed @ IoError::Changed { .. }) => Err(changed.into()),
            Err(refused) => {
                let reason = refused.to_string();
                *state = State::Refused(reason.clone());
                Ok(Err(reason))
            }
        }
    }

    /// Error if a page of the mapping could not be delivered, whether it lives or not.
    pub fn check(&self, path: &Path) -> Result<()> {
        self.state().live(path).map(drop)
    }

    /// Gives the pages of the first `bytes` bytes back.
    pub fn release(&self, bytes: u64) {
        if let State::Mapped { last, .. } = &*self.state()
            && let Some(mapped) = last.upgrade()
        {
            mapped.release(0..bytes);
        }
    }

    /// What was taken, and how.
    pub fn reads(&self) -> BatchReads {
        let mapping_refused = match &*self.state() {
            State::Refused(reason) => Some(reason.clone()),
            State::Untried | State::Mapped { .. } => None,
        };
        BatchReads {
            mapped_bytes: self.mapped_bytes.load(Ordering::Relaxed),
            copied_bytes: self.copied_bytes.load(Ordering::Relaxed),
            mapping_refused,
        }
    }
}
