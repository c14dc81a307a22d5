//! The table of functions: what the docs say of them, with examples that tests run.

use std::fmt::Write;

/// Sections begin with `# `; a function has its call, an example, the example's answer and a note, with tabs between.
const TABLE: &str = include_str!("table.txt");

/// A function as the docs show it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// How it is called.
    pub call: &'static str,
    /// What may stand behind SELECT.
    pub example: &'static str,
    /// What that answers.
    pub answer: &'static str,
    /// What else there is to know: NULLs, errors, other databases.
    pub note: &'static str,
}

/// Sections of functions.
pub fn sections() -> Vec<(&'static str, Vec<Entry>)> {
    let mut sections: Vec<(&str, Vec<Entry>)> = Vec::new();
    for line in TABLE.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            sections.push((title, Vec::new()));
            continue;
        }
        let mut parts = line.split('\t');
        let mut part = || parts.next().unwrap_or("");
        let entry = Entry { call: part(), example: part(), answer: part(), note: part() };
        if let Some((_, entries)) = sections.last_mut() {
            entries.push(entry);
        }
    }
    sections
}

const HEAD: &str = "\
# Functions

Written by `headrace functions`; `scripts/functions-docs` writes this file anew. A test runs each example and compares its
answer with the one shown.

NULL as an argument gives NULL, and a wrong argument is an error of the statement, unless a note says otherwise. Where
PostgreSQL and DuckDB mean different things by a name, it means what PostgreSQL means, unless a note says otherwise. Names
know no case. `select distinct routine_name from information_schema.routines` lists what the planner has under its own names.

A function whose result would not fit the memory limit, or the 2 GiB of one column of a batch, is an error that names it,
before anything is made.
";

/// The page of docs.
pub fn page() -> String {
    let mut page = HEAD.to_string();
    let shown = |text: &str| text.replace('|', "\\|");
    for (title, entries) in sections() {
        let _written = write!(
            page,
            "\n## {title}\n\n| function | example | answer | note |\n|---|---|---|---|\n"
        );
        for Entry { call, example, answer, note } in entries {
            let (call, example, answer) = (shown(call), shown(example), shown(answer));
            let _written =
                writeln!(page, "| `{call}` | `{example}` | `{answer}` | {} |", shown(note));
        }
    }
    page
}
