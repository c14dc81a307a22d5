//! The status that launches leave.

use crate::decode::chunks;

/// Bytes of the status that launches leave: the number of output rows (`u64`), then an error
/// word (`u32`): the number of the kernel and, as each numbers its failures itself, of the failure.
pub const STATUS_BYTES: usize = 256;

/// Where the error word lies.
pub(crate) const STATUS_ERROR_AT: usize = 8;

/// Where the host puts the number of hashed groups (`u32`) beside a status that came back.
pub(crate) const STATUS_GROUPS_AT: usize = 12;

/// How many groups there were when a status came back.
pub(crate) fn groups_of(status: &[u8; STATUS_BYTES]) -> u64 {
    let used = chunks::<4>(&status[STATUS_GROUPS_AT..]).next().map_or(0, u32::from_le_bytes);
    used.into()
}
