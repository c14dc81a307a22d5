//! `headrace-gpu-service`: owns the GPUs for the sessions of a PostgreSQL cluster. Sessions start it when
//! they need it; by hand it is started for tests and measurements.

use std::process::ExitCode;

use clap::Parser;
use headrace_service::options::Options;
use headrace_service::server;

/// Owns the GPUs for the sessions of a PostgreSQL cluster, and runs their pipelines.
///
/// Sessions start it when they need it. One runs for a data directory; a second one ends at once, with
/// success. SIGTERM ends it: runs that are under way end, and their sessions run them themselves.
#[derive(Parser)]
#[command(name = "headrace-gpu-service", version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let options = Arguments::parse().options;
    match server::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("error: {cause}");
            ExitCode::FAILURE
        }
    }
}
