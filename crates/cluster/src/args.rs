//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// One query on several machines.
#[derive(Debug, Parser)]
#[command(name = "headrace-cluster", version, about)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Deals out the tasks of queries to executors.
    Scheduler(SchedulerArgs),
    /// Runs tasks; its tables are files that lie under the same paths as where queries come from.
    Executor(ExecutorArgs),
    /// Runs a query: what can be divided on the executors, the rest here.
    Query(QueryArgs),
}

#[derive(Debug, clap::Args)]
pub struct SchedulerArgs {
    /// Where executors and queries come; port 0: one that is free.
    #[arg(long, default_value = "127.0.0.1:50050", value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// Seconds without a word after which an executor counts as lost. A busy one is heard every 5 seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(6..=3600), value_name = "SECONDS")]
    pub executor_timeout: u64,
    /// Listen where other machines come too. There is no TLS and no secret yet: whoever reaches the address reads every file that
    /// this user may read. For a network of one's own, as scripts/cluster-local makes it.
    #[arg(long)]
    pub insecure_network: bool,
}

#[derive(Debug, clap::Args)]
pub struct ExecutorArgs {
    /// The scheduler.
    #[arg(long, value_name = "HOST:PORT")]
    pub scheduler: SocketAddr,
    /// Where other executors and queries fetch what it has made; port 0: one that is free.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// Host memory for tasks (512MB, 4GiB); half of what is there.
    #[arg(long, value_parser = headrace_cli::parse_memory, value_name = "SIZE")]
    pub memory_limit: Option<u64>,
    /// Folder for what tasks hand on to each other; a temporary one.
    #[arg(long, value_name = "FOLDER")]
    pub work_folder: Option<PathBuf>,
    /// Listen where other machines come too. There is no TLS and no secret yet: whoever reaches the address reads every file that
    /// this user may read. For a network of one's own, as scripts/cluster-local makes it.
    #[arg(long)]
    pub insecure_network: bool,
}

#[derive(Debug, clap::Args)]
pub struct QueryArgs {
    /// The scheduler.
    #[arg(long, value_name = "HOST:PORT")]
    pub cluster: SocketAddr,
    /// Files and folders that become tables.
    #[arg(long, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// How the answer is written: table, csv, tsv, json, ndjson, markdown, arrow, ..
    #[arg(long, default_value = "table")]
    pub format: String,
    /// What runs pipelines: auto, cpu, cuda, off.
    #[arg(long, default_value = "auto")]
    pub processor: String,
    /// Parts that a table is divided in; by its bytes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536), value_name = "NUMBER")]
    pub shares: Option<u32>,
    /// The query.
    #[arg(allow_hyphen_values = true)]
    pub sql: String,
}

/// Refuses to listen where others than this machine's could come, unless somebody says so: there is no TLS and no password yet.
///
/// # Errors
/// The address is not this machine's own.
pub fn check_listen(listen: SocketAddr, insecure_network: bool) -> Result<(), String> {
    if listen.ip().is_loopback() || insecure_network {
        return Ok(());
    }
    Err(format!(
        "{listen} is reached from other machines, where anybody could read what this one can: there is no TLS and no secret yet\n\n\
         hint: --listen 127.0.0.1:{}",
        listen.port()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nobody_beyond_this_machine_is_served() {
        for (address, is_served) in
            [("127.0.0.1:1", true), ("[::1]:1", true), ("0.0.0.0:1", false), ("10.0.0.1:1", false)]
        {
            let address = address.parse().unwrap();
            let checked = check_listen(address, false);
            assert_eq!(checked.is_ok(), is_served, "{address}: {checked:?}");
            assert!(checked.err().is_none_or(|cause| cause.contains("TLS")));
            assert_eq!(check_listen(address, true), Ok(()), "somebody says so");
        }
    }
}
