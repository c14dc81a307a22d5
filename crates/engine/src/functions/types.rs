//! Names of types, as SQL says them.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};

/// A type's name: PostgreSQL's, in lower case, where it has the type.
pub fn name_of(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Null => "unknown",
        DataType::Boolean => "boolean",
        DataType::Int8 => "tinyint",
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::UInt8 => "utinyint",
        DataType::UInt16 => "usmallint",
        DataType::UInt32 => "uinteger",
        DataType::UInt64 => "ubigint",
        DataType::Float16 => "half",
        DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone",
        DataType::Timestamp(_, None) => "timestamp without time zone",
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
        DataType::Interval(
            IntervalUnit::MonthDayNano | IntervalUnit::DayTime | IntervalUnit::YearMonth,
        )
        | DataType::Duration(_) => "interval",
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => return format!("numeric({p},{s})"),
        DataType::Dictionary(_, values) => return name_of(values),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => return format!("{}[]", name_of(item.data_type())),
        DataType::Struct(fields) => {
            let field = |f: &datafusion::arrow::datatypes::FieldRef| {
                format!("{} {}", f.name(), name_of(f.data_type()))
            };
            let fields: Vec<_> = fields.iter().map(field).collect();
            return format!("struct({})", fields.join(", "));
        }
        DataType::Map(..) => "map",
        other if other.is_string() => "text",
        other if other.is_binary() => "bytea",
        other => return other.to_string().to_lowercase(),
    };
    name.to_string()
}
