//! Rows of line pointers that somebody vouches for.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;

use super::build::*;
use crate::heap::{Decoder, HeapType, Reroute, keep_lines};

/// A page of five rows of one `int4`, 10 to 50, as it is while others work on it: not all-visible,
/// no hint about any tuple, and line pointers that lead nowhere.
fn busy() -> Page {
    let attributes = vec![attribute("a", HeapType::Int4)];
    let mut page = Page::of(&[10, 20, 30, 40, 50].map(|value| tuple(&attributes, &[int4(value)])));
    page.put(10, 0);
    for line in 1..=5 {
        let at = page.line(line).0 + 20;
        page.put(at, 0);
    }
    let (start, bytes) = page.line(3);
    page.set_line(2, start, 1, bytes);
    page.set_line(5, 3, 1, 32767);
    page.add_line(4, 2, 0);
    page.add_line(0, 3, 0);
    page.add_line(0, 0, 0);
    page
}

fn rows(page: &Page, lines: &[u16]) -> Result<RecordBatch, Reroute> {
    let relation = relation(vec![attribute("a", HeapType::Int4)]);
    let mut decoder = Decoder::new(&relation, &[0]).unwrap();
    let decoded = decoder.decode_lines(&page.bytes, lines);
    let batch = decoder.finish().unwrap();
    assert_eq!(batch.num_rows(), decoded.unwrap_or(0));
    if decoded.is_ok() && lines.is_sorted() {
        // The same of a copy in which there are no other line pointers.
        let mut copy = page.bytes.clone();
        keep_lines(&mut copy, lines);
        assert_eq!(decoder.decode_vouched(&copy), Ok(batch.num_rows()));
        assert_eq!(decoder.finish().unwrap(), batch);
    }
    decoded.map(|_| batch)
}

#[test]
fn the_rows_are_those_of_the_line_pointers_whatever_else_is_on_the_page() {
    let page = busy();
    for lines in [&[1, 3, 4][..], &[4], &[4, 1], &[]] {
        let expected: Vec<i32> = lines.iter().map(|line| i32::from(*line) * 10).collect();
        let batch = rows(&page, lines).unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int32Type>().values(), &expected[..]);
    }
    let mut decoder = Decoder::new(&relation(vec![attribute("a", HeapType::Int4)]), &[0]).unwrap();
    assert_eq!(decoder.decode(&page.bytes, 0), Err(Reroute::NotAllVisible));
}

#[test]
fn line_pointers_of_no_tuple_are_refused() {
    let page = busy();
    let refused = |line, flaw| Err(Reroute::LinePointer { line, flaw });
    // Beyond the ends, a redirect, a dead one, an unused one; one that leads out of the page.
    for line in [0, 6, 7, 8, 9, u16::MAX] {
        assert_eq!(rows(&page, &[1, line, 3]), refused(line, "it is no tuple's"));
    }
    assert_eq!(rows(&page, &[5]), refused(5, "it points out of the tuples' space"));
    let after = |start: usize, bytes: usize| {
        let mut page = busy();
        page.set_line(1, start, 1, bytes);
        rows(&page, &[1])
    };
    let (start, bytes) = page.line(1);
    assert_eq!(after(start, 23), refused(1, "it is shorter than a tuple's header"));
    assert_eq!(after(start - 4, bytes), refused(1, "it is not aligned"));
    assert_eq!(
        after(start, 26),
        Err(Reroute::Tuple { line: 1, flaw: "a value is longer than its tuple" })
    );
}

#[test]
fn tuples_and_pages_are_checked_as_ever() {
    let after = |change: fn(&mut Page)| {
        let mut page = busy();
        change(&mut page);
        rows(&page, &[1, 3])
    };
    let header = after(|page| page.put(12, 20));
    assert_eq!(header, Err(Reroute::Header { flaw: "its bounds are out of order" }));
    assert_eq!(after(|page| page.bytes.fill(0)), Err(Reroute::NewPage));
    let length = after(|page| page.bytes.truncate(8191));
    assert_eq!(length, Err(Reroute::Length { found_bytes: 8191, block_bytes: BLOCK }));
    let attributes = after(|page| page.put(page.line(3).0 + 18, 2));
    let flaw = "it has more attributes than its table";
    assert_eq!(attributes, Err(Reroute::Tuple { line: 3, flaw }));
}
