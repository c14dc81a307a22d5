//! Builds pages as PostgreSQL lays them down (`heap_fill_tuple`, `PageAddItem`), by other code
//! than that which takes them apart. The tests of others that read pages have this file too, in a
//! module that knows `heap`.

use super::heap::{Align, Attribute, Decoder, HeapType, Length, Relation, Reroute};

pub(super) const BLOCK: usize = 8192;
pub(super) const HAS_NULL: u16 = 1;
pub(super) const HAS_VARLENA: u16 = 2;
/// Frozen, and deleted by nobody.
pub(super) const VISIBLE: u16 = 0x0300 | 0x0800;

/// A value as it is stored.
#[derive(Debug, Clone)]
pub(super) enum Datum {
    Null,
    Fixed(Vec<u8>),
    Short(Vec<u8>),
    Long(Vec<u8>),
    Compressed { method: u32, raw_bytes: u32, bytes: Vec<u8> },
    External,
    CString(Vec<u8>),
}

pub(super) fn int4(value: i32) -> Datum {
    Datum::Fixed(value.to_le_bytes().to_vec())
}

pub(super) fn int8(value: i64) -> Datum {
    Datum::Fixed(value.to_le_bytes().to_vec())
}

pub(super) fn text(value: &str) -> Datum {
    Datum::Short(value.as_bytes().to_vec())
}

pub(super) fn attribute(name: &str, kind: HeapType) -> Attribute {
    let (length, align) = kind.stored();
    Attribute {
        name: name.to_string(),
        kind: Some(kind),
        length,
        align,
        dropped: false,
        not_null: false,
        missing: None,
    }
}

/// A column of another type than those that are decoded.
pub(super) fn opaque(length: Length, align: Align) -> Attribute {
    Attribute { kind: None, length, align, ..attribute("opaque", HeapType::Int4) }
}

pub(super) fn relation(attributes: Vec<Attribute>) -> Relation {
    Relation { block_bytes: BLOCK, checksums: false, attributes, derived: Vec::new() }
}

/// A tuple with header, of the first `values.len()` attributes.
pub(super) fn tuple(attributes: &[Attribute], values: &[Datum]) -> Vec<u8> {
    let nulls = values.iter().any(|value| matches!(value, Datum::Null));
    let bitmap = if nulls { values.len().div_ceil(8) } else { 0 };
    let mut data = vec![0; (23 + bitmap).next_multiple_of(8)];
    let mut mask = VISIBLE | if nulls { HAS_NULL } else { 0 };
    data[0..4].copy_from_slice(&700_u32.to_le_bytes());
    data[18..20].copy_from_slice(&(values.len() as u16).to_le_bytes());
    data[22] = data.len() as u8;
    for (i, (value, attribute)) in values.iter().zip(attributes).enumerate() {
        if nulls && !matches!(value, Datum::Null) {
            data[23 + i / 8] |= 1 << (i % 8);
        }
        let boundary = match attribute.align {
            Align::Char => 1,
            Align::Short => 2,
            Align::Int => 4,
            Align::Double => 8,
        };
        let align = |data: &mut Vec<u8>| data.resize(data.len().next_multiple_of(boundary), 0);
        match value {
            Datum::Null => continue,
            Datum::Fixed(bytes) => {
                align(&mut data);
                data.extend(bytes);
                continue;
            }
            Datum::Short(bytes) => {
                assert!(bytes.len() < 127);
                data.push(((bytes.len() + 1) << 1 | 1) as u8);
                data.extend(bytes);
            }
            Datum::Long(bytes) => {
                align(&mut data);
                data.extend((((bytes.len() + 4) << 2) as u32).to_le_bytes());
                data.extend(bytes);
            }
            Datum::Compressed { method, raw_bytes, bytes } => {
                align(&mut data);
                data.extend((((bytes.len() + 8) << 2 | 2) as u32).to_le_bytes());
                data.extend((raw_bytes | method << 30).to_le_bytes());
                data.extend(bytes);
            }
            Datum::External => data.extend([&[1, 18][..], &[7; 16]].concat()),
            Datum::CString(bytes) => {
                align(&mut data);
                data.extend(bytes);
                data.push(0);
            }
        }
        mask |= HAS_VARLENA;
    }
    data[20..22].copy_from_slice(&mask.to_le_bytes());
    data
}

/// A page under construction.
pub(super) struct Page {
    pub(super) bytes: Vec<u8>,
}

impl Page {
    pub(super) fn new() -> Self {
        let mut page = Self { bytes: vec![0; BLOCK] };
        page.put(10, 4);
        page.put(12, 24);
        page.put(14, BLOCK as u16);
        page.put(16, BLOCK as u16);
        page.put(18, BLOCK as u16 | 4);
        page
    }

    pub(super) fn of(tuples: &[Vec<u8>]) -> Self {
        let mut page = Self::new();
        tuples.iter().for_each(|tuple| page.add(tuple));
        page
    }

    pub(super) fn get(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    pub(super) fn put(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    pub(super) fn add(&mut self, tuple: &[u8]) {
        let start = usize::from(self.get(14)) - tuple.len().next_multiple_of(8);
        self.bytes[start..start + tuple.len()].copy_from_slice(tuple);
        self.put(14, start as u16);
        self.add_line(start, 1, tuple.len());
    }

    pub(super) fn add_line(&mut self, offset: usize, state: u32, length: usize) {
        let lines = (usize::from(self.get(12)) - 24) / 4;
        self.put(12, self.get(12) + 4);
        self.set_line(lines + 1, offset, state, length);
    }

    pub(super) fn set_line(&mut self, line: usize, offset: usize, state: u32, length: usize) {
        let pointer = offset as u32 | state << 15 | (length as u32) << 17;
        self.bytes[20 + 4 * line..24 + 4 * line].copy_from_slice(&pointer.to_le_bytes());
    }

    pub(super) fn line(&self, line: usize) -> (usize, usize) {
        let bytes = self.bytes[20 + 4 * line..24 + 4 * line].try_into().unwrap();
        let pointer = u32::from_le_bytes(bytes);
        ((pointer & 0x7FFF) as usize, (pointer >> 17) as usize)
    }
}

/// A table with all kinds of lengths and alignments, and a page of rows of it.
pub(super) fn mixed() -> (Relation, Page) {
    let attributes = vec![
        attribute("key", HeapType::Int4),
        attribute("flag", HeapType::Bool),
        attribute("big", HeapType::Int8),
        attribute("name", HeapType::Text),
        attribute("price", HeapType::Numeric { precision: 12, scale: 2 }),
        opaque(Length::CString, Align::Char),
        attribute("day", HeapType::Date),
        attribute("id", HeapType::Uuid),
    ];
    let rows: Vec<_> = (0..40_u8)
        .map(|i| {
            let nullable = |datum, null| if null { Datum::Null } else { datum };
            let values = [
                int4(i32::from(i) * 1000),
                Datum::Fixed(vec![i % 2]),
                nullable(int8(-i64::from(i)), i % 5 == 0),
                text(&"ab".repeat(usize::from(i))),
                // 12.34, short form: weight 0, digits 12 and 3400.
                Datum::Short([0x8100_u16, 12, 3400].iter().flat_map(|d| d.to_le_bytes()).collect()),
                nullable(Datum::CString(b"skip".to_vec()), i % 7 == 0),
                int4(i32::from(i)),
                Datum::Fixed(vec![i; 16]),
            ];
            tuple(&attributes, &values)
        })
        .collect();
    (relation(attributes), Page::of(&rows))
}

pub(super) const MIXED_WANTED: [usize; 7] = [0, 1, 2, 3, 4, 6, 7];

/// Decodes one page of a relation.
pub(super) fn decode(
    relation: &Relation,
    wanted: &[usize],
    page: &[u8],
) -> Result<arrow_array::RecordBatch, Reroute> {
    let mut decoder = Decoder::new(relation, wanted).unwrap();
    let decoded = decoder.decode(page, 0);
    let batch = decoder.finish().unwrap();
    assert_eq!(batch.num_rows(), *decoded.as_ref().unwrap_or(&0));
    decoded.map(|_| batch)
}
