//! The cluster door: one query on several machines, on Apache DataFusion Ballista.
//!
//! ```text
//!  headrace-cluster query ─ engine::Session ─► plan ─ rule ─► a part for the cluster, the rest here
//!                                                                │
//!                       scheduler (Ballista): stages, tasks, what is lost is run again
//!                                                                │
//!                       executors: tasks ─► runner: races over shares ─► partial states ─► merge
//! ```
//!
//! # The plan that is sent
//!
//! ```text
//! rest of the plan                              sorts, limits, filters and projections of columns
//!  CoalescePartitionsExec
//!   PipelineMergeExec                           merges partial states, finishes them
//!    RepartitionExec Hash(keys) | Coalesce       Ballista cuts here
//!     PipelineShareExec (ir::Program, Partial)   one race over all shares of a task
//!      DataSourceExec(MemorySourceConfig)        a partition a share: files, their versions, ranges of batches
//! ```
//!
//! Ballista gives a task some partitions of the leaves that it knows, and a task runs every partition that it finds in others: a
//! leaf of ours with a partition a share would be read whole by each task, and answers would multiply without a word. So shares
//! are rows of a table in memory, which Ballista divides, and ours are interior nodes. A plan with any other leaf is not sent.
//!
//! A share is an end of its own: its output is the same whenever and wherever it runs, so that a task that is run again takes the
//! place of the one that was lost. Nothing with LIMIT but first rows of an order lies below the merge. A build is made by each
//! executor from its files.
//!
//! - [`args`]: the command line. [`version`]: who speaks to whom. [`access`]: TLS, and the secret of all members.
//! - [`rule`]: which part of a plan is sent. [`split`]: a pipeline as shares and their merge. [`lift`]: which nodes above go with it.
//! - [`shares`]: shares as rows. [`share`], [`merge`]: the nodes. [`job`]: the node that sends a part; [`client`]: its job.
//!   [`home`]: the node that says why a pipeline stays.
//! - [`message`]: nodes as bytes. [`codec`]: what Ballista calls for them. [`outputs`]: columns as a message has them.
//! - [`place`]: what an executor runs tasks with. [`thread`]: work that blocks, and its rows. [`failure`]: errors on their way.
//!   [`stages`]: what tasks did, for EXPLAIN ANALYZE.
//! - [`scheduler`], [`executor`], [`query`], [`shell`]: the commands. [`waiting`]: how executors wait for work. [`settings`]: what both sides of a
//!   connection agree on. [`access`]: who is let in.
//!
//! # What this crate must never know
//!
//! How a pipeline runs: that is the runner's. What a statement means: that is the engine's. How lost work is found and run again:
//! that is Ballista's. Decoding a plan opens no file.

mod access;
mod args;
mod client;
mod codec;
mod executor;
mod failure;
mod home;
mod job;
mod lift;
mod merge;
mod message;
mod outputs;
mod place;
mod query;
mod rule;
mod scheduler;
mod settings;
mod share;
mod shares;
mod shell;
mod split;
mod stages;
mod thread;
mod version;
mod waiting;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;

use args::{Args, Command};

/// Expressions may be nested deeply.
const STACK_BYTES: usize = 16 << 20;

fn main() -> ExitCode {
    let command = match Args::parse().command {
        // It has threads of its own.
        Command::Shell(args) => return shell::run(args),
        command => command,
    };
    headrace_engine::silence_panics();
    headrace_cli::raise_open_files();
    let runtime = Builder::new_multi_thread().thread_stack_size(STACK_BYTES).enable_all().build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(run(command));
            // What nobody waits for any more is not waited for here either.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(format!("cannot start threads: {error}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("error: {cause}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Scheduler(args) => scheduler::serve(&args).await,
        Command::Executor(args) => executor::serve(&args).await,
        Command::Query(args) => query::run(&args).await,
        Command::Shell(_) => Err("it is begun before any thread is".to_string()),
    }
}
