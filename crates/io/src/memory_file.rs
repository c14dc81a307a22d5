//! Bytes from another producer, read as if they were a file.
//!
//! The offset of a byte is its address. The CPU reads the bytes in place; a GPU's readers copy them into slots.
//! Batches of a producer come once, so nothing of them is cached or planned ahead.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{FileIdentity, ReadAt, ReadMode, Result, SourceFile};

/// External memory, kept alive by its owner.
pub type HeldBytes = Box<dyn AsRef<[u8]> + Send + Sync>;

/// Buffers in memory as one file: the offset of a byte is its address, so an extent is aligned as
/// its bytes are. Gaps between the buffers cannot be read.
pub struct MemoryFile {
    source: Arc<SourceFile>,
    /// With their addresses, in address order.
    buffers: Vec<(u64, HeldBytes)>,
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryFile({}, {} buffers)", self.path().display(), self.buffers.len())
    }
}

impl MemoryFile {
    /// The name of files in memory in errors; many may share one name.
    pub fn named(name: &str) -> Arc<SourceFile> {
        let nowhere = FileIdentity { device: 0, inode: 0, size_bytes: 0, mtime_ns: 0, ctime_ns: 0 };
        SourceFile::known(name, nowhere)
    }

    /// Buffers that stay in place and unchanged while the value lives.
    pub fn new(name: &Arc<SourceFile>, buffers: Vec<HeldBytes>) -> Arc<MemoryFile> {
        let address = |bytes: &HeldBytes| (**bytes).as_ref().as_ptr().addr() as u64;
        let mut buffers: Vec<_> = buffers.into_iter().map(|b| (address(&b), b)).collect();
        buffers.sort_by_key(|(address, _)| *address);
        Arc::new(MemoryFile { source: Arc::clone(name), buffers })
    }
}

impl ReadAt for MemoryFile {
    fn source(&self) -> &SourceFile {
        &self.source
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn bytes_in_memory(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        let bytes = usize::try_from(bytes).ok()?;
        // Buffers may overlap: the last one that begins before need not be the one.
        let candidates = self.buffers.partition_point(|(address, _)| *address <= offset);
        self.buffers[..candidates].iter().rev().find_map(|(address, buffer)| {
            let start = usize::try_from(offset - address).ok()?;
            (**buffer).as_ref().get(start..start.checked_add(bytes)?)
        })
    }

    fn read_at(&self, _mode: ReadMode, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self
            .bytes_in_memory(offset, into.len() as u64)
            .ok_or_else(|| io::Error::other("the extent is not one that lies in memory"))?;
        into.copy_from_slice(bytes);
        Ok(into.len())
    }

    /// Memory that is held here never changes.
    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }

    /// Offsets are addresses, so the file has no end.
    fn size_bytes(&self) -> u64 {
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bytes_are_found_by_their_address_and_nothing_beside_them() {
        let (one, two) = (vec![1u8, 2, 3, 4], vec![7u8; 100]);
        let at = |bytes: &[u8]| bytes.as_ptr().addr() as u64;
        let (first, second) = (at(&one), at(&two));
        let name = MemoryFile::named("batch");
        let file = MemoryFile::new(&name, vec![Box::new(one), Box::new(two)]);
        assert_eq!(file.bytes_in_memory(first + 1, 2).unwrap(), [2, 3]);
        assert!(file.bytes_in_memory(second + 100, 0).unwrap().is_empty());
        for (offset, bytes) in [(first, 5), (first - 1, 1), (second + 99, 2), (0, 1), (9, u64::MAX)]
        {
            assert!(file.bytes_in_memory(offset, bytes).is_none(), "{offset} {bytes}");
        }
        let mut into = [0; 3];
        file.read_exact_at(first, &mut into).unwrap();
        assert_eq!(into, [1, 2, 3]);
        assert!(file.read_exact_at(first + 2, &mut into).is_err());
        file.check_unchanged().unwrap();
    }
}
