//! Rows divided by their keys: equal keys are of the same partition, whichever side of a join they
//! are of and however they are held (0 and -0, all NaNs, NULL and NULL are equal).

use arrow_array::RecordBatch;
use headrace_columns::column::Column;
use headrace_columns::column_in::append_array;
use headrace_columns::hash::{FAN_OUT_MAX, LEVELS, hash_keys, in_order, partition};
use headrace_columns::repr::Repr;
use headrace_columns::vector::Vector;
use headrace_ir::Field;

use crate::ExecError;

/// The rows of a batch by partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Rows of the batch: those of the first partition, then those of the second, each in order.
    pub rows: Vec<u32>,
    /// Where each partition ends among them.
    pub ends: Vec<usize>,
}

/// Divides a batch, whose first columns are the keys, into `fan_out` partitions (a power of two, at
/// most [`FAN_OUT_MAX`]). Each of [`LEVELS`] levels divides what was one partition of the level before.
///
/// # Errors
/// A column is not of the type of its key.
pub fn divide(
    batch: &RecordBatch,
    keys: &[Field],
    level: u32,
    fan_out: usize,
) -> Result<Division, ExecError> {
    assert!(fan_out.is_power_of_two() && fan_out <= FAN_OUT_MAX && level < LEVELS);
    let columns = keys.iter().zip(batch.columns()).map(|(key, array)| {
        let repr = Repr::of(&key.data_type).ok_or_else(|| {
            ExecError::Internal(format!("a key of type {} to divide by", key.data_type))
        })?;
        let mut column = Column::new(repr)?;
        append_array(&mut column, array, key)?;
        Ok(column)
    });
    let columns = columns.collect::<Result<Vec<_>, ExecError>>()?;
    let vectors: Vec<Vector<'_>> = columns.iter().map(Column::vector).collect();
    let vectors: Vec<&Vector<'_>> = vectors.iter().collect();
    let mut hashes = Vec::new();
    hash_keys(&vectors, batch.num_rows(), &mut hashes);
    let of = |hash: &u64| partition(*hash, level, fan_out);
    let (rows, ends) = in_order(hashes.iter().map(of), fan_out);
    Ok(Division { rows, ends })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use headrace_ir::DataType;

    use super::*;

    #[test]
    fn equal_keys_are_of_one_partition_and_rows_stay_in_order() {
        let number = |i: i64| (i % 7 != 0).then_some(i % 90);
        let text = |i: i64| (i % 11 != 0).then(|| format!("text {}", i % 40));
        let (numbers, texts) = ((0..1000).map(number), (0..1000).map(text));
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(numbers.collect::<Int64Array>()) as ArrayRef),
            ("t", Arc::new(texts.collect::<StringArray>())),
        ])
        .unwrap();
        let keys = [Field::new("n", DataType::Int64, true), Field::new("t", DataType::Utf8, true)];
        for level in 0..LEVELS {
            let Division { rows, ends } = divide(&batch, &keys, level, 16).unwrap();
            assert_eq!((ends.len(), ends[15], rows.len()), (16, 1000, 1000));
            let mut seen = vec![None; 1000];
            let mut begin = 0;
            for (partition, end) in ends.iter().enumerate() {
                assert!(rows[begin..*end].is_sorted());
                rows[begin..*end].iter().for_each(|&row| seen[row as usize] = Some(partition));
                begin = *end;
            }
            assert!(seen.iter().all(Option::is_some));
            // Both keys repeat after 3600 rows, NULLs aside: compare rows pair by pair.
            let key = |row: usize| (number(row as i64), text(row as i64));
            for a in 0..200 {
                for b in a + 1..1000 {
                    assert!(key(a) != key(b) || seen[a] == seen[b], "{a} and {b}");
                }
            }
        }
    }

    #[test]
    fn floats_that_are_equal_are_together() {
        let values = Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN]);
        let batch = RecordBatch::try_from_iter([("f", Arc::new(values) as ArrayRef)]).unwrap();
        let keys = [Field::new("f", DataType::Float64, false)];
        let Division { rows, ends } = divide(&batch, &keys, 0, 256).unwrap();
        let partition = |row: u32| {
            let place = rows.iter().position(|&r| r == row).unwrap();
            ends.iter().position(|&end| place < end)
        };
        assert_eq!((partition(0), partition(2)), (partition(1), partition(3)));
        assert_ne!(partition(0), partition(2));
    }
}
