//! Results that were computed once per dictionary entry, looked up by code.

use std::borrow::Cow;

use crate::ColumnError;
use crate::vector::{Data, Vector};

/// Result of a lookup for one dictionary code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Truth {
    /// False.
    False = 0,
    /// True.
    True = 1,
    /// NULL.
    Null = 2,
}

/// Truth of codes by a table, whose last entry is that of NULL.
pub fn lookup<'a>(
    codes: &Vector<'a>,
    table: &[Truth],
    rows: usize,
) -> Result<Vector<'a>, ColumnError> {
    let codes = codes.spelled(rows);
    let Data::I32(values) = &codes.data else {
        return Err(ColumnError::Internal("a lookup of something that is no code".into()));
    };
    let null_entry = table.len() - 1;
    let truth: Vec<Truth> = match &codes.validity {
        None => values.iter().map(|&c| table[c as usize]).collect(),
        Some(valid) => values
            .iter()
            .zip(valid.iter())
            .map(|(&c, &v)| table[if v == 0 { null_entry } else { c as usize }])
            .collect(),
    };
    let values = truth.iter().map(|&t| u8::from(t == Truth::True)).collect();
    let validity = truth
        .contains(&Truth::Null)
        .then(|| truth.iter().map(|&t| u8::from(t != Truth::Null)).collect());
    Ok(Vector::bools(values, validity))
}

/// Numbers of codes by a table.
pub fn numbers<'a>(codes: &Vector<'_>, table: &[i32]) -> Result<Vector<'a>, ColumnError> {
    let Data::I32(values) = &codes.data else {
        return Err(ColumnError::Internal("numbers of something that is no code".into()));
    };
    let data = Data::I32(values.iter().map(|&code| table[code as usize]).collect());
    let validity = codes.validity.as_deref().map(|v| Cow::Owned(v.to_vec()));
    Ok(Vector { data, validity, constant: codes.constant })
}
