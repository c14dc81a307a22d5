//! PostgreSQL's own compression, `pg_lzcompress.c`.
//!
//! The compressed bytes are groups of a control byte and up to eight items, one for each of its
//! bits from the lowest. Bit 0: the item is one literal byte. Bit 1: the item is a copy of earlier
//! output, in two or three bytes:
//!
//! ```text
//! byte 0: offset bits 11..8 (high half) | length - 3 (low half)
//! byte 1: offset bits 7..0
//! byte 2: only if the low half of byte 0 is 15: added to the length of 18
//! ```
//!
//! The offset counts back from the end of the output and is at least 1; a copy may overlap itself,
//! which repeats a pattern. Input and output must end together.

/// Fills `output`, which has the value's length, from `input`. None: the input is damaged.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let mut read = 0;
    let mut written = 0;
    while read < input.len() && written < output.len() {
        let mut control = input[read];
        read += 1;
        for _ in 0..8 {
            if read == input.len() || written == output.len() {
                break;
            }
            if control & 1 == 0 {
                output[written] = input[read];
                read += 1;
                written += 1;
            } else {
                let (first, second) = (*input.get(read)?, *input.get(read + 1)?);
                read += 2;
                let mut copy_bytes = usize::from(first & 0x0F) + 3;
                if copy_bytes == 18 {
                    copy_bytes += usize::from(*input.get(read)?);
                    read += 1;
                }
                let back = usize::from(first & 0xF0) << 4 | usize::from(second);
                let end = written.checked_add(copy_bytes).filter(|end| *end <= output.len())?;
                if back == 0 || back > written {
                    return None;
                }
                while written < end {
                    let piece = (end - written).min(back);
                    output.copy_within(written - back..written - back + piece, written);
                    written += piece;
                }
            }
            control >>= 1;
        }
    }
    (read == input.len() && written == output.len()).then_some(())
}
