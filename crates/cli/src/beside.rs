//! Programs beside this one: the server has libraries that the command line needs not.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{CliError, Result};

const SERVER: &str = "headrace-server";
const CLUSTER: &str = "headrace-cluster";

/// Becomes the server, with a command and its words; returns only if it cannot.
pub fn become_server(command: &str, words: &[OsString]) -> Result<()> {
    become_program(SERVER, |program| program.arg(command).args(words))
}

/// Becomes this command line with a cluster's rule in its sessions; returns only if it cannot. That program refuses the words
/// of another version.
pub fn become_cluster(words: &[OsString]) -> Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    become_program(CLUSTER, |program| program.args(["shell", "--of", own, "--"]).args(words))
}

fn become_program(name: &str, with: impl Fn(&mut Command) -> &mut Command) -> Result<()> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name));
    let error = with(&mut Command::new(&program)).exec();
    let hint = format!(
        "it is a program of its own: install it, or build it with cargo build --release --package {name}"
    );
    Err(CliError::new(format!("cannot start {}: {error}", program.display())).hint(hint))
}
