//! Sessions as the command line needs them, and the text of the engine's errors.

use std::path::Path;

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::dialect::Dialect;
use headrace_engine::catalog::Found;
use headrace_engine::failure::{Failure, Levers};
use headrace_engine::sql::dialect_of;
use headrace_engine::{
    GpuService, Processor, RunnerOptions, Session, SessionOptions, SettingError, Settings,
    parse_access,
};
use headrace_io::system::GpuFor;

use crate::args::EngineArgs;
use crate::error::{CliError, Context, Result};
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
        gpu_for: GpuFor::of(args.gpu_for.clone()).at("--gpu-for")?,
        gpu_service: match (&args.gpu_service, &args.trace) {
            (Some(given), _) => given.parse().map_err(wrong_setting)?,
            // The races that are recorded are this process's.
            (None, Some(_)) => GpuService::Off,
            (None, None) => GpuService::Auto,
        },
        threads: args.threads.map_or(defaults.threads, |n| n as usize),
        ..defaults
    };
    let limits = RunnerOptions {
        memory_limit_bytes: args.memory_limit,
        device_cache_bytes: args.device_cache,
        device_memory_bytes: args.device_memory,
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

/// Registers a file or a folder's content as tables, also on remote machines; reports if there are none.
pub async fn register(session: &Session, data: &Path) -> Result<()> {
    let found = session.register_place(data).await.map_err(|error| unusable(data, &error))?;
    tell_if_none(data, &found);
    Ok(())
}

/// Like [`register`]; tables that are created later are files of the folder, if it is one.
pub async fn open_place(session: &Session, place: &Path) -> Result<()> {
    register(session, place).await?;
    if place.is_dir() {
        session.keep_tables_in(place);
    }
    Ok(())
}

fn unusable(data: &Path, error: &DataFusionError) -> CliError {
    let failure = failure(&data.display().to_string(), error);
    // A server's refusal has its own remedy.
    match failure.has_hint() {
        true => failure,
        false => {
            failure.hint("--data takes a file or a folder of Arrow, Parquet, CSV or JSON files")
        }
    }
}

fn tell_if_none(data: &Path, found: &Found) {
    if found.tables.is_empty() && found.views.is_empty() {
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

/// Arguments for a session on one processor, otherwise as given.
pub fn on(processor: Processor, args: &EngineArgs) -> EngineArgs {
    EngineArgs { processor: processor.to_string(), trace: None, ..args.clone() }
}

/// The dialect of a session's statements.
pub fn dialect(session: &Session) -> Box<dyn Dialect> {
    dialect_of(&session.context().state_ref().read())
}

/// Writes the session's trace, if `--trace` is set.
pub fn write_trace(session: &Session, args: &EngineArgs) -> Result<()> {
    let Some(path) = &args.trace else { return Ok(()) };
    // The recorder was started with the session.
    trace::write(path, &session.start_trace())
}

fn wrong_setting(error: SettingError) -> CliError {
    CliError::usage(error.to_string())
}

/// What helps, as the command line calls it.
pub const LEVERS: Levers = Levers {
    memory_limit: "--memory-limit",
    make_tables: "--data DIR makes tables of the files below DIR",
    list_functions: "\\df NAME",
};

/// An engine error for the user: one line of cause.
pub fn failure(place: &str, error: &DataFusionError) -> CliError {
    Failure::of(error, &LEVERS).in_place(place).into()
}
