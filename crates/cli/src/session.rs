//! Sessions as the command line asks for them, and how the engine's errors read.

use std::path::Path;

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::parser::ParserError;
use headrace_engine::catalog::{Found, shown_text};
use headrace_engine::sql::dialect_of;
use headrace_engine::{
    Processor, RunnerOptions, Session, SessionOptions, SettingError, Settings, parse_access,
};

use crate::args::EngineArgs;
use crate::error::{CliError, Result};
use crate::memory::give_back_what_is_free;
use crate::trace;

/// A session without tables.
pub fn new(args: &EngineArgs) -> Result<Session> {
    let defaults = Settings::default();
    let settings = Settings {
        processor: args.processor.parse().map_err(wrong_setting)?,
        fallback: args.fallback.parse().map_err(wrong_setting)?,
        access: parse_access(&args.access).map_err(wrong_setting)?,
        devices: args.devices.parse().map_err(wrong_setting)?,
        threads: args.threads.map_or(defaults.threads, |n| n as usize),
        ..defaults
    };
    let limits = RunnerOptions {
        memory_limit_bytes: args.memory_limit,
        device_cache_bytes: args.device_cache,
        spill_folder: args.spill_folder.clone(),
        spill_limit_bytes: args.spill_limit,
        ..RunnerOptions::default()
    };
    if args.memory_limit.is_some() {
        give_back_what_is_free();
    }
    let session = Session::new(SessionOptions { settings, limits })
        .map_err(|error| failure("start", &error))?;
    if let Some(folder) = headrace_gpu::cache_folder() {
        session.keep_metadata_in(folder.join("tables"));
    }
    if args.trace.is_some() {
        session.start_trace();
    }
    Ok(session)
}

/// A session over a folder of tables.
pub fn open(data: &Path, args: &EngineArgs) -> Result<Session> {
    let session = new(args)?;
    let found = session.register_path(data).map_err(|error| unusable(data, &error))?;
    tell_if_none(data, &found);
    Ok(session)
}

/// Unknown files named in a note.
const NAMED_MAX: usize = 5;

/// Makes tables of a file or of what lies in a folder, also of another machine; says so where nothing there
/// is one.
pub async fn register(session: &Session, data: &Path) -> Result<()> {
    let found = session.register_place(data).await.map_err(|error| unusable(data, &error))?;
    tell_if_none(data, &found);
    Ok(())
}

fn unusable(data: &Path, error: &DataFusionError) -> CliError {
    let failure = failure(&data.display().to_string(), error);
    // A server's refusal has its own remedy.
    match message(error).contains("\nhint: ") {
        true => failure,
        false => {
            failure.hint("--data takes a file or a folder of Arrow, Parquet, CSV or JSON files")
        }
    }
}

fn tell_if_none(data: &Path, found: &Found) {
    if found.tables.is_empty() {
        let named: Vec<_> =
            found.unknown.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
        let more = if found.unknown.len() > NAMED_MAX { ", .." } else { "" };
        let known = if named.is_empty() {
            String::new()
        } else {
            format!("; not read: {}{more}", named.join(", "))
        };
        say!("{}: no files of tables{known}", data.display());
    }
}

/// Arguments for a session on one processor, everything else as given.
pub fn on(processor: Processor, args: &EngineArgs) -> EngineArgs {
    EngineArgs { processor: processor.to_string(), trace: None, ..args.clone() }
}

/// The dialect that a session's statements are written in.
pub fn dialect(session: &Session) -> Box<dyn Dialect> {
    dialect_of(&session.context().state_ref().read())
}

/// Writes what the session recorded, if `--trace` asked for it.
pub fn write_trace(session: &Session, args: &EngineArgs) -> Result<()> {
    let Some(path) = &args.trace else { return Ok(()) };
    // The recorder was started with the session.
    trace::write(path, &session.start_trace())
}

fn wrong_setting(error: SettingError) -> CliError {
    CliError::usage(error.to_string())
}

/// An engine error as the user reads it: one line of cause.
pub fn failure(place: &str, error: &DataFusionError) -> CliError {
    let message = message(error);
    // Errors of the lower crates carry their remedy behind the cause; of the planner's own, which
    // may have several lines, the first says what is wrong.
    let (cause, hint) = match message.split_once("\nhint: ") {
        Some((cause, hint)) => (cause, Some(hint.to_string())),
        None => match (message.strip_suffix("; run the query again"), message.split_once('\n')) {
            (Some(cause), _) => (cause, Some("run the query again".to_string())),
            (None, Some((cause, more))) => (cause, Some(in_one_line(more))),
            (None, None) => (message.as_str(), None),
        },
    };
    // What is said of an address names it, without the signature that may be in it.
    let is_named = place.is_empty() || place.contains("://") || cause.contains(place);
    let failure =
        if is_named { CliError::new(cause) } else { CliError::new(format!("{place}: {cause}")) };
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The innermost cause, without the names of the engine's error classes.
fn message(error: &DataFusionError) -> String {
    let text = match error.find_root() {
        DataFusionError::SQL(error, _) => match error.as_ref() {
            ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.clone(),
            ParserError::RecursionLimitExceeded => "expressions are nested too deeply".to_string(),
        },
        root => root.message().to_string(),
    };
    // The planner asks its users to report what it takes for a bug of its own.
    let text = text.split("\nThis issue was likely caused by a bug").next().unwrap_or_default();
    // What is said of the limit by whoever does not know its name here.
    let text = text.replace("raise the memory limit", "raise --memory-limit");
    shown_text(&without_syntax_tree(text.trim()))
}

/// What stands in front of a tree of the planner's or the parser's, which is written as in their source: nobody reads
/// that.
fn without_syntax_tree(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_tree = |at: &usize| {
        let name = &text[text[..*at].trim_end_matches(is_word).len()..*at];
        let behind = &text[*at..];
        let is_type = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.contains(|c: char| c.is_ascii_lowercase());
        is_type
            && (behind.starts_with(" { ") && behind.contains(": ")
                || behind.starts_with('(')
                    && behind[1..].split(['(', '{', '"']).next().is_some_and(|word| {
                        let word = word.trim_end();
                        word.starts_with(|c: char| c.is_ascii_uppercase())
                            && word.chars().all(is_word)
                            && behind.contains('{')
                    }))
    };
    let begins = text.char_indices().map(|(at, _)| at).find(is_tree);
    let Some(at) = begins else { return text.to_string() };
    let before = text[..at].trim_end_matches(is_word);
    let name = &text[before.len()..at];
    // Nothing is left of a message that is a tree alone.
    match before.trim_end_matches([':', '(', '[', ' ']) {
        "" => format!("the planner does not know such an expression: {name}"),
        before => format!("{before}: {name}"),
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::without_syntax_tree;

    #[test]
    fn trees_are_left_out() {
        let without = without_syntax_tree;
        let pivot = "Unsupported ast node Pivot { table: Table { name: ObjectName([Identifier(Ident { value: \"t\"";
        assert_eq!(without(pivot), "Unsupported ast node: Pivot");
        assert_eq!(
            without("Unsupported: Value(ValueWithSpan { value: Null })"),
            "Unsupported: Value"
        );
        assert_eq!(
            without("Field { name: \"a\" }"),
            "the planner does not know such an expression: Field"
        );
        let plain = "there is no column A { b }, Decimal(3, 2), cast(Utf8) or f(Int64)";
        assert_eq!(without(plain), plain);
    }
}
