//! Little-endian numbers at a position, from unchecked bytes.

/// `N` bytes at `at`, if they exist.
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

/// `N` bytes each at `distance` after `places` of a page; `None` if some are outside.
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

#[cfg(test)]
mod tests {
    use super::gather;

    #[test]
    fn bytes_are_gathered_from_within_the_page_alone() {
        let page: Vec<u8> = (0..16).collect();
        let gathered = |places: &[u16], distance| {
            gather::<4>(&page, places, distance).map(|values| values.collect::<Vec<_>>())
        };
        let (first, last) = ([0, 1, 2, 3], [12, 13, 14, 15]);
        assert_eq!(gathered(&[12, 0, 12], 0), Some(vec![last, first, last]));
        assert_eq!(gathered(&[4], 8), Some(vec![last]));
        for (places, distance) in [(&[0, 13, 1][..], 0), (&[5], 8), (&[0], 13), (&[u16::MAX], 0)] {
            assert_eq!(gathered(places, distance), None);
        }
    }
}
