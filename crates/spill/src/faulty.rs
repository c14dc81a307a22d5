//! Failing temporary files, for the tests of code that spills.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::folder::SpillFolder;

/// The fault, from some call on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// No file can be created.
    Create,
    /// The device is full.
    Full(u64),
    /// The device cannot be read.
    Eio(u64),
    /// Reads return one flipped bit.
    Bit(u64),
}

/// A folder whose files have a fault.
pub fn folder(path: impl Into<PathBuf>, limit_bytes: u64, fault: Fault) -> Arc<SpillFolder> {
    SpillFolder::of_files(path, limit_bytes, "raise the spill limit", move |folder: &Path| {
        if fault == Fault::Create {
            return Err(errno(ENOENT));
        }
        let file = tempfile::tempfile_in(folder)?;
        Ok(Box::new(Faulty { file, fault, reads: AtomicU64::new(0), writes: AtomicU64::new(0) }))
    })
}

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

struct Faulty {
    file: File,
    fault: Fault,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl FileExt for Faulty {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let call = self.reads.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::Eio(from) if call >= from => Err(errno(EIO)),
            Fault::Bit(from) if call >= from => {
                let count = self.file.read_at(into, offset)?;
                into[count / 2] ^= 1;
                Ok(count)
            }
            _ => self.file.read_at(into, offset),
        }
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        let call = self.writes.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::Full(from) if call >= from => Err(errno(ENOSPC)),
            _ => self.file.write_at(from, offset),
        }
    }
}
