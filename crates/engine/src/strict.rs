//! Fields of functions whose value is null where an argument is, and nowhere else.
//!
//! DataFusion takes a function's value for nullable unless the function says more. Whoever reads a table's schema sees
//! it, and a column that is never null costs no bitmap.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::logical_expr::ReturnFieldArgs;

/// What a function named so gives for arguments of those fields.
pub fn field(name: &str, args: &ReturnFieldArgs, data_type: DataType) -> FieldRef {
    let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
    Arc::new(Field::new(name, data_type, nullable))
}

/// The same for a function of one argument, whose type its value has.
pub fn field_of_argument(name: &str, args: &ReturnFieldArgs) -> FieldRef {
    let data_type = args.arg_fields.first().map_or(DataType::Null, |f| f.data_type().clone());
    field(name, args, data_type)
}
