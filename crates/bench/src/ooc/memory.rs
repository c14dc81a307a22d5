//! Inputs in host memory, and how much memory this process has taken.

use std::path::Path;
use std::sync::Arc;

use headrace_io::system::{SysRoot, available_memory_bytes};
use headrace_io::{HeldBytes, MemoryFile, ReadAt, SourceFile, decimal_bytes};
use headrace_ooc::{OocError, Options};

use super::record::Limits;

/// Read at once into memory; between two of them an interruption is heeded.
const PIECE_BYTES: usize = 64 << 20;

/// Numbers of a file, in memory.
#[derive(Debug, Clone)]
pub(super) struct Loaded(Arc<Vec<i64>>);

impl Loaded {
    /// Reads a file of 8-byte numbers.
    ///
    /// # Errors
    /// Those of reading; [`OocError::Cancelled`].
    pub fn read(path: &Path, options: &Options) -> Result<Loaded, OocError> {
        let file = SourceFile::open(path)?;
        let mut numbers = vec![0i64; (file.size_bytes() / 8) as usize];
        let mut offset = 0;
        for piece in bytemuck::cast_slice_mut(&mut numbers).chunks_mut(PIECE_BYTES) {
            if options.token.is_cancelled() {
                return Err(OocError::Cancelled);
            }
            file.read_exact_at(offset, piece)?;
            offset += piece.len() as u64;
        }
        Ok(Loaded(Arc::new(numbers)))
    }

    /// The numbers.
    pub fn numbers(&self) -> &[i64] {
        &self.0
    }

    /// As a file of which one extent can be read: the file, the offset and the number of numbers.
    pub fn extent(&self, name: &str) -> (Arc<dyn ReadAt>, u64, u64) {
        let held: HeldBytes = Box::new(self.clone());
        let file = MemoryFile::new(&MemoryFile::named(name), vec![held]);
        (file, self.0.as_ptr().addr() as u64, self.0.len() as u64)
    }
}

impl AsRef<[u8]> for Loaded {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// # Errors
/// [`OocError::Memory`] if so much does not fit the limit.
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
    /// Of this machine, now; `device_bytes` is what a device offers.
    pub(super) fn now(device_bytes: Option<u64>) -> Limits {
        let available = available_memory_bytes(&SysRoot::host()).unwrap_or(0);
        Limits { host_bytes: available / 2, device_bytes }
    }
}

/// Begins to look for the peak of resident memory anew.
pub(super) fn forget_peak() {
    // Where the kernel refuses, the peak is that of the process: more than it is, never less.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Resident memory at most since then; `None` where the kernel does not tell.
pub(super) fn resident_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
        forget_peak();
        let before = resident_peak_bytes().unwrap();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(resident_peak_bytes().unwrap() >= before + (32 << 20));
        drop(touched);
    }
}
