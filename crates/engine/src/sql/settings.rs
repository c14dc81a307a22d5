//! SET, RESET and SHOW as users of other databases write them: `SET statement_timeout = '2s'`, `SET threads TO
//! DEFAULT`, `RESET threads`, `SHOW ALL`. The planner knows settings by their whole names, and of a default nothing.

use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, plan_err};
use datafusion::sql::parser::{ResetStatement, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{ContextModifier, Expr, Ident, ObjectName, Set, Statement};

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
            Statement::ShowVariable { variable } => show(variable, options)?,
            _ => None,
        },
        _ => None,
    })
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
