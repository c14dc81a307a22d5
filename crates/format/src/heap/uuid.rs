//! A uuid as its text, as PostgreSQL displays it: lower-case hexadecimal digits in groups. The texts sort byte
//! by byte like the uuids.

/// Characters of a uuid's text.
const TEXT_BYTES: usize = 36;

/// Positions of the digit pairs of the 16 bytes; a dash precedes each one that is not adjacent to another.
const PAIRS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// The ASCII text of a stored uuid.
#[inline]
pub fn text(stored: [u8; 16]) -> [u8; TEXT_BYTES] {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let mut text = [b'-'; TEXT_BYTES];
    for (byte, at) in stored.into_iter().zip(PAIRS) {
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

/// The stored form of a uuid with this text; `None` for any other text.
pub fn stored(shown: &str) -> Option<[u8; 16]> {
    let shown: [u8; TEXT_BYTES] = shown.as_bytes().try_into().ok()?;
    let digit = |at: usize| char::from(shown[at]).to_digit(16);
    let mut bytes = [0; 16];
    for (byte, at) in bytes.iter_mut().zip(PAIRS) {
        *byte = u8::try_from(digit(at)? << 4 | digit(at + 1)?).ok()?;
    }
    // Dashes, and no capital letters.
    (text(bytes) == shown).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{stored, text};

    fn shown(bytes: [u8; 16]) -> String {
        text(bytes).map(char::from).iter().collect()
    }

    #[test]
    fn texts_are_those_that_postgresql_shows() {
        let known = [
            ([0; 16], "00000000-0000-0000-0000-000000000000"),
            ([0xFF; 16], "ffffffff-ffff-ffff-ffff-ffffffffffff"),
            (
                0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210_u128.to_be_bytes(),
                "01234567-89ab-cdef-fedc-ba9876543210",
            ),
        ];
        for (bytes, text) in known {
            assert_eq!(shown(bytes), text);
            assert_eq!(stored(text), Some(bytes));
        }
    }

    #[test]
    fn other_texts_are_none() {
        let sound = shown([0xAB; 16]);
        let others = [
            String::new(),
            sound.to_uppercase(),
            sound.replace('-', ""),
            sound.replacen('-', "a", 1),
            sound.replacen('a', "g", 1),
            sound.replacen("ab", "+b", 1),
            sound.replacen("ab", "ä", 1),
            format!("{{{sound}}}"),
            format!("{sound} "),
        ];
        for other in others {
            assert_eq!(stored(&other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn texts_stand_for_uuids_and_are_ordered_as_they_are(
            one in any::<[u8; 16]>(),
            other in any::<[u8; 16]>(),
            alike in 0..16_usize,
        ) {
            prop_assert_eq!(stored(&shown(one)), Some(one));
            // Two that begin alike, too.
            let mut near = other;
            near[..alike].copy_from_slice(&one[..alike]);
            for other in [other, near] {
                prop_assert_eq!(text(one).cmp(&text(other)), one.cmp(&other));
            }
        }
    }
}
