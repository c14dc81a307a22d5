//! Columns of batches.

use arrow_array::RecordBatch;
use headrace_columns::column::Column;
use headrace_columns::column_in::append_array;
use headrace_columns::repr::Repr;
use headrace_ir::Field;

use crate::{ExecError, WhyNot};

/// A column of batches, one behind the other.
pub fn column_of<'b>(
    batches: impl IntoIterator<Item = &'b RecordBatch>,
    column: usize,
    field: &Field,
) -> Result<Column, ExecError> {
    let mut all = Column::new(repr_of(field)?)?;
    for batch in batches {
        append_array(&mut all, batch.column(column), field)?;
    }
    Ok(all)
}

/// How a column is held.
pub fn repr_of(field: &Field) -> Result<Repr, ExecError> {
    let no_repr = || WhyNot::new(format!("{} of type {}", field.name, field.data_type));
    Ok(Repr::of(&field.data_type).ok_or_else(no_repr)?)
}
