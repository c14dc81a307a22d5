//! Texts as a launch leaves them: addresses and lengths. What they say of the bytes that follow them.

/// Bytes of a text as a launch leaves it: its address, its length in 4 bytes, and 4 that mean nothing.
pub const TEXT_VALUE_BYTES: usize = 16;

const LENGTH_AT: usize = 8;

/// Bytes of texts that are gathered at once, unless one is longer.
pub(crate) const TEXT_PORTION_BYTES: usize = 8 << 20;

/// The length of each text of some rows as a launch left them.
pub fn text_lengths(values: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let length = |value: &[u8; TEXT_VALUE_BYTES]| {
        let bytes = value[LENGTH_AT..].first_chunk::<4>().copied().unwrap_or_default();
        u32::from_le_bytes(bytes) as usize
    };
    values.as_chunks::<TEXT_VALUE_BYTES>().0.iter().map(length)
}

/// Texts that lie one behind the other, by their lengths; `None` for one that breaks off.
pub(crate) fn cut(
    mut texts: &[u8],
    lengths: impl Iterator<Item = usize>,
) -> impl Iterator<Item = Option<&[u8]>> {
    lengths.map(move |length| {
        let (text, rest) = texts.split_at_checked(length)?;
        texts = rest;
        Some(text)
    })
}

/// How many of the rows of these columns of texts go together: one at least.
pub(crate) fn rows_together(columns: &[&[u8]], rows: usize) -> usize {
    let mut lengths: Vec<_> = columns.iter().map(|values| text_lengths(values)).collect();
    let mut bytes = 0;
    let fits = |_: &usize| {
        bytes += lengths.iter_mut().filter_map(Iterator::next).sum::<usize>();
        bytes <= TEXT_PORTION_BYTES
    };
    (0..rows).take_while(fits).count().clamp(1.min(rows), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(lengths: &[u32]) -> Vec<u8> {
        let value = |length: &u32| {
            let mut value = [0xff; TEXT_VALUE_BYTES];
            value[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_le_bytes());
            value
        };
        lengths.iter().flat_map(value).collect()
    }

    #[test]
    fn rows_go_together_as_long_as_their_texts_fit_and_one_always_goes() {
        let half = (TEXT_PORTION_BYTES / 2) as u32;
        let (one, other) = (values(&[half, 10, half, half]), values(&[half, 0, 1, 1]));
        assert_eq!(rows_together(&[&one], 4), 2);
        assert_eq!(rows_together(&[&one, &other], 4), 1);
        assert_eq!(rows_together(&[&values(&[u32::MAX, 1])], 2), 1);
        assert_eq!(rows_together(&[&values(&[1, 2, 3])], 3), 3);
        assert_eq!(rows_together(&[], 7), 7);
        assert_eq!(rows_together(&[&[]], 0), 0);
    }
}
