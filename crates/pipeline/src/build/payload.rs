//! Payload columns: as narrow as their values allow, text as codes of the texts that occur.

use std::sync::Arc;

use headrace_columns::column::text_array;
use headrace_columns::convert::integers;
use headrace_columns::repr::{Dictionary, Repr};
use headrace_columns::vector::{Data, Vector};
use headrace_ir::{Field, ValueRange};

use crate::ExecError;
use crate::build::{PayloadColumn, PayloadData};
use headrace_io::huge::{filled, reserved};

/// One column of a build in the making.
pub(crate) struct BuildColumn<'a> {
    pub(crate) field: Field,
    pub(crate) repr: Repr,
    pub(crate) vector: Vector<'a>,
}

/// Where the rows' values go.
pub(crate) struct Placement {
    /// Entry of each row; `None`: its row number.
    pub(crate) entry_of_row: Option<Vec<u32>>,
    /// Number of entries.
    pub(crate) entries: usize,
}

impl Placement {
    /// One entry a row.
    pub(crate) fn in_row_order(rows: usize) -> Self {
        Self { entry_of_row: None, entries: rows }
    }

    fn place<T: Copy, U: Copy>(&self, values: &[T], fill: U, convert: impl Fn(T) -> U) -> Vec<U> {
        match &self.entry_of_row {
            None => {
                let mut placed = reserved(values.len());
                placed.extend(values.iter().map(|&v| convert(v)));
                placed
            }
            Some(entry_of_row) => {
                let mut placed = filled(fill, self.entries);
                for (&entry, &value) in entry_of_row.iter().zip(values) {
                    placed[entry as usize] = convert(value);
                }
                placed
            }
        }
    }

    fn bitmap(&self, valid: &[u8]) -> Arc<[u64]> {
        let mut words = vec![0u64; self.entries.div_ceil(64)];
        for (row, &valid) in valid.iter().enumerate() {
            let entry = self.entry_of_row.as_ref().map_or(row, |entries| entries[row] as usize);
            words[entry / 64] |= u64::from(valid) << (entry % 64);
        }
        words.into()
    }
}

impl PayloadData {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::U8 { raw, .. } => raw.len(),
            Self::U16 { raw, .. } => raw.len(),
            Self::U32 { raw, .. } => raw.len(),
            Self::I64(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::I128(values) => values.len(),
            Self::Bool(values) => values.len(),
        }
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Lays out one payload column.
pub(crate) fn encode(
    column: &BuildColumn<'_>,
    placement: &Placement,
) -> Result<PayloadColumn, ExecError> {
    let valid = column.vector.validity.as_deref();
    let validity = valid.map(|valid| placement.bitmap(valid));
    let (repr, data, range) = match (&column.vector.data, &column.repr) {
        (Data::Str(texts), _) => {
            let (dictionary, codes) = code_texts(texts, valid)?;
            coded(dictionary, &codes, valid, placement)
        }
        (Data::I32(codes), Repr::Code(dictionary)) => {
            let (dictionary, codes) = recode(codes, valid, dictionary)?;
            coded(dictionary, &codes, valid, placement)
        }
        (Data::U64(v), _) => (Repr::U64, PayloadData::U64(placement.place(v, 0, |v| v)), None),
        (Data::F64(v), _) => (Repr::F64, PayloadData::F64(placement.place(v, 0.0, |v| v)), None),
        (Data::F32(v), _) => {
            (Repr::F32, PayloadData::F64(placement.place(v, 0.0, f64::from)), None)
        }
        (Data::I128(v), _) => (Repr::I128, PayloadData::I128(placement.place(v, 0, |v| v)), None),
        (Data::Bool(v), _) => {
            let range = range_of(&v.iter().map(|&v| i64::from(v)).collect::<Vec<_>>(), valid);
            (Repr::Bool, PayloadData::Bool(placement.place(v, u8::MAX, |v| v)), range)
        }
        (data, repr) => {
            let values = integers(data)
                .ok_or_else(|| ExecError::Internal(format!("payload held as {repr:?}")))?;
            let range = range_of(&values, valid);
            (repr.clone(), narrow(&values, range, placement), range)
        }
    };
    Ok(PayloadColumn { field: column.field.clone(), repr, range, data, validity })
}

fn coded(
    dictionary: Dictionary,
    codes: &[i64],
    valid: Option<&[u8]>,
    placement: &Placement,
) -> (Repr, PayloadData, Option<ValueRange>) {
    let range = range_of(codes, valid);
    (Repr::Code(Arc::new(dictionary)), narrow(codes, range, placement), range)
}

fn range_of(values: &[i64], valid: Option<&[u8]>) -> Option<ValueRange> {
    let mut range: Option<ValueRange> = None;
    for (row, &value) in values.iter().enumerate() {
        if valid.is_none_or(|valid| valid[row] != 0) {
            let known = range.get_or_insert(ValueRange { min: value, max: value });
            known.min = known.min.min(value);
            known.max = known.max.max(value);
        }
    }
    range
}

/// Raw values from the smallest on, the largest raw value kept free. NULLs become raw 0.
fn narrow(values: &[i64], range: Option<ValueRange>, placement: &Placement) -> PayloadData {
    let ValueRange { min: base, max } = range.unwrap_or(ValueRange { min: 0, max: 0 });
    let span = i128::from(max) - i128::from(base);
    let raw = |value: i64| {
        if (base..=max).contains(&value) { value.wrapping_sub(base) as u64 } else { 0 }
    };
    if span < i128::from(u8::MAX) {
        PayloadData::U8 { base, raw: placement.place(values, u8::MAX, |v| raw(v) as u8) }
    } else if span < i128::from(u16::MAX) {
        PayloadData::U16 { base, raw: placement.place(values, u16::MAX, |v| raw(v) as u16) }
    } else if span < i128::from(u32::MAX) {
        PayloadData::U32 { base, raw: placement.place(values, u32::MAX, |v| raw(v) as u32) }
    } else {
        PayloadData::I64(placement.place(values, 0, |v| v))
    }
}

/// A sorted dictionary of the texts that occur, and each row's code.
fn code_texts(texts: &[&str], valid: Option<&[u8]>) -> Result<(Dictionary, Vec<i64>), ExecError> {
    let rows = || (0..texts.len()).filter(|&row| valid.is_none_or(|valid| valid[row] != 0));
    let common = common_bytes(rows().map(|row| texts[row].as_bytes()));
    // Most are told apart by eight bytes that lie beside each other.
    let mut order: Vec<(u64, usize)> =
        rows().map(|row| (head(&texts[row].as_bytes()[common..]), row)).collect();
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| texts[a.1].cmp(texts[b.1])));
    let (mut distinct, mut codes) = (Vec::new(), vec![0; texts.len()]);
    for (_, row) in order {
        if distinct.last() != Some(&texts[row]) {
            distinct.push(texts[row]);
        }
        codes[row] = distinct.len() as i64 - 1;
    }
    Ok((Dictionary { values: text_array(&distinct, None)? }, codes))
}

/// With how many bytes all of them begin alike.
fn common_bytes<'a>(mut texts: impl Iterator<Item = &'a [u8]>) -> usize {
    let Some(first) = texts.next() else { return 0 };
    texts.fold(first.len(), |common, text| {
        let alike = first[..common].iter().zip(text).take_while(|(a, b)| a == b);
        alike.count()
    })
}

/// Up to eight bytes as a number of the same order.
fn head(bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    let taken = bytes.len().min(8);
    head[..taken].copy_from_slice(&bytes[..taken]);
    u64::from_be_bytes(head)
}

/// The part of a dictionary that occurs, and each row's code in it. Order is kept.
fn recode(
    codes: &[i32],
    valid: Option<&[u8]>,
    all: &Dictionary,
) -> Result<(Dictionary, Vec<i64>), ExecError> {
    let mut new_code: Vec<i64> = vec![-1; arrow_array::Array::len(&all.values)];
    for (row, &code) in codes.iter().enumerate() {
        if valid.is_none_or(|valid| valid[row] != 0) {
            new_code[code as usize] = 0;
        }
    }
    let mut texts = Vec::new();
    for (code, new) in new_code.iter_mut().enumerate().filter(|(_, new)| **new == 0) {
        *new = texts.len() as i64;
        texts.push(all.values.value(code));
    }
    let codes = codes.iter().map(|&c| new_code.get(c as usize).map_or(0, |&n| n.max(0))).collect();
    Ok((Dictionary { values: text_array(&texts, None)? }, codes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn codes_of_texts_are_in_their_order() {
        let texts =
            ["ab\0", "ab", "", "abcdefghij", "abcdefghii", "ab", "abcdefgh", "zz", "ab\0\0"];
        let all = |with: &str| texts.map(|text| format!("{with}{text}"));
        for with in ["", "Customer#", "é"] {
            let texts = all(with);
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let mut valid = vec![1; texts.len()];
            valid[7] = 0;
            let (dictionary, codes) = code_texts(&texts, Some(&valid)).unwrap();
            let mut sorted: Vec<&str> = texts.clone();
            sorted.retain(|text| !text.ends_with("zz"));
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(dictionary.values.iter().flatten().collect::<Vec<_>>(), sorted);
            for (row, text) in texts.iter().enumerate().filter(|(row, _)| *row != 7) {
                assert_eq!(sorted[codes[row] as usize], *text);
            }
        }
        let (dictionary, codes) = code_texts(&["x"], Some(&[0])).unwrap();
        assert_eq!((dictionary.values.iter().count(), codes), (0, vec![0]));
    }
}
