//! Every check of page headers, line pointers and tuple headers.

use super::build::*;
use crate::heap::{HeapType, Reroute};

/// What becomes of a page of three rows of one `int4` after `change`.
fn after(change: impl FnOnce(&mut Page)) -> Result<usize, Reroute> {
    let attributes = vec![attribute("a", HeapType::Int4)];
    let mut page = Page::of(&[1, 2, 3].map(|value| tuple(&attributes, &[int4(value)])));
    change(&mut page);
    decode(&relation(attributes), &[0], &page.bytes).map(|batch| batch.num_rows())
}

/// The same, of a change of a field of the second tuple's header.
fn after_mask(at: usize, change: impl FnOnce(u16) -> u16) -> Result<usize, Reroute> {
    after(|page| {
        let at = page.line(2).0 + at;
        page.put(at, change(page.get(at)));
    })
}

fn header(flaw: &'static str) -> Result<usize, Reroute> {
    Err(Reroute::Header { flaw })
}

fn line(line: u16, flaw: &'static str) -> Result<usize, Reroute> {
    Err(Reroute::LinePointer { line, flaw })
}

fn second(flaw: &'static str) -> Result<usize, Reroute> {
    Err(Reroute::Tuple { line: 2, flaw })
}

#[test]
fn a_sound_page_has_its_rows() {
    assert_eq!(after(|_| {}), Ok(3));
}

#[test]
fn blocks_of_another_length_are_refused() {
    let length = |found_bytes| Err(Reroute::Length { found_bytes, block_bytes: BLOCK });
    assert_eq!(after(|page| page.bytes.truncate(8191)), length(8191));
    assert_eq!(after(|page| page.bytes.push(0)), length(8193));
    assert_eq!(after(|page| page.bytes.clear()), length(0));
}

#[test]
fn a_page_of_zeros_is_new_and_nothing_else_is() {
    assert_eq!(after(|page| page.bytes.fill(0)), Err(Reroute::NewPage));
    let almost = after(|page| {
        page.bytes.fill(0);
        page.bytes[BLOCK - 1] = 1;
    });
    assert_eq!(almost, header("its size or layout version is another"));
}

#[test]
fn header_bounds() {
    let order = "its bounds are out of order";
    let aligned = "its bounds are not aligned";
    assert_eq!(after(|page| page.put(12, 20)), header(order));
    assert_eq!(after(|page| page.put(12, page.get(14) + 4)), header(order));
    assert_eq!(after(|page| page.put(14, BLOCK as u16 + 8)), header(order));
    assert_eq!(after(|page| page.put(14, 0)), header(order));
    assert_eq!(after(|page| page.put(12, 37)), header(aligned));
    assert_eq!(after(|page| page.put(14, page.get(14) - 4)), header(aligned));
    let special = "it has a special space, which no heap has";
    assert_eq!(after(|page| page.put(16, page.get(14) - 8)), header(order));
    assert_eq!(after(|page| page.put(16, BLOCK as u16 - 16)), header(special));
    assert_eq!(after(|page| page.put(16, BLOCK as u16 + 8)), header(special));
    let emptied = after(|page| {
        page.put(14, 8000);
        page.put(16, 8000);
    });
    assert_eq!(emptied, header(special));
}

#[test]
fn size_version_and_flags() {
    let version = "its size or layout version is another";
    assert_eq!(after(|page| page.put(18, BLOCK as u16 | 3)), header(version));
    assert_eq!(after(|page| page.put(18, 4096 | 4)), header(version));
    assert_eq!(after(|page| page.put(10, 4 | 8)), header("it has unknown flags"));
    assert_eq!(after(|page| page.put(10, 3)), Err(Reroute::NotAllVisible));
    assert_eq!(after(|page| page.put(10, 7)), Ok(3));
}

#[test]
fn line_pointers_that_hold_no_row_are_stepped_over() {
    assert_eq!(after(|page| page.set_line(2, 0, 0, 0)), Ok(2));
    assert_eq!(after(|page| page.set_line(2, 3, 2, 0)), Ok(2));
    let dead = "it is dead, which none is on an all-visible page";
    assert_eq!(after(|page| page.set_line(2, 0, 3, 0)), line(2, dead));
}

#[test]
fn redirects_lead_to_tuples() {
    let nowhere = "it redirects to no tuple";
    for target in [0, 4, 2, 0x7FFF] {
        assert_eq!(after(|page| page.set_line(2, target, 2, 0)), line(2, nowhere), "{target}");
    }
}

#[test]
fn tuples_lie_in_their_space() {
    let outside = "it points out of the tuples' space";
    let moved = |by: isize| {
        after(|page| {
            let (start, bytes) = page.line(3);
            page.set_line(3, start.wrapping_add_signed(by), 1, bytes);
        })
    };
    assert_eq!(moved(-8), line(3, outside));
    assert_eq!(moved(4), line(3, "it is not aligned"));
    assert_eq!(after(|page| page.set_line(1, BLOCK - 24, 1, 28)), line(1, outside));
    assert_eq!(after(|page| page.set_line(1, 0x7FF8, 1, 28)), line(1, outside));
    let (short, long) = ("it is shorter than a tuple's header", 0x7FFF);
    assert_eq!(after(|page| page.set_line(1, page.line(1).0, 1, 23)), line(1, short));
    assert_eq!(after(|page| page.set_line(1, page.line(1).0, 1, long)), line(1, outside));
}

#[test]
fn tuples_do_not_overlap_in_any_order() {
    let overlaps = "it overlaps another";
    // The second and the first begin together; the third reaches into the second.
    let twice = after(|page| page.set_line(2, page.line(1).0, 1, 28));
    assert_eq!(twice, line(2, overlaps));
    let into = after(|page| page.set_line(3, page.line(3).0, 1, 33));
    assert_eq!(into, line(3, overlaps));
    let swapped = after(|page| {
        let (first, third) = (page.line(1), page.line(3));
        page.set_line(1, third.0, 1, third.1);
        page.set_line(3, first.0, 1, first.1);
    });
    assert_eq!(swapped, Ok(3));
    let swapped_and_long = after(|page| {
        let (first, third) = (page.line(1), page.line(3));
        page.set_line(1, third.0, 1, third.1 + 8);
        page.set_line(3, first.0, 1, first.1);
    });
    assert_eq!(swapped_and_long, line(2, overlaps));
}

#[test]
fn hint_bits_agree_with_all_visible() {
    const FLAGS: usize = 20;
    let (inserter, deleter) =
        ("nothing says that its inserter committed", "it may have been deleted");
    assert_eq!(after_mask(FLAGS, |_| 0x0800), second(inserter));
    assert_eq!(after_mask(FLAGS, |_| 0x0800 | 0x0200), second(inserter));
    assert_eq!(after_mask(FLAGS, |_| 0x0100), second(deleter));
    assert_eq!(after_mask(FLAGS, |_| 0x0100 | 0x0400), second(deleter));
    assert_eq!(after_mask(FLAGS, |_| 0x0100 | 0x0400 | 0x0800), second(deleter));
    assert_eq!(after_mask(FLAGS, |_| 0x0100 | 0x1000), second(deleter));
    assert_eq!(after_mask(FLAGS, |_| 0x0100 | 0x1000 | 0x0040), second(deleter));
    // Locked rows are visible.
    assert_eq!(after_mask(FLAGS, |_| 0x0100 | 0x0080 | 0x0040), Ok(3));
    assert_eq!(after_mask(FLAGS, |_| 0x0100 | 0x1000 | 0x0080), Ok(3));
    assert_eq!(after_mask(FLAGS, |_| 0x0100 | 0x0040), Ok(3));
    let flags = "it has flags that PostgreSQL 15 does not write";
    assert_eq!(after_mask(FLAGS, |mask| mask | 0x0008), second(flags));
    assert_eq!(after_mask(FLAGS, |mask| mask | 0x4000), second(flags));
    assert_eq!(after_mask(FLAGS, |mask| mask | 0x8000), second(flags));
    assert_eq!(after_mask(18, |mask| mask | 0x0800), second(flags));
    assert_eq!(after_mask(18, |mask| mask | 0x1000), second(flags));
    assert_eq!(after_mask(18, |mask| mask | 0xE000), Ok(3));
}

#[test]
fn header_lengths_and_numbers_of_attributes() {
    let length = "its header's length is wrong";
    assert_eq!(after_mask(18, |_| 2), second("it has more attributes than its table"));
    assert_eq!(after_mask(22, |word| word & 0xFF00 | 32), second(length));
    assert_eq!(after_mask(22, |word| word & 0xFF00 | 16), second(length));
    assert_eq!(after_mask(22, |word| word & 0xFF00), second(length));
    // A bitmap that makes the header longer than the tuple.
    let wide: Vec<_> = (0..20).map(|i| attribute(&format!("a{i}"), HeapType::Int4)).collect();
    let mut values = vec![int4(1)];
    values.resize(20, Datum::Null);
    let mut page = Page::of(&[tuple(&wide, &values)]);
    assert_eq!(decode(&relation(wide.clone()), &[0], &page.bytes).unwrap().num_rows(), 1);
    page.set_line(1, page.line(1).0, 1, 24);
    let cut = decode(&relation(wide), &[0], &page.bytes).unwrap_err();
    assert_eq!(cut, Reroute::Tuple { line: 1, flaw: length });
}
