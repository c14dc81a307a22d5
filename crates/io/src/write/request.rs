//! An extent to write, and how the engines see it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use io_uring::{opcode, squeue, types};

use super::WriteAt;
use crate::segment::{Cut, Fault, Segment};
use crate::transfer::{Descriptor, Transfer, check_extent};
use crate::{EXTENT_ALIGN_BYTES, IoError, Placement, ReadMode, Result, Window};

/// An extent to write.
#[derive(Debug, Clone)]
pub struct WriteRequest {
    /// The file.
    pub file: Arc<dyn WriteAt>,
    /// Through the page cache or past it.
    pub mode: ReadMode,
    /// First byte in the file. In [`ReadMode::Direct`] a multiple of
    /// [`EXTENT_ALIGN_BYTES`](crate::EXTENT_ALIGN_BYTES).
    pub offset: u64,
    /// Bytes to write; 0 is allowed and completes at once.
    pub bytes: u64,
    /// Source: starts on a multiple of [`EXTENT_ALIGN_BYTES`](crate::EXTENT_ALIGN_BYTES), is at
    /// least [`Placement::window_bytes`](crate::Placement) long, and has the bytes at
    /// [`Placement::head_bytes`](crate::Placement), as a read of the same extent leaves it.
    ///
    /// In [`ReadMode::Direct`] an extent that ends unaligned at the end of the file is written with
    /// the following bytes of the window, up to a whole block, and the commit cuts it. An extent
    /// that ends unaligned elsewhere, or on a device, has its partial last block written through
    /// the page cache.
    pub window: Window,
    /// Returned with the completion.
    pub tag: u64,
}

impl Transfer for WriteRequest {
    const VERB: &'static str = "write";
    const CALL: &'static str = "pwrite";

    fn tag(&self) -> u64 {
        self.tag
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn extent(&self) -> (u64, u64) {
        (self.offset, self.bytes)
    }

    fn check(&self) -> Result<()> {
        check_extent(self.file.path(), self.file.size_bytes(), self.extent(), &self.window)?;
        let head_bytes = Placement::of(self.offset, self.bytes).head_bytes;
        if self.bytes == 0 || self.mode == ReadMode::Buffered || head_bytes == 0 {
            return Ok(());
        }
        Err(IoError::Window {
            path: self.file.path().to_path_buf(),
            offset: self.offset,
            bytes: self.bytes,
            window_bytes: self.window.bytes(),
            what: "with O_DIRECT an extent to be written must begin with a whole block",
        })
    }

    fn cut(&self) -> Cut {
        let align = EXTENT_ALIGN_BYTES as u64;
        let end = self.offset + self.bytes;
        let padded = end == self.file.size_bytes() && self.file.sink().is_cut_by_commit();
        let direct_end = match self.mode {
            ReadMode::Direct if padded => end.next_multiple_of(align),
            ReadMode::Direct => end / align * align,
            ReadMode::Buffered => 0,
        };
        Cut::at(direct_end, self.extent(), self.window.as_ptr())
    }

    fn descriptor(&self, mode: ReadMode) -> io::Result<Descriptor> {
        self.file.sink().raw_fd(mode).map(Descriptor::OfRequest)
    }

    fn entry(fd: types::Fd, segment: &Segment, registered: Option<u16>) -> squeue::Entry {
        let (from, bytes) = (segment.memory, segment.bytes as u32);
        match registered {
            Some(index) => {
                opcode::WriteFixed::new(fd, from, bytes, index).offset(segment.offset).build()
            }
            None => opcode::Write::new(fd, from, bytes).offset(segment.offset).build(),
        }
    }

    unsafe fn attempt(&self, segment: &Segment) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        let from = unsafe { std::slice::from_raw_parts(segment.memory, segment.bytes) };
        self.file.write_at(segment.mode, segment.offset, from)
    }

    unsafe fn intercept(&self, segment: &Segment, outcome: io::Result<usize>) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        let from = unsafe { std::slice::from_raw_parts(segment.memory, segment.bytes) };
        self.file.intercept(segment.mode, segment.offset, from, outcome)
    }

    fn error(&self, segment: &Segment, fault: Fault) -> IoError {
        write_error(self.file.path(), segment, fault)
    }
}

fn write_error(path: &Path, segment: &Segment, fault: Fault) -> IoError {
    let cause = match fault {
        Fault::NothingMoved => io::Error::from(io::ErrorKind::WriteZero),
        Fault::Refused(cause) => cause,
    };
    IoError::Write {
        path: path.to_path_buf(),
        offset: segment.offset,
        bytes: segment.bytes as u64,
        cause,
    }
}
