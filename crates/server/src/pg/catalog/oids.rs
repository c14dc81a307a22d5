//! Numbers of tables and of types.

use crate::pg::types::TYPES;

/// The number of the first table: smaller ones are the system's.
const FIRST_OID: u32 = 16_384;

/// The number of a table, made of its name, so that it stays the same.
pub fn oid_of(name: &str) -> u32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    FIRST_OID + (hash % u64::from(i32::MAX as u32 - FIRST_OID)) as u32
}

/// The number of a table by its name, which may have its schema and quotes; a number is itself.
pub fn oid_of_name(name: &str) -> u32 {
    if let Ok(number) = name.parse() {
        return number;
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    match last.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => oid_of(quoted),
        None => oid_of(last),
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
