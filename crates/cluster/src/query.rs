//! One query: what can be divided runs on the executors, the rest here.

use std::io::{self, Write};
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::execution::session_state::SessionStateBuilder;
use futures::TryStreamExt;
use headrace_cli::ResultWriter;
use headrace_engine::failure::{Failure, Levers};
use headrace_engine::{Session, SessionOptions, SettingError, Settings};

use crate::access::Access;
use crate::args::QueryArgs;
use crate::client::ended;
use crate::rule::ClusterRule;
use crate::settings::Scheduler;

/// What helps, as this command line calls it.
const LEVERS: Levers = Levers {
    memory_limit: "--memory-limit of the executors",
    make_tables: "--data DIR makes tables of the files below DIR",
    list_functions: "headrace -c '\\df'",
};

/// Runs a query, and writes its answer. A signal ends it, and its job with it.
///
/// # Errors
/// Whatever keeps it from having one.
pub async fn run(args: &QueryArgs) -> Result<(), String> {
    let done = tokio::select! {
        done = answered(args) => done,
        _ = tokio::signal::ctrl_c() => Err("interrupted".to_string()),
    };
    ended().await;
    done
}

async fn answered(args: &QueryArgs) -> Result<(), String> {
    let processor = args.processor.parse().map_err(|error: SettingError| error.to_string())?;
    let settings = Settings { processor, ..Settings::default() };
    let session = Session::new(SessionOptions { settings, ..SessionOptions::default() });
    let session = session.map_err(|error| told(&error))?;
    let shares = args.shares.map(|shares| shares as usize);
    let scheduler = Scheduler { address: args.cluster, access: Access::of_client(&args.member)? };
    distribute(&session, ClusterRule { scheduler, shares });
    for path in &args.data {
        let placed = |error| format!("{}: {}", path.display(), told(&error));
        session.register_place(path).await.map_err(placed)?;
    }
    let failed =
        |error: DataFusionError| text(Failure::of_statement(&session, &args.sql, &error, &LEVERS));
    let query = session.sql(&args.sql).await.map_err(failed)?;
    let mut rows = query.stream().map_err(failed)?;
    let mut writer = ResultWriter::new(&args.format, query.schema()).map_err(|e| e.to_string())?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    while let Some(batch) = rows.try_next().await.map_err(failed)? {
        if let Some(done) = written(writer.write(&mut out, &batch)) {
            return done;
        }
    }
    written(writer.finish(&mut out).and_then(|()| out.flush())).unwrap_or(Ok(()))
}

/// Has parts of a session's plans run by a cluster.
pub fn distribute(session: &Session, rule: ClusterRule) {
    let state = session.context().state_ref();
    let mut state = state.write();
    let builder = SessionStateBuilder::new_from_existing(state.clone());
    *state = builder.with_physical_optimizer_rule(Arc::new(rule)).build();
}

/// `Some`: it is the end. A reader that has enough is no failure.
fn written(done: io::Result<()>) -> Option<Result<(), String>> {
    match done {
        Ok(()) => None,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Some(Ok(())),
        Err(error) => Some(Err(format!("standard output: {error}"))),
    }
}

fn told(error: &DataFusionError) -> String {
    text(Failure::of(error, &LEVERS))
}

fn text(Failure { cause, hint, .. }: Failure) -> String {
    match hint {
        Some(hint) => format!("{cause}\n\nhint: {hint}"),
        None => cause,
    }
}
