//! Types of Arrow as PostgreSQL's clients know them.

use arrow_schema::{DataType, Schema};

use super::wire::Described;

pub const BOOL: u32 = 16;
pub const BYTEA: u32 = 17;
pub const CHAR: u32 = 18;
pub const NAME: u32 = 19;
pub const INT8: u32 = 20;
pub const INT2: u32 = 21;
pub const INT4: u32 = 23;
pub const TEXT: u32 = 25;
pub const OID: u32 = 26;
pub const JSON: u32 = 114;
pub const FLOAT4: u32 = 700;
pub const FLOAT8: u32 = 701;
pub const UNKNOWN: u32 = 705;
pub const BPCHAR: u32 = 1042;
pub const VARCHAR: u32 = 1043;
pub const DATE: u32 = 1082;
pub const TIME: u32 = 1083;
pub const TIMESTAMP: u32 = 1114;
pub const TIMESTAMPTZ: u32 = 1184;
pub const INTERVAL: u32 = 1186;
pub const NUMERIC: u32 = 1700;
pub const UUID: u32 = 2950;
pub const JSONB: u32 = 3802;

/// A type that clients are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgType {
    pub oid: u32,
    /// In the catalog.
    pub name: &'static str,
    /// In SQL.
    pub sql: &'static str,
    /// Bytes of a value; -1 where they differ.
    pub bytes: i16,
    /// That of an array of such values.
    pub array: u32,
    /// By what kind operators choose: b, n, s, d, t, u, a.
    pub category: char,
}

const fn pg(
    oid: u32,
    name: &'static str,
    sql: &'static str,
    bytes: i16,
    array: u32,
    category: char,
) -> PgType {
    PgType { oid, name, sql, bytes, array, category }
}

/// Those that have values here, and what clients ask for by name.
pub const TYPES: &[PgType] = &[
    pg(BOOL, "bool", "boolean", 1, 1000, 'B'),
    pg(BYTEA, "bytea", "bytea", -1, 1001, 'U'),
    pg(CHAR, "char", "\"char\"", 1, 1002, 'Z'),
    pg(NAME, "name", "name", 64, 1003, 'S'),
    pg(INT8, "int8", "bigint", 8, 1016, 'N'),
    pg(INT2, "int2", "smallint", 2, 1005, 'N'),
    pg(INT4, "int4", "integer", 4, 1007, 'N'),
    pg(TEXT, "text", "text", -1, 1009, 'S'),
    pg(OID, "oid", "oid", 4, 1028, 'N'),
    pg(JSON, "json", "json", -1, 199, 'U'),
    pg(FLOAT4, "float4", "real", 4, 1021, 'N'),
    pg(FLOAT8, "float8", "double precision", 8, 1022, 'N'),
    pg(UNKNOWN, "unknown", "unknown", -2, 0, 'X'),
    pg(BPCHAR, "bpchar", "character", -1, 1014, 'S'),
    pg(VARCHAR, "varchar", "character varying", -1, 1015, 'S'),
    pg(DATE, "date", "date", 4, 1182, 'D'),
    pg(TIME, "time", "time without time zone", 8, 1183, 'D'),
    pg(TIMESTAMP, "timestamp", "timestamp without time zone", 8, 1115, 'D'),
    pg(TIMESTAMPTZ, "timestamptz", "timestamp with time zone", 8, 1185, 'D'),
    pg(INTERVAL, "interval", "interval", 16, 1187, 'T'),
    pg(NUMERIC, "numeric", "numeric", -1, 1231, 'N'),
    pg(UUID, "uuid", "uuid", 16, 2951, 'U'),
    pg(JSONB, "jsonb", "jsonb", -1, 3807, 'U'),
];

/// The type of an OID.
pub fn of_oid(oid: u32) -> Option<&'static PgType> {
    TYPES.iter().find(|known| known.oid == oid)
}

/// The type of values whose arrays have an OID.
pub fn of_array(oid: u32) -> Option<&'static PgType> {
    TYPES.iter().find(|known| known.array == oid && oid > 0)
}

/// The OID of a type of Arrow, and the modifier of its values.
pub fn of_arrow(data_type: &DataType) -> (u32, i32) {
    let oid = match data_type {
        DataType::Boolean => BOOL,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => INT2,
        DataType::Int32 | DataType::UInt16 => INT4,
        DataType::Int64 | DataType::UInt32 => INT8,
        DataType::UInt64 => NUMERIC,
        DataType::Float16 | DataType::Float32 => FLOAT4,
        DataType::Float64 => FLOAT8,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => BYTEA,
        DataType::Date32 | DataType::Date64 => DATE,
        DataType::Time32(_) | DataType::Time64(_) => TIME,
        DataType::Timestamp(_, None) => TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => TIMESTAMPTZ,
        DataType::Interval(_) | DataType::Duration(_) => INTERVAL,
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => {
            return (NUMERIC, numeric_modifier(*digits, *scale));
        }
        DataType::Dictionary(_, values) => return of_arrow(values),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => array_of(field.data_type()),
        DataType::Struct(_) | DataType::Map(..) | DataType::Union(..) => JSON,
        _ => TEXT,
    };
    (oid, -1)
}

/// An array has elements that are no arrays themselves; deeper lists are sent as JSON.
fn array_of(element: &DataType) -> u32 {
    let (oid, _) = of_arrow(element);
    of_oid(oid).filter(|known| known.oid != JSON).map_or(JSON, |known| known.array)
}

fn numeric_modifier(digits: u8, scale: i8) -> i32 {
    match scale {
        0.. => ((i32::from(digits) << 16) | i32::from(scale)) + 4,
        // PostgreSQL has negative ones since version 15, and few clients know.
        _ => -1,
    }
}

/// The type that a parameter of an OID has in SQL; `None`: the text says it.
pub fn sql_of(oid: u32) -> Option<String> {
    let known = |known: &PgType| match known.oid {
        UNKNOWN => None,
        OID => Some("bigint"),
        CHAR | NAME | TEXT | BPCHAR | VARCHAR | JSON | JSONB | UUID => Some("text"),
        _ => Some(known.sql),
    };
    match of_oid(oid) {
        Some(found) => known(found).map(str::to_string),
        None => known(of_array(oid)?).map(|element| format!("{element}[]")),
    }
}

/// How the columns of an answer are told, in the formats that were asked for.
pub fn described(schema: &Schema, formats: &[i16]) -> Vec<Described> {
    let is_binary = |nth: usize| match formats {
        [] => false,
        [all] => *all == 1,
        each => each.get(nth) == Some(&1),
    };
    let columns = schema.fields().iter().enumerate();
    columns
        .map(|(nth, field)| {
            let (oid, modifier) = of_arrow(field.data_type());
            let bytes = of_oid(oid).map_or(-1, |known| known.bytes);
            Described {
                name: field.name().clone(),
                oid,
                bytes,
                modifier,
                is_binary: is_binary(nth),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;

    #[test]
    fn types_are_those_that_clients_expect() {
        let list = |of| DataType::List(Arc::new(Field::new("item", of, true)));
        let codes = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        for (data_type, oid) in [
            (DataType::Int8, INT2),
            (DataType::UInt32, INT8),
            (DataType::UInt64, NUMERIC),
            (DataType::Utf8View, TEXT),
            (DataType::Null, TEXT),
            (codes.clone(), TEXT),
            (list(DataType::Int64), 1016),
            (list(codes), 1009),
            (list(list(DataType::Int64)), JSON),
        ] {
            assert_eq!(of_arrow(&data_type), (oid, -1), "{data_type}");
        }
        assert_eq!(of_arrow(&DataType::Decimal128(15, 2)), (NUMERIC, (15 << 16 | 2) + 4));
        assert_eq!(sql_of(1007).as_deref(), Some("integer[]"));
        assert_eq!((sql_of(UNKNOWN), sql_of(0)), (None, None));
    }

    #[test]
    fn formats_are_of_all_or_of_each() {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Utf8, true),
        ]);
        let binary = |formats: &[i16]| -> Vec<bool> {
            described(&schema, formats).iter().map(|column| column.is_binary).collect()
        };
        assert_eq!(binary(&[]), [false, false]);
        assert_eq!(binary(&[1]), [true, true]);
        assert_eq!(binary(&[0, 1]), [false, true]);
        assert_eq!(binary(&[1, 1, 1]), [true, true]);
    }
}
