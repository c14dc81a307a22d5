//! Rows of constants as a batch.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_select::concat::concat;
use headrace_ir::{Field, Scalar};

use crate::ColumnError;
use crate::column::{Column, output_batch, vector_array};
use crate::convert::literal;
use crate::repr::Repr;

/// A batch of rows, each a value of every column.
///
/// # Errors
/// A column of a type that pipelines do not have.
pub fn values_batch(columns: &[Field], rows: &[Vec<Scalar>]) -> Result<RecordBatch, ColumnError> {
    let array = |(place, field): (usize, &Field)| -> Result<ArrayRef, ColumnError> {
        let repr = Repr::of(&field.data_type).ok_or_else(|| {
            ColumnError::Internal(format!("constants of type {}", field.data_type))
        })?;
        let value = |row: &Vec<Scalar>| {
            let value = literal(&row[place], &repr)?;
            vector_array(&value.spelled(1), &repr, &field.data_type, 1)
        };
        let nothing = Column::new(repr.clone())?;
        let mut values = vec![vector_array(&nothing.vector(), &repr, &field.data_type, 0)?];
        for row in rows {
            values.push(value(row)?);
        }
        let values: Vec<_> = values.iter().map(|array| &**array).collect();
        concat(&values).map_err(|error| ColumnError::Internal(error.to_string()))
    };
    let arrays = columns.iter().enumerate().map(array).collect::<Result<_, _>>()?;
    output_batch(columns.iter(), arrays, rows.len())
}
