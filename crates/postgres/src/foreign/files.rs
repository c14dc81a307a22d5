//! The Arrow files of a foreign table, and what the folders that they lie in say of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headrace_format::arrow::{ArrowTable, is_table_file};

use crate::executor::without_signals;
use crate::nodes::{WhyNot, why_not};

/// What stands for NULL in the name of a folder.
const NULL_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Tables that a session keeps open.
const KEPT_TABLES: usize = 8;

/// A file, with the values that the folders above it give to columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    pub values: Vec<(String, Option<String>)>,
}

impl Found {
    /// The value of a column; `None`: no folder has it.
    pub fn value(&self, column: &str) -> Option<Option<&str>> {
        let found = self.values.iter().find(|(key, _)| key == column);
        found.map(|(_, value)| value.as_deref())
    }
}

/// The files of paths: a file itself, a folder's files, and those in its folders `key=value`, in them
/// again. Sorted by path. None of one folder that is empty: nothing was inserted yet.
///
/// # Errors
/// A path that is not there, a folder that cannot be listed, one that has other things alone.
pub fn find(paths: &[PathBuf]) -> Result<Vec<Found>, WhyNot> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            find_below(path, &mut Vec::new(), &mut found)?;
        } else {
            found.push(Found { path: path.clone(), values: Vec::new() });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup();
    let is_new = matches!(paths, [path] if path.is_dir() && entries(path)?.is_empty());
    if found.is_empty() && !is_new {
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        return why_not(format!(
            "no Arrow files in {}: their names end in .arrow, .feather or .ipc",
            paths.join(", ")
        ));
    }
    Ok(found)
}

fn find_below(
    folder: &Path,
    values: &mut Vec<(String, Option<String>)>,
    found: &mut Vec<Found>,
) -> Result<(), WhyNot> {
    for path in entries(folder)? {
        if !path.is_dir() {
            if is_table_file(&path) {
                found.push(Found { path, values: values.clone() });
            }
        } else if let Some(value) = key_and_value(&path) {
            values.push(value);
            find_below(&path, values, found)?;
            values.pop();
        }
    }
    Ok(())
}

/// What lies in a folder and is not hidden, sorted.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>, WhyNot> {
    let failed = |error| WhyNot(format!("{}: cannot list the folder: {error}", folder.display()));
    let listed = std::fs::read_dir(folder).map_err(failed)?;
    let paths = listed.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    let is_hidden =
        |path: &PathBuf| path.file_name().is_none_or(|n| n.as_encoded_bytes().starts_with(b"."));
    paths.retain(|path| !is_hidden(path));
    paths.sort();
    Ok(paths)
}

/// What a folder's name `key=value` says.
pub fn key_and_value(folder: &Path) -> Option<(String, Option<String>)> {
    let (key, value) = folder.file_name()?.to_str()?.split_once('=')?;
    let value = (value != NULL_VALUE).then(|| unescaped(value));
    (!key.is_empty()).then(|| (unescaped(key), value))
}

/// A text in which `%41` stands for `A`.
fn unescaped(text: &str) -> String {
    let (bytes, mut plain, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let code = text.get(at + 1..at + 3).and_then(|code| u8::from_str_radix(code, 16).ok());
        match code.filter(|_| byte == b'%') {
            Some(code) => plain.push(code),
            None => plain.push(byte),
        }
        at += if byte == b'%' && code.is_some() { 3 } else { 1 };
    }
    String::from_utf8(plain).unwrap_or_else(|_| text.to_string())
}

/// Open tables, by their files, the one used last at the end.
type Kept = Vec<(Vec<PathBuf>, Arc<ArrowTable>)>;

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Vec::new()) };
}

/// Files as one table: that of before, if none of them changed since.
///
/// # Errors
/// A file that is not there, not Arrow, damaged, or not of the columns of the others.
pub fn open(found: &[Found]) -> Result<Arc<ArrowTable>, WhyNot> {
    let paths: Vec<PathBuf> = found.iter().map(|file| file.path.clone()).collect();
    let known = KEPT.with_borrow_mut(|kept| {
        let at = kept.iter().position(|(of, _)| *of == paths)?;
        Some(kept.remove(at).1)
    });
    let table = match known.filter(|table| table.check_unchanged().is_ok()) {
        Some(table) => table,
        None => {
            let opened = without_signals(|| ArrowTable::open(&paths));
            // Some causes end with a new line.
            let opened = opened.map_err(|error| WhyNot(error.to_string().trim_end().into()))?;
            check_whole(&opened)?;
            Arc::new(opened)
        }
    };
    KEPT.with_borrow_mut(|kept| {
        if kept.len() == KEPT_TABLES {
            kept.remove(0);
        }
        kept.push((paths, Arc::clone(&table)));
    });
    Ok(table)
}

/// Rows are not left out silently.
fn check_whole(table: &ArrowTable) -> Result<(), WhyNot> {
    match table.skipped().first() {
        None => Ok(()),
        Some(skipped) => why_not(format!(
            "{} cannot be read: {}; a name that begins with a dot takes it out of its folder's table",
            skipped.path.display(),
            skipped.reason
        )),
    }
}

/// By file of an open table: what its folders say.
pub fn in_order<'a>(table: &ArrowTable, found: &'a [Found]) -> Vec<Option<&'a Found>> {
    let by_path: HashMap<&Path, &Found> =
        found.iter().map(|file| (file.path.as_path(), file)).collect();
    table.files().iter().map(|file| by_path.get(file.path()).copied()).collect()
}
