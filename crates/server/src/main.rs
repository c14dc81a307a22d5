//! The server door: one machine's Headrace for many users, over PostgreSQL's protocol, HTTP and Arrow Flight SQL.
//!
//! ```text
//!  psql, drivers ─ pg ──┐                                                              ┌─ rows of the protocol
//!                       ├─ who asks ─ statement ─► may they? ─ admission ─► a turn ─► engine::Session ─┤
//!  curl, page ─── http ─┤                                                              └─ csv, json, arrow, ..
//!  ADBC, JDBC ─ flight ─┘
//! ```
//!
//! - [`args`]: the command line. [`server`]: what all requests share. [`connections`], [`tls`]: who comes.
//! - [`users`]: names and verifiers of passwords, as PostgreSQL keeps them.
//! - [`admission`]: how many statements run at a time, and whose is next; small ones do not wait for large ones.
//! - [`statement`]: one statement of a user, from its text to its stream. [`open`]: answers that are open, and left by their readers.
//!   [`work`]: the threads of the engine, apart from those that hear clients.
//! - [`pg`]: PostgreSQL's protocol. [`http`]: the routes, the formats, the page. [`flight`]: Arrow Flight SQL.
//! - [`mcp`]: tools for assistants.
//! - [`metrics`]: counters for Prometheus.
//!
//! All sessions share one runner, one memory budget and one catalog of tables. A user reads what `--data` names: nothing is
//! written without `--writable`, and paths in statements reach no further than that data without `--any-files`. Beyond this
//! machine nobody is served without a password, and HTTP not without TLS.
//!
//! # What this crate must never know
//!
//! How a query runs, which formats tables have: that is the engine's. What a result looks like in a format: that is the
//! command line's library.

mod admission;
mod args;
mod connections;
mod flight;
mod http;
mod mcp;
mod metrics;
mod open;
mod pg;
mod server;
mod statement;
mod tls;
mod users;
mod work;

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use headrace_cli::manual;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use args::{Args, Command, Place, ServeArgs};
use open::OPEN_MAX;
use pg::PgDoor;
use server::Server;
use tls::Tls;
use users::Users;
use work::Work;

/// Expressions may be nested deeply.
const STACK_BYTES: usize = 16 << 20;

/// Each answer that is open may hold one, and each statement that is planned.
const BLOCKING_THREADS: usize = 2 * OPEN_MAX + 512;

/// How long statements that run are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    headrace_engine::silence_panics();
    let done =
        match Args::parse().command {
            Command::Serve(args) => args.check().and_then(|()| run(|work| serve(*args, work))),
            Command::Mcp(args) => run(|work| async move {
                mcp::serve(Arc::new(Server::new(&args, None, work).await?)).await
            }),
            Command::User { name } => user_line(&name),
            Command::Completions(args) => {
                manual::completions(&args, Args::command()).map_err(|error| error.into_cause())
            }
            Command::Man(args) => {
                manual::pages(&args, Args::command()).map_err(|error| error.into_cause())
            }
        };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("error: {cause}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the line of a users' file for a name and the password that is typed, or comes through a pipe.
fn user_line(name: &str) -> Result<(), String> {
    if std::io::stdin().is_terminal() {
        eprint!("password of {name}, which is shown while you type: ");
    }
    let mut password = String::new();
    std::io::stdin().lock().read_line(&mut password).map_err(|e| e.to_string())?;
    println!("{}", users::line(name, password.trim_end_matches(['\r', '\n']))?);
    Ok(())
}

/// Runs a door to its end, on threads of its own: it hears its clients while statements take all processors.
fn run<D: Future<Output = Result<(), String>>>(door: impl FnOnce(Work) -> D) -> Result<(), String> {
    // Each connection is an open file, and so is each file of a table.
    headrace_cli::raise_open_files();
    let started = |error| format!("cannot start threads: {error}");
    let work = Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(started)?;
    let doors = Builder::new_multi_thread()
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(started)?;
    let done = doors.block_on(door(Work(work.handle().clone())));
    // Statements that nobody waits for any more are not waited for here either.
    doors.shutdown_background();
    work.shutdown_background();
    done
}

/// Serves until a signal comes; what runs then is waited for, but not for ever, and not behind a second signal.
async fn serve(args: ServeArgs, work: Work) -> Result<(), String> {
    let tls = |protocol| match (&args.tls_certificate, &args.tls_key) {
        (Some(certificate), Some(key)) => Tls::read(certificate, key, protocol).map(Some),
        _ => Ok(None),
    };
    let (pg_tls, http_tls, flight_tls) = (tls("postgresql")?, tls("http/1.1")?, tls("h2")?);
    let pg_listener = listener(args.postgres).await?;
    let http_listener = listener(args.http).await?;
    let flight_listener = listener(args.flight).await?;
    let users = args.users.as_deref().map(Users::read).transpose()?;
    let users = users.map(|users| users.with_cuda_functions(&args.cuda_functions)).transpose()?;
    let server = Arc::new(Server::new(&args.tables, users, work).await?);
    let (end, ending) = watch::channel(false);
    let connections_max = args.max_connections as usize;
    let mut doors = JoinSet::new();
    if let Some(listener) = pg_listener {
        told("postgres", &listener, &server)?;
        let door = PgDoor::new(Arc::clone(&server), pg_tls, connections_max, ending.clone());
        doors.spawn(async move {
            Arc::new(door).serve(listener).await;
            Ok(())
        });
    }
    if let Some(listener) = http_listener {
        told(if http_tls.is_some() { "https" } else { "http" }, &listener, &server)?;
        let served =
            http::serve(Arc::clone(&server), listener, http_tls, connections_max, ending.clone());
        doors.spawn(async move {
            served.await;
            Ok(())
        });
    }
    if let Some(listener) = flight_listener {
        told(if flight_tls.is_some() { "grpc+tls" } else { "grpc" }, &listener, &server)?;
        doors.spawn(flight::serve(Arc::clone(&server), listener, flight_tls, ending));
    }
    tokio::select! {
        () = asked_to_end() => {}
        // A door that ends by itself has failed.
        Some(door) = doors.join_next() => door.map_err(|error| error.to_string())??,
    }
    let _ = end.send(true);
    let ended = async {
        while let Some(door) = doors.join_next().await {
            door.map_err(|error| error.to_string())??;
        }
        Ok(())
    };
    tokio::select! {
        done = ended => done,
        () = asked_to_end() => Ok(()),
        () = tokio::time::sleep(PATIENCE) => Ok(()),
    }
}

async fn listener(place: Place) -> Result<Option<TcpListener>, String> {
    let Some(address) = place.0 else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    listener.map(Some).map_err(|error| format!("cannot listen at {address}: {error}"))
}

/// Says where is listened: the port may have been chosen by the system.
fn told(protocol: &str, listener: &TcpListener, server: &Server) -> Result<(), String> {
    let place = listener.local_addr().map_err(|error| error.to_string())?;
    let access = if server.users.is_some() { "users with passwords" } else { "this machine" };
    eprintln!("{protocol}://{place}/ for {access}");
    Ok(())
}

/// SIGINT or SIGTERM.
async fn asked_to_end() {
    let heard = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => signals.recv().await.map(drop).unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = heard(SignalKind::interrupt()) => {}
        () = heard(SignalKind::terminate()) => {}
    }
}
