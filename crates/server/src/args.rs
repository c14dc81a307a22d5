//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, Subcommand};
use headrace_cli::manual::{CompletionsArgs, ManArgs};

/// Queries for many users, over PostgreSQL's protocol, HTTP and Arrow Flight SQL.
#[derive(Debug, Parser)]
#[command(name = "headrace-server", version, about)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves until a signal ends it; statements that run then are waited for.
    Serve(Box<ServeArgs>),
    /// Answers an assistant's questions (Model Context Protocol) on standard input and output; nothing is written.
    Mcp(Box<DataArgs>),
    /// Prints a line for the file of --users; the password comes from standard input.
    User { name: String },
    /// Completions for a shell: `source <(headrace-server completions bash)`.
    Completions(CompletionsArgs),
    /// Pages of the manual: `headrace-server man | man -l -`.
    Man(ManArgs),
}

/// Seconds up to a year.
fn seconds(text: &str) -> Result<f64, String> {
    const YEAR: f64 = 365.0 * 24.0 * 3600.0;
    let seconds: Option<f64> = text.parse().ok();
    let taken = seconds.filter(|seconds| (0.0..=YEAR).contains(seconds));
    taken.ok_or_else(|| "seconds, such as 0.5".to_string())
}

/// Where to listen; `None` is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub Option<SocketAddr>);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let address =
            text.parse().map_err(|_| "an address and a port, such as 127.0.0.1:5433, or off");
        Ok(Self(Some(address?)))
    }
}

/// Which tables, and how their queries run.
#[derive(Debug, clap::Args)]
pub struct DataArgs {
    /// Files and folders whose tables are served.
    #[arg(long, required = true, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// Statements may create and drop tables, and write files below --data.
    #[arg(long)]
    pub writable: bool,
    /// Statements may name all files that this process may use, and addresses.
    #[arg(long)]
    pub any_files: bool,
    /// Host memory for all statements together (512MB, 4GiB); half of what is there.
    #[arg(long, value_parser = headrace_cli::parse_memory, value_name = "SIZE")]
    pub memory_limit: Option<u64>,
    /// What runs pipelines: auto, cpu, cuda, off.
    #[arg(long, default_value = "auto")]
    pub processor: String,
    /// Seconds that a statement may take; 0 is for ever.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub statement_timeout: u64,
    /// Statements that run at a time, besides small ones.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_running: u32,
    /// Statements of one user that run at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_running_of_user: u32,
    /// Seconds that a statement waits for its turn before it is refused.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub max_wait: u64,
    /// Seconds from which on a statement is written to the log.
    #[arg(long, default_value_t = 10.0, value_parser = seconds, value_name = "SECONDS")]
    pub slow: f64,
}

#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub tables: DataArgs,
    /// Where PostgreSQL's clients are served; `off`: nowhere. Beyond this machine only with --users.
    #[arg(long, default_value = "127.0.0.1:5433", value_name = "ADDRESS")]
    pub postgres: Place,
    /// Where HTTP is served, with a page; `off`: nowhere. Beyond this machine only with --users and TLS.
    #[arg(long, default_value = "127.0.0.1:8432", value_name = "ADDRESS")]
    pub http: Place,
    /// Where Arrow Flight SQL is served; `off`: nowhere. Beyond this machine only with --users and TLS.
    #[arg(long, default_value = "127.0.0.1:8433", value_name = "ADDRESS")]
    pub flight: Place,
    /// Who may ask: a line for each user, as `headrace-server user NAME` prints it.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// A user of --users who may make functions in CUDA, which can read and write all that the GPU service has of others;
    /// several are named by as many options. By default nobody may.
    #[arg(long, requires = "users", value_name = "USER")]
    pub cuda_functions: Vec<String>,
    /// The certificate, and those above it, for TLS on all of these.
    #[arg(long, requires = "tls_key", value_name = "PEM")]
    pub tls_certificate: Option<PathBuf>,
    /// The key of the certificate.
    #[arg(long, requires = "tls_certificate", value_name = "PEM")]
    pub tls_key: Option<PathBuf>,
    /// Connections of PostgreSQL's clients at a time, and as many of HTTP's.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
}

impl ServeArgs {
    /// Refuses what would let in anybody, or send passwords for everybody to hear.
    pub fn check(&self) -> Result<(), String> {
        let beyond = |place: Place| place.0.filter(|address| !address.ip().is_loopback());
        let doors =
            [("--postgres", self.postgres), ("--http", self.http), ("--flight", self.flight)];
        for (option, address) in doors.map(|(option, place)| (option, beyond(place))) {
            let Some(address) = address else { continue };
            let port = address.port();
            if self.users.is_none() {
                return Err(format!(
                    "{address} is reached from other machines, and nobody would be asked for a password\n\nhint: --users FILE, \
                     whose lines headrace-server user NAME prints; or {option} 127.0.0.1:{port}"
                ));
            }
            if option != "--postgres" && self.tls_certificate.is_none() {
                return Err(format!(
                    "{address} is reached from other machines, and HTTP without TLS sends passwords as they are\n\nhint: \
                     --tls-certificate and --tls-key; or {option} 127.0.0.1:{port} behind a proxy that speaks TLS"
                ));
            }
        }
        match doors.iter().all(|(_, place)| place.0.is_none()) {
            true => Err("with all doors off nobody is served".to_string()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nobody_beyond_this_machine_is_served_without_a_password() {
        let of = |words: &str| {
            let words = format!("headrace-server serve --data . {words}");
            match Args::try_parse_from(words.split_whitespace()).unwrap().command {
                Command::Serve(args) => args.check(),
                _ => Ok(()),
            }
        };
        assert!(of("").is_ok());
        assert!(of("--http 0.0.0.0:1").unwrap_err().contains("--users"));
        assert!(of("--http [::]:1").is_err() && of("--postgres [::]:1").is_err());
        assert!(of("--http 0.0.0.0:1 --users f").unwrap_err().contains("TLS"));
        assert!(of("--http 0.0.0.0:1 --users f --tls-certificate c --tls-key k").is_ok());
        assert!(of("--postgres 0.0.0.0:1 --users f").is_ok());
        assert!(of("--postgres off --http off --flight off").is_err());
    }
}
