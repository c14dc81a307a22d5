//! Functions in CUDA, made by CREATE FUNCTION: calls of them that the planner answers, by their twins.
//!
//! A pipeline has the code and the twin ([`headrace_ir::CudaFunction`]). The planner has the twin alone. It is planned once,
//! when the function is made, over a row of the parameters.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::nullif;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use headrace_ir::CudaFunction;

use super::types::name_of;

/// A function in CUDA.
#[derive(Debug)]
pub struct CudaCall {
    function: Arc<CudaFunction>,
    /// The parameters.
    schema: SchemaRef,
    result: DataType,
    twin: Option<Twin>,
    signature: Signature,
}

/// What means the same in SQL.
#[derive(Debug)]
pub struct Twin {
    /// As it was written.
    pub text: String,
    /// Over the parameters.
    pub expr: Arc<dyn PhysicalExpr>,
}

impl CudaCall {
    /// A function of columns as `schema` has them.
    pub fn new(
        function: CudaFunction,
        schema: SchemaRef,
        result: DataType,
        twin: Option<Twin>,
    ) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { function: Arc::new(function), schema, result, twin, signature }
    }

    /// What a GPU runs.
    pub fn function(&self) -> &CudaFunction {
        &self.function
    }

    /// The twin with these arguments in place of its parameters.
    pub fn twin_of(
        &self,
        arguments: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let Some(Twin { expr, .. }) = &self.twin else { return Ok(None) };
        let filled = Arc::clone(expr).transform_up(|expr| {
            let argument =
                expr.downcast_ref::<Column>().and_then(|column| arguments.get(column.index()));
            Ok(argument.map_or_else(
                || Transformed::no(Arc::clone(&expr)),
                |argument| Transformed::yes(Arc::clone(argument)),
            ))
        });
        Ok(Some(filled?.data))
    }
}

impl ScalarUDFImpl for CudaCall {
    fn name(&self) -> &str {
        &self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(self.result.clone())
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let wanted: Vec<_> = self.schema.fields().iter().map(|f| f.data_type().clone()).collect();
        coerced(self.name(), given, wanted)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(Twin { expr, .. }) = &self.twin else {
            return exec_err!("{}", self.function.without_twin());
        };
        let rows = args.number_rows;
        let columns = args.args.iter().map(|value| value.to_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let nulls = columns.iter().fold(None, |nulls, column| {
            NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let values = expr.evaluate(&batch)?.into_array(rows)?;
        with_nulls(values, nulls).map(ColumnarValue::Array)
    }
}

/// NULL where an argument is NULL.
fn with_nulls(values: ArrayRef, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => Ok(values),
        Some(nulls) if nulls.null_count() == values.len() => {
            Ok(new_null_array(values.data_type(), values.len()))
        }
        Some(nulls) => {
            let is_null = BooleanArray::new(!nulls.inner(), None);
            Ok(nullif(&values, &is_null)?)
        }
    }
}

/// What arguments are cast to: numbers become other numbers, texts other texts, bytes and lists those of a length, and NULL
/// whatever is wanted.
///
/// # Errors
/// What the function does not take.
pub fn coerced(name: &str, given: &[DataType], wanted: Vec<DataType>) -> Result<Vec<DataType>> {
    use DataType::{Binary, BinaryView, FixedSizeBinary, FixedSizeList, List};
    let values_of = |data_type: &DataType| match data_type {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        plain => plain.clone(),
    };
    let fits = |(given, wanted): (&DataType, &DataType)| {
        given == wanted
            || given.is_null()
            || given.is_numeric() && wanted.is_numeric()
            || values_of(given).is_string() && wanted.is_string()
            || given.is_temporal() && wanted.is_temporal()
            || match (given, wanted) {
                (Binary | BinaryView, FixedSizeBinary(_)) => true,
                (List(item), FixedSizeList(..)) => item.data_type().is_numeric(),
                (FixedSizeList(given, length), FixedSizeList(_, wanted)) => {
                    length == wanted && given.data_type().is_numeric()
                }
                _ => false,
            }
    };
    if given.len() == wanted.len() && given.iter().zip(&wanted).all(fits) {
        return Ok(wanted);
    }
    let named = |types: &[DataType]| types.iter().map(name_of).collect::<Vec<_>>().join(", ");
    plan_err!("{name}() takes ({}), and is given ({})", named(&wanted), named(given))
}

/// The columns that the parameters are.
pub fn schema_of(fields: Vec<(String, DataType)>) -> SchemaRef {
    let field = |(name, data_type)| Field::new(name, data_type, true);
    Arc::new(Schema::new(fields.into_iter().map(field).collect::<Vec<_>>()))
}

/// Two are the same if their code and their twins are.
impl PartialEq for CudaCall {
    fn eq(&self, other: &Self) -> bool {
        let text = |call: &Self| call.twin.as_ref().map(|twin| twin.text.clone());
        (&self.function, &self.schema, &self.result, text(self))
            == (&other.function, &other.schema, &other.result, text(other))
    }
}

impl Eq for CudaCall {}

impl Hash for CudaCall {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.function.name, &self.function.body).hash(state);
    }
}
