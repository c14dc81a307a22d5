//! Values of every type, their extremes, and how tuples of any shape are walked.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::*;

use super::build::*;
use crate::heap::{Align, Attribute, Decoder, Derived, HeapType, Length, Reroute};

/// One column of one row.
fn one(kind: HeapType, value: Datum) -> Result<ArrayRef, Reroute> {
    let attributes = vec![attribute("a", kind)];
    let page = Page::of(&[tuple(&attributes, &[value])]);
    decode(&relation(attributes), &[0], &page.bytes).map(|batch| batch.column(0).clone())
}

fn refused(kind: HeapType, value: Datum) -> &'static str {
    match one(kind, value) {
        Err(Reroute::Value { attribute: 0, flaw } | Reroute::Tuple { line: 1, flaw }) => flaw,
        other => panic!("{other:?}"),
    }
}

#[test]
fn dates_and_times_count_from_1970() {
    let date = |days| one(HeapType::Date, int4(days));
    assert_eq!(date(0).unwrap().as_primitive::<Date32Type>().value(0), 10_957);
    let last = i32::MAX - 10_957;
    assert_eq!(date(last).unwrap().as_primitive::<Date32Type>().value(0), i32::MAX);
    for days in [i32::MAX, i32::MIN, last + 1] {
        assert!(refused(HeapType::Date, int4(days)).contains("date"));
    }
    let noon = one(HeapType::Time, int8(43_200_000_000)).unwrap();
    assert_eq!(noon.as_primitive::<Time64MicrosecondType>().value(0), 43_200_000_000);
    for time in [-1, 86_400_000_000] {
        assert!(refused(HeapType::Time, int8(time)).contains("time"));
    }
    for kind in [HeapType::Timestamp, HeapType::TimestampTz] {
        let epoch = one(kind, int8(1)).unwrap();
        let epoch = epoch.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(epoch.value(0), 946_684_800_000_001);
        for time in [i64::MAX, i64::MIN, i64::MAX - 946_684_799_999_999] {
            assert!(refused(kind, int8(time)).contains("timestamp"));
        }
    }
}

#[test]
fn bools_are_zero_or_one() {
    for value in [0, 1] {
        let array = one(HeapType::Bool, Datum::Fixed(vec![value])).unwrap();
        assert_eq!(array.as_boolean().value(0), value == 1);
    }
    assert!(refused(HeapType::Bool, Datum::Fixed(vec![2])).contains("bool"));
}

#[test]
fn texts_are_utf8_and_bytes_are_anything() {
    let array = one(HeapType::Text, text("grün")).unwrap();
    assert_eq!(array.as_string::<i32>().value(0), "grün");
    let broken = Datum::Short(vec![0xFC]);
    assert!(refused(HeapType::Text, broken.clone()).contains("UTF-8"));
    let array = one(HeapType::Bytea, broken).unwrap();
    assert_eq!(array.as_binary::<i32>().value(0), [0xFC]);
    let long = "long ".repeat(500);
    let array = one(HeapType::Text, Datum::Long(long.clone().into_bytes())).unwrap();
    assert_eq!(array.as_string::<i32>().value(0), long);
    assert_eq!(one(HeapType::Text, text("")).unwrap().as_string::<i32>().value(0), "");
}

#[test]
fn uuids_are_their_texts() {
    let mut attributes = vec![attribute("a", HeapType::Int4), attribute("u", HeapType::Uuid)];
    attributes[1].missing = Some(vec![0xC0; 16]);
    let rows = [
        vec![int4(1), Datum::Fixed((0..16).collect())],
        vec![int4(2), Datum::Null],
        vec![int4(3)],
        vec![int4(4), Datum::Fixed(vec![0xFF; 16])],
    ];
    let uuids = |relation: &crate::heap::Relation, rows: &[Vec<Datum>]| {
        let rows: Vec<_> = rows.iter().map(|row| tuple(&relation.attributes, row)).collect();
        let batch = decode(relation, &[1], &Page::of(&rows).bytes)?;
        let texts = batch.column(0).as_string::<i32>().iter();
        Ok::<_, Reroute>(texts.map(|text| text.map(str::to_string)).collect::<Vec<_>>())
    };
    let mut relation = relation(attributes);
    let first = || Some("00010203-0405-0607-0809-0a0b0c0d0e0f".to_string());
    let last = || Some("ffffffff-ffff-ffff-ffff-ffffffffffff".to_string());
    let older = || Some("c0c0c0c0-c0c0-c0c0-c0c0-c0c0c0c0c0c0".to_string());
    assert_eq!(uuids(&relation, &rows).unwrap(), [first(), None, older(), last()]);
    let full = [rows[0].clone(), rows[3].clone()];
    assert_eq!(uuids(&relation, &full).unwrap(), [first(), last()]);
    relation.attributes[1].missing = Some(vec![0xC0; 15]);
    let flaw = "a value is longer than its page";
    assert_eq!(uuids(&relation, &rows).unwrap_err(), Reroute::Value { attribute: 1, flaw });
}

/// A numeric in the long form.
fn numeric(sign: u16, weight: i16, digits: &[u16]) -> Datum {
    let words = [sign, weight as u16].into_iter().chain(digits.iter().copied());
    Datum::Short(words.flat_map(u16::to_le_bytes).collect())
}

#[test]
fn numerics_are_exact_or_refused() {
    let kind = |precision, scale| HeapType::Numeric { precision, scale };
    let value = |kind, datum| one(kind, datum).unwrap().as_primitive::<Decimal128Type>().value(0);
    const MINUS: u16 = 0x4000;
    assert_eq!(value(kind(10, 2), numeric(0, 0, &[12, 3400])), 1234);
    assert_eq!(value(kind(10, 2), numeric(MINUS, 1, &[7, 0, 100])), -7_000_001);
    assert_eq!(value(kind(10, 6), numeric(0, -1, &[1, 2300])), 123);
    assert_eq!(value(kind(10, 2), numeric(0, 0, &[])), 0);
    assert_eq!(value(kind(10, 0), numeric(0, 2, &[3])), 300_000_000);
    assert_eq!(value(kind(4, -3), numeric(0, 1, &[500])), 5_000);
    assert_eq!(value(kind(4, -3), numeric(0, 1, &[500, 2000])), 5_002);
    // Short form: weight -1, negative.
    let short = Datum::Short([0xA27F_u16, 2500].iter().flat_map(|w| w.to_le_bytes()).collect());
    assert_eq!(value(kind(10, 4), short), -2500);
    let nines = [99, 9999, 9999, 9999, 9999, 9999, 9999, 9999, 9999, 9999];
    let largest = 10_i128.pow(38) - 1;
    assert_eq!(value(kind(38, 0), numeric(0, 9, &nines)), largest);
    assert_eq!(value(kind(38, 0), numeric(MINUS, 9, &nines)), -largest);

    let precise = "a numeric has more digits than its type";
    assert_eq!(refused(kind(38, 0), numeric(0, 9, &[100])), precise);
    assert_eq!(refused(kind(38, 0), numeric(0, i16::MAX, &[1])), precise);
    assert_eq!(refused(kind(38, 0), numeric(0, 12, &[1, 1, 1, 1, 1])), precise);
    assert_eq!(refused(kind(4, 2), numeric(0, 0, &[100])), precise);
    let places = "a numeric has more decimal places than its type";
    assert_eq!(refused(kind(10, 2), numeric(0, 0, &[12, 3410])), places);
    assert_eq!(refused(kind(10, 2), numeric(0, -1, &[10])), places);
    assert_eq!(refused(kind(10, 2), numeric(0, 0, &[1, 0, 1])), places);
    assert_eq!(refused(kind(10, 2), numeric(0, i16::MIN, &[1])), places);
    assert_eq!(refused(kind(4, -3), numeric(0, 0, &[500])), places);
    for special in [0xC000, 0xD000, 0xF000] {
        let datum = Datum::Short(u16::to_le_bytes(special).to_vec());
        assert_eq!(refused(kind(10, 2), datum), "a numeric is NaN or infinite");
    }
    let digit = "a numeric has a digit beyond 9999";
    assert_eq!(refused(kind(10, 2), numeric(0, 0, &[10_000])), digit);
    for bytes in [vec![], vec![0], vec![0, 0], vec![0, 0, 0]] {
        assert_eq!(refused(kind(10, 2), Datum::Short(bytes)), "a numeric is too short");
    }
    let odd = Datum::Short(vec![0, 0, 0, 0, 1]);
    assert_eq!(refused(kind(10, 2), odd), "a numeric ends within a digit");
}

#[test]
fn digits_that_numerics_show_are_as_wanted_or_refused() {
    let showing = HeapType::NumericShowing { precision: 10, scale: 2 };
    let value = |datum| one(showing, datum).unwrap().as_primitive::<Decimal128Type>().value(0);
    const MINUS: u16 = 0x4000;
    // The same number with two digits behind the point, in the long form and in the short one, and with others.
    let short = |header: u16, digits: &[u16]| {
        let words = [header].into_iter().chain(digits.iter().copied());
        Datum::Short(words.flat_map(u16::to_le_bytes).collect())
    };
    assert_eq!(value(numeric(MINUS | 2, 0, &[12, 5000])), -1250);
    assert_eq!(value(short(0x8000 | 2 << 7, &[12, 5000])), 1250);
    assert_eq!(value(short(0x8000 | 2 << 7, &[])), 0);
    let others = "a numeric shows other digits behind the point than it should";
    for shown in [0, 1, 3, 63] {
        assert_eq!(refused(showing, short(0x8000 | shown << 7, &[12, 5000])), others);
        assert_eq!(refused(showing, numeric(shown, 0, &[])), others);
    }
    assert_eq!(
        refused(showing, numeric(MINUS | 2, 1, &[1, 0, 1])),
        "a numeric has more decimal places than its type"
    );

    let kind = HeapType::DigitsShown { most: 16 };
    let shown = |datum| one(kind, datum).unwrap().as_primitive::<Int32Type>().value(0);
    assert_eq!(shown(numeric(MINUS | 16, 0, &[1])), 16);
    assert_eq!(shown(short(0xA000 | 7 << 7 | 0x7F, &[1])), 7);
    assert_eq!(shown(short(0x8000, &[])), 0);
    assert_eq!(refused(kind, numeric(17, 0, &[1])), others);
    assert_eq!(refused(kind, numeric(0x3FFF, 0, &[1])), others);
    assert_eq!(refused(kind, short(0xC000, &[])), "a numeric is NaN or infinite");
    assert_eq!(refused(kind, Datum::Short(vec![0])), "a numeric is too short");
}

#[test]
fn an_attribute_is_decoded_twice() {
    let kind = HeapType::Numeric { precision: 10, scale: 2 };
    let mut attributes = vec![attribute("i", HeapType::Int4), attribute("n", kind)];
    // 0.5, in the short form.
    attributes[1].missing =
        Some([0x8080_u16 | 0x7F, 5000].iter().flat_map(|w| w.to_le_bytes()).collect());
    let rows = [
        vec![int4(1), numeric(2, 0, &[12, 5000])],
        vec![int4(2), Datum::Null],
        vec![int4(3), numeric(1, 0, &[7])],
        vec![int4(4)],
    ];
    let rows: Vec<_> = rows.iter().map(|row| tuple(&attributes, row)).collect();
    let mut relation = relation(attributes);
    let (name, kind) = ("shown".to_string(), HeapType::DigitsShown { most: 2 });
    relation.derived.push(Derived { attribute: 1, name, kind, query: None });
    let batch = decode(&relation, &[2, 0, 1], &Page::of(&rows).bytes).unwrap();
    let names: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["shown", "i", "n"]);
    let shown = batch.column(0).as_primitive::<Int32Type>();
    assert_eq!(shown.iter().collect::<Vec<_>>(), [Some(2), None, Some(1), Some(1)]);
    let values = batch.column(2).as_primitive::<Decimal128Type>();
    assert_eq!(values.iter().collect::<Vec<_>>(), [Some(1250), None, Some(700), Some(50)]);
    assert!(Decoder::new(&relation, &[3]).is_err());
}

#[test]
fn compressed_values_expand() {
    let raw = b"abcabcabcabcabcabcabcabcabcabcabcabc-end";
    // Three letters, a copy of 18 + 15 from 3 back, four letters.
    let pglz = vec![0b0000_1000, b'a', b'b', b'c', 0x0F, 3, 15, b'-', b'e', b'n', b'd'];
    let lz4 = lz4_flex::block::compress(raw);
    for (method, bytes) in [(0, pglz), (1, lz4)] {
        let value = |method, raw_bytes, bytes: &[u8]| {
            let datum = Datum::Compressed { method, raw_bytes, bytes: bytes.to_vec() };
            one(HeapType::Text, datum)
        };
        let array = value(method, raw.len() as u32, &bytes).unwrap();
        assert_eq!(array.as_string::<i32>().value(0).as_bytes(), raw);
        let damaged = "a compressed value is damaged";
        let flaw = |result: Result<ArrayRef, Reroute>| match result {
            Err(Reroute::Value { flaw, .. }) => flaw,
            other => panic!("{other:?}"),
        };
        let shorter = raw.len() as u32 - 1;
        assert_eq!(flaw(value(method, shorter, &bytes)), damaged);
        assert_eq!(flaw(value(method, shorter + 2, &bytes)), damaged);
        for cut in 1..bytes.len() {
            assert!(value(method, raw.len() as u32, &bytes[..cut]).is_err(), "{method} {cut}");
        }
        let huge = flaw(value(method, 0x3FFF_FFFF, &bytes));
        assert_eq!(huge, "a compressed value cannot be as long as it says");
        let unknown = flaw(value(2, raw.len() as u32, &bytes));
        assert_eq!(unknown, "a value is compressed by an unknown method");
    }
}

#[test]
fn pglz_refuses_copies_from_nowhere() {
    let expand = |input: &[u8], bytes| {
        let mut output = vec![0; bytes];
        crate::heap::pglz::decompress(input, &mut output).map(|()| output)
    };
    assert_eq!(expand(&[0b10, b'a', 0x00, 1], 4).as_deref(), Some(&b"aaaa"[..]));
    assert_eq!(expand(&[0b10, b'a', 0x00, 0], 4), None);
    assert_eq!(expand(&[0b10, b'a', 0x00, 2], 4), None);
    assert_eq!(expand(&[0b10, b'a', 0x10, 1], 4), None);
    assert_eq!(expand(&[0b10, b'a', 0x01, 1], 4), None);
    assert_eq!(expand(&[], 0).as_deref(), Some(&b""[..]));
}

#[test]
fn values_in_the_toast_table_are_rerouted_only_if_wanted() {
    let attributes = vec![attribute("a", HeapType::Text), attribute("b", HeapType::Int4)];
    let page = Page::of(&[tuple(&attributes, &[Datum::External, int4(5)])]);
    let relation = relation(attributes);
    let wanted = decode(&relation, &[0], &page.bytes);
    assert_eq!(wanted.unwrap_err(), Reroute::External { attribute: 0 });
    let beside = decode(&relation, &[1], &page.bytes).unwrap();
    assert_eq!(beside.column(0).as_primitive::<Int32Type>().value(0), 5);
    let mut presence = relation.clone();
    presence.attributes[0].kind = Some(HeapType::Presence);
    let is_there = decode(&presence, &[0], &page.bytes).unwrap();
    assert!(is_there.column(0).as_boolean().value(0));
    let mut page = page;
    let pointer = page.line(1).0 + 24;
    page.bytes[pointer + 1] = 1;
    let flaw = "a value is a pointer of an unknown kind";
    let memory = decode(&relation, &[1], &page.bytes).unwrap_err();
    assert_eq!(memory, Reroute::Tuple { line: 1, flaw });
}

#[test]
fn varlena_headers_are_sound() {
    let attributes = vec![attribute("b", HeapType::Bool), attribute("a", HeapType::Text)];
    let row = [Datum::Fixed(vec![1]), Datum::Long(b"padded to four".to_vec())];
    let page = Page::of(&[tuple(&attributes, &row)]);
    let relation = relation(attributes);
    let start = page.line(1).0 + 24;
    let after = |at: usize, byte: u8| {
        let mut bytes = page.bytes.clone();
        bytes[start + at] = byte;
        match decode(&relation, &[1], &bytes) {
            Err(Reroute::Tuple { line: 1, flaw }) => flaw,
            other => panic!("{other:?}"),
        }
    };
    let cut = "a value is longer than its tuple";
    assert_eq!(after(4, (19 << 2) as u8), cut);
    assert_eq!(after(7, 1), cut);
    assert_eq!(after(4, 0), "a value has no header of its own");
    assert_eq!(after(4, 5), "a value has no header of its own");
    // The right length, with the bit of a short header.
    assert_eq!(after(4, 18 << 2 | 1), "a value has no header of its own");
    assert_eq!(after(1, 2), "a value is not aligned");
    assert_eq!(after(1, 0xFF), cut);
    let mut bytes = page.bytes.clone();
    bytes[page.line(1).0 + 20] &= !2;
    let denied =
        Reroute::Tuple { line: 1, flaw: "it has a value of variable length and denies it" };
    assert_eq!(decode(&relation, &[1], &bytes).unwrap_err(), denied);
    let mut short = page;
    short.set_line(1, start - 24, 1, 24 + 4 + 10);
    assert_eq!(
        decode(&relation, &[1], &short.bytes).unwrap_err(),
        Reroute::Tuple { line: 1, flaw: cut }
    );
}

/// A fixed column behind one of each length and alignment, with and without NULLs before it.
#[test]
fn any_order_of_lengths_and_alignments() {
    let shapes = [
        (opaque(Length::Fixed(1), Align::Char), Datum::Fixed(vec![9])),
        (opaque(Length::Fixed(2), Align::Short), Datum::Fixed(vec![9; 2])),
        (opaque(Length::Fixed(4), Align::Int), Datum::Fixed(vec![9; 4])),
        (opaque(Length::Fixed(8), Align::Double), Datum::Fixed(vec![9; 8])),
        (opaque(Length::Fixed(3), Align::Char), Datum::Fixed(vec![9; 3])),
        (opaque(Length::Varlena, Align::Int), text("short")),
        (opaque(Length::Varlena, Align::Double), Datum::Long(vec![7; 9])),
        (opaque(Length::CString, Align::Char), Datum::CString(b"zero".to_vec())),
    ];
    for first in &shapes {
        for second in &shapes {
            for third in &shapes {
                let mut attributes: Vec<Attribute> =
                    [first, second, third].map(|shape| shape.0.clone()).into();
                attributes.push(attribute("a", HeapType::Int2));
                attributes.push(attribute("b", HeapType::Int8));
                let mut full: Vec<_> = [first, second, third].map(|shape| shape.1.clone()).into();
                full.push(Datum::Fixed(vec![1, 2]));
                full.push(int8(-3));
                let mut holes = full.clone();
                holes[1] = Datum::Null;
                let rows = [tuple(&attributes, &full), tuple(&attributes, &holes)];
                let batch = decode(&relation(attributes), &[4, 3], &Page::of(&rows).bytes).unwrap();
                for row in 0..2 {
                    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(row), -3);
                    assert_eq!(batch.column(1).as_primitive::<Int16Type>().value(row), 0x201);
                }
            }
        }
    }
}

#[test]
fn tuples_older_than_a_column_have_its_default() {
    let mut attributes = vec![
        attribute("a", HeapType::Int4),
        attribute("gone", HeapType::Int8),
        attribute("b", HeapType::Int4),
        attribute("c", HeapType::Text),
        attribute("d", HeapType::Text),
    ];
    attributes[1].dropped = true;
    attributes[1].kind = None;
    attributes[1].not_null = true;
    attributes[2].missing = Some(77_i32.to_le_bytes().to_vec());
    attributes[3].missing = Some(b"default".to_vec());
    let rows = [
        vec![int4(1), int8(0)],
        vec![int4(2), Datum::Null, int4(3), text("own"), text("last")],
        vec![int4(4), int8(0), Datum::Null],
    ];
    let page = Page::of(&rows.map(|row| tuple(&attributes, &row)));
    let mut relation = relation(attributes);
    let batch = decode(&relation, &[0, 2, 3, 4], &page.bytes).unwrap();
    let ints = |column: usize| batch.column(column).as_primitive::<Int32Type>().iter();
    let texts = |column: usize| batch.column(column).as_string::<i32>().iter();
    assert_eq!(ints(0).collect::<Vec<_>>(), [Some(1), Some(2), Some(4)]);
    assert_eq!(ints(1).collect::<Vec<_>>(), [Some(77), Some(3), None]);
    assert_eq!(texts(2).collect::<Vec<_>>(), [Some("default"), Some("own"), Some("default")]);
    assert_eq!(texts(3).collect::<Vec<_>>(), [None, Some("last"), None]);
    let null = Reroute::Tuple { line: 3, flaw: "a value is null in a column that is not" };
    relation.attributes[2].not_null = true;
    assert_eq!(decode(&relation, &[3], &page.bytes).unwrap_err(), null);
    relation.attributes[2].not_null = false;
    relation.attributes[4].not_null = true;
    let first = Reroute::Tuple { line: 1, flaw: "a value is null in a column that is not" };
    assert_eq!(decode(&relation, &[4], &page.bytes).unwrap_err(), first);
}

#[test]
fn fixed_values_end_within_their_tuple() {
    let attributes = vec![attribute("n", HeapType::Int8), attribute("a", HeapType::Int4)];
    let relation = relation(attributes);
    for first in [int8(1), Datum::Null] {
        let mut page = Page::of(&[tuple(&relation.attributes, &[first, int4(2)])]);
        assert_eq!(decode(&relation, &[1], &page.bytes).unwrap().num_rows(), 1);
        let (start, bytes) = page.line(1);
        page.set_line(1, start, 1, bytes - 1);
        let cut = Reroute::Tuple { line: 1, flaw: "a value is longer than its tuple" };
        assert_eq!(decode(&relation, &[1], &page.bytes).unwrap_err(), cut);
        // Bytes of attributes that nobody wants are not asked for.
        assert_eq!(decode(&relation, &[0], &page.bytes).unwrap().num_rows(), 1);
    }
}

/// NULLs up to the last wanted column, or only behind it, in bitmaps of one and two bytes.
#[test]
fn nulls_anywhere() {
    let attributes: Vec<_> = (0..12).map(|i| attribute(&format!("a{i}"), HeapType::Int4)).collect();
    let full: Vec<_> = (0..12).map(int4).collect();
    let rows: Vec<_> = (0..12)
        .map(|null| {
            let mut row = full.clone();
            row[null] = Datum::Null;
            tuple(&attributes, &row)
        })
        .collect();
    let page = Page::of(&rows);
    let relation = relation(attributes);
    for wanted in 0..12 {
        let batch = decode(&relation, &[wanted], &page.bytes).unwrap();
        let found: Vec<_> = batch.column(0).as_primitive::<Int32Type>().iter().collect();
        let expected = (0..12).map(|null| (null != wanted).then_some(wanted as i32));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{wanted}");
    }
}

#[test]
fn rows_without_columns_are_counted() {
    let (relation, page) = mixed();
    assert_eq!(decode(&relation, &[], &page.bytes).unwrap().num_rows(), 40);
}

#[test]
fn descriptions_that_make_no_sense_are_refused() {
    use crate::heap::Decoder;
    let (good, _) = mixed();
    let refused = |change: &dyn Fn(&mut crate::heap::Relation), wanted: &[usize], cause: &str| {
        let mut relation = good.clone();
        change(&mut relation);
        let error = Decoder::new(&relation, wanted).unwrap_err().to_string();
        assert!(error.contains(cause), "{error}");
    };
    refused(&|r| r.block_bytes = 8000, &[0], "blocks of 8000 bytes");
    refused(&|r| r.block_bytes = 65536, &[0], "blocks of 65536 bytes");
    refused(&|_| {}, &[8], "no attribute 8");
    refused(&|_| {}, &[0, 0], "wanted twice");
    refused(&|_| {}, &[5], "cannot be decoded");
    refused(&|r| r.attributes[0].dropped = true, &[0], "dropped");
    refused(&|r| r.attributes[0].length = Length::Fixed(8), &[0], "length or alignment");
    let scale = |precision, scale| {
        move |r: &mut crate::heap::Relation| {
            r.attributes[4].kind = Some(HeapType::Numeric { precision, scale });
        }
    };
    refused(&scale(39, 0), &[4], "precision");
    refused(&scale(0, 0), &[4], "precision");
    refused(&scale(3, 4), &[4], "precision");
    refused(&scale(3, -39), &[4], "precision");
    refused(&|r| r.attributes.resize(1601, r.attributes[0].clone()), &[0], "1601 attributes");
}
