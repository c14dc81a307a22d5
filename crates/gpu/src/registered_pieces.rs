//! A large mapping registered piece by piece, from several threads.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::host_pages::page_bytes;
use crate::pinned::{HostAccess, RegisteredHost};
use crate::threads;

/// More do not pin faster: the driver takes locks.
const THREADS_MAX: usize = 64;

/// Memory registered as several neighbouring registrations.
///
/// ```text
/// memory:  |==== piece 0 ====|==== piece 1 ====|== last ==|
/// ```
///
/// A copy should stay inside one piece: the driver may refuse ranges that cross from one
/// registration to the next. [`RegisteredPieces::split`] cuts a range accordingly.
#[derive(Debug)]
pub struct RegisteredPieces {
    pieces: Vec<RegisteredHost>,
    piece_bytes: usize,
    bytes: usize,
}

impl RegisteredPieces {
    /// Registers `bytes` bytes from `start` on in pieces of `piece_bytes` (the last may be
    /// shorter), on up to `threads` threads. All three of start, length and piece must be
    /// multiples of [`page_bytes`].
    ///
    /// # Errors
    /// As [`RegisteredHost::register`], of the first piece that was refused; the others
    /// are released. [`GpuError::InvalidArgument`] for no thread or a piece of 0 bytes.
    ///
    /// # Safety
    /// As [`RegisteredHost::register`], for the whole range.
    pub unsafe fn register(
        device: &Arc<Device>,
        start: NonNull<u8>,
        bytes: usize,
        access: HostAccess,
        piece_bytes: usize,
        threads: usize,
    ) -> Result<Self> {
        let ranges = ranges_of(bytes, piece_bytes)?;
        if threads == 0 {
            return Err(GpuError::invalid("RegisteredPieces::register", "0 threads"));
        }
        // An address, so that the threads may share it.
        let address = start.as_ptr() as usize;
        let pieces = in_parallel(ranges.len(), threads.min(THREADS_MAX), |index| {
            let (offset, bytes) = ranges[index];
            let piece = NonNull::new((address + offset) as *mut u8).expect("start is not null");
            // SAFETY: the piece is inside the range of this function's contract.
            unsafe { RegisteredHost::register(device, piece, bytes, access) }
        })?;
        Ok(Self { pieces, piece_bytes, bytes })
    }

    /// The pieces, in the order of their addresses.
    pub fn pieces(&self) -> &[RegisteredHost] {
        &self.pieces
    }

    /// Bytes of each piece but the last.
    pub fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// `bytes` bytes from `offset` on as (offset, bytes) of parts that each lie in one
    /// piece.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for a range that passes the end of the last piece.
    pub fn split(
        &self,
        offset: usize,
        bytes: usize,
    ) -> Result<impl Iterator<Item = (usize, usize)> + use<>> {
        require_inside(self.bytes, offset, bytes)?;
        Ok(split(self.piece_bytes, offset, bytes))
    }
}

fn require_inside(registered_bytes: usize, offset: usize, bytes: usize) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= registered_bytes => Ok(()),
        _ => Err(GpuError::invalid(
            "RegisteredPieces::split",
            format!("{bytes} bytes at {offset} of {registered_bytes} registered bytes"),
        )),
    }
}

fn split(piece_bytes: usize, offset: usize, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = offset.saturating_add(bytes);
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let part = (piece_bytes - at % piece_bytes).min(end - at);
        let found = (at, part);
        at += part;
        Some(found)
    })
}

fn ranges_of(bytes: usize, piece_bytes: usize) -> Result<Vec<(usize, usize)>> {
    let page = page_bytes();
    if piece_bytes == 0 || !piece_bytes.is_multiple_of(page) || bytes == 0 {
        return Err(GpuError::invalid(
            "RegisteredPieces::register",
            format!("{bytes} bytes in pieces of {piece_bytes} bytes; pages have {page}"),
        ));
    }
    Ok(split(piece_bytes, 0, bytes).collect())
}

/// `make(0..count)` on up to `threads` threads, in the order of the indices; the first error ends
/// it, and what was made is dropped.
fn in_parallel<T: Send>(
    count: usize,
    threads: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let made: Mutex<Vec<(usize, Result<T>)>> = Mutex::new(Vec::with_capacity(count));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let outcome = make(index);
            if outcome.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            made.lock().push((index, outcome));
        }
    };
    threads::share(threads.min(count), work);
    let mut made = made.into_inner();
    made.sort_by_key(|(index, _)| *index);
    made.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn work_is_done_in_order_and_stops_at_an_error() {
        let done = in_parallel(100, 7, |index| Ok(index * 2)).unwrap();
        assert!(done.iter().enumerate().all(|(index, &value)| value == index * 2));
        let outcome = in_parallel(1000, 4, |index| {
            if index == 3 { Err(GpuError::invalid("test", "three")) } else { Ok(index) }
        });
        assert!(outcome.unwrap_err().to_string().contains("three"));
        assert!(in_parallel(0, 4, Ok).unwrap().is_empty());
    }

    #[test]
    fn pieces_must_be_whole_pages() {
        let page = page_bytes();
        assert_eq!(
            ranges_of(5 * page, 2 * page).unwrap(),
            [(0, 2 * page), (2 * page, 2 * page), (4 * page, page)]
        );
        for (bytes, piece) in [(0, page), (page, 0), (page, page + 1)] {
            assert!(ranges_of(bytes, piece).is_err(), "{bytes} in {piece}");
        }
    }

    #[test]
    fn a_range_past_the_end_is_refused() {
        assert!(require_inside(100, 0, 100).is_ok() && require_inside(100, 100, 0).is_ok());
        for (offset, bytes) in [(0, 101), (100, 1), (101, 0), (1, usize::MAX)] {
            assert!(require_inside(100, offset, bytes).is_err(), "{bytes} at {offset}");
        }
    }

    proptest! {
        #[test]
        fn parts_cover_a_range_and_stay_in_their_piece(
            piece in 1usize..100, offset in 0usize..1000, bytes in 0usize..1000,
        ) {
            let mut at = offset;
            for (start, length) in split(piece, offset, bytes) {
                prop_assert_eq!(start, at);
                prop_assert!(length > 0);
                prop_assert_eq!(start / piece, (start + length - 1) / piece);
                at += length;
            }
            prop_assert_eq!(at, offset + bytes);
        }
    }
}
