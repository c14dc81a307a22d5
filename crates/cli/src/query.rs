//! Running SQL from the command line, a file, a pipe or a terminal.

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::CommandFactory;
use headrace_engine::failure::nearest;

use crate::args::{Cli, QueryArgs};
use crate::door::ClusterDoor;
use crate::error::{CliError, Context, Result};
use crate::output::{Format, print};
use crate::session;
use crate::shell::{self, Go, Origin, Shell, completions, is_command};
use crate::signals::Asked;

/// The source of SQL.
enum Source {
    /// Texts that run one after the other.
    Texts(Vec<String>),
    File {
        name: String,
        text: String,
    },
    Terminal,
}

/// Arguments without a flag.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inputs {
    /// Files, folders and addresses that become tables.
    data: Vec<PathBuf>,
    sql: Vec<String>,
}

/// Runs every statement; stops at the first failure.
pub async fn run(
    args: &QueryArgs,
    stop: Arc<AtomicBool>,
    asked: &Asked,
    door: Option<ClusterDoor>,
) -> Result<()> {
    if args.format == Some(Format::Parquet) && args.output.is_none() {
        return Err(CliError::usage("parquet needs a file").hint("-o FILE"));
    }
    let mut inputs = inputs(&args.input)?;
    inputs.sql.extend(args.sql.iter().cloned());
    let source = source(inputs.sql, args)?;
    let mut session = session::new(&args.engine)?;
    // A signal ends the process with its statement, but where somebody types.
    match source {
        Source::Terminal => session.runner().allow_rehearsals(),
        _ => session = session.inline(),
    }
    if let (Some(door), Some(_)) = (door, args.cluster.cluster) {
        (door.distribute)(&session, &args.cluster).map_err(CliError::carrying_hint)?;
    }
    for path in args.data.iter().chain(&inputs.data) {
        session::register(&session, path).await?;
    }
    let mut shell = Shell::new(session, args)?;
    match source {
        Source::Texts(texts) => run_texts(&mut shell, &texts).await,
        Source::File { name, text } => shell.run(&text, Origin::Named(&name)).await.map(drop),
        Source::Terminal => shell::run_terminal(&mut shell, args, stop, asked).await,
    }?;
    let session = shell.finish()?;
    if let (Some(limit), false) = (args.engine.memory_limit, args.quiet) {
        let peak = headrace_io::system::peak_memory_bytes().unwrap_or_default();
        say!("peak resident memory {:.0} MB, limit {:.0} MB", mb(peak), mb(limit));
    }
    session::write_trace(&session, &args.engine)
}

async fn run_texts(shell: &mut Shell, texts: &[String]) -> Result<()> {
    for text in texts {
        if shell.run(text, Origin::Typed).await? == Go::Quit {
            break;
        }
    }
    Ok(())
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Distinguishes files from SQL.
fn inputs(texts: &[String]) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    for text in texts {
        let is_sql = |text: &str| text.trim().contains(char::is_whitespace) || text.ends_with(';');
        if Path::new(text).exists() || text.contains("://") {
            inputs.data.push(PathBuf::from(text));
        } else if is_sql(text) || is_command(text) && text.starts_with('\\') {
            inputs.sql.push(text.clone());
        } else {
            return Err(neither_file_nor_command(text));
        }
    }
    Ok(inputs)
}

fn neither_file_nor_command(text: &str) -> CliError {
    let error = CliError::usage(format!("there is no file and no command {text}"));
    let command = Cli::command();
    let commands: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let files = completions(text.rsplit_once('/').map_or("", |(folder, _)| folder));
    let near = nearest(text, commands).or_else(|| nearest(text, files.iter().map(String::as_str)));
    match near {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint("headrace FILE, headrace \"select 1\", or headrace --help"),
    }
}

fn source(sql: Vec<String>, args: &QueryArgs) -> Result<Source> {
    match (sql.is_empty(), &args.file) {
        (false, Some(_)) => Err(CliError::usage("there are both SQL and a file of SQL")
            .hint("give one of them: the SQL can be in the file")),
        (false, None) => Ok(Source::Texts(sql)),
        (true, Some(file)) if file == Path::new("-") => {
            standard_input().map(|text| Source::Texts(vec![text]))
        }
        (true, Some(file)) => {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(file).at(&name)?;
            Ok(Source::File { name, text })
        }
        (true, None) if io::stdin().is_terminal() && io::stdout().is_terminal() => {
            Ok(Source::Terminal)
        }
        (true, None) => {
            let text = match io::stdin().is_terminal() {
                true => String::new(),
                false => standard_input()?,
            };
            if !text.trim().is_empty() {
                return Ok(Source::Texts(vec![text]));
            }
            if args.input.is_empty() {
                print(&Cli::command().render_help().to_string())?;
            }
            Err(CliError::usage("nothing to run")
                .hint("headrace demo, or headrace -c \"select 1\""))
        }
    }
}

fn standard_input() -> Result<String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).at("standard input")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_are_told_from_sql() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a file.csv");
        std::fs::write(&file, "a\n1\n").unwrap();
        let of = |texts: &[&str]| inputs(&texts.iter().map(|t| t.to_string()).collect::<Vec<_>>());
        let found = of(&[file.to_str().unwrap(), "select 1", "\\d", "s3://b/x.csv"]).unwrap();
        assert_eq!(found.data, [file, PathBuf::from("s3://b/x.csv")]);
        assert_eq!(found.sql, ["select 1", "\\d"]);
        let error = of(&["convrt"]).unwrap_err();
        assert!(error.to_string().contains("did you mean convert?"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}
