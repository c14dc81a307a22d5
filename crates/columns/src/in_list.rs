//! IN over constants.

use headrace_ir::{Scalar, Value};

use crate::ColumnError;
use crate::vector::{Data, Element, Vector};

/// At most this many constants are compared one by one.
const LINEAR_MAX: usize = 8;

/// `value [NOT] IN (list)`; `list` is sorted and has no NULL.
pub fn in_list<'a>(
    vector: &Vector<'_>,
    list: &[Scalar],
    list_has_null: bool,
    negated: bool,
    rows: usize,
) -> Result<Vector<'a>, ColumnError> {
    let vector = vector.spelled(rows);
    let mut found = membership(&vector.data, list)
        .ok_or_else(|| ColumnError::Internal("IN over constants of another type".into()))?;
    // Not found in a list with NULL is NULL.
    let mut validity = vector.validity.as_deref().map(<[u8]>::to_vec);
    if list_has_null {
        let valid = validity.get_or_insert_with(|| vec![1; rows]);
        valid.iter_mut().zip(&found).for_each(|(v, &f)| *v &= f);
    }
    // The empty list decides without looking.
    if list.is_empty() && !list_has_null {
        validity = None;
    }
    if negated {
        found.iter_mut().for_each(|f| *f ^= 1);
    }
    Ok(Vector::bools(found, validity))
}

fn membership(data: &Data<'_>, list: &[Scalar]) -> Option<Vec<u8>> {
    let int = |s: &Scalar| match s.value {
        Value::Int(value) => Some(value),
        _ => None,
    };
    let float = |s: &Scalar| match s.value {
        Value::Float(value) => Some(value),
        _ => None,
    };
    macro_rules! ints {
        ($values:expr, $type:ty) => {{
            let list: Option<Vec<$type>> =
                list.iter().map(|s| int(s).map(|v| v as $type)).collect();
            Some(find($values, &list?))
        }};
    }
    match data {
        Data::I8(values) => ints!(values, i8),
        Data::I16(values) => ints!(values, i16),
        Data::I32(values) => ints!(values, i32),
        Data::I64(values) => ints!(values, i64),
        Data::U8(values) => ints!(values, u8),
        Data::U16(values) => ints!(values, u16),
        Data::U32(values) => ints!(values, u32),
        Data::U64(values) => ints!(values, u64),
        Data::I128(values) => ints!(values, i128),
        Data::F32(values) => {
            let list: Option<Vec<f32>> = list.iter().map(|s| float(s).map(|v| v as f32)).collect();
            Some(find_linear(values, &list?))
        }
        Data::F64(values) => {
            let list: Option<Vec<f64>> = list.iter().map(float).collect();
            Some(find_linear(values, &list?))
        }
        Data::Bool(values) => {
            let list: Option<Vec<u8>> = list
                .iter()
                .map(|s| match s.value {
                    Value::Bool(value) => Some(u8::from(value)),
                    _ => None,
                })
                .collect();
            Some(find_linear(values, &list?))
        }
        Data::Str(values) => {
            let list: Option<Vec<&str>> = list
                .iter()
                .map(|s| match &s.value {
                    Value::Utf8(text) => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            Some(find_sorted(values, list?))
        }
        Data::Bytes(values) => {
            let list: Option<Vec<&[u8]>> = list
                .iter()
                .map(|s| match &s.value {
                    Value::Binary(bytes) => Some(bytes.as_slice()),
                    _ => None,
                })
                .collect();
            Some(find_sorted(values, list?))
        }
    }
}

fn find<T: Element + Ord>(values: &[T], list: &[T]) -> Vec<u8> {
    if list.len() <= LINEAR_MAX {
        return find_linear(values, list);
    }
    find_sorted(values, list.to_vec())
}

/// A binary search a value.
fn find_sorted<T: Ord>(values: &[T], mut list: Vec<T>) -> Vec<u8> {
    list.sort_unstable();
    values.iter().map(|v| u8::from(list.binary_search(v).is_ok())).collect()
}

/// One vectorised pass a constant.
fn find_linear<T: Element>(values: &[T], list: &[T]) -> Vec<u8> {
    let mut found = vec![0u8; values.len()];
    for &wanted in list {
        found.iter_mut().zip(values).for_each(|(f, &v)| *f |= u8::from(v.equal(wanted)));
    }
    found
}
