//! Addresses and phone numbers of customers and suppliers.

use crate::{columns::TextBuilder, random::Stream};

const ADDRESS_LEN_MIN: u32 = 6;
const ADDRESS_LEN_MAX: u32 = 24;
/// Draws that one address may take: ten 6-bit characters a draw, and one for the length.
const DRAWS_PER_ADDRESS: u64 = 4;
const CHARACTERS_PER_DRAW: usize = 10;
/// The 64 characters of dbgen's random text.
const ALPHABET: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ,";

/// Appends a random address of 6 to 24 characters (dbgen: mean 15, from 40% to 160%).
pub(crate) fn push_address(text: &mut TextBuilder, stream: Stream, row: u64) {
    let first = row * DRAWS_PER_ADDRESS;
    let len = ADDRESS_LEN_MIN + stream.digits(first).below(ADDRESS_LEN_MAX - ADDRESS_LEN_MIN + 1);
    let mut address = [0; ADDRESS_LEN_MAX as usize];
    for (piece, draw) in address.chunks_mut(CHARACTERS_PER_DRAW).zip(first + 1..) {
        let mut bits = stream.draw(draw);
        for character in piece {
            *character = ALPHABET[(bits & 63) as usize];
            bits >>= 6;
        }
    }
    text.push(&address[..len as usize]);
}

/// Appends a phone number `cc-ddd-ddd-dddd`, whose country code is 10 + nation.
pub(crate) fn push_phone(text: &mut TextBuilder, stream: Stream, row: u64, nation: u32) {
    let mut digits = stream.digits(row);
    text.push_number(10 + nation, 2);
    text.push(b"-");
    text.push_number(100 + digits.below(900), 3);
    text.push(b"-");
    text.push_number(100 + digits.below(900), 3);
    text.push(b"-");
    text.push_number(1000 + digits.below(9000), 4);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::cast::AsArray;

    use super::*;
    use crate::random::Purpose;

    #[test]
    fn addresses_have_every_length() {
        let stream = Stream::new(3, Purpose::CustomerAddress);
        let mut text = TextBuilder::with_capacity(1000, 24);
        for row in 0..1000 {
            push_address(&mut text, stream, row);
            text.end_value().unwrap();
        }
        let array = text.finish().unwrap();
        let lengths: std::collections::BTreeSet<_> =
            array.as_string::<i32>().iter().flatten().map(str::len).collect();
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), (6..=24).collect::<Vec<_>>());
    }
}
