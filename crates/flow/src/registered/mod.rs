//! Copies straight from a file's mapping: no read, no slot's host memory.
//!
//! ```text
//! file      |  piece 0   |  piece 1   |  piece 2   |..       registered by helper threads,
//! extents        [====)[==========)[===)                     a piece at a time, ahead of the copies
//! copies         [=)[=][=====][===][===)                     cut at the borders of pieces
//! ```
//!
//! Pinning costs about as much as copying once, so pieces are kept from race to race
//! ([`RegisteredPool`]), and the automatic choice takes this path only if such a pool is given.
//!
//! Pinning runs at 28 to 35 GB/s in pieces of 256 MiB (11 GB/s in one piece, and more threads do not help), so the
//! first pass over a file in memory is faster through slots. Registrations that are kept then fill the link (55
//! GB/s).

mod files;
mod helpers;
mod mapping;
mod pool;

use std::ops::Range;

pub use files::{RegisteredExtent, RegisteredFiles};
pub(crate) use helpers::{Registered, Registrars};
pub(crate) use mapping::SharedMapping;
pub(crate) use pool::{PieceKey, Refusal, RegisteredPiece};
pub use pool::{RegisteredPool, RegisteredStats};

/// The unit of registration. Large enough that the call costs little beside the pinning, small
/// enough that the first copy waits only some milliseconds.
const PIECE_BYTES: usize = 64 << 20;

/// The pieces that an extent touches.
pub(crate) fn pieces(offset: u64, bytes: u64, piece_bytes: usize) -> Range<u64> {
    if bytes == 0 {
        return 0..0;
    }
    offset / piece_bytes as u64..(offset + bytes - 1) / piece_bytes as u64 + 1
}

/// The part of an extent that lies in a piece.
pub(crate) fn part_in(piece: u64, offset: u64, bytes: u64, piece_bytes: usize) -> Range<u64> {
    let start = piece * piece_bytes as u64;
    start.max(offset)..(start + piece_bytes as u64).min(offset + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_extent_meet_at_the_borders_of_pieces() {
        let size = 4096;
        for (offset, bytes) in [(0, 1), (0, 4096), (5, 4096), (4095, 2 * 4096 + 2)] {
            let parts: Vec<_> = pieces(offset, bytes, size)
                .map(|piece| part_in(piece, offset, bytes, size))
                .collect();
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (offset, offset + bytes));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(parts.iter().all(|part| !part.is_empty()));
        }
        assert!(pieces(7, 0, size).is_empty());
    }
}
