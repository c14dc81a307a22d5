//! Columns that the names of folders give, `year=2024/month=1`, and which files they rule out.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::{cast, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::create_physical_expr;

use super::files::DataFile;

/// What folders say of the files of a table: a row for each file.
#[derive(Clone, Debug)]
pub struct Folders {
    rows: RecordBatch,
}

impl Folders {
    /// Of files, in their order.
    ///
    /// # Errors
    /// None that files could cause.
    pub fn of<'a>(keys: &[String], files: impl Iterator<Item = &'a DataFile>) -> Result<Self> {
        let files: Vec<&DataFile> = files.collect();
        let column = |(at, key): (usize, &String)| {
            let texts = files.iter().map(|file| file.values.get(at)?.as_deref());
            let texts: Vec<Option<&str>> = texts.collect();
            let data_type = type_of(&texts);
            let values = texts.iter().map(|text| match text {
                None => ScalarValue::try_new_null(&data_type),
                Some(text) => ScalarValue::try_from_string((*text).to_string(), &data_type),
            });
            let values = values.collect::<Result<Vec<_>>>()?;
            let field = Arc::new(Field::new(key, data_type.clone(), true));
            let array = match values.is_empty() {
                true => datafusion::arrow::array::new_empty_array(&data_type),
                false => ScalarValue::iter_to_array(values)?,
            };
            Ok((field, array))
        };
        let columns = keys.iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
        let (fields, arrays): (Vec<FieldRef>, Vec<ArrayRef>) = columns.into_iter().unzip();
        let options = datafusion::arrow::array::RecordBatchOptions::new();
        let options = options.with_row_count(Some(files.len()));
        let schema = Arc::new(Schema::new(fields));
        Ok(Self { rows: RecordBatch::try_new_with_options(schema, arrays, &options)? })
    }

    /// The columns.
    pub fn fields(&self) -> Vec<FieldRef> {
        self.rows.schema_ref().fields().iter().cloned().collect()
    }

    /// The values of a column, one a file.
    pub fn values(&self, column: usize) -> &ArrayRef {
        self.rows.column(column)
    }

    /// With the types that a table of these columns has, as conditions on it are on those.
    ///
    /// # Errors
    /// Values that are none of the type.
    pub fn typed_as(self, table: &SchemaRef) -> Result<Self> {
        let column = |field: &FieldRef, values: &ArrayRef| -> Result<(FieldRef, ArrayRef)> {
            let (_, known) = table.fields().find(field.name()).unwrap_or((0, field));
            Ok((Arc::clone(known), cast(values, known.data_type())?))
        };
        let columns = self.rows.schema_ref().fields().iter().zip(self.rows.columns());
        let columns = columns.map(|(field, values)| column(field, values));
        let (fields, arrays): (Vec<_>, Vec<_>) =
            columns.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok(Self { rows: RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)? })
    }

    /// Whether the names of folders alone decide a condition for all rows of a file, for every file.
    pub fn decide(&self, filter: &Expr) -> bool {
        meets(filter, &self.rows).is_some()
    }

    /// The files that may have rows that meet the filters, and whether all rows of them do.
    ///
    /// # Errors
    /// None that conditions could cause.
    pub fn wanted(&self, filters: &[Expr]) -> Result<(Vec<usize>, bool)> {
        let mut rows = self.rows.clone();
        let mut wanted: Vec<usize> = (0..rows.num_rows()).collect();
        let mut all_decided = true;
        for filter in filters {
            // What fails here fails, or not, where the rows are.
            let Some(kept) = meets(filter, &rows) else {
                all_decided = false;
                continue;
            };
            let mut keep = kept.values().iter();
            wanted.retain(|_| keep.next().unwrap_or(true));
            rows = filter_record_batch(&rows, &kept)?;
        }
        Ok((wanted, all_decided))
    }
}

/// Integers and dates where all values are; else text.
fn type_of(texts: &[Option<&str>]) -> DataType {
    let values = || texts.iter().flatten();
    let is_date = |text: &&str| {
        text.len() == 10
            && ScalarValue::try_from_string((*text).to_string(), &DataType::Date32).is_ok()
    };
    match () {
        _ if values().next().is_none() => DataType::Utf8,
        _ if values().all(|v| v.parse::<i64>().is_ok()) => DataType::Int64,
        _ if values().all(is_date) => DataType::Date32,
        _ => DataType::Utf8,
    }
}

/// Which rows meet a condition; `None`: it is on other columns too, not always the same, or fails.
fn meets(filter: &Expr, rows: &RecordBatch) -> Option<BooleanArray> {
    let schema = rows.schema();
    let is_known = |c: &datafusion::common::Column| schema.field_with_name(&c.name).is_ok();
    if filter.is_volatile() || !filter.column_refs().into_iter().all(is_known) {
        return None;
    }
    let names = DFSchema::try_from(Schema::clone(&schema)).ok()?;
    let filter = unnormalize_col(filter.clone());
    let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let filter = create_physical_expr(&filter, &names, &props, &context).ok()?;
    let met = filter.evaluate(rows).and_then(|met| met.into_array(rows.num_rows())).ok()?;
    let met = met.as_boolean_opt()?;
    Some(met.iter().map(|met| Some(met == Some(true))).collect())
}
