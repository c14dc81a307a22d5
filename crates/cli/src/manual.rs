//! Files of an installation beside the program: shell completions and man pages.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::error::{Context, Result};
use crate::output::print;

/// `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell that is to complete what is typed.
    pub shell: Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write a page for each command to this folder; without it the page of the program goes to standard output.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Prints the completions of a shell for a command line.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(args: &CompletionsArgs, mut cli: Command) -> Result<()> {
    let mut text = Vec::new();
    let name = cli.get_name().to_string();
    clap_complete::generate(args.shell, &mut cli, name, &mut text);
    print(&String::from_utf8_lossy(&text))
}

/// Writes the pages of the manual.
///
/// # Errors
/// The folder, or standard output, cannot be written.
pub fn pages(args: &ManArgs, cli: Command) -> Result<()> {
    let Some(folder) = &args.out else {
        let mut page = Vec::new();
        Man::new(cli).render(&mut page).at("page")?;
        return print(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(folder).at(folder.display())?;
    clap_mangen::generate_to(cli, folder).at(folder.display())
}
