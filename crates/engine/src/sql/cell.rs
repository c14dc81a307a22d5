//! Any value as the text of a cell, also one that has none: then the cell says why.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// What the function is called.
pub const NAME: &str = "cell_text";

/// Bytes of a value that are shown.
const BYTES_SHOWN: usize = 32;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CellText {
    signature: Signature,
}

impl CellText {
    /// As sessions register it.
    pub fn function() -> ScalarUDF {
        ScalarUDF::from(Self { signature: Signature::any(1, Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for CellText {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [values] = values.as_slice() else { return exec_err!("{NAME} takes one value") };
        Ok(ColumnarValue::Array(Arc::new(texts(values)?)))
    }
}

fn texts(values: &ArrayRef) -> Result<StringArray> {
    let bytes = match values.data_type() {
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => cast(values, &DataType::Binary)?,
        _ => {
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(values, &options)?;
            let text = |row: usize| {
                let text = formatter.value(row).try_to_string();
                (!values.is_null(row)).then(|| text.unwrap_or_else(|e| format!("no text: {e}")))
            };
            return Ok((0..values.len()).map(text).collect());
        }
    };
    let bytes: &BinaryArray = bytes.as_binary();
    Ok(bytes.iter().map(|bytes| bytes.map(text_of_bytes)).collect())
}

/// Bytes that are a text, as that; others in hexadecimal digits.
fn text_of_bytes(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_string();
    }
    let shown = &bytes[..bytes.len().min(BYTES_SHOWN)];
    let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    let more = if bytes.len() > BYTES_SHOWN { ".." } else { "" };
    format!("\\x{digits}{more}")
}
