//! The headers of pages: the few fields that a reader needs, of Thrift's compact protocol.

use super::bad::Bad;

/// What a page holds, and how its bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Bytes of the header itself.
    pub header_bytes: usize,
    /// Bytes that follow the header.
    pub stored_bytes: usize,
    /// Bytes that these become when they are decompressed.
    pub plain_bytes: usize,
    /// Values, NULLs included.
    pub values: usize,
    pub kind: PageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Dictionary {
        encoding: i32,
    },
    /// Levels are compressed with the values.
    Data {
        encoding: i32,
        level_encoding: i32,
    },
    /// Levels lie before the values, as they are.
    DataV2 {
        encoding: i32,
        level_bytes: usize,
        is_compressed: bool,
    },
    /// An index, or what later versions may add.
    Other,
}

impl PageHeader {
    /// The header at the front of these bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, Bad> {
        let mut input = Compact { bytes, at: 0 };
        let (mut kind, mut stored, mut plain) = (-1, -1, -1);
        let mut of_kind = Fields::default();
        let mut id = 0;
        while let Some(field) = input.field(&mut id)? {
            match (id, field) {
                (1, I32) => kind = input.int()?,
                (2, I32) => plain = input.int()?,
                (3, I32) => stored = input.int()?,
                (5 | 7 | 8, STRUCT) => of_kind = Fields::read(&mut input)?,
                _ => input.skip(field, 0)?,
            }
        }
        let size = |value: i64| usize::try_from(value).ok().filter(|&it| it <= i32::MAX as usize);
        let sized = |value, name: &str| {
            size(value).ok_or_else(|| Bad::new(format!("a page's {name} is {value}")))
        };
        let kind = of_kind.kind(kind)?;
        Ok(Self {
            header_bytes: input.at,
            stored_bytes: sized(stored, "compressed size")?,
            plain_bytes: sized(plain, "size")?,
            values: match kind {
                PageKind::Other => 0,
                _ => sized(of_kind.ints[0], "number of values")?,
            },
            kind,
        })
    }
}

/// The fields 1 to 7 of one of the structures for a kind of pages.
#[derive(Default)]
struct Fields {
    ints: [i64; 7],
    is_plain: bool,
}

impl Fields {
    fn read(input: &mut Compact<'_>) -> Result<Self, Bad> {
        let mut fields = Self::default();
        let mut id = 0;
        while let Some(field) = input.field(&mut id)? {
            match (id, field) {
                (1..=7, I32) => fields.ints[id as usize - 1] = input.int()?,
                (7, FALSE) => fields.is_plain = true,
                _ => input.skip(field, 0)?,
            }
        }
        Ok(fields)
    }

    fn kind(&self, kind: i64) -> Result<PageKind, Bad> {
        let encoding = |at: usize| self.ints[at] as i32;
        Ok(match kind {
            0 => PageKind::Data { encoding: encoding(1), level_encoding: encoding(2) },
            2 => PageKind::Dictionary { encoding: encoding(1) },
            3 => {
                let of = |at: usize| usize::try_from(self.ints[at]).ok();
                let level_bytes = of(4).zip(of(5)).and_then(|(a, b)| a.checked_add(b));
                let level_bytes =
                    level_bytes.ok_or_else(|| Bad::new("levels of a negative size"))?;
                PageKind::DataV2 {
                    encoding: encoding(3),
                    level_bytes,
                    is_compressed: !self.is_plain,
                }
            }
            _ => PageKind::Other,
        })
    }
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Structures in structures at most: statistics are one.
const DEPTH_MAX: usize = 8;

struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Compact<'_> {
    fn byte(&mut self) -> Result<u8, Bad> {
        let byte =
            *self.bytes.get(self.at).ok_or_else(|| Bad::new("a page's header is cut off"))?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, Bad> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Bad::new("a page's header has a number of more than 64 bits"))
    }

    fn int(&mut self) -> Result<i64, Bad> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The type of the next field, whose number takes the place of the one before; `None`: the structure ends.
    fn field(&mut self, id: &mut i64) -> Result<Option<u8>, Bad> {
        let byte = self.byte()?;
        if byte == 0 {
            return Ok(None);
        }
        *id = match byte >> 4 {
            0 => self.int()?,
            step => id.wrapping_add(step.into()),
        };
        Ok(Some(byte & 15))
    }

    fn skip(&mut self, field: u8, depth: usize) -> Result<(), Bad> {
        if depth > DEPTH_MAX {
            return Err(Bad::new("a page's header is nested too deeply"));
        }
        match field {
            TRUE | FALSE => {}
            BYTE => _ = self.byte()?,
            I16 | I32 | I64 => _ = self.varint()?,
            DOUBLE => self.leap(8)?,
            BINARY => {
                let bytes = self.varint()?;
                self.leap(bytes)?;
            }
            LIST | SET => {
                let byte = self.byte()?;
                let count = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
                for _ in 0..count {
                    self.skip_element(byte & 15, depth)?;
                }
            }
            MAP => {
                let count = self.varint()?;
                let types = if count > 0 { self.byte()? } else { 0 };
                for _ in 0..count {
                    self.skip_element(types >> 4, depth)?;
                    self.skip_element(types & 15, depth)?;
                }
            }
            STRUCT => {
                let mut id = 0;
                while let Some(field) = self.field(&mut id)? {
                    self.skip(field, depth + 1)?;
                }
            }
            other => return Err(Bad::new(format!("a page's header has a field of type {other}"))),
        }
        Ok(())
    }

    /// Truth values in lists take a byte.
    fn skip_element(&mut self, element: u8, depth: usize) -> Result<(), Bad> {
        let element = if matches!(element, TRUE | FALSE) { BYTE } else { element };
        self.skip(element, depth + 1)
    }

    fn leap(&mut self, bytes: u64) -> Result<(), Bad> {
        let to = usize::try_from(bytes).ok().and_then(|bytes| self.at.checked_add(bytes));
        self.at = to
            .filter(|&to| to <= self.bytes.len())
            .ok_or_else(|| Bad::new("a page's header is cut off"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A data page of 1000 values, 200 bytes that become 4000: with statistics, which are skipped.
    const DATA: [u8; 28] = [
        0x15, 0x00, 0x15, 0xc0, 0x3e, 0x15, 0x90, 0x03, 0x2c, 0x15, 0xd0, 0x0f, 0x15, 0x10, 0x15,
        0x06, 0x15, 0x06, 0x1c, 0x18, 0x02, 7, 9, 0x16, 0x04, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn a_header_is_read_and_what_follows_is_left() {
        let mut bytes = DATA.to_vec();
        bytes.extend([0xff; 40]);
        let header = PageHeader::read(&bytes).unwrap();
        assert_eq!(
            header,
            PageHeader {
                header_bytes: DATA.len(),
                stored_bytes: 200,
                plain_bytes: 4000,
                values: 1000,
                kind: PageKind::Data { encoding: 8, level_encoding: 3 },
            }
        );
    }

    #[test]
    fn headers_that_are_cut_off_or_damaged_are_errors_or_other_headers() {
        for end in 0..DATA.len() {
            assert!(PageHeader::read(&DATA[..end]).is_err(), "{end}");
        }
        for at in 0..DATA.len() {
            for bit in 0..8 {
                let mut bytes = DATA;
                bytes[at] ^= 1 << bit;
                let _ = PageHeader::read(&bytes);
            }
        }
        let nested = [0x1c; 64];
        assert!(PageHeader::read(&nested).is_err());
    }
}
