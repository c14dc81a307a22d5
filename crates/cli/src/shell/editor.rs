//! The line editor: history, multi-line statements up to a semicolon, completion, colours.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use headrace_engine::Session;
use reedline::{
    Color, ColumnarMenu, DefaultHinter, Emacs, FileBackedHistory, Hinter, History, KeyCode,
    KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch,
    PromptHistorySearchStatus, Reedline, ReedlineEvent, ReedlineMenu, ValidationResult, Validator,
    default_emacs_keybindings,
};

use super::complete::Names;
use super::highlight::SqlColours;
use super::split::{is_command, split};
use crate::session;

const HISTORY_LINES: usize = 10_000;
const MENU: &str = "names";

/// An editor over the names of a session; it returns when `stop` is set.
pub fn new(session: &Arc<Session>, stop: Arc<AtomicBool>) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let complete = ReedlineEvent::UntilFound(vec![
        ReedlineEvent::Menu(MENU.to_string()),
        ReedlineEvent::MenuNext,
    ]);
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
    keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
    let menu = ColumnarMenu::default().with_name(MENU);
    let mut editor = Reedline::create()
        .with_ansi_colors(std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()))
        .with_completer(Box::new(Names::of(Arc::clone(session))))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_highlighter(Box::new(SqlColours))
        .with_hinter(Box::new(Hints(DefaultHinter::default().with_style(Color::DarkGray.normal()))))
        .with_validator(Box::new(UntilSemicolon(Arc::clone(session))))
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_history_exclusion_prefix(Some(" ".to_string()))
        .with_break_signal(stop)
        .use_bracketed_paste(true);
    match history() {
        Ok(Some(history)) => editor = editor.with_history(Box::new(history)),
        Ok(None) => {}
        Err(error) => say!("this shell's history is not kept: {error}"),
    }
    editor
}

/// A hint from history, or how to end an unfinished line.
struct Hints(DefaultHinter);

/// Shown on an empty continuation line.
const WAY_OUT: &str = "; runs it, Ctrl-C drops it";

impl Hinter for Hints {
    fn handle(
        &mut self,
        line: &str,
        pos: usize,
        history: &dyn History,
        use_ansi_coloring: bool,
        cwd: &str,
    ) -> String {
        let known = self.0.handle(line, pos, history, use_ansi_coloring, cwd);
        match line.ends_with('\n') && known.is_empty() {
            true if use_ansi_coloring => Color::DarkGray.normal().paint(WAY_OUT).to_string(),
            true => WAY_OUT.to_string(),
            false => known,
        }
    }

    fn complete_hint(&self) -> String {
        self.0.complete_hint()
    }

    fn next_hint_token(&self) -> String {
        self.0.next_hint_token()
    }
}

/// The history; readable by its user only.
fn history() -> io::Result<Option<FileBackedHistory>> {
    let Some(file) = history_file() else { return Ok(None) };
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(&file)?;
    FileBackedHistory::with_file(HISTORY_LINES, file).map(Some).map_err(io::Error::other)
}

fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let state = state.or_else(|| Some(std::env::home_dir()?.join(".local/state")))?;
    Some(state.join("headrace/history"))
}

/// The prompt of each line.
pub struct HeadracePrompt;

impl Prompt for HeadracePrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        "headrace".into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        "> ".into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        "     ... ".into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "not ",
        };
        format!("({failing}found: {}) ", search.term).into()
    }

    fn get_prompt_color(&self) -> Color {
        Color::Default
    }

    fn get_indicator_color(&self) -> Color {
        Color::Default
    }

    fn get_prompt_multiline_color(&self) -> Color {
        Color::DarkGray
    }
}

/// Enter continues the statement until its semicolon.
struct UntilSemicolon(Arc<Session>);

impl Validator for UntilSemicolon {
    fn validate(&self, text: &str) -> ValidationResult {
        let begin = text.trim_start();
        if is_command(begin) || is_word(begin) {
            return ValidationResult::Complete;
        }
        match split(text, session::dialect(&self.0).as_ref()).open {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Complete,
        }
    }
}

/// Words that people type to leave or to get help.
pub fn is_word(text: &str) -> bool {
    ["exit", "quit", "help"].contains(&bare(text).as_str())
}

/// A word without its semicolon.
pub fn bare(text: &str) -> String {
    text.trim().trim_end_matches(';').trim_end().to_lowercase()
}
