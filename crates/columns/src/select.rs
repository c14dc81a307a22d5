//! From truth bytes to the rows that are kept.

use crate::simd::positions;
use crate::vector::{Data, Vector};

/// One byte a row, 1 where a Bool vector is true (not false, not NULL).
pub fn truth_bytes(vector: &Vector<'_>, rows: usize) -> Vec<u8> {
    let Data::Bool(values) = &vector.data else { return vec![0; rows] };
    if vector.constant {
        return vec![values[0] & u8::from(vector.validity.is_none()); rows];
    }
    match &vector.validity {
        None => values.to_vec(),
        Some(valid) => values.iter().zip(valid.iter()).map(|(&a, &b)| a & b).collect(),
    }
}

/// Clears `mask` wherever the vector is not true.
pub fn and_truth(mask: &mut [u8], vector: &Vector<'_>) {
    let Data::Bool(values) = &vector.data else { return mask.fill(0) };
    if vector.constant {
        if values[0] == 0 || vector.validity.is_some() {
            mask.fill(0);
        }
        return;
    }
    mask.iter_mut().zip(values.iter()).for_each(|(m, &v)| *m &= v);
    if let Some(valid) = &vector.validity {
        mask.iter_mut().zip(valid.iter()).for_each(|(m, &v)| *m &= v);
    }
}

/// Positions of the bytes that are 0, ascending.
pub fn positions_not(mask: &[u8]) -> Vec<u32> {
    let inverted: Vec<u8> = mask.iter().map(|&m| m ^ 1).collect();
    positions(&inverted)
}
