//! Which files the statements of a session may name by their paths.
//!
//! At a terminal these are all that its user may read. A server reads for others: there, tables have names, and paths are
//! those below some folders.

use std::path::{Component, Path, PathBuf};

use datafusion::common::Result;

use super::remote::{is_address, shown_path};
use crate::error::Told;
use crate::failure::Class;

/// Folders, and what is below them.
#[derive(Clone, Debug, Default)]
pub struct Reach(Vec<PathBuf>);

impl Reach {
    /// What is below these folders; those that are not there have nothing.
    pub fn below(folders: &[PathBuf]) -> Self {
        Self(folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect())
    }

    /// Whether a path, which may have wildcards, can only be within reach. Addresses are not.
    fn has(&self, path: &Path) -> bool {
        if is_address(path) {
            return false;
        }
        let is_plain = |part: &Component<'_>| {
            !part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{'])
        };
        let plain: PathBuf = path.components().take_while(is_plain).collect();
        let mut rest = path.components().skip_while(is_plain);
        // Behind a wildcard nobody knows where that leads.
        if rest.any(|part| part == Component::ParentDir) {
            return false;
        }
        let plain = if plain.as_os_str().is_empty() { Path::new(".") } else { plain.as_path() };
        let Ok(found) = plain.canonicalize() else { return false };
        self.0.iter().any(|folder| found.starts_with(folder))
    }

    /// Refuses what is out of reach, whether or not it is there.
    ///
    /// # Errors
    /// The first such path.
    pub fn check<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
        match paths.into_iter().find(|path| !self.has(path)) {
            None => Ok(()),
            Some(path) => Err(Told::error(
                Class::Forbidden,
                format!("{}: this session may not use it", shown_path(path).display()),
                Some("SHOW TABLES lists what it may read by name"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_below_a_folder_is_within_reach() {
        let home = tempfile::tempdir().unwrap();
        let (inner, outer) = (home.path().join("in"), home.path().join("out"));
        std::fs::create_dir_all(inner.join("deep")).unwrap();
        std::fs::create_dir(&outer).unwrap();
        std::fs::write(inner.join("deep/a.csv"), "a").unwrap();
        std::fs::write(outer.join("b.csv"), "b").unwrap();
        std::os::unix::fs::symlink(&outer, inner.join("link")).unwrap();
        let reach = Reach::below(&[inner.clone(), home.path().join("gone")]);
        for within in ["deep/a.csv", "deep/*.csv", "*/*.csv", "", "deep/../deep/a.csv"] {
            assert!(reach.has(&inner.join(within)), "{within}");
        }
        for beyond in ["../out/b.csv", "link/b.csv", "*/../../out/b.csv", "nothing.csv"] {
            assert!(!reach.has(&inner.join(beyond)), "{beyond}");
        }
        for beyond in ["/etc/passwd", "s3://bucket/a.csv", "https://host/a.csv", "a.csv", "/"] {
            assert!(!reach.has(Path::new(beyond)), "{beyond}");
        }
        assert!(!Reach::default().has(&inner));
        let error = reach.check([outer.as_path()]).unwrap_err().to_string();
        assert!(error.contains("may not use it"), "{error}");
    }
}
