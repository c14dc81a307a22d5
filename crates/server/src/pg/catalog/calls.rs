//! Functions of the catalog, and of sessions, as expressions.

use std::collections::HashMap;
use std::sync::LazyLock;

use headrace_engine::Session;

use super::about::{About, DATABASE};
use super::oids::{oid_of_name, oid_of_type};
use crate::pg::settings::SERVER_VERSION;
use crate::pg::types::TYPES;

const TEMPLATES: &str = include_str!("calls.txt");

static KNOWN: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lines = TEMPLATES.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" = ")).collect()
});

/// Functions that tell something of the session, and words that are such functions without parentheses.
const OF_SESSIONS: [&str; 25] = [
    "array_lower", "array_upper", "current_catalog", "current_database", "current_role",
    "current_schema", "current_schemas", "current_setting", "current_user", "format_type",
    "pg_backend_pid", "pg_get_userbyid", "quote_ident", "regclass", "regproc", "regtype",
    "regnamespace", "session_user", "set_config", "pg_postmaster_start_time", "pg_size_pretty",
    "to_regclass", "to_regtype", "user", "version",
];

/// Whether a name, in small letters, is one of these.
pub fn is_known(name: &str) -> bool {
    KNOWN.contains_key(name) || OF_SESSIONS.contains(&name)
}

/// What a call is in the engine's SQL; `None`: it is the engine's.
pub fn expression(
    name: &str,
    arguments: &[String],
    about: &About,
    session: &Session,
) -> Option<String> {
    if let Some(template) = KNOWN.get(name) {
        return Some(template.to_string());
    }
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    Some(match (name, arguments) {
        ("current_catalog" | "current_database", []) => quoted(DATABASE),
        ("current_schema", []) => quoted("public"),
        ("current_schemas", [_]) => "['pg_catalog', 'public']".to_string(),
        ("current_user" | "session_user" | "current_role", []) => quoted(&about.user),
        // Those of the engine are asked by SHOW and changed by SET.
        ("current_setting", [setting, ..]) => quoted(&about.settings.get(unquoted(setting))?),
        ("set_config", [setting, value, ..]) if about.settings.get(unquoted(setting)).is_some() => {
            value.clone()
        }
        ("version", []) => {
            quoted(&format!("PostgreSQL {SERVER_VERSION} (Headrace {})", env!("CARGO_PKG_VERSION")))
        }
        ("pg_backend_pid", []) => "CAST(1 AS INTEGER)".to_string(),
        ("pg_postmaster_start_time", []) => {
            format!("CAST('{}' AS TIMESTAMPTZ)", about.started.to_rfc3339())
        }
        // Lists begin with 1 here.
        ("array_lower", [list, dimension]) => {
            format!("CASE WHEN array_length({list}, {dimension}) > 0 THEN 1 END")
        }
        ("array_upper", [list, dimension]) => {
            format!("NULLIF(CAST(array_length({list}, {dimension}) AS INTEGER), 0)")
        }
        ("pg_size_pretty", [bytes]) => format!("CAST({bytes} AS TEXT) || ' bytes'"),
        ("to_regclass", [name]) => {
            format!("CAST({} AS BIGINT)", oid_of_name(unquoted(name), session))
        }
        ("to_regtype", [name]) => match oid_of_type(unquoted(name)) {
            0 => "CAST(NULL AS BIGINT)".to_string(),
            oid => format!("CAST({oid} AS BIGINT)"),
        },
        ("pg_get_userbyid", [_]) => quoted(DATABASE),
        ("quote_ident", [name]) => format!(
            "CASE WHEN regexp_like({name}, '^[a-z_][a-z0-9_$]*$') THEN {name} ELSE '\"' || replace({name}, '\"', '\"\"') || '\"' END"
        ),
        ("format_type", [oid, modifier]) => format_type(oid, modifier),
        _ => return None,
    })
}

/// The text of a literal.
fn unquoted(literal: &str) -> &str {
    literal.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(literal)
}

/// The name of a type by its number.
fn format_type(oid: &str, modifier: &str) -> String {
    let names = TYPES.iter().flat_map(|known| {
        let name = known.sql.replace('\'', "''");
        let plain = format!("WHEN {} THEN '{name}'", known.oid);
        let array = format!("WHEN {} THEN '{name}[]'", known.array);
        [Some(plain), (known.array > 0).then_some(array)].into_iter().flatten()
    });
    let names: Vec<String> = names.collect();
    let numeric = format!(
        "WHEN 1700 THEN CASE WHEN {modifier} > 0 THEN 'numeric(' || CAST(({modifier} - 4) / 65536 AS TEXT) || ',' || \
         CAST(({modifier} - 4) % 65536 AS TEXT) || ')' ELSE 'numeric' END"
    );
    format!("(CASE {oid} {numeric} {} ELSE '???' END)", names.join(" "))
}
