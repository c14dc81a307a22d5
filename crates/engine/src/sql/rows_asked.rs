//! How many rows a LIMIT or an OFFSET asks for whose number is only known once the statement runs.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// No identifier without quotes.
pub const NAME: &str = "rows asked";

/// The function around such a number: itself, unless it is negative.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RowsAsked {
    signature: Signature,
}

impl RowsAsked {
    /// As sessions register it.
    pub fn function() -> ScalarUDF {
        ScalarUDF::from(Self { signature: Signature::any(1, Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for RowsAsked {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [rows] = args.args.as_slice() else {
            return internal_err!("{NAME} of {} values", args.args.len());
        };
        let rows = cast(rows.to_array(args.number_rows)?.as_ref(), &DataType::Int64)?;
        match rows.as_primitive::<Int64Type>().iter().flatten().find(|rows| *rows < 0) {
            Some(rows) => exec_err!(
                "LIMIT and OFFSET are of no negative number, and {rows} was asked for\n\
                 hint: greatest(.., 0)"
            ),
            None => Ok(ColumnarValue::Array(rows)),
        }
    }
}
