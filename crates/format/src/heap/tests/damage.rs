//! What checksums see, and that a rerouted page leaves nothing behind.

use super::build::*;
use crate::heap::checksum::checksum;
use crate::heap::{Decoder, HeapType, Reroute};

/// The algorithm as it is written down, column by column. A server's own checksums are compared by
/// `tests/postgres/heap`.
#[test]
fn the_checksum_is_that_of_its_definition() {
    let (_, page) = mixed();
    let mut bytes = page.bytes;
    bytes[8..10].copy_from_slice(&[0xAB, 0xCD]);
    assert_eq!(checksum(&bytes, 5), by_definition(&bytes, 5));
    assert_ne!(checksum(&bytes, 5), checksum(&bytes, 6));
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (i * i % 251) as u8;
    }
    for block in [0, 1, 131_072, u32::MAX] {
        assert_eq!(checksum(&bytes, block), by_definition(&bytes, block));
    }
}

fn sum(page: &mut Page, block: u32) {
    page.put(8, checksum(&page.bytes, block));
}

fn by_definition(page: &[u8], block: u32) -> u16 {
    let offsets: [u32; 32] = [
        0x5B1F36E9, 0xB8525960, 0x02AB50AA, 0x1DE66D2A, 0x79FF467A, 0x9BB9F8A3, 0x217E7CD2,
        0x83E13D2C, 0xF8D4474F, 0xE39EB970, 0x42C6AE16, 0x993216FA, 0x7B093B5D, 0x98DAFF3C,
        0xF718902A, 0x0B1C9CDB, 0xE58F764B, 0x187636BC, 0x5D7B3BB1, 0xE73DE7DE, 0x92BEC979,
        0xCCA6C0B2, 0x304A0979, 0x85AA43D4, 0x783125BB, 0x6CA8EAA2, 0xE407EAC6, 0x4B5CFC3E,
        0x9FBF8C76, 0x15CA20BE, 0xF2CA9FD3, 0x959BD756,
    ];
    let mut page = page.to_vec();
    page[8..10].fill(0);
    let mut folded = 0;
    for (column, offset) in offsets.into_iter().enumerate() {
        let mut sum = offset;
        let rows = page
            .chunks(128)
            .map(|row| u32::from_le_bytes(row[4 * column..4 * column + 4].try_into().unwrap()));
        for word in rows.chain([0, 0]) {
            let mixed = u64::from(sum ^ word);
            sum = ((mixed * 16_777_619) & 0xFFFF_FFFF) as u32 ^ (sum ^ word) >> 17;
        }
        folded ^= sum;
    }
    ((folded ^ block) % 65_535 + 1) as u16
}

#[test]
fn a_block_at_another_place_is_noticed() {
    let (mut relation, mut page) = mixed();
    relation.checksums = true;
    sum(&mut page, 7);
    let mut decoder = Decoder::new(&relation, &MIXED_WANTED).unwrap();
    assert_eq!(decoder.decode(&page.bytes, 7), Ok(40));
    assert!(matches!(decoder.decode(&page.bytes, 8), Err(Reroute::Checksum { .. })));
    assert_eq!(decoder.rows(), 40);
}

/// All 65536 of them. Of sixteen bits it cannot be asked for every page: one change in 65535 meets
/// the same checksum by chance, so about one flip a page goes unseen, but another in each page. No
/// bit may be unseen in both of two pages.
#[test]
fn every_flip_of_a_single_bit_is_rerouted() {
    let (mut relation, mut page) = mixed();
    relation.checksums = true;
    let mut decoder = Decoder::new(&relation, &MIXED_WANTED).unwrap();
    let [first, second] = [1, 2].map(|position_in_log| {
        page.put(0, position_in_log);
        sum(&mut page, 7);
        assert_eq!(decoder.decode(&page.bytes, 7), Ok(40));
        let is_unseen = |bit: &usize| {
            page.bytes[bit / 8] ^= 1 << (bit % 8);
            let unseen = decoder.decode(&page.bytes, 7).is_ok();
            page.bytes[bit / 8] ^= 1 << (bit % 8);
            unseen
        };
        (0..8 * BLOCK).filter(is_unseen).collect::<Vec<_>>()
    });
    assert!(first.len() < 6 && second.len() < 6, "{first:?} {second:?}");
    assert!(first.iter().all(|bit| !second.contains(bit)), "{first:?} {second:?}");
}

#[test]
fn a_rerouted_page_leaves_nothing_behind() {
    let attributes = vec![
        attribute("a", HeapType::Int4),
        attribute("b", HeapType::Text),
        attribute("c", HeapType::Bytea),
        attribute("d", HeapType::Date),
    ];
    let row = |a, b: &str, d| [int4(a), text(b), Datum::Null, int4(d)];
    let good = Page::of(&[tuple(&attributes, &row(1, "one", 1))]);
    // The last column of the last row is infinite: everything before it has been appended.
    let bad = [tuple(&attributes, &row(2, "two", 2)), tuple(&attributes, &row(3, "x", i32::MAX))];
    let bad = Page::of(&bad);
    let relation = relation(attributes);
    let mut decoder = Decoder::new(&relation, &[0, 1, 2, 3]).unwrap();
    let alone = decode(&relation, &[0, 1, 2, 3], &good.bytes).unwrap();
    assert_eq!(decoder.decode(&good.bytes, 0), Ok(1));
    let infinite = decoder.decode(&bad.bytes, 1);
    assert!(matches!(infinite, Err(Reroute::Value { attribute: 3, .. })), "{infinite:?}");
    assert_eq!(decoder.finish().unwrap(), alone);
    let _ = decoder.decode(&bad.bytes, 1);
    assert_eq!(decoder.decode(&good.bytes, 0), Ok(1));
    assert_eq!(decoder.finish().unwrap(), alone);
}
