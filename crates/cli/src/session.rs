//! Sessions as the command line asks for them, and how the engine's errors read.

use std::path::Path;

use datafusion::common::DataFusionError;
use datafusion::sql::parser::DFParser;
use headrace_engine::{
    Processor, RunnerOptions, Session, SessionOptions, SettingError, Settings, parse_access,
};

use crate::args::EngineArgs;
use crate::error::{CliError, Result};
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
    let session = Session::new(SessionOptions { settings, limits })
        .map_err(|error| failure("start", &error))?;
    if args.trace.is_some() {
        session.start_trace();
    }
    Ok(session)
}

/// A session over a folder of tables.
pub fn open(data: &Path, args: &EngineArgs) -> Result<Session> {
    let session = new(args)?;
    register(&session, data)?;
    Ok(session)
}

/// Unknown files named in a note.
const NAMED_MAX: usize = 5;

/// Makes tables of a file or of what lies in a folder; says so where nothing there is one.
pub fn register(session: &Session, data: &Path) -> Result<()> {
    let found = session.register_path(data).map_err(|error| {
        failure(&data.display().to_string(), &error)
            .hint("--data takes a file or a folder of Arrow, Parquet, CSV or JSON files")
    })?;
    if found.tables.is_empty() {
        let named: Vec<_> =
            found.unknown.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
        let more = if found.unknown.len() > NAMED_MAX { ", .." } else { "" };
        let known = if named.is_empty() {
            String::new()
        } else {
            format!("; not read: {}{more}", named.join(", "))
        };
        eprintln!("{}: no files of tables{known}", data.display());
    }
    Ok(())
}

/// Arguments for a session on one processor, everything else as given.
pub fn on(processor: Processor, args: &EngineArgs) -> EngineArgs {
    EngineArgs { processor: processor.to_string(), trace: None, ..args.clone() }
}

/// The statements of a text.
pub fn statements(text: &str) -> Result<Vec<String>> {
    let parsed = DFParser::parse_sql(text).map_err(|error| failure("", &error))?;
    // One statement runs as it was typed; several are told apart by the parser.
    match parsed.len() {
        1 => Ok(vec![text.to_string()]),
        _ => Ok(parsed.iter().map(ToString::to_string).collect()),
    }
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

/// An engine error as the user reads it.
pub fn failure(place: &str, error: &DataFusionError) -> CliError {
    let message = message(error);
    // Errors of the lower crates carry their remedy behind the cause.
    let (cause, hint) = match message.split_once("\nhint: ") {
        Some((cause, hint)) => (cause.to_string(), Some(hint.to_string())),
        None => (message, None),
    };
    let failure = if place.is_empty() || cause.contains(place) {
        CliError::new(cause)
    } else {
        CliError::new(format!("{place}: {cause}"))
    };
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// As [`failure`], with a hint for what is wrong with the query itself.
pub fn query_failure(session: &Session, error: &DataFusionError) -> CliError {
    let failure = failure("", error);
    let text = error.to_string();
    if text.contains("table '") && text.contains("not found") {
        return failure.hint(known_tables(session));
    }
    failure
}

fn known_tables(session: &Session) -> String {
    let context = session.context();
    let mut names: Vec<String> = context
        .catalog_names()
        .into_iter()
        .filter_map(|name| context.catalog(&name))
        .flat_map(|catalog| {
            catalog.schema_names().into_iter().filter_map(move |s| catalog.schema(&s))
        })
        .flat_map(|schema| schema.table_names())
        .filter(|name| !INFORMATION_SCHEMA.contains(&name.as_str()))
        .collect();
    names.sort();
    if names.is_empty() {
        return "there are no tables; --data DIR makes tables of the files below DIR".to_string();
    }
    format!("tables: {}", names.join(", "))
}

const INFORMATION_SCHEMA: [&str; 7] =
    ["tables", "views", "columns", "df_settings", "schemata", "routines", "parameters"];

/// The innermost cause, without the names of the engine's error classes.
fn message(error: &DataFusionError) -> String {
    error.find_root().message().trim().to_string()
}
