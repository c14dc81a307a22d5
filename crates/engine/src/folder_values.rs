//! What folders are named by, for the planner's writers of Parquet, CSV and JSON.
//!
//! They name a folder by whatever stands in a NULL's place, 0 or an empty text. So a COPY's keys become the texts that
//! folders are to be named by before they see them.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::dml::CopyTo;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, cast,
};

use crate::catalog::NULL_VALUE;
use crate::partitioned::check_keys;

/// With this option keys stay in the files, too.
const KEEP_OPTION: &str = "execution.keep_partition_by_columns";

/// Gives a COPY into folders of partitions the texts of their names.
///
/// # Errors
/// Columns that cannot name folders.
pub fn name_folders(copy: &mut CopyTo) -> Result<()> {
    let (keys, schema) = (&copy.partition_by, copy.input.schema());
    if keys.is_empty() {
        return Ok(());
    }
    if let Err(cause) = check_keys(schema.as_arrow(), keys) {
        return plan_err!("PARTITIONED BY {cause}");
    }
    if copy.options.get(KEEP_OPTION).is_some_and(|keep| keep.trim() != "false") {
        return plan_err!(
            "{KEEP_OPTION} is not offered\nhint: write the column twice, under another name for the folders"
        );
    }
    let name = ScalarUDF::from(FolderValue { signature: Signature::any(1, Volatility::Immutable) });
    let columns = schema.columns().into_iter().map(|column| {
        let (key, value) = (column.name.clone(), Expr::Column(column));
        match keys.contains(&key) {
            true => name.call(vec![cast(value, DataType::Utf8)]).alias(key),
            false => value,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    let named = LogicalPlanBuilder::from(Arc::clone(&copy.input)).project(columns)?.build()?;
    copy.input = Arc::new(named);
    Ok(())
}

/// The text that a folder is named by: a NULL's own.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FolderValue {
    signature: Signature,
}

impl ScalarUDFImpl for FolderValue {
    fn name(&self) -> &str {
        "folder_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let texts = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [texts] = texts.as_slice() else { return exec_err!("folder_value of one text") };
        let texts = texts.as_string::<i32>();
        if texts.iter().flatten().any(|text| text == NULL_VALUE) {
            return exec_err!(
                "PARTITIONED BY: the text {NULL_VALUE} would be read as NULL\n\
                 hint: give it another name, or write Arrow files"
            );
        }
        let named: StringArray =
            texts.iter().map(|text| Some(text.unwrap_or(NULL_VALUE))).collect();
        Ok(ColumnarValue::Array(Arc::new(named)))
    }
}
