//! Mappings cached for the next reader: an existing mapping costs no page faults.
//!
//! Page faults and munmap cost half the warm speed, so mappings are kept from query to query.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Kept, LastUsed, MappedFile, ReadAt, Result};

/// Mapped files, each in the version requested last; bounded in number, with eviction of the least
/// recently used.
#[derive(Debug)]
pub struct MappingPool {
    files_max: usize,
    mapped: Mutex<LastUsed<FileKey, Arc<MappedFile>>>,
}

/// Device and inode.
type FileKey = (u64, u64);

impl MappingPool {
    /// A pool that keeps at most `files_max` mappings (at least 1).
    pub fn new(files_max: usize) -> Arc<MappingPool> {
        Arc::new(MappingPool { files_max: files_max.max(1), mapped: Mutex::default() })
    }

    /// Number of mappings kept.
    pub fn len(&self) -> usize {
        self.mapped.lock().len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all mappings; those in use live until their last use ends.
    pub fn clear(&self) {
        let forgotten = std::mem::take(&mut *self.mapped.lock());
        drop(forgotten);
    }

    /// The mapping of this version of the file.
    ///
    /// # Errors
    /// Those of [`MappedFile::map`].
    pub fn get(&self, file: &Arc<dyn ReadAt>) -> Result<Arc<MappedFile>> {
        let version = file.identity();
        let key = (version.device, version.inode);
        let find = || {
            let mut mapped = self.mapped.lock();
            let round = mapped.next_round();
            mapped.get(&key, round)
        };
        // Unless it is poisoned: that one shows zeros for ever, a fresh one what is there now.
        let is_sound = |known: &Arc<Kept<Arc<MappedFile>>>| {
            known.file().identity() == version && known.check().is_ok()
        };
        if let Some(known) = find().filter(is_sound) {
            return Ok(Arc::clone(&known));
        }
        // Neither mapped nor unmapped under the lock: others do not wait for the kernel.
        let mapped = Arc::new(MappedFile::map(file.clone())?);
        let mut kept = self.mapped.lock();
        let round = kept.next_round();
        let mut leaving = Vec::from_iter(kept.insert(key, Kept::new(mapped.clone()), 0, round));
        while kept.len() > self.files_max {
            leaving.extend(kept.take_oldest());
        }
        drop(kept);
        Ok(mapped)
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

    #[test]
    fn a_file_that_grows_leaves_no_mapping_of_what_it_was() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pool = MappingPool::new(3);
        let mut before = None;
        for bytes in [10, 20, 30] {
            std::fs::write(&file, vec![bytes; usize::from(bytes)]).unwrap();
            let opened: Arc<dyn ReadAt> = SourceFile::open(file.path()).unwrap();
            let mapped = pool.get(&opened).unwrap();
            assert_eq!(mapped.bytes(0, bytes.into()).unwrap(), vec![bytes; usize::from(bytes)]);
            assert_eq!(pool.len(), 1);
            let replaced = before.replace(Arc::downgrade(&mapped));
            assert!(replaced.is_none_or(|replaced| replaced.strong_count() == 0));
        }
    }
}
