//! Rows that are put out: columns that grow, cut into batches.

use arrow_array::RecordBatch;
use headrace_columns::ColumnError;
use headrace_columns::column::{Column, output_batch};
use headrace_ir::Field;

use crate::ExecError;
use crate::bound::BoundExpr;
use crate::cpu::context::Context;
use crate::cpu::eval::eval;

/// Output rows are handed over in batches of about this many.
pub const OUTPUT_ROWS: usize = 8 * 1024;

/// Columns of no rows.
pub fn empty<'e>(
    columns: impl Iterator<Item = &'e (Field, BoundExpr)>,
) -> Result<Vec<Column>, ColumnError> {
    columns.map(|(_, expr)| Column::new(expr.repr.clone())).collect()
}

/// Appends the values of the current rows.
pub fn append<'a>(
    columns: &mut [Column],
    outputs: impl Iterator<Item = &'a (Field, BoundExpr)>,
    context: &mut Context<'a>,
) -> Result<(), ExecError> {
    for (column, (_, expr)) in columns.iter_mut().zip(outputs) {
        let vector = eval(context, expr)?;
        column.push(&vector, context.rows())?;
    }
    Ok(())
}

/// The rows as a batch; none are left.
pub fn cut_batch(
    columns: &mut [Column],
    outputs: &[(Field, BoundExpr)],
) -> Result<RecordBatch, ColumnError> {
    let rows = columns.first().map_or(0, Column::rows);
    let arrays = columns
        .iter_mut()
        .zip(outputs)
        .map(|(column, (field, expr))| {
            let full = std::mem::replace(column, Column::new(expr.repr.clone())?);
            full.into_array(&field.data_type)
        })
        .collect::<Result<Vec<_>, _>>()?;
    output_batch(outputs.iter().map(|(field, _)| field), arrays, rows)
}

/// The rows not yet in a batch, if any.
pub fn last_batch(
    columns: &mut [Column],
    outputs: &[(Field, BoundExpr)],
) -> Result<Option<RecordBatch>, ColumnError> {
    match columns.first() {
        Some(column) if column.rows() > 0 => cut_batch(columns, outputs).map(Some),
        _ => Ok(None),
    }
}
