//! Mappings kept from race to race: a file that is mapped already costs no page faults.

use std::collections::HashMap;
use std::sync::Arc;

use headrace_io::{FileIdentity, IoError, MappedFile, ReadAt};
use parking_lot::Mutex;

/// Mapped files by identity; a bounded number, the least recently used leaves first.
#[derive(Debug)]
pub struct MappingPool {
    files_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    tick: u64,
    mapped: HashMap<FileIdentity, (u64, Arc<MappedFile>)>,
}

impl MappingPool {
    /// A pool that keeps at most `files_max` mappings (at least 1).
    pub fn new(files_max: usize) -> Arc<MappingPool> {
        Arc::new(MappingPool { files_max: files_max.max(1), inner: Mutex::new(Inner::default()) })
    }

    /// Number of mappings kept.
    pub fn len(&self) -> usize {
        self.inner.lock().mapped.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all mappings; those in use live on until their race ends.
    pub fn clear(&self) {
        self.inner.lock().mapped.clear();
    }

    /// The mapping of this version of the file.
    ///
    /// # Errors
    /// Those of [`MappedFile::map`].
    pub fn get(&self, file: &Arc<dyn ReadAt>) -> Result<Arc<MappedFile>, IoError> {
        let identity = file.identity();
        let mut inner = self.inner.lock();
        inner.tick += 1;
        let tick = inner.tick;
        if let Some((used, mapped)) = inner.mapped.get_mut(&identity)
            // A poisoned mapping shows zeros for ever; a fresh one shows what is there now.
            && mapped.check().is_ok()
        {
            *used = tick;
            return Ok(mapped.clone());
        }
        let mapped = Arc::new(MappedFile::map(file.clone())?);
        inner.mapped.insert(identity, (tick, mapped.clone()));
        if inner.mapped.len() > self.files_max {
            let oldest = inner.mapped.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(identity, _)| *identity) {
                inner.mapped.remove(&oldest);
            }
        }
        Ok(mapped)
    }
}
