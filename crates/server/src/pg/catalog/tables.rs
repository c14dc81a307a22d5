//! Rows of system tables.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::DataFusionError;
use headrace_engine::failure::Failure;
use headrace_engine::{GivenTables, PUBLIC, Session};

use super::about::DATABASE;
use super::oids::{oid_of, oid_of_schema, oid_of_table};
use crate::pg::types::{self, TYPES};
use crate::server::{LEVERS, Listed, all_columns, all_tables};

const DEFINITIONS: &str = include_str!("tables.txt");

/// Types whose functions have an underscore in their names.
const JOINED: [&str; 9] =
    ["json", "date", "time", "timestamp", "timestamptz", "interval", "numeric", "uuid", "jsonb"];

/// A table: columns with their types and defaults.
struct Definition {
    name: &'static str,
    columns: Vec<(&'static str, char, Option<&'static str>)>,
}

static ALL: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let lines = DEFINITIONS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(definition).collect()
});

fn definition(line: &'static str) -> Option<Definition> {
    let (name, columns) = line.split_once(' ')?;
    let column = |text: &'static str| {
        let (name, rest) = text.split_once(':')?;
        Some((name, rest.chars().next()?, rest.split_once('=').map(|(_, default)| default)))
    };
    Some(Definition { name, columns: columns.split(' ').filter_map(column).collect() })
}

/// The name of a table as it is known here, if it is one: of the catalog, or behind the name of its schema.
pub fn known(name: &str) -> Option<&'static str> {
    ALL.iter().find(|table| table.name == name).map(|table| table.name)
}

/// Whether a table has no rows, whatever there is.
pub fn is_empty(name: &str) -> bool {
    const FILLED: [&str; 16] = [
        "pg_namespace",
        "pg_class",
        "pg_attribute",
        "pg_type",
        "pg_database",
        "pg_roles",
        "pg_user",
        "pg_am",
        "pg_tablespace",
        "pg_settings",
        "pg_tables",
        "pg_proc",
        "information_schema.character_sets",
        "information_schema.schemata",
        "information_schema.tables",
        "information_schema.columns",
    ];
    !FILLED.contains(&name)
}

/// Values of some columns of a row; the others have their defaults.
type Row = Vec<(&'static str, String)>;

/// The tables of these names, for one statement.
///
/// # Errors
/// What the planner says of a table that it makes.
pub async fn given(
    session: &Session,
    names: &[&'static str],
    settings: &[(&'static str, String)],
    user: &str,
) -> Result<GivenTables, Failure> {
    let needs_columns =
        |name: &&&str| matches!(**name, "pg_attribute" | "information_schema.columns" | "pg_class");
    let columns = match names.iter().any(|name| needs_columns(&name)) {
        true => all_columns(session).await,
        false => Vec::new(),
    };
    let made = names.iter().map(|name| {
        let rows = rows(name, session, &columns, settings, user);
        Ok((format!("~{name}"), table(name, &rows)?))
    });
    let made: Result<GivenTables, DataFusionError> = made.collect();
    made.map_err(|error| Failure::of(&error, &LEVERS))
}

fn table(name: &str, rows: &[Row]) -> Result<Arc<dyn TableProvider>, DataFusionError> {
    let definition = ALL.iter().find(|table| table.name == name);
    let columns = definition.map(|table| table.columns.as_slice()).unwrap_or_default();
    let rows: Vec<HashMap<&str, &str>> = rows
        .iter()
        .map(|row| row.iter().map(|(name, value)| (*name, value.as_str())).collect())
        .collect();
    let (mut fields, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
    for (name, kind, default) in columns {
        let value = |row: &HashMap<&str, &str>| row.get(name).map(ToString::to_string);
        let default = default.map(|default| default.replace('·', " "));
        let values = rows.iter().map(|row| value(row).or_else(|| default.clone()));
        let array = array(*kind, values.collect())?;
        fields.push(Field::new(*name, array.data_type().clone(), true));
        arrays.push(array);
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
}

fn array(kind: char, values: Vec<Option<String>>) -> Result<ArrayRef, DataFusionError> {
    let to = match kind {
        'o' => DataType::Int64,
        'i' => DataType::Int32,
        'b' => DataType::Boolean,
        'f' => DataType::Float64,
        'a' => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            values.iter().for_each(|_| lists.append_null());
            return Ok(Arc::new(lists.finish()));
        }
        _ => DataType::Utf8,
    };
    let texts: ArrayRef = Arc::new(StringArray::from(values));
    Ok(cast(&texts, &to)?)
}

fn rows(
    name: &str,
    session: &Session,
    columns: &[(Listed, Arc<Schema>)],
    settings: &[(&'static str, String)],
    user: &str,
) -> Vec<Row> {
    let listed = || all_tables(session).into_iter();
    match name {
        "pg_namespace" => {
            let row =
                |name: String| vec![("oid", oid_of_schema(&name).to_string()), ("nspname", name)];
            schemas(session).into_iter().map(row).collect()
        }
        "pg_class" => columns.iter().map(|(table, schema)| class(table, schema)).collect(),
        "pg_attribute" => {
            columns.iter().flat_map(|(table, schema)| attributes(table, schema)).collect()
        }
        "pg_type" => pg_types(),
        "pg_proc" => functions_of_types(),
        "pg_database" | "pg_am" | "pg_tablespace" | "information_schema.character_sets" => {
            vec![Vec::new()]
        }
        "pg_roles" => roles(user, "rolname", "oid"),
        "pg_user" => roles(user, "usename", "usesysid"),
        "pg_settings" => settings
            .iter()
            .map(|(name, value)| {
                let value = |column| (column, value.clone());
                vec![
                    ("name", name.to_string()),
                    value("setting"),
                    value("boot_val"),
                    value("reset_val"),
                ]
            })
            .collect(),
        "pg_tables" => listed()
            .map(|Listed { schema, name }| {
                let owner = ("tableowner", DATABASE.to_string());
                vec![("schemaname", schema), ("tablename", name), owner]
            })
            .collect(),
        "information_schema.schemata" => {
            let owner = || ("schema_owner", DATABASE.to_string());
            schemas(session).into_iter().map(|name| vec![("schema_name", name), owner()]).collect()
        }
        "information_schema.tables" => listed()
            .map(|Listed { schema, name }| vec![("table_schema", schema), ("table_name", name)])
            .collect(),
        "information_schema.columns" => {
            columns.iter().flat_map(|(table, schema)| information_columns(table, schema)).collect()
        }
        _ => Vec::new(),
    }
}

/// The owner of all, and who asks.
fn roles(user: &str, name: &'static str, oid: &'static str) -> Vec<Row> {
    let mut roles = vec![vec![(name, DATABASE.to_string())]];
    if user != DATABASE {
        roles.push(vec![(name, user.to_string()), (oid, oid_of(user).to_string())]);
    }
    roles
}

/// All schemas.
fn schemas(session: &Session) -> BTreeSet<String> {
    let tables = all_tables(session).into_iter().map(|table| table.schema);
    tables.chain(["pg_catalog", PUBLIC, "information_schema"].map(str::to_string)).collect()
}

fn class(table: &Listed, schema: &Schema) -> Row {
    vec![
        ("oid", oid_of_table(table).to_string()),
        ("relname", table.name.clone()),
        ("relnamespace", oid_of_schema(&table.schema).to_string()),
        ("relnatts", schema.fields().len().to_string()),
    ]
}

fn attributes(table: &Listed, schema: &Schema) -> Vec<Row> {
    let fields = schema.fields().iter().enumerate();
    let attribute = |(nth, field): (usize, &Arc<Field>)| {
        let (oid, modifier) = types::of_arrow(field.data_type());
        let bytes = types::of_oid(oid).map_or(-1, |known| known.bytes);
        vec![
            ("attrelid", oid_of_table(table).to_string()),
            ("attname", field.name().clone()),
            ("atttypid", oid.to_string()),
            ("attlen", bytes.to_string()),
            ("attnum", (nth + 1).to_string()),
            ("attndims", i32::from(types::of_array(oid).is_some()).to_string()),
            ("atttypmod", modifier.to_string()),
            ("attnotnull", (!field.is_nullable()).to_string()),
        ]
    };
    fields.map(attribute).collect()
}

fn information_columns(table: &Listed, schema: &Schema) -> Vec<Row> {
    let fields = schema.fields().iter().enumerate();
    let column = |(nth, field): (usize, &Arc<Field>)| {
        let (oid, modifier) = types::of_arrow(field.data_type());
        let known = types::of_oid(oid);
        let is_array = known.is_none();
        let element = known.or_else(|| types::of_array(oid));
        let name = element.map_or("text", |known| known.name);
        let mut row = vec![
            ("table_schema", table.schema.clone()),
            ("table_name", table.name.clone()),
            ("column_name", field.name().clone()),
            ("ordinal_position", (nth + 1).to_string()),
            ("is_nullable", if field.is_nullable() { "YES" } else { "NO" }.to_string()),
            (
                "data_type",
                if is_array { "ARRAY" } else { element.map_or("text", |known| known.sql) }
                    .to_string(),
            ),
            ("udt_name", if is_array { format!("_{name}") } else { name.to_string() }),
        ];
        if modifier >= 0 {
            row.push(("numeric_precision", ((modifier - 4) >> 16).to_string()));
            row.push(("numeric_scale", ((modifier - 4) & 0xffff).to_string()));
        }
        row
    };
    fields.map(column).collect()
}

/// The columns of types that name functions.
pub const FUNCTION_COLUMNS: [&str; 4] = ["typinput", "typoutput", "typreceive", "typsend"];

/// The functions that types name. Others that clients may call are not listed.
fn functions_of_types() -> Vec<Row> {
    let types = pg_types();
    let named = types.iter().flatten().filter(|(column, _)| FUNCTION_COLUMNS.contains(column));
    let names: BTreeSet<&String> = named.map(|(_, name)| name).collect();
    let row = |name: &String| vec![("oid", oid_of(name).to_string()), ("proname", name.clone())];
    names.into_iter().map(row).collect()
}

/// Types, and those of their arrays.
fn pg_types() -> Vec<Row> {
    TYPES
        .iter()
        .flat_map(|known| {
            // ADBC knows types by the names of these.
            let joint = if JOINED.contains(&known.name) { "_" } else { "" };
            let functions = |name: &str| {
                ["in", "out", "recv", "send"].map(|what| format!("{name}{joint}{what}"))
            };
            let row =
                |name: String, oid: u32, bytes: i16, category: char, calls: [String; 4]| -> Row {
                    let [input, output, receive, send] = calls;
                    vec![
                        ("oid", oid.to_string()),
                        ("typname", name),
                        ("typlen", bytes.to_string()),
                        ("typcategory", category.to_string()),
                        ("typinput", input),
                        ("typoutput", output),
                        ("typreceive", receive),
                        ("typsend", send),
                    ]
                };
            let mut plain = row(
                known.name.to_string(),
                known.oid,
                known.bytes,
                known.category,
                functions(known.name),
            );
            plain.push(("typarray", known.array.to_string()));
            let mut array = row(
                format!("_{}", known.name),
                known.array,
                -1,
                'A',
                ["array_in", "array_out", "array_recv", "array_send"].map(str::to_string),
            );
            array.push(("typelem", known.oid.to_string()));
            [Some(plain), (known.array > 0).then_some(array)].into_iter().flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_table_is_made_and_every_default_is_one() {
        for definition in ALL.iter() {
            let made = table(definition.name, &[Vec::new()]).unwrap();
            assert_eq!(
                made.schema().fields().len(),
                definition.columns.len(),
                "{}",
                definition.name
            );
        }
        assert!(ALL.len() > 50);
    }

    #[test]
    fn rows_name_columns_that_there_are() {
        let schema =
            Arc::new(Schema::new(vec![Field::new("a", DataType::Decimal128(15, 2), true)]));
        let listed = Listed { schema: PUBLIC.to_string(), name: "t".to_string() };
        let all = [
            ("pg_class", vec![class(&listed, &schema)]),
            ("pg_attribute", attributes(&listed, &schema)),
            ("information_schema.columns", information_columns(&listed, &schema)),
            ("pg_type", pg_types()),
            ("pg_proc", functions_of_types()),
            ("pg_roles", roles("ada", "rolname", "oid")),
            ("pg_user", roles("ada", "usename", "usesysid")),
        ];
        for (name, rows) in all {
            let definition = ALL.iter().find(|table| table.name == name).unwrap();
            for (column, _) in rows.iter().flatten() {
                assert!(
                    definition.columns.iter().any(|(name, ..)| name == column),
                    "{name}.{column}"
                );
            }
            assert!(table(name, &rows).is_ok(), "{name}");
        }
    }
}
