//! Repeated statements and external programs: `\e`, `\watch`, `\!`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use headrace_io::write::hidden::Hidden;

use super::paths::path;
use super::split::split;
use super::{Go, Origin, Shell};
use crate::error::{CliError, Context, Result};
use crate::session;

/// Editors, by environment variable.
const EDITOR_VARIABLES: [&str; 2] = ["VISUAL", "EDITOR"];
const EDITOR: &str = "vi";

/// Interval of `\watch`, as in psql.
const WATCH_EVERY: Duration = Duration::from_secs(2);

impl Shell {
    /// Lets the user edit the last statement, or a file, and runs the result.
    pub(super) async fn edit(&mut self, file: &str) -> Result<Go> {
        if !file.is_empty() {
            let path = path(file);
            edit(&path)?;
            return self.run_file(&path).await;
        }
        let text =
            if self.last.is_empty() { "\n".to_string() } else { format!("{};\n", self.last) };
        let mut draft = Draft::new(&text)?;
        edit(&draft.path)?;
        let text = draft.text()?;
        say!("{}", text.trim_end());
        Box::pin(self.run(&text, Origin::Typed)).await
    }

    /// Runs the last statement repeatedly, until Ctrl-C.
    pub(super) async fn watch(&mut self, every: &str) -> Result<Go> {
        let every = match every.trim_start_matches("interval=").parse::<f64>() {
            _ if every.is_empty() => WATCH_EVERY,
            Ok(seconds) if seconds > 0.0 && seconds < 86_400.0 => Duration::from_secs_f64(seconds),
            _ => {
                return Err(
                    CliError::new(format!("{every} is no number of seconds")).hint("\\watch 2")
                );
            }
        };
        let text = self.last.clone();
        if text.is_empty() {
            return Err(
                CliError::new("there is no statement yet").hint("select now(); then \\watch 1")
            );
        }
        let split = split(&text, session::dialect(&self.session).as_ref());
        loop {
            for piece in &split.pieces {
                self.statement(piece).await?;
            }
            tokio::time::sleep(every).await;
        }
    }
}

/// Runs a command of the system's shell; without one, the shell itself.
pub fn run_program(command: &str) -> Result<()> {
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_string());
    let mut program = Command::new(shell);
    if !command.is_empty() {
        program.args(["-c", command]);
    }
    let status = program.status().at(command)?;
    match status.success() {
        true => Ok(()),
        false => Err(CliError::new(format!("{command}: {status}"))),
    }
}

fn edit(path: &Path) -> Result<()> {
    let named = EDITOR_VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    let editor = named.filter(|editor| !editor.trim().is_empty());
    let editor = editor.unwrap_or_else(|| EDITOR.to_string());
    // It may have arguments.
    let mut shell = Command::new("/bin/sh");
    let status = shell.arg("-c").arg(format!("{editor} \"$1\"")).arg("edit").arg(path).status();
    let status = status.at(&editor)?;
    match status.success() {
        true => Ok(()),
        false => Err(CliError::new(format!("{editor}: {status}; nothing was run"))
            .hint("EDITOR names the editor")),
    }
}

/// A file for an editor, readable by its user only.
struct Draft {
    path: PathBuf,
    _hidden: Hidden,
}

impl Draft {
    fn new(text: &str) -> Result<Self> {
        let folder = std::env::temp_dir();
        let hidden = Hidden::folder(&folder).at(folder.display())?;
        let path = hidden.path().join("statement.sql");
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&path);
        let mut file = opened.at(path.display())?;
        file.write_all(text.as_bytes()).at(path.display())?;
        Ok(Self { path, _hidden: hidden })
    }

    fn text(&mut self) -> Result<String> {
        std::fs::read_to_string(&self.path).at(self.path.display())
    }
}
