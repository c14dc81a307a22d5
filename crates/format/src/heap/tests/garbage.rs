//! Whatever the bytes: rows or a reroute, never a panic.

use proptest::prelude::*;

use super::build::*;
use crate::heap::{Align, Attribute, Decoder, HeapType, Length, Relation};

fn any_attribute() -> impl Strategy<Value = Attribute> {
    let numeric = (1..=38_u8)
        .prop_flat_map(|precision| (Just(precision), -38..=precision as i8))
        .prop_map(|(precision, scale)| HeapType::Numeric { precision, scale });
    let known = [
        HeapType::Bool,
        HeapType::Int2,
        HeapType::Int4,
        HeapType::Int8,
        HeapType::Float4,
        HeapType::Float8,
        HeapType::Date,
        HeapType::Time,
        HeapType::Timestamp,
        HeapType::TimestampTz,
        HeapType::Text,
        HeapType::Uuid,
        HeapType::Bytea,
    ];
    let kind = prop_oneof![4 => prop::sample::select(known.to_vec()), 1 => numeric];
    let length = prop_oneof![
        (1..200_u16).prop_map(Length::Fixed),
        Just(Length::Varlena),
        Just(Length::CString)
    ];
    let align = prop::sample::select(&[Align::Char, Align::Short, Align::Int, Align::Double][..]);
    let missing = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
    prop_oneof![
        5 => (kind, any::<bool>(), missing).prop_map(|(kind, not_null, missing)| {
            Attribute { not_null, missing, ..attribute("a", kind) }
        }),
        1 => (length, align).prop_map(|(length, align)| opaque(length, align)),
    ]
}

/// A relation and all of its attributes that can be wanted.
fn any_relation() -> impl Strategy<Value = (Relation, Vec<usize>)> {
    prop::collection::vec(any_attribute(), 0..12).prop_map(|attributes| {
        let wanted = (0..).zip(&attributes).filter(|(_, a)| a.kind.is_some());
        let wanted = wanted.map(|(index, _)| index).collect();
        (relation(attributes), wanted)
    })
}

/// Decodes a page twice with a sound one between, and looks at what came of it.
fn survive(relation: &Relation, wanted: &[usize], page: &[u8]) {
    let mut decoder = Decoder::new(relation, wanted).unwrap();
    let first = decoder.decode(page, 3);
    let empty = Page::new().bytes;
    let _ = decoder.decode(&empty, 3);
    let second = decoder.decode(page, 3);
    assert_eq!(first, second);
    let batch = decoder.finish().unwrap();
    assert_eq!(batch.num_rows(), 2 * first.unwrap_or(0));
    for column in batch.columns() {
        column.to_data().validate_full().unwrap();
    }
    for line in 0..40 {
        let _ = decoder.decode_lines(page, &[line, 1, line]);
    }
    for column in decoder.finish().unwrap().columns() {
        column.to_data().validate_full().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..Default::default() })]

    #[test]
    fn random_bytes((relation, wanted) in any_relation(), page in prop::collection::vec(any::<u8>(), 0..9000)) {
        survive(&relation, &wanted, &page);
    }

    /// Headers that pass, around tuples of garbage.
    #[test]
    fn random_tuples(
        (relation, wanted) in any_relation(),
        tuples in prop::collection::vec((prop::collection::vec(any::<u8>(), 24..200), 0..14_u16, any::<bool>()), 0..30),
    ) {
        let mut page = Page::new();
        for (mut bytes, attributes, nulls) in tuples {
            let bitmap = if nulls { usize::from(attributes).div_ceil(8) } else { 0 };
            let mask = VISIBLE | HAS_VARLENA | u16::from(nulls);
            bytes[18..20].copy_from_slice(&attributes.to_le_bytes());
            bytes[20..22].copy_from_slice(&mask.to_le_bytes());
            bytes[22] = (23 + bitmap).next_multiple_of(8) as u8;
            page.add(&bytes);
        }
        survive(&relation, &wanted, &page.bytes);
    }

    #[test]
    fn flipped_bits(flips in prop::collection::vec(0..8 * BLOCK, 1..20)) {
        let (relation, mut page) = mixed();
        for flip in flips {
            page.bytes[flip / 8] ^= 1 << (flip % 8);
        }
        survive(&relation, &MIXED_WANTED, &page.bytes);
    }

    /// Flips where they hurt: in headers, line pointers and tuples.
    #[test]
    fn flipped_bits_of_what_is_used(flips in prop::collection::vec((any::<bool>(), 0..8 * 2000_usize), 1..8)) {
        let (relation, mut page) = mixed();
        let (lower, upper) = (usize::from(page.get(12)), usize::from(page.get(14)));
        for (head, flip) in flips {
            let at = if head { flip / 8 % lower } else { upper + flip / 8 % (BLOCK - upper) };
            page.bytes[at] ^= 1 << (flip % 8);
        }
        survive(&relation, &MIXED_WANTED, &page.bytes);
    }

    #[test]
    fn truncated(bytes in 0..BLOCK) {
        let (relation, page) = mixed();
        survive(&relation, &MIXED_WANTED, &page.bytes[..bytes]);
        // The rest of the block never reached the disk.
        let mut torn = page.bytes.clone();
        torn[bytes..].fill(0);
        survive(&relation, &MIXED_WANTED, &torn);
    }
}
