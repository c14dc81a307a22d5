//! SET, RESET and SHOW as users of other databases write them: `SET statement_timeout = '2s'`, `SET threads TO
//! DEFAULT`, `RESET threads`, `SHOW ALL`. The planner knows settings by their whole names, and of a default nothing.

use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, plan_err};
use datafusion::sql::parser::{ResetStatement, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{
    ContextModifier, Expr, Ident, ObjectName, Set, ShowStatementOptions, Statement, Value,
};

use crate::config::{HeadraceConfig, names};

/// The statement in the planner's words, if it is about a setting.
///
/// # Errors
/// There is no such setting.
pub fn spelled(statement: &DFStatement, options: &ConfigOptions) -> Result<Option<String>> {
    Ok(match statement {
        DFStatement::Reset(ResetStatement::Variable(name)) => Some(reset(name, options)?),
        DFStatement::Statement(inner) => match inner.as_ref() {
            Statement::Set(Set::SingleAssignment {
                scope: None | Some(ContextModifier::Session),
                hivevar: false,
                variable,
                values,
            }) if values.len() == 1 => Some(set(variable, &values[0], options)?),
            Statement::Set(Set::SetTimeZone { local: false, value }) => {
                let name = ObjectName::from(vec![Ident::new("timezone")]);
                Some(set(&name, value, options)?)
            }
            Statement::ShowVariable { variable } => show(variable, options)?,
            other => others(other),
        },
        _ => None,
    })
}

/// Lists of what a session has as other databases ask for them, and TRUNCATE.
fn others(statement: &Statement) -> Option<String> {
    let plain = |show: &ShowStatementOptions| {
        show.filter_position.is_none() && show.starts_with.is_none() && show.limit.is_none()
    };
    match statement {
        Statement::ShowDatabases { show_options, .. } if plain(show_options) => {
            Some("SELECT current_database() AS name".to_string())
        }
        Statement::ShowSchemas { show_options, .. } if plain(show_options) => Some(
            "SELECT schema_name AS name FROM information_schema.schemata ORDER BY name".to_string(),
        ),
        Statement::ShowColumns { extended: false, full: false, show_options }
            if plain(show_options) =>
        {
            let table = show_options.show_in.as_ref()?.parent_name.as_ref()?;
            Some(format!("DESCRIBE {table}"))
        }
        Statement::Truncate(truncate) => match truncate.table_names.as_slice() {
            [table] if truncate.partitions.is_none() && truncate.on_cluster.is_none() => {
                Some(format!("DELETE FROM {}", table.name))
            }
            _ => None,
        },
        Statement::Pragma { name, value, .. } => match (name.to_string().as_str(), value) {
            ("table_info" | "show", Some(table)) => match &table.value {
                Value::SingleQuotedString(name) => {
                    Some(format!("DESCRIBE {}", Ident::with_quote('"', name)))
                }
                other => Some(format!("DESCRIBE {other}")),
            },
            ("show_tables", None) => Some("SHOW TABLES".to_string()),
            _ => None,
        },
        _ => None,
    }
}

fn set(variable: &ObjectName, value: &Expr, options: &ConfigOptions) -> Result<String> {
    let is_default =
        matches!(value, Expr::Identifier(word) if word.value.eq_ignore_ascii_case("default"));
    match is_default {
        true => reset(variable, options),
        false => Ok(format!("SET {} = {value}", whole(&variable.to_string(), options)?)),
    }
}

fn reset(variable: &ObjectName, options: &ConfigOptions) -> Result<String> {
    let name = whole(&variable.to_string(), options)?;
    let own = options.extensions.get::<HeadraceConfig>();
    let initial = name.strip_prefix("headrace.").and_then(|name| own?.initial(name));
    Ok(match initial {
        Some(value) => format!("SET {name} = '{}'", value.replace('\'', "''")),
        None => format!("RESET {name}"),
    })
}

fn show(variable: &[Ident], options: &ConfigOptions) -> Result<Option<String>> {
    let words: Vec<String> = variable.iter().map(|word| word.value.to_lowercase()).collect();
    let (words, verbose) = match words.split_last() {
        Some((last, rest)) if last == "verbose" && !rest.is_empty() => (rest, true),
        _ => (words.as_slice(), false),
    };
    let columns = if verbose { "name, value, description" } else { "name, value" };
    if words == ["all"] {
        // Our own come first: the planner has two hundred.
        return Ok(Some(format!(
            "SELECT {columns} FROM information_schema.df_settings \
             ORDER BY CASE WHEN name LIKE 'headrace.%' THEN 0 ELSE 1 END, name"
        )));
    }
    if words == ["all", "tables"] {
        return Ok(Some(
            "SELECT table_schema AS schema, table_name AS name, table_type AS type FROM information_schema.tables \
             WHERE table_schema <> 'information_schema' ORDER BY schema, name"
                .to_string(),
        ));
    }
    if words.is_empty() || words == ["functions"] || words == ["columns"] {
        return Ok(None);
    }
    let more = if verbose { " verbose" } else { "" };
    Ok(Some(format!("SHOW {}{more}", whole(&words.join("."), options)?)))
}

/// The whole name of a setting that may be named by its last part.
fn whole(name: &str, options: &ConfigOptions) -> Result<String> {
    let name = name.replace('"', "").to_lowercase();
    if name.contains('.') || name == "timezone" {
        return Ok(name);
    }
    if names().any(|own| own == name) {
        return Ok(format!("headrace.{name}"));
    }
    let ending = format!(".{name}");
    let entries = options.entries();
    let mut named = entries.iter().filter(|entry| entry.key.ends_with(&ending));
    match (named.next(), named.next(), name.as_str()) {
        (Some(one), None, _) => Ok(one.key.clone()),
        (_, _, "memory_limit") => plan_err!(
            "memory_limit is a limit of the whole session, and cannot be changed in it\n\
             hint: begin one with it: headrace --memory-limit 1GB"
        ),
        (_, _, "all") => plan_err!("RESET takes one setting\nhint: SHOW ALL lists them"),
        _ => {
            let own: Vec<&str> = names().collect();
            plan_err!(
                "there is no setting {name}\nhint: settings: {}; SHOW ALL lists the planner's, too",
                own.join(", ")
            )
        }
    }
}
