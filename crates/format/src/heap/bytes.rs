//! Little-endian numbers at a position, for bytes that nobody has checked.

/// `N` bytes at `at`, if they are there.
#[inline(always)]
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[inline(always)]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

#[inline(always)]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

/// The first multiple of `mask + 1`, a power of two, that is not below `at`.
#[inline(always)]
pub(super) fn align_up(at: usize, mask: usize) -> usize {
    (at + mask) & !mask
}
