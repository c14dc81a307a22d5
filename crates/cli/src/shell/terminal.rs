//! The shell on a terminal.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use reedline::Signal;

use super::editor::{self, HeadracePrompt, bare};
use super::{Go, Origin, Shell};
use crate::args::QueryArgs;
use crate::error::{CliError, Context, Result};
use crate::signals::Asked;
use headrace_engine::failure::tables;

/// Reads and runs until the user leaves, or `stop` is set.
pub async fn run(
    shell: &mut Shell,
    args: &QueryArgs,
    stop: Arc<AtomicBool>,
    asked: &Asked,
) -> Result<()> {
    asked.keep_the_process();
    if !args.no_rc && first_commands(shell, asked).await == Go::Quit {
        return Ok(());
    }
    if !args.quiet {
        greet(shell);
    }
    let mut editor = editor::new(&shell.session, stop);
    loop {
        // It blocks; a signal to end must be heard meanwhile.
        let reading = tokio::task::spawn_blocking(move || {
            let read = editor.read_line(&HeadracePrompt);
            (editor, read)
        });
        let read;
        (editor, read) = reading.await.at("terminal")?;
        let text = match read.at("terminal")? {
            Signal::Success(text) => text,
            Signal::CtrlC => continue,
            _ => return Ok(()),
        };
        let text = match bare(&text).as_str() {
            "exit" | "quit" => return Ok(()),
            "help" => "\\?".to_string(),
            _ => text,
        };
        if answer(shell, &text, Origin::Typed, asked).await == Go::Quit {
            return Ok(());
        }
    }
}

/// One round: failures are reported, and the shell continues.
async fn answer(shell: &mut Shell, text: &str, origin: Origin<'_>, asked: &Asked) -> Go {
    // What was cancelled inside of files has not come out of them.
    shell.depth = 0;
    let done = tokio::select! {
        done = shell.run(text, origin) => done,
        // The statement is dropped, which cancels its race.
        () = asked.to_end_statement() => Err(CliError::new("cancelled")),
    };
    done.unwrap_or_else(|error| {
        say!("{error}");
        Go::On
    })
}

/// The user's start-up commands.
async fn first_commands(shell: &mut Shell, asked: &Asked) -> Go {
    let Some(file) = std::env::home_dir().map(|home| home.join(".headracerc")) else {
        return Go::On;
    };
    match std::fs::read_to_string(&file) {
        Ok(text) => answer(shell, &text, Origin::Named(&file.display().to_string()), asked).await,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Go::On,
        Err(error) => {
            say!("error: {}: {error}", file.display());
            Go::On
        }
    }
}

fn greet(shell: &Shell) {
    let tables = match tables(&shell.session).len() {
        0 => "no tables (--data DIR)".to_string(),
        1 => "1 table".to_string(),
        n => format!("{n} tables"),
    };
    say!("headrace {}, {tables}; \\? for help, \\q to leave", env!("CARGO_PKG_VERSION"));
}
