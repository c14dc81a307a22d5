//! Inputs in host memory, and this process's memory use.

use std::io;
use std::path::Path;
use std::sync::Arc;

use headrace_io::system::{SysRoot, available_memory_bytes};
use headrace_io::{
    AlignedBuffer, HeldBytes, MemoryFile, ReadAt, ReadMode, SourceFile, decimal_bytes,
};
use headrace_ooc::{Files, OocError, Options, PlainFiles};

use super::operator::Limits;

/// Unit of reads into memory; cancellation is checked between them.
const PIECE_BYTES: usize = 64 << 20;

/// A file of 8-byte numbers, or of raw bytes, in memory.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    buffer: Arc<AlignedBuffer>,
    bytes: usize,
    source: Arc<SourceFile>,
}

impl Loaded {
    /// Reads a file.
    ///
    /// # Errors
    /// Those of reading; [`OocError::Cancelled`].
    pub fn read(path: &Path, options: &Options) -> Result<Loaded, OocError> {
        let file = SourceFile::open(path)?;
        let bytes = file.size_bytes() as usize;
        let mut buffer = AlignedBuffer::allocate(bytes.max(1))?;
        let mut offset = 0;
        for piece in buffer.as_mut_slice()[..bytes].chunks_mut(PIECE_BYTES) {
            if options.token.is_cancelled() {
                return Err(OocError::Cancelled);
            }
            file.read_exact_at(offset, piece)?;
            offset += piece.len() as u64;
        }
        let source = SourceFile::known(path, file.identity());
        Ok(Loaded { buffer: Arc::new(buffer), bytes, source })
    }

    /// The numbers.
    pub fn numbers(&self) -> &[i64] {
        bytemuck::cast_slice(self.as_ref())
    }

    /// As a file with one readable extent: the file, the offset and the number of numbers.
    pub fn extent(&self, name: &str) -> (Arc<dyn ReadAt>, u64, u64) {
        let numbers = self.numbers();
        let (address, count) = (numbers.as_ptr().addr() as u64, numbers.len() as u64);
        let held: HeldBytes = Box::new(self.clone());
        (MemoryFile::new(&MemoryFile::named(name), vec![held]), address, count)
    }
}

impl AsRef<[u8]> for Loaded {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.as_slice()[..self.bytes]
    }
}

/// As the original file: its offsets begin with 0.
impl ReadAt for Loaded {
    fn source(&self) -> &SourceFile {
        &self.source
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn bytes_in_memory(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.as_ref().get(start..start.checked_add(usize::try_from(bytes).ok()?)?)
    }

    fn read_at(&self, _mode: ReadMode, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.bytes_in_memory(offset, into.len() as u64);
        let bytes = bytes.ok_or_else(|| io::Error::other("behind the end of what is in memory"))?;
        into.copy_from_slice(bytes);
        Ok(into.len())
    }

    fn check_unchanged(&self) -> headrace_io::Result<()> {
        Ok(())
    }
}

/// Files; the loaded one is read from memory.
#[derive(Debug)]
pub(super) struct WithLoaded(pub Loaded);

impl Files for WithLoaded {
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>, OocError> {
        if path == self.0.path() { Ok(Arc::new(self.0.clone())) } else { PlainFiles.open(path) }
    }
}

/// # Errors
/// [`OocError::Memory`] if this much does not fit the limit.
pub(super) fn check_fits(
    what: &str,
    memory: &'static str,
    wanted_bytes: u64,
    limit_bytes: u64,
) -> Result<(), OocError> {
    if wanted_bytes <= limit_bytes {
        return Ok(());
    }
    let remedy = format!("inputs of {} and less fit", decimal_bytes(limit_bytes));
    Err(OocError::Memory { what: what.to_string(), memory, wanted_bytes, limit_bytes, remedy })
}

impl Limits {
    /// For this machine, now; `device_bytes` is the device's memory.
    pub(super) fn now(device_bytes: Option<u64>) -> Limits {
        let available = available_memory_bytes(&SysRoot::host()).unwrap_or(0);
        Limits { host_bytes: available / 2, device_bytes }
    }
}

/// Resets the peak of resident memory.
pub(super) fn forget_peak() {
    // Where the kernel refuses, the peak is that of the process: more than it is, never less.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use headrace_io::system::peak_memory_bytes;

    #[test]
    fn numbers_in_memory_are_read_as_those_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let numbers: Vec<i64> = (0..1000).map(|n| n * n - 7).collect();
        std::fs::write(&path, bytemuck::cast_slice::<i64, u8>(&numbers)).unwrap();
        let loaded = Loaded::read(&path, &Options::default()).unwrap();
        let (file, offset, count) = loaded.extent("a");
        let mut read = vec![0i64; count as usize];
        file.read_exact_at(offset, bytemuck::cast_slice_mut(&mut read)).unwrap();
        assert_eq!((read.as_slice(), loaded.numbers()), (&numbers[..], &numbers[..]));
        let files = WithLoaded(loaded);
        let (same, other) = (files.open(&path).unwrap(), files.open(&folder.path().join("b")));
        assert!(same.is_in_memory() && same.size_bytes() == 8000 && other.is_err());
        let mut one = [0i64];
        same.read_exact_at(80, bytemuck::cast_slice_mut(&mut one)).unwrap();
        assert_eq!((one[0], same.bytes_in_memory(7992, 8).map(<[u8]>::len)), (93, Some(8)));
        assert!(same.bytes_in_memory(7992, 9).is_none());
        let cancelled = Options::default();
        cancelled.token.cancel();
        assert!(matches!(Loaded::read(&path, &cancelled), Err(OocError::Cancelled)));
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_limit() {
        assert!(check_fits("the lists", "host memory", 5, 5).is_ok());
        let told = check_fits("the lists", "host memory", 6, 5).unwrap_err().to_string();
        assert!(
            told.starts_with("the lists needs 6 bytes of host memory, the limit is 5"),
            "{told}"
        );
    }

    #[test]
    fn the_peak_is_that_of_what_was_touched_since() {
        let mut peaks = (0..50).map(|_| {
            forget_peak();
            let before = peak_memory_bytes().unwrap();
            let touched = std::hint::black_box(vec![1u8; 64 << 20]);
            let peak = peak_memory_bytes().unwrap();
            drop(touched);
            // Forgotten, it is what there is, not what there was.
            forget_peak();
            (before, peak, peak_memory_bytes().unwrap())
        });
        // Other tests of the process take and give back memory at the same time, but not always.
        let is_seen = |(before, peak, after)| peak >= before + (32 << 20) && after < peak;
        assert!(peaks.any(is_seen));
    }
}
