//! The value of a subquery that may find one row.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// A value that was found in so many rows: an error for an outer row with more than one.
pub fn only(value: Expr, rows: Expr) -> Expr {
    FUNCTION.call(vec![value, rows])
}

/// Whether an expression is such a value itself: the same whenever it is asked.
pub fn is_only(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<Only>())
}

/// Nothing is volatile about it but that it must not be asked for rows that the query does not have, below the join
/// that finds them.
static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(Only { signature: Signature::any(2, Volatility::Volatile) }))
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct Only {
    signature: Signature,
}

impl ScalarUDFImpl for Only {
    fn name(&self) -> &str {
        "only"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [value, _] => Ok(value.clone()),
            _ => internal_err!("only() of {} values", types.len()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [value, _] => Ok(Arc::clone(value)),
            _ => internal_err!("only() of {} values", args.arg_fields.len()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, rows] = args.args.as_slice() else {
            return internal_err!("only() of {} values", args.args.len());
        };
        let rows = rows.to_array(args.number_rows)?;
        let Some(rows) = rows.as_primitive_opt::<Int64Type>() else {
            return internal_err!("only() of rows of type {}", rows.data_type());
        };
        match rows.iter().flatten().find(|rows| *rows > 1) {
            Some(rows) => exec_err!(
                "a subquery of one value found {rows} rows for a row of the query around it\nhint: ask for an aggregate, or \
                 say which: order by .. limit 1"
            ),
            None => Ok(value.clone()),
        }
    }
}
