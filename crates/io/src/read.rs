//! An extent to read, and how the engines see it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use io_uring::{opcode, squeue, types};

use crate::engine::Window;
use crate::segment::{Cut, Fault, Segment};
use crate::transfer::{Descriptor, Transfer, check_extent, check_range};
use crate::{EXTENT_ALIGN_BYTES, IoError, ReadAt, ReadMode, Result};

/// An extent to read.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// The file.
    pub file: Arc<dyn ReadAt>,
    /// Through the page cache or past it.
    pub mode: ReadMode,
    /// First wanted byte.
    pub offset: u64,
    /// Wanted bytes; 0 is allowed and completes at once.
    pub bytes: u64,
    /// Destination: starts on a multiple of [`EXTENT_ALIGN_BYTES`](crate::EXTENT_ALIGN_BYTES) and
    /// is at least [`Placement::window_bytes`](crate::Placement) long. The wanted bytes will lie at
    /// [`Placement::head_bytes`](crate::Placement), in both modes; the rest of the window may be
    /// overwritten.
    pub window: Window,
    /// Returned with the completion.
    pub tag: u64,
}

impl Transfer for ReadRequest {
    const VERB: &'static str = "read";
    const CALL: &'static str = "pread";

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
        check_extent(self.file.path(), self.file.size_bytes(), self.extent(), &self.window)
    }

    fn cut(&self) -> Cut {
        let align = EXTENT_ALIGN_BYTES as u64;
        let whole_blocks_end = self.file.size_bytes() / align * align;
        let direct_end = match self.mode {
            ReadMode::Direct if self.bytes > 0 => {
                (self.offset + self.bytes).next_multiple_of(align).min(whole_blocks_end)
            }
            _ => 0,
        };
        Cut::at(direct_end, self.extent(), self.window.start)
    }

    fn descriptor(&self, mode: ReadMode) -> io::Result<Descriptor> {
        self.file.source().descriptor(mode).map(Descriptor::Held)
    }

    fn entry(fd: types::Fd, segment: &Segment, registered: Option<u16>) -> squeue::Entry {
        let (into, bytes) = (segment.memory, segment.bytes as u32);
        match registered {
            Some(index) => {
                opcode::ReadFixed::new(fd, into, bytes, index).offset(segment.offset).build()
            }
            None => opcode::Read::new(fd, into, bytes).offset(segment.offset).build(),
        }
    }

    unsafe fn attempt(&self, segment: &Segment) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        let into = unsafe { std::slice::from_raw_parts_mut(segment.memory, segment.bytes) };
        self.file.read_at(segment.mode, segment.offset, into)
    }

    unsafe fn intercept(&self, segment: &Segment, outcome: io::Result<usize>) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        let into = unsafe { std::slice::from_raw_parts_mut(segment.memory, segment.bytes) };
        self.file.intercept(segment.mode, segment.offset, into, outcome)
    }

    fn error(&self, segment: &Segment, fault: Fault) -> IoError {
        read_error(self.file.path(), segment, fault)
    }
}

fn read_error(path: &Path, segment: &Segment, fault: Fault) -> IoError {
    let (path, offset, bytes) = (path.to_path_buf(), segment.offset, segment.bytes as u64);
    match fault {
        Fault::NothingMoved => IoError::UnexpectedEnd { path, offset, missing_bytes: bytes },
        Fault::Refused(cause) => {
            IoError::within(cause, |cause| IoError::Read { path, offset, bytes, cause })
        }
    }
}

/// See [`ReadAt::read_exact_at`].
pub(crate) fn read_exact(
    file: &(impl ReadAt + ?Sized),
    offset: u64,
    into: &mut [u8],
) -> Result<()> {
    check_range(file.path(), file.size_bytes(), (offset, into.len() as u64))?;
    if into.is_empty() {
        return Ok(());
    }
    let mut segment = Segment::new(ReadMode::Buffered, offset, into.as_mut_ptr(), into.len());
    let outcome = segment.carry_out(|part| {
        let done = (part.offset - offset) as usize;
        file.read_at(part.mode, part.offset, &mut into[done..])
    });
    outcome.map(|_| ()).map_err(|fault| read_error(file.path(), &segment, fault))
}
