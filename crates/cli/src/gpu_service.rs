//! `headrace gpu-service`: the process that owns the GPUs for others. For a PostgreSQL cluster its sessions start it;
//! for this user's command lines it is started here.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headrace_flow::CancelToken;
use headrace_io::decimal_bytes;
use headrace_service::client::{self, Connection, Failure, HELLO_PATIENCE};
use headrace_service::options::{Limits, Options};
use headrace_service::protocol::{KeptTable, Status};
use headrace_service::{LOG_NAME, place, server};

use crate::error::{CliError, Result};
use crate::output;

/// `gpu-service`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct GpuServiceArgs {
    #[command(subcommand)]
    command: Option<ServiceCommand>,
    #[command(flatten)]
    cluster: Option<Options>,
}

/// Of this user's service.
#[derive(Debug, Subcommand)]
enum ServiceCommand {
    /// Start this user's, in the background: later queries over Arrow files run there, with its kernels and columns.
    Start(StartArgs),
    /// What it is doing.
    Status(StatusArgs),
    /// End it; queries that are under way are run by those who asked.
    Stop(FolderArgs),
}

#[derive(Debug, Args)]
struct FolderArgs {
    /// Where its socket and its log lie (default: headrace in $XDG_RUNTIME_DIR, or headrace-UID in TMPDIR).
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Everything as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct StartArgs {
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    limits: Limits,
    /// Seconds without a query after which it ends; 0: never.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    idle_exit: u32,
    /// Stays in the foreground, and logs to standard error.
    #[arg(long)]
    foreground: bool,
}

impl FolderArgs {
    fn get(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(place::user_folder)
    }
}

impl StartArgs {
    fn options(&self, folder: PathBuf) -> Options {
        Options {
            data: folder,
            // As whoever asks wants it.
            processor: headrace_engine::Processor::Auto,
            limits: self.limits.clone(),
            idle_exit: self.idle_exit,
            postmaster: None,
            log: None,
            open_devices: true,
            detach: !self.foreground,
        }
    }
}

/// Runs the command. The process must have one thread: the service may go on in another one.
pub fn run(args: &GpuServiceArgs) -> Result<()> {
    match &args.command {
        Some(ServiceCommand::Start(start)) => begin(start),
        Some(ServiceCommand::Status(args)) => status(args),
        Some(ServiceCommand::Stop(folder)) => {
            let folder = folder.get();
            let pid = client::stop(&folder).map_err(|failure| absent(&folder, &failure))?;
            output::print(&format!("process {pid} has ended\n"))
        }
        None => match &args.cluster {
            Some(options) => server::run(options).map_err(CliError::new),
            None => Err(CliError::usage("it takes start, status or stop".to_string())),
        },
    }
}

fn begin(args: &StartArgs) -> Result<()> {
    let folder = args.folder.get();
    let at = |cause: std::io::Error| CliError::new(format!("{}: {cause}", folder.display()));
    place::make(&folder).map_err(at)?;
    let folder = std::path::absolute(&folder).map_err(at)?;
    if let Ok(running) = Connection::open(&folder, HELLO_PATIENCE, &CancelToken::new()) {
        return output::print(&format!(
            "process {} already runs in {}\n",
            running.pid,
            folder.display()
        ));
    }
    if !args.foreground {
        say!(
            "queries of this user run in the service from now on; its log is {}",
            folder.join(LOG_NAME).display()
        );
    }
    server::run(&args.options(folder)).map_err(CliError::new)
}

fn absent(folder: &std::path::Path, failure: &Failure) -> CliError {
    let error = CliError::new(format!("{}: {failure}", folder.display()));
    if failure.is_absence { error.hint("start one: headrace gpu-service start") } else { error }
}

fn status(args: &StatusArgs) -> Result<()> {
    let folder = args.folder.get();
    let token = CancelToken::new();
    let open = Connection::open(&folder, HELLO_PATIENCE, &token);
    let status = open.and_then(|service| service.status(&token));
    let status = status.map_err(|failure| absent(&folder, &failure))?;
    if args.json { output::print_json(&status) } else { output::print(&rendered(&status)) }
}

fn rendered(status: &Status) -> String {
    let Status { pid, folder, uptime_s, processor, runs, runs_open, tables, .. } = status;
    let Status { idle_exit_s, devices, resident_bytes, .. } = status;
    let ends = match idle_exit_s {
        0 => "until it is stopped".to_string(),
        seconds => format!("until nobody asked for {seconds} s"),
    };
    let mut text = format!(
        "process {pid} in {}, for {uptime_s} s, {ends}\nprocessor {processor}\n{runs} runs, {runs_open} of them under way or \
         waiting; {tables} tables open\ncolumns in device memory: {}\n",
        folder.display(),
        decimal_bytes(*resident_bytes),
    );
    for device in &devices.devices {
        let memory = decimal_bytes(u64::try_from(device.memory_bytes).unwrap_or(0));
        text += &format!("GPU {}: {}, {memory}\n", device.ordinal, device.name);
    }
    for table in &status.kept {
        let KeptTable { name, columns, others, rows, bytes, readers, stale } = table;
        text += &format!(
            "table {name}: {rows} rows, {} of {} columns, {}, mapped by {readers}\n",
            columns.len(),
            columns.len() + others.len(),
            decimal_bytes(*bytes)
        );
        if !others.is_empty() {
            text +=
                &format!("  not kept: {} (texts, or packed in their files)\n", others.join(", "));
        }
        text += &stale.iter().map(|why| format!("  stale: {why}\n")).collect::<String>();
    }
    text + &devices.why_none.iter().map(|why| format!("no GPU: {why}\n")).collect::<String>()
}
