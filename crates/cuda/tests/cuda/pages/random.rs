//! Tables, rows and pages by chance, most of them sound.

use headrace_format::heap::{Align, Attribute, HeapType, Length, Relation};

use super::build::*;

/// Numbers that look like chance, the same for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    pub fn relation(&mut self) -> Relation {
        let count = 1 + self.below(14);
        relation((0..count).map(|_| self.attribute()).collect())
    }

    fn attribute(&mut self) -> Attribute {
        let precision = 1 + self.below(38) as u8;
        let scale = self.below(u64::from(precision) + 8) as i8 - 7;
        let kinds = [
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
            HeapType::Numeric { precision, scale },
        ];
        let kind = kinds[self.below(kinds.len() as u64) as usize];
        let lengths = [Length::Fixed(1 + self.below(40) as u16), Length::Varlena, Length::CString];
        let aligns = [Align::Char, Align::Short, Align::Int, Align::Double];
        let plain = match self.one_in(5) {
            true => opaque(lengths[self.below(3) as usize], aligns[self.below(4) as usize]),
            false => attribute("a", kind),
        };
        let missing = self.one_in(6).then(|| self.value(&plain, true)).and_then(stored);
        let dropped = self.one_in(12);
        let not_null = self.one_in(3);
        Attribute { missing, dropped, not_null, ..plain }
    }

    /// A value of an attribute; only such as its column has, if it is to be sound.
    fn value(&mut self, attribute: &Attribute, is_sound: bool) -> Datum {
        let number = self.next() as i64;
        let signed = if self.one_in(2) { number } else { -number };
        let wide = |value: i64| Datum::Fixed(value.to_le_bytes().to_vec());
        let sound = match attribute.kind {
            Some(HeapType::Bool) => Datum::Fixed(vec![(number & 1) as u8]),
            Some(HeapType::Date) => int4((signed % 1_000_000) as i32),
            Some(HeapType::Time) => wide(number % 86_400_000_000),
            Some(HeapType::Timestamp | HeapType::TimestampTz) => wide(signed),
            Some(HeapType::Numeric { precision, scale }) => self.numeric(precision, scale),
            Some(HeapType::Text) => self.text(),
            _ => match attribute.length {
                Length::Fixed(bytes) => Datum::Fixed(self.bytes(bytes.into())),
                Length::CString => {
                    let count = self.below(20) as usize;
                    Datum::CString(self.bytes(count).into_iter().map(|byte| byte | 1).collect())
                }
                Length::Varlena => {
                    let count = self.below(30) as usize;
                    let bytes = self.bytes(count);
                    match self.below(8) {
                        0 => Datum::Long(bytes),
                        1 => Datum::External,
                        2 => Datum::Compressed { method: 0, raw_bytes: 9, bytes },
                        _ => Datum::Short(bytes),
                    }
                }
            },
        };
        if is_sound || !self.one_in(4) {
            return sound;
        }
        match (attribute.length, self.below(4)) {
            (Length::Fixed(bytes), 0) => Datum::Fixed(vec![0x7F; bytes.into()]),
            (Length::Fixed(bytes), _) => Datum::Fixed(self.bytes(bytes.into())),
            (Length::CString, _) => sound,
            (Length::Varlena, 0) => Datum::External,
            (Length::Varlena, 1) => {
                Datum::Compressed { method: 0, raw_bytes: 2, bytes: vec![0, 0, 0x80] }
            }
            (Length::Varlena, _) => {
                let count = self.below(12) as usize;
                Datum::Short(self.bytes(count))
            }
        }
    }

    /// A text, which only now and then is not in its tuple as it is.
    fn text(&mut self) -> Datum {
        let parts = ["a", "Zz", "é", "€", "\u{1F600}", " ", "0123456789", "\u{7FF}\u{800}"];
        let count = self.below(8);
        let part = |_| parts[self.below(parts.len() as u64) as usize];
        let text: String = (0..count).map(part).collect();
        match self.below(300) {
            0 => Datum::External,
            1 => Datum::Compressed { method: 0, raw_bytes: 9, bytes: text.into_bytes() },
            2..100 => Datum::Long(text.into_bytes()),
            _ => Datum::Short(text.into_bytes()),
        }
    }

    /// A numeric that its type has.
    fn numeric(&mut self, precision: u8, scale: i8) -> Datum {
        // Units of the last place, few enough that none of what follows is too long.
        let digits = self.below(u64::from(precision.min(18)) + 1) as u32;
        let units = u128::from(self.next()) % 10_u128.pow(digits);
        let places = scale.max(0) as u32;
        let fraction_digits = places.div_ceil(4);
        let more = fraction_digits * 4 - places + u32::from(scale.min(0).unsigned_abs());
        let mut rest = units * 10_u128.pow(more);
        let mut words = Vec::new();
        while rest > 0 {
            words.insert(0, (rest % 10_000) as u16);
            rest /= 10_000;
        }
        let weight = words.len() as i16 - 1 - fraction_digits as i16;
        while words.last() == Some(&0) {
            words.pop();
        }
        let sign = u16::from(self.one_in(2) && !words.is_empty());
        let head = match self.one_in(2) {
            true => vec![0x8000 | sign << 13 | 2 << 7 | (weight as u16 & 0x7F)],
            false => vec![sign << 14 | 2, weight as u16],
        };
        let bytes = head.iter().chain(&words).flat_map(|word| word.to_le_bytes()).collect();
        if self.one_in(3) { Datum::Long(bytes) } else { Datum::Short(bytes) }
    }

    fn tuple(&mut self, attributes: &[Attribute], is_sound: bool) -> Vec<u8> {
        let all = attributes.len();
        let needed =
            attributes.iter().rposition(|a| a.not_null && !a.dropped && a.missing.is_none());
        let least = if is_sound { needed.map_or(0, |last| last + 1) } else { 0 };
        let count = match self.one_in(6) {
            true => least + self.below((all - least) as u64 + 1) as usize,
            false => all,
        };
        let has_nulls = self.one_in(2);
        let values: Vec<Datum> = attributes[..count]
            .iter()
            .map(|attribute| {
                let may = !(is_sound && attribute.not_null && !attribute.dropped);
                match has_nulls && may && self.one_in(4) {
                    true => Datum::Null,
                    false => self.value(attribute, is_sound),
                }
            })
            .collect();
        tuple(attributes, &values)
    }

    /// A page, filled to some degree; perhaps damaged.
    pub fn page(&mut self, relation: &Relation) -> Vec<u8> {
        let (is_sound, count) = (!self.one_in(4), self.below(120));
        let mut page = Page::new();
        for _ in 0..count {
            let tuple = self.tuple(&relation.attributes, is_sound);
            let left = usize::from(page.get(14)) - usize::from(page.get(12));
            if left < tuple.len() + 16 {
                break;
            }
            page.add(&tuple);
            if self.one_in(10) {
                page.add_line(0, 0, 0);
            }
        }
        let (lower, upper) = (usize::from(page.get(12)), usize::from(page.get(14)));
        if self.one_in(3) {
            for _ in 0..=self.below(3) {
                let at = match self.one_in(3) || upper == BLOCK {
                    true => self.below(lower as u64) as usize,
                    false => upper + self.below((BLOCK - upper) as u64) as usize,
                };
                page.bytes[at] ^= 1 << self.below(8);
            }
        }
        page.bytes
    }
}

/// As `attmissingval` has it.
fn stored(value: Datum) -> Option<Vec<u8>> {
    match value {
        Datum::Fixed(bytes) | Datum::Short(bytes) | Datum::Long(bytes) => Some(bytes),
        _ => None,
    }
}
