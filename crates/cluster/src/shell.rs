//! The command line `headrace`, whose queries are divided: what `headrace --cluster` becomes.
//!
//! That program is small and starts in milliseconds, which it would not with Ballista in it. So it finds this one beside itself,
//! or among the programs of the user, and becomes it with all of its words.

use std::ffi::OsString;
use std::process::ExitCode;

use headrace_cli::{ClusterArgs, ClusterDoor};
use headrace_engine::Session;

use crate::access::Access;
use crate::args::{MemberArgs, ShellArgs};
use crate::client::ended;
use crate::query::distribute;
use crate::rule::ClusterRule;
use crate::settings::Scheduler;

/// The exit code of a command line that is wrong.
const WRONG: u8 = 2;

/// Runs the command line.
pub fn run(args: ShellArgs) -> ExitCode {
    let own = env!("CARGO_PKG_VERSION");
    if args.of != own {
        eprintln!(
            "error: headrace is of version {}, and headrace-cluster of {own}\n\nhint: install both of one version",
            args.of
        );
        return ExitCode::from(WRONG);
    }
    let words = std::iter::once(OsString::from("headrace")).chain(args.words);
    let door = ClusterDoor { distribute: divided, ended: || Box::pin(ended()) };
    std::process::exit(headrace_cli::run_with(words, Some(door)))
}

fn divided(session: &Session, args: &ClusterArgs) -> Result<(), String> {
    let Some(address) = args.cluster else { return Ok(()) };
    let (tls_authority, secret_file) = (args.tls_authority.clone(), args.secret_file.clone());
    let access = Access::of_client(&MemberArgs { tls_authority, secret_file })?;
    let shares = args.shares.map(|shares| shares as usize);
    distribute(session, ClusterRule { scheduler: Scheduler { address, access }, shares });
    Ok(())
}
