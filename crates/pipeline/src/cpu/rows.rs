//! Rows that are put out: columns that grow, cut into batches.

use std::ops::Range;
use std::rc::Rc;

use arrow_array::{Array, RecordBatch};
use headrace_columns::ColumnError;
use headrace_columns::column::{Column, output_batch};
use headrace_columns::repr::Repr;
use headrace_columns::vector::{Data, Vector};
use headrace_ir::Field;

use crate::ExecError;
use crate::bound::BoundExpr;
use crate::cpu::context::Context;
use crate::cpu::eval::eval;

/// Output rows are handed over in batches of about this many.
pub const OUTPUT_ROWS: usize = 8 * 1024;

/// Of long texts fewer are.
const OUTPUT_BYTES: u64 = 2 << 20;

/// Whether rows are a batch.
pub fn is_full(columns: &[Column]) -> bool {
    columns.first().is_some_and(|column| column.rows() >= OUTPUT_ROWS)
        || columns.iter().map(Column::bytes).sum::<u64>() >= OUTPUT_BYTES
}

/// Columns of no rows.
pub fn empty<'e>(
    columns: impl Iterator<Item = &'e (Field, BoundExpr)>,
) -> Result<Vec<Column>, ColumnError> {
    columns.map(|(_, expr)| Column::new(expr.repr.clone())).collect()
}

/// The values of the current rows.
pub fn vectors<'a>(
    outputs: &'a [(Field, BoundExpr)],
    context: &mut Context<'a>,
) -> Result<Vec<Rc<Vector<'a>>>, ExecError> {
    outputs.iter().map(|(_, expr)| eval(context, expr)).collect()
}

/// Of these rows so many are about a batch: not all of long texts, codes of which become texts, too. One at least.
pub fn batch_rows(
    outputs: &[(Field, BoundExpr)],
    vectors: &[Rc<Vector<'_>>],
    rows: usize,
) -> usize {
    let bytes = |((_, expr), vector): (&(Field, BoundExpr), &Rc<Vector<'_>>)| {
        let times = if vector.constant { rows } else { 1 };
        times * text_bytes(&expr.repr, &vector.data)
    };
    let bytes = outputs.iter().zip(vectors).map(bytes).sum::<usize>() as u64;
    let share = OUTPUT_BYTES as f64 / bytes.max(OUTPUT_BYTES) as f64;
    ((rows as f64 * share) as usize).max(1)
}

/// Bytes of texts, as they are put out.
fn text_bytes(repr: &Repr, data: &Data<'_>) -> usize {
    match (repr, data) {
        (_, Data::Str(texts)) => texts.iter().map(|text| text.len()).sum(),
        (Repr::Code(dictionary), Data::I32(codes)) => {
            let texts = &dictionary.values;
            // A code of NULL may be that of no text.
            let bytes = |&code: &i32| {
                let code = usize::try_from(code).ok().filter(|code| *code < texts.len());
                code.map_or(0, |code| texts.value_length(code) as usize)
            };
            codes.iter().map(bytes).sum()
        }
        _ => 0,
    }
}

/// Appends some of these rows.
pub fn push(
    columns: &mut [Column],
    vectors: &[Rc<Vector<'_>>],
    piece: Range<usize>,
) -> Result<(), ExecError> {
    for (column, vector) in columns.iter_mut().zip(vectors) {
        match vector.constant || (piece.start == 0 && piece.end == vector.data.count()) {
            true => column.push(vector, piece.len())?,
            false => {
                let rows: Vec<u32> = (piece.start as u32..piece.end as u32).collect();
                column.push(&vector.take(&rows), piece.len())?;
            }
        }
    }
    Ok(())
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
