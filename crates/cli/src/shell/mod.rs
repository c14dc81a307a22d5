//! The shell: statements and commands, typed or from a text.
//!
//! ```text
//! text ─split─► pieces ─┬─ SQL ─► Session::sql ─► stream ─► output::Printer ─► stdout or a file
//!                       └─ \d, .mode, ..: command
//! terminal: editor (history, completion, colours) ─► text
//! ```
//!
//! The same text has the same effect with -c, in a file, in a pipe and typed. Only a terminal shows
//! fewer rows than there are, and only there Ctrl-C ends the statement instead of the program.

mod command;
mod complete;
mod editor;
mod ending;
mod entries;
mod highlight;
mod paths;
mod progress;
mod repeat;
mod split;
mod statement;
mod terminal;
mod transfer;
mod variables;

use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use headrace_engine::Session;
use headrace_engine::copy::batch_bytes_max;

use crate::args::{EngineArgs, QueryArgs};
use crate::error::{CliError, Result};
use crate::output::{Expanded, Format, Layout, OutFile, Room};
use crate::session;
pub use paths::completions;
pub use split::is_command;
pub use terminal::run as run_terminal;
use variables::Variables;

/// Rows that a terminal shows, unless `.maxrows` is set.
const ROWS_SHOWN: usize = 40;

/// Maximum nesting of files that run files.
const DEPTH_MAX: usize = 16;

/// A session with the user's state.
pub struct Shell {
    session: Arc<Session>,
    engine: EngineArgs,
    format: Format,
    /// By the suffix of the output file, unless set otherwise.
    file_format: Option<Format>,
    expanded: Expanded,
    /// Whether results begin with column names.
    headers: bool,
    /// A line about each statement, on standard error.
    timing: bool,
    rows_max: usize,
    /// The destination of results instead of standard output.
    out: Option<OutFile>,
    /// Whether it holds for the next result only.
    once: bool,
    /// The variables of `\set`.
    variables: Variables,
    /// The last statement, for `\e` and `\watch`.
    last: String,
    /// Reported reasons for not running on a GPU.
    told: HashSet<String>,
    depth: usize,
}

/// Whether to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    On,
    Quit,
}

/// The source of a text, for errors.
#[derive(Clone, Copy)]
pub enum Origin<'a> {
    /// The command line or the terminal.
    Typed,
    Named(&'a str),
}

impl Shell {
    /// A shell as the command line asks for it.
    pub fn new(session: Session, args: &QueryArgs) -> Result<Self> {
        let file_format = match (&args.output, args.format) {
            (Some(file), None) => Format::of_file(file)?,
            _ => None,
        };
        let out = args.output.as_deref().map(OutFile::whole).transpose()?;
        Ok(Self {
            session: Arc::new(session),
            engine: args.engine.clone(),
            format: args.format.unwrap_or(Format::Table),
            file_format,
            expanded: Expanded::Off,
            headers: true,
            timing: !args.quiet,
            rows_max: ROWS_SHOWN,
            out,
            once: false,
            variables: Variables::default(),
            last: String::new(),
            told: HashSet::new(),
            depth: 0,
        })
    }

    /// Runs a text; stops at the first failing piece.
    pub async fn run(&mut self, text: &str, origin: Origin<'_>) -> Result<Go> {
        let dialect = session::dialect(&self.session);
        let split = split::split(text, dialect.as_ref());
        if let Some((cause, line)) = split.error {
            return Err(in_place(CliError::new(cause), origin, Some(&format!("line {line}"))));
        }
        let several = split.pieces.len() > 1;
        for (i, piece) in split.pieces.iter().enumerate() {
            let done = match piece.is_command {
                true => Box::pin(self.command(&piece.text)).await,
                false => self.statement(piece).await.map(|()| Go::On),
            };
            let done = done.and_then(|go| self.end_once().map(|()| go));
            let place = several.then(|| format!("statement {} (line {})", i + 1, piece.line));
            if done.map_err(|error| in_place(error, origin, place.as_deref()))? == Go::Quit {
                return Ok(Go::Quit);
            }
        }
        Ok(Go::On)
    }

    /// Runs a file of statements and commands.
    async fn run_file(&mut self, path: &std::path::Path) -> Result<Go> {
        let name = path.display().to_string();
        if self.depth == DEPTH_MAX {
            let cause = format!("{name}: {DEPTH_MAX} files run each other");
            return Err(CliError::new(cause).hint("a file must not run itself"));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| CliError::new(format!("{name}: {error}")))?;
        self.depth += 1;
        let done = self.run(&text, Origin::Named(&name)).await;
        self.depth -= 1;
        // To leave a file is not to leave the shell.
        done.map(|_| Go::On)
    }

    /// The end: output files are kept.
    pub fn finish(mut self) -> Result<Arc<Session>> {
        if let Some(out) = self.out.take() {
            out.keep()?;
        }
        Ok(self.session)
    }

    /// The format of the next result.
    fn result_format(&self) -> Format {
        self.file_format.unwrap_or(self.format)
    }

    /// The layout of the next result.
    fn layout(&self) -> Layout {
        let to_terminal = self.out.is_none() && io::stdout().is_terminal();
        let columns_max =
            || crossterm::terminal::size().map_or(usize::MAX, |(columns, _)| columns.into());
        let terminal =
            to_terminal.then(|| Room { rows_max: self.rows_max, columns_max: columns_max() });
        Layout {
            format: self.result_format(),
            expanded: self.expanded,
            headers: self.headers,
            batch_bytes_max: batch_bytes_max(self.session.runner().memory().planner_bytes),
            terminal,
        }
    }

    /// Ends a file that holds one result.
    fn end_once(&mut self) -> Result<()> {
        let has_result = self.out.as_ref().is_some_and(OutFile::has_result);
        match (self.once && has_result).then(|| self.out.take()).flatten() {
            Some(out) => {
                self.once = false;
                out.keep()
            }
            None => Ok(()),
        }
    }

    /// Writes a text to the destination of results.
    fn put(&mut self, text: &str) -> Result<()> {
        let written = match &mut self.out {
            Some(out) => out.writer().write_all(text.as_bytes()),
            None => io::stdout().write_all(text.as_bytes()),
        };
        written.map_err(|error| self.output_failure(error))
    }

    /// The obstacle to writing results, if any.
    fn output_failure(&self, error: io::Error) -> CliError {
        match &self.out {
            // Whoever reads our output has seen enough.
            None if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            None => CliError::new(format!("standard output: {error}")),
            Some(out) => CliError::new(format!("{}: {error}", out.path().display())),
        }
    }
}

/// An error with its file and statement.
fn in_place(error: CliError, origin: Origin, place: Option<&str>) -> CliError {
    let error = match place {
        Some(place) => error.in_place(place),
        None => error,
    };
    match origin {
        Origin::Typed => error,
        Origin::Named(name) => error.in_place(name),
    }
}
