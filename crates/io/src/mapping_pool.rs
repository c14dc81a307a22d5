//! Mappings kept for the next reader: a file that is mapped already costs no page faults.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{FileIdentity, MappedFile, ReadAt, Result};

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
    /// By tick: least recently used first.
    by_use: BTreeMap<u64, FileIdentity>,
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

    /// Forgets all mappings; those in use live on until their last use ends.
    pub fn clear(&self) {
        let forgotten = std::mem::take(&mut *self.inner.lock());
        drop(forgotten);
    }

    /// The mapping of this version of the file.
    ///
    /// # Errors
    /// Those of [`MappedFile::map`].
    pub fn get(&self, file: &Arc<dyn ReadAt>) -> Result<Arc<MappedFile>> {
        let identity = file.identity();
        if let Some(known) = self.inner.lock().find(&identity) {
            return Ok(known);
        }
        // Neither mapped nor unmapped under the lock: others do not wait for the kernel.
        let mapped = Arc::new(MappedFile::map(file.clone())?);
        let forgotten = self.inner.lock().keep(identity, mapped.clone(), self.files_max);
        drop(forgotten);
        Ok(mapped)
    }
}

impl Inner {
    /// Unless it is poisoned: that one shows zeros for ever, a fresh one what is there now.
    fn find(&mut self, identity: &FileIdentity) -> Option<Arc<MappedFile>> {
        let (used, mapped) = self.mapped.get_mut(identity)?;
        if mapped.check().is_err() {
            return None;
        }
        self.tick += 1;
        self.by_use.remove(used);
        self.by_use.insert(self.tick, *identity);
        *used = self.tick;
        Some(mapped.clone())
    }

    /// Keeps a mapping; what has to leave for it is for the caller to drop.
    fn keep(
        &mut self,
        identity: FileIdentity,
        mapped: Arc<MappedFile>,
        files_max: usize,
    ) -> Vec<Arc<MappedFile>> {
        self.tick += 1;
        let replaced = self.mapped.insert(identity, (self.tick, mapped));
        if let Some((used, _)) = &replaced {
            self.by_use.remove(used);
        }
        self.by_use.insert(self.tick, identity);
        let mut leaving: Vec<_> = replaced.into_iter().map(|(_, mapped)| mapped).collect();
        while self.mapped.len() > files_max {
            let oldest = self.by_use.pop_first();
            let oldest = oldest.and_then(|(_, identity)| self.mapped.remove(&identity));
            leaving.extend(oldest.map(|(_, mapped)| mapped));
        }
        leaving
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::SourceFile;

    #[test]
    fn the_least_recently_used_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<Arc<dyn ReadAt>> = (0..4)
            .map(|i| {
                let path = dir.path().join(i.to_string());
                std::fs::write(&path, [i; 10]).unwrap();
                let file: Arc<dyn ReadAt> = SourceFile::open(path).unwrap();
                file
            })
            .collect();
        let pool = MappingPool::new(3);
        let first = pool.get(&files[0]).unwrap();
        let second = Arc::downgrade(&pool.get(&files[1]).unwrap());
        pool.get(&files[2]).unwrap();
        assert!(Arc::ptr_eq(&first, &pool.get(&files[0]).unwrap()));
        let fourth = pool.get(&files[3]).unwrap();
        assert_eq!(fourth.bytes(0, 10).unwrap(), [3; 10]);
        assert_eq!((pool.len(), second.strong_count()), (3, 0));
        assert!(Arc::ptr_eq(&first, &pool.get(&files[0]).unwrap()));
        pool.clear();
        assert!(pool.is_empty());
        assert_eq!(first.bytes(0, 10).unwrap(), [0; 10]);
    }
}
