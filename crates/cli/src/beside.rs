//! Programs beside this one: the server has libraries that the command line needs not.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{CliError, Result};

const SERVER: &str = "headrace-server";

/// Becomes the server, with a command and its words; returns only if it cannot.
pub fn become_server(command: &str, words: &[OsString]) -> Result<()> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(SERVER)));
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(SERVER));
    let error = Command::new(&program).arg(command).args(words).exec();
    let hint = "it is a program of its own: install it, or build it with cargo build --release --package headrace-server";
    Err(CliError::new(format!("cannot start {}: {error}", program.display())).hint(hint))
}
