//! Completion: columns of the tables in the statement, tables, functions, keywords, and the shell's
//! own commands.

use std::collections::HashMap;
use std::sync::Arc;

use headrace_engine::Session;
use reedline::{Completer, CompletionResult, Span, Suggestion};
use tokio::runtime::Handle;

use super::command::quoted;
use super::entries::COMMANDS;
use super::paths::{completions, open_text};
use super::split::is_command;
use crate::output::Format;
use clap::ValueEnum;
use headrace_engine::failure::{functions, tables};
use headrace_engine::sql::keywords::{KEYWORDS, is_keyword};

/// Candidates in a menu.
const SHOWN_MAX: usize = 200;

/// The names of a session.
pub struct Names {
    session: Arc<Session>,
    runtime: Handle,
    functions: Vec<String>,
}

/// A line up to the cursor, in words.
struct Typed<'a> {
    /// The word to complete.
    word: &'a str,
    /// The qualifier before a dot before it.
    qualifier: Option<&'a str>,
    /// The word before.
    before: &'a str,
    /// The whole statement.
    statement: &'a str,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn last_word(text: &str) -> &str {
    &text[text.trim_end_matches(is_word).len()..]
}

impl<'a> Typed<'a> {
    fn of(line: &'a str, pos: usize) -> Self {
        let left = &line[..pos];
        let word = last_word(left);
        let left = &left[..left.len() - word.len()];
        let qualifier = left.strip_suffix('.').map(last_word).filter(|q| !q.is_empty());
        let before = last_word(left.trim_end());
        let begin = left.rfind(';').map_or(0, |at| at + 1);
        let end = line[pos..].find(';').map_or(line.len(), |at| pos + at);
        Self { word, qualifier, before, statement: &line[begin..end] }
    }
}

impl Names {
    /// Must be called inside a runtime.
    pub fn of(session: Arc<Session>) -> Self {
        let functions = functions(&session);
        Self { session, runtime: Handle::current(), functions }
    }

    fn candidates(&self, typed: &Typed<'_>) -> Vec<String> {
        let tables = tables(&self.session);
        let named = named(typed.statement, &tables);
        if let Some(qualifier) = typed.qualifier {
            let table = named.get(&qualifier.to_lowercase());
            return table.map(|table| self.columns(table)).unwrap_or_default();
        }
        let wants_table =
            ["from", "join", "into", "describe", "desc", "summarize", "table", "update"]
                .iter()
                .any(|word| typed.before.eq_ignore_ascii_case(word));
        let mut names: Vec<String> = tables.iter().map(|name| quoted(name)).collect();
        if wants_table {
            return names;
        }
        let mut of_statement: Vec<&String> = named.values().collect();
        of_statement.sort();
        of_statement.dedup();
        let mut all: Vec<String> = of_statement.into_iter().flat_map(|t| self.columns(t)).collect();
        all.append(&mut names);
        // Nobody looks for a function or a keyword without knowing how it begins.
        if !typed.word.is_empty() {
            let is_lower = typed.word.chars().all(|c| !c.is_uppercase());
            let keyword =
                |word: &&str| if is_lower { word.to_lowercase() } else { word.to_string() };
            all.extend(KEYWORDS.iter().map(keyword));
            all.extend(self.functions.iter().cloned());
        }
        all
    }

    fn columns(&self, table: &str) -> Vec<String> {
        let reference = datafusion::common::TableReference::bare(table);
        let found = self.runtime.block_on(self.session.context().table_provider(reference));
        // A table that cannot be opened has no columns to offer; a query says why.
        let Ok(provider) = found else { return Vec::new() };
        provider.schema().fields().iter().map(|field| quoted(field.name())).collect()
    }

    fn arguments(&self, command: &str, word: &str) -> Vec<String> {
        let entry = COMMANDS.iter().find(|entry| entry.names.contains(&command));
        match entry.map(|entry| entry.argument) {
            Some("[TABLE]") => tables(&self.session).iter().map(|name| quoted(name)).collect(),
            Some("[FORMAT]") => Format::value_variants().iter().map(|f| f.name()).collect(),
            Some("[FILE]" | "FILE" | "FILE TABLE" | "[DIR]") => completions(word),
            Some("[on|off]") => vec!["on".into(), "off".into()],
            Some("[on|off|auto]") => vec!["on".into(), "off".into(), "auto".into()],
            _ => Vec::new(),
        }
    }
}

/// The tables in a statement, by name and alias in lower case.
fn named(statement: &str, tables: &[String]) -> HashMap<String, String> {
    let words: Vec<&str> = statement.split(|c| !is_word(c)).filter(|w| !w.is_empty()).collect();
    let mut named = HashMap::new();
    for (i, word) in words.iter().enumerate() {
        let Some(table) = tables.iter().find(|table| table.eq_ignore_ascii_case(word)) else {
            continue;
        };
        named.insert(word.to_lowercase(), table.clone());
        let mut behind = words[i + 1..].iter().skip_while(|word| word.eq_ignore_ascii_case("as"));
        if let Some(alias) = behind.next().filter(|word| !is_keyword(word)) {
            named.entry(alias.to_lowercase()).or_insert_with(|| table.clone());
        }
    }
    named
}

fn begins(name: &str, word: &str) -> bool {
    let name = name.trim_start_matches('"');
    name.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
}

impl Completer for Names {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        let (start, names) = match is_command(line.trim_start()) || line[..pos].trim() == "\\" {
            true => match line[..pos].rsplit_once(char::is_whitespace) {
                Some((command, word)) => {
                    (pos - word.len(), matching(self.arguments(command.trim(), word), word))
                }
                None => {
                    let all = COMMANDS.iter().flat_map(|entry| entry.names.iter());
                    (0, matching(all.map(|name| name.to_string()).collect(), &line[..pos]))
                }
            },
            // A text may be a file's name; nothing else in it can be completed.
            false if let Some(text) = open_text(&line[..pos]) => {
                (pos - text.len(), matching(completions(text), text))
            }
            false => {
                let typed = Typed::of(line, pos);
                (pos - typed.word.len(), matching(self.candidates(&typed), typed.word))
            }
        };
        let span = Span { start, end: pos };
        let suggestion = |value: String| Suggestion { value, span, ..Suggestion::default() };
        CompletionResult::fresh(names.into_iter().map(suggestion).collect::<Vec<_>>())
    }
}

/// The names that begin with a word, without duplicates.
fn matching(names: Vec<String>, word: &str) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let fits = |name: &String| begins(name, word) && seen.insert(name.clone());
    names.into_iter().filter(fits).take(SHOWN_MAX).collect()
}
