//! Fields of functions whose value is null where an argument is, and nowhere else.
//!
//! DataFusion takes a function's value for nullable unless the function says more. Whoever reads a table's schema sees
//! it, and a column that is never null costs no bitmap.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::{ReturnFieldArgs, ScalarUDFImpl};

/// What such a function gives for arguments of those fields.
pub fn return_field(function: &impl ScalarUDFImpl, args: &ReturnFieldArgs) -> Result<FieldRef> {
    let types: Vec<_> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
    let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
    Ok(Arc::new(Field::new(function.name(), function.return_type(&types)?, nullable)))
}
