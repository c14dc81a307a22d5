//! Numbers of tables and of types.

use headrace_engine::{PUBLIC, Session};

use crate::pg::types::TYPES;
use crate::server::{Listed, all_tables};

/// The number of the first table: smaller ones are the system's.
const FIRST_OID: u32 = 16_384;

/// The number of a table, made of its name, so that it stays the same.
pub fn oid_of(name: &str) -> u32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    FIRST_OID + (hash % u64::from(i32::MAX as u32 - FIRST_OID)) as u32
}

/// The number of a table that is listed.
pub fn oid_of_table(table: &Listed) -> u32 {
    oid_of(&table.shown())
}

/// The number of a schema.
pub fn oid_of_schema(name: &str) -> u32 {
    match name {
        "pg_catalog" => 11,
        PUBLIC => 2200,
        "information_schema" => 13_000,
        name => oid_of(&format!("{name}.")),
    }
}

/// The number of a table by its name, which may have its schema and quotes; a number is itself.
pub fn oid_of_name(name: &str, session: &Session) -> u32 {
    if let Ok(number) = name.parse() {
        return number;
    }
    let part = |part: &str| match part.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.to_string(),
        None => part.to_string(),
    };
    let name = match name.split_once('.') {
        Some((schema, table)) => {
            let (schema, name) = (part(schema), part(table));
            return match schema.as_str() {
                "pg_catalog" | "information_schema" => oid_of(&name),
                _ => oid_of_table(&Listed { schema, name }),
            };
        }
        None => part(name),
    };
    // One of several is none.
    let mut named = all_tables(session).into_iter().filter(|table| table.name == name);
    match (named.next(), named.next()) {
        (Some(table), None) => oid_of_table(&table),
        _ => oid_of(&name),
    }
}

/// The number of a type by its name; 0 of none.
pub fn oid_of_type(name: &str) -> u32 {
    let name = name.to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let known = TYPES.iter().find(|known| known.name == name || known.sql == name);
    known.map_or(0, |known| known.oid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_number_of_their_own() {
        assert_eq!(oid_of("orders"), oid_of("orders"));
        assert_ne!(oid_of("orders"), oid_of("lineitem"));
        assert!(oid_of("") >= FIRST_OID && i32::try_from(oid_of("x")).is_ok());
    }
}
