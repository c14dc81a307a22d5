//! Bytes in memory, read as if they were a file: reader threads copy them into the pinned slots of
//! a device.

use std::io;
use std::sync::Arc;

use headrace_io::{MappedFile, ReadAt, ReadMode, SourceFile};

use crate::cache::Cached;

/// An extent in memory, at its offsets in its file.
#[derive(Debug)]
pub(crate) struct MemorySource {
    file: Arc<dyn ReadAt>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Cached { range: Cached, offset: u64 },
    Mapped(Arc<MappedFile>),
}

impl MemorySource {
    /// A range of the host cache that begins at `offset` of the file.
    pub fn cached(file: Arc<dyn ReadAt>, range: Cached, offset: u64) -> Arc<Self> {
        Arc::new(MemorySource { file, place: Place::Cached { range, offset } })
    }

    /// A mapped file.
    pub fn mapped(file: Arc<dyn ReadAt>, mapped: Arc<MappedFile>) -> Arc<Self> {
        Arc::new(MemorySource { file, place: Place::Mapped(mapped) })
    }

    fn copy(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        match &self.place {
            Place::Cached { range, offset: start } => {
                let skip = usize::try_from(offset.checked_sub(*start)?).ok()?;
                let end = skip.checked_add(into.len())?;
                into.copy_from_slice(range.bytes().get(skip..end)?);
            }
            Place::Mapped(mapped) => {
                into.copy_from_slice(mapped.bytes(offset, into.len() as u64).ok()?);
            }
        }
        Some(())
    }
}

impl ReadAt for MemorySource {
    fn source(&self) -> &SourceFile {
        self.file.source()
    }

    fn read_at(&self, _mode: ReadMode, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.copy(offset, into)
            .ok_or_else(|| io::Error::other("the extent is not the one that lies in memory"))?;
        if let Place::Mapped(mapped) = &self.place {
            mapped.check().map_err(io::Error::other)?;
        }
        Ok(into.len())
    }
}
