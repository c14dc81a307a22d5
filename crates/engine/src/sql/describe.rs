//! DESCRIBE in SQL's names of types: the planner's are those of its arrays.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::Result;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::prelude::col;

/// A DESCRIBE as the rows that it has; every other plan as it is.
///
/// # Errors
/// None that a schema can cause.
pub fn in_sql(logical: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::DescribeTable(describe) = &logical else { return Ok(logical) };
    let yes_or_no = |is: bool| if is { "YES" } else { "NO" };
    let row = |field: &FieldRef| {
        vec![
            lit(field.name().as_str()),
            lit(type_name(field.data_type())),
            lit(yes_or_no(field.is_nullable())),
        ]
    };
    let rows: Vec<_> = describe.schema.fields().iter().map(row).collect();
    if rows.is_empty() {
        let schema = Arc::clone(&describe.output_schema);
        return Ok(LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema }));
    }
    let names = ["column_name", "data_type", "is_nullable"];
    let columns =
        names.iter().enumerate().map(|(i, name)| col(format!("column{}", i + 1)).alias(*name));
    LogicalPlanBuilder::values(rows)?.project(columns)?.build()
}

/// What SQL calls a type: CREATE TABLE takes it, where SQL has it.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::UInt8 => "TINYINT UNSIGNED".into(),
        DataType::UInt16 => "SMALLINT UNSIGNED".into(),
        DataType::UInt32 => "INT UNSIGNED".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float16 | DataType::Float32 => "REAL".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => format!("DECIMAL({digits}, {scale})"),
        DataType::Date32 | DataType::Date64 => "DATE".into(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".into(),
        DataType::Timestamp(unit, None) => format!("TIMESTAMP{}", digits(*unit)),
        DataType::Timestamp(unit, Some(_)) => format!("TIMESTAMP{} WITH TIME ZONE", digits(*unit)),
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".into(),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => "BYTEA".into(),
        DataType::Dictionary(_, value) => type_name(value),
        DataType::RunEndEncoded(_, value) => type_name(value.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => format!("{}[]", type_name(item.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{} {}", field.name(), type_name(field.data_type())))
                .collect();
            format!("STRUCT({})", fields.join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => format!(
                "MAP({}, {})",
                type_name(fields[0].data_type()),
                type_name(fields[1].data_type())
            ),
            other => type_name(other),
        },
        DataType::Union(..) => "UNION".into(),
        DataType::Null => "NULL".into(),
    }
}

/// Those of a second behind its point; of as many as SQL means without a word none are said.
fn digits(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "(0)",
        TimeUnit::Millisecond => "(3)",
        TimeUnit::Microsecond => "",
        TimeUnit::Nanosecond => "(9)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::Field;

    #[test]
    fn types_are_called_as_in_sql() {
        let text = Field::new("t", DataType::Utf8View, true);
        let cases = [
            (DataType::Utf8View, "VARCHAR"),
            (DataType::Timestamp(TimeUnit::Microsecond, None), "TIMESTAMP"),
            (
                DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
                "TIMESTAMP(9) WITH TIME ZONE",
            ),
            (DataType::Decimal128(9, 2), "DECIMAL(9, 2)"),
            (DataType::List(text.clone().into()), "VARCHAR[]"),
            (DataType::Struct(vec![text].into()), "STRUCT(t VARCHAR)"),
        ];
        for (data_type, name) in cases {
            assert_eq!(type_name(&data_type), name);
        }
    }
}
