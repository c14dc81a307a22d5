//! Pages of tuples with equal headers, which are walked all at once: the rows are those of one tuple
//! after the other, as [`Decoder::decode_lines`] walks them, and each check refuses.

use proptest::prelude::*;

use super::build::*;
use crate::heap::page;
use crate::heap::plan::Plan;
use crate::heap::uniform::Tuples;
use crate::heap::walk::Places;
use crate::heap::{Align, Attribute, Decoder, HeapType, Length, Relation, Reroute};

/// Fixed lengths of all alignments before, between and behind texts, and one that is not wanted.
fn attributes() -> Vec<Attribute> {
    vec![
        attribute("a", HeapType::Int4),
        attribute("b", HeapType::Int8),
        attribute("c", HeapType::Int2),
        attribute("d", HeapType::Text),
        opaque(Length::Varlena, Align::Int),
        attribute("e", HeapType::Bool),
        attribute("f", HeapType::Int4),
        opaque(Length::CString, Align::Char),
        attribute("g", HeapType::Int8),
        attribute("h", HeapType::Bytea),
        attribute("i", HeapType::Int2),
    ]
}

const WANTED: [usize; 8] = [10, 0, 1, 3, 6, 2, 8, 9];

fn rows(texts: &[&str]) -> Vec<Vec<u8>> {
    let row = |(i, value): (i32, &&str)| {
        let fixed = |bytes| Datum::Fixed(vec![i as u8; bytes]);
        let value = match value.len() {
            0..126 => text(value),
            _ => Datum::Long(value.as_bytes().to_vec()),
        };
        let name = Datum::CString(vec![b'x'; i as usize % 5]);
        let truth = Datum::Fixed(vec![i as u8 % 2]);
        let skipped = if i % 3 == 0 { Datum::External } else { value.clone() };
        let bytes = text(&"z".repeat(i as usize % 9));
        let (first, second, short) = (int4(i), int8((-i).into()), fixed(2));
        tuple(
            &attributes(),
            &[first, second, short, value, skipped, truth, int4(i), name, int8(7), bytes, fixed(2)],
        )
    };
    (0..).zip(texts).map(row).collect()
}

fn page_of(texts: &[&str]) -> Page {
    Page::of(&rows(texts))
}

/// Whether a page's tuples are walked at once.
fn is_uniform(relation: &Relation, wanted: &[usize], bytes: &[u8]) -> bool {
    let page = page::Page::all_visible(bytes, BLOCK, None).unwrap();
    let (mut places, mut tuples) = (Places::new(wanted.len(), 300), Tuples::new(300));
    let plan = Plan::new(relation, wanted);
    places.add_uniform(&plan, &page, &mut tuples, relation.attributes.len(), false)
}

/// If a page is decoded, then to the rows of its tuples, one after the other.
fn compare(relation: &Relation, wanted: &[usize], page: &Page) -> Option<usize> {
    let lines = (usize::from(page.get(12)).saturating_sub(24) / 4).min(BLOCK / 4 - 6);
    let is_normal =
        |line: &usize| page.get(20 + 4 * line) >> 15 == 1 && page.get(22 + 4 * line) & 1 == 0;
    let normal: Vec<u16> = (1..=lines).filter(is_normal).map(|line| line as u16).collect();
    let batch = decode(relation, wanted, &page.bytes).ok()?;
    let mut decoder = Decoder::new(relation, wanted).unwrap();
    assert_eq!(decoder.decode_lines(&page.bytes, &normal), Ok(batch.num_rows()));
    assert_eq!(decoder.finish().unwrap(), batch);
    assert_eq!(decoder.decode_vouched(&page.bytes), Ok(batch.num_rows()));
    assert_eq!(decoder.finish().unwrap(), batch);
    Some(batch.num_rows())
}

#[test]
fn the_rows_are_those_of_one_tuple_after_the_other() {
    let relation = relation(attributes());
    let long = &*"long ".repeat(40);
    for texts in [&["", "a", "abc", "", "abcde"][..], &["a", long, "", long], &[long; 9], &["a"]] {
        let page = page_of(texts);
        assert!(is_uniform(&relation, &WANTED, &page.bytes));
        assert_eq!(compare(&relation, &WANTED, &page), Some(texts.len()));
        for wanted in [&[][..], &[0], &[3], &[10]] {
            assert!(is_uniform(&relation, wanted, &page.bytes));
            assert_eq!(compare(&relation, wanted, &page), Some(texts.len()));
        }
    }
}

#[test]
fn headers_may_differ_in_what_does_not_matter() {
    let relation = relation(attributes());
    let mut page = page_of(&["a", "b", "c"]);
    let at = page.line(2).0;
    // Frozen or committed, updated, the last of a chain; another inserter and place.
    page.put(at + 20, (page.get(at + 20) & !0x0200) | 0x2024);
    page.put(at + 18, page.get(at + 18) | 0xE000);
    page.bytes[at..at + 4].fill(9);
    page.bytes[at + 12..at + 18].fill(9);
    assert!(is_uniform(&relation, &WANTED, &page.bytes));
    assert_eq!(compare(&relation, &WANTED, &page), Some(3));
    // Rows that vacuum took away, and chains.
    page.set_line(2, 0, 0, 0);
    page.add_line(3, 2, 0);
    assert!(is_uniform(&relation, &WANTED, &page.bytes));
    assert_eq!(compare(&relation, &WANTED, &page), Some(2));
}

/// A flaw that all headers share, and one of a single header.
#[test]
fn headers_are_refused() {
    let relation = relation(attributes());
    let flaws: [(usize, u16, u16, &str); 11] = [
        (20, 0x0100, 0, "nothing says that its inserter committed"),
        (20, 0x0800, 0, "it may have been deleted"),
        (20, 0, 0x0400, "it may have been deleted"),
        (20, 0, 0x0008, "it has flags that PostgreSQL 15 does not write"),
        (20, 0, 0x4000, "it has flags that PostgreSQL 15 does not write"),
        (20, 0, 0x8000, "it has flags that PostgreSQL 15 does not write"),
        (18, 0, 0x0800, "it has flags that PostgreSQL 15 does not write"),
        (18, 0, 0x1000, "it has flags that PostgreSQL 15 does not write"),
        (18, 0x07FF, 12, "it has more attributes than its table"),
        (22, 0x00FF, 32, "its header's length is wrong"),
        (20, 0x0002, 0, "it has a value of variable length and denies it"),
    ];
    for (at, without, with, flaw) in flaws {
        for lines in [1..=3, 1..=1, 2..=2, 3..=3] {
            let mut page = page_of(&["a", "b", "c"]);
            for line in lines.clone() {
                let at = page.line(line).0 + at;
                page.put(at, page.get(at) & !without | with);
            }
            let refused = decode(&relation, &WANTED, &page.bytes).unwrap_err();
            assert_eq!(refused, Reroute::Tuple { line: *lines.start() as u16, flaw });
        }
    }
}

#[test]
fn tuples_that_end_before_their_values_are_refused() {
    let relation = relation(attributes());
    let sound = page_of(&["a", "bcd", "c"]);
    let (start, bytes) = sound.line(2);
    for shorter in 24..bytes {
        let mut page = page_of(&["a", "bcd", "c"]);
        page.set_line(2, start, 1, shorter);
        let refused = decode(&relation, &WANTED, &page.bytes).unwrap_err();
        let Reroute::Tuple { line: 2, .. } = refused else { panic!("{shorter}: {refused}") };
    }
    // A short text that ends where the next tuple has begun, and one that is all there is.
    for first in [0x03_u8, 0x7F, 0xFF] {
        let mut page = page_of(&["a", "bcd", "c"]);
        page.bytes[start + 24 + 18] = first;
        compare(&relation, &WANTED, &page);
    }
}

#[test]
fn runs_that_no_page_holds_are_refused() {
    for bytes in [0x7FE0, 0x7FF0, 0xFFE8, 0xFFF8, u16::MAX] {
        let long = opaque(Length::Fixed(bytes), Align::Char);
        let attributes = vec![attribute("a", HeapType::Int4), long, attribute("b", HeapType::Bool)];
        let row = tuple(&attributes, &[int4(1), Datum::Fixed(vec![1; 9]), Datum::Fixed(vec![1])]);
        let page = Page::of(&[row.clone(), row]);
        let flaw = "a value is longer than its tuple";
        let refused = decode(&relation(attributes), &[0, 2], &page.bytes).unwrap_err();
        assert_eq!(refused, Reroute::Tuple { line: 1, flaw });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2048, ..Default::default() })]

    #[test]
    fn flipped_bits(
        lengths in prop::collection::vec(prop_oneof![9 => 0..9_usize, 1 => 120..200_usize], 1..20),
        flips in prop::collection::vec((0..4_u8, any::<u16>(), 0..8_u8), 0..4),
        wanted in prop::sample::subsequence(WANTED.to_vec(), 0..=WANTED.len()),
    ) {
        let relation = relation(attributes());
        let texts: Vec<String> = lengths.iter().map(|bytes| "t".repeat(*bytes)).collect();
        let mut page = page_of(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let rows = texts.len();
        for (kind, at, bit) in flips {
            let line = usize::from(at) % rows + 1;
            let (start, bytes) = page.line(line);
            let at = usize::from(at) / rows;
            let at = match kind {
                0 => at % usize::from(page.get(12)).max(1),
                1 => start + at % 24,
                _ => start + at % bytes.max(1),
            };
            page.bytes[at % BLOCK] ^= 1 << bit;
        }
        compare(&relation, &wanted, &page);
    }
}
