//! How batches of a file get their bytes: from a mapping that lives as long as a pool or a batch
//! keeps it, or by reading.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use headrace_io::{IoError, MappedFile, MappingPool, PoisonMark, ReadAt};

use crate::error::Result;

/// A file's mapping.
#[derive(Debug, Default)]
pub(super) struct Mapping(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Untried,
    Refused,
    /// There is at most one at a time, so that every mapping with batches is known.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mapped file, kept by the pool and its users; `None` if it cannot be mapped.
    ///
    /// # Errors
    /// If the file changed, or a page of it could not be delivered.
    pub fn get(
        &self,
        file: Arc<dyn ReadAt>,
        pool: &MappingPool,
    ) -> Result<Option<Arc<MappedFile>>> {
        let mut state = self.state();
        if let Some(mapped) = state.live(file.path())? {
            return Ok(Some(mapped));
        }
        if matches!(*state, State::Refused) {
            return Ok(None);
        }
        match pool.get(&file) {
            Ok(mapped) => {
                *state = State::Mapped { last: Arc::downgrade(&mapped), mark: mapped.mark() };
                Ok(Some(mapped))
            }
            Err(changed @ IoError::Changed { .. }) => Err(changed.into()),
            Err(_) => {
                *state = State::Refused;
                Ok(None)
            }
        }
    }

    /// Error if a page of the mapping could not be delivered, whether it still lives or not.
    pub fn check(&self, path: &Path) -> Result<()> {
        self.state().live(path).map(drop)
    }

    /// Releases the pages of the first `bytes` bytes.
    pub fn release(&self, bytes: u64) {
        if let State::Mapped { last, .. } = &*self.state()
            && let Some(mapped) = last.upgrade()
        {
            mapped.release(0..bytes);
        }
    }
}
