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

/// `N` bytes each at `distance` behind `places` of a page; `None` if some are not in it.
#[inline(always)]
pub(super) fn gather<'a, const N: usize>(
    page: &'a [u8],
    places: &'a [u16],
    distance: usize,
) -> Option<impl ExactSizeIterator<Item = [u8; N]> + 'a> {
    let last = usize::from(places.iter().fold(0, |last, place| (*place).max(last)));
    (last + distance + N <= page.len()).then(|| {
        places.iter().map(move |place| {
            let at = usize::from(*place) + distance;
            // SAFETY: no place is behind `last`, of which was asked whether it leaves room for them.
            unsafe { page.as_ptr().add(at).cast::<[u8; N]>().read_unaligned() }
        })
    })
}
