//! Typed file names: with a home folder, in quotes, partial.

use std::path::{Path, PathBuf};

/// A typed file name, optionally in quotes or below the home folder.
pub fn path(text: &str) -> PathBuf {
    let inner = ['\'', '"'].iter().find_map(|&quote| text.strip_prefix(quote)?.strip_suffix(quote));
    below_home(inner.unwrap_or(text))
}

fn below_home(text: &str) -> PathBuf {
    match (text.strip_prefix("~/"), std::env::home_dir()) {
        (Some(below), Some(home)) => home.join(below),
        _ if text == "~" => std::env::home_dir().unwrap_or_else(|| PathBuf::from(text)),
        _ => PathBuf::from(text),
    }
}

/// The files and folders whose names begin with `typed`, in typed form; folders end with a slash.
pub fn completions(typed: &str) -> Vec<String> {
    let (folder, begin) = typed
        .rsplit_once('/')
        .map_or(("", typed), |(_, begin)| (&typed[..typed.len() - begin.len()], begin));
    let place = match folder {
        "" => PathBuf::from("."),
        folder => below_home(folder),
    };
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_meant =
            name.starts_with(begin) && (begin.starts_with('.') || !name.starts_with('.'));
        let slash = if is_folder(&entry.path()) { "/" } else { "" };
        is_meant.then(|| format!("{folder}{name}{slash}"))
    });
    let mut names: Vec<String> = named.collect();
    names.sort();
    names
}

fn is_folder(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_dir())
}

/// The text after an open quote at the end of a line, if there is one.
pub fn open_text(line: &str) -> Option<&str> {
    let mut begin = None;
    for (at, c) in line.char_indices() {
        match (c, begin) {
            ('\'', None) => begin = Some(at + 1),
            ('\'', Some(_)) => begin = None,
            _ => {}
        }
    }
    begin.map(|begin| &line[begin..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_may_be_quoted() {
        assert_eq!(path("'a b.sql'"), PathBuf::from("a b.sql"));
        assert_eq!(path("'a"), PathBuf::from("'a"));
    }

    #[test]
    fn files_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("trips.csv"), "").unwrap();
        std::fs::write(dir.path().join(".trips"), "").unwrap();
        std::fs::create_dir(dir.path().join("tables")).unwrap();
        let of = |begin: &str| completions(&format!("{}/{begin}", dir.path().display()));
        let whole = |name: &str| format!("{}/{name}", dir.path().display());
        assert_eq!(of("t"), [whole("tables/"), whole("trips.csv")]);
        assert_eq!(of(".t"), [whole(".trips")]);
        assert_eq!(of("x"), [""; 0]);
    }

    #[test]
    fn a_text_is_open_until_its_quote() {
        assert_eq!(open_text("select * from 'da"), Some("da"));
        assert_eq!(open_text("select 'it''s' from 'x' where a"), None);
    }
}
