//! Where facts are read from, and facts that are unknown.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::ser::{Serialize, SerializeMap, Serializer};

/// A fact, or why it is not known.
pub type Fact<T> = std::result::Result<T, Unknown>;

/// Why a fact is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {cause}")]
pub struct Unknown {
    /// Where it was looked for: a file, or a description.
    pub place: String,
    /// Why it was not found there.
    pub cause: UnknownCause,
}

/// What kept a fact from being known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownCause {
    /// There is no such file: the thing does not exist here, or this kernel does not publish it.
    #[error("no such file")]
    Missing,
    /// The file may not be read.
    #[error("permission denied")]
    Denied,
    /// Reading it failed otherwise.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// Its content is not understood.
    #[error("not understood: {0:?}")]
    Malformed(String),
    /// The kernel has the fact but does not publish it; the text says who would know.
    #[error("{0}")]
    NotPublished(String),
}

impl Unknown {
    pub(crate) fn new(place: impl Into<String>, cause: UnknownCause) -> Self {
        Unknown { place: place.into(), cause }
    }

    /// Its content is unexpected.
    pub fn malformed(place: impl AsRef<Path>, text: &str) -> Self {
        // The start is enough to recognise it; some of these files are megabytes long.
        let start: String = text.chars().take(80).collect();
        Unknown::new(place.as_ref().display().to_string(), UnknownCause::Malformed(start))
    }

    /// It is published nowhere.
    pub fn not_published(place: impl Into<String>, who_knows: impl Into<String>) -> Self {
        Unknown::new(place, UnknownCause::NotPublished(who_knows.into()))
    }

    /// The system refused.
    pub fn from_os(place: &Path, cause: &io::Error) -> Self {
        let place = place.display().to_string();
        let cause = match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => UnknownCause::Missing,
            io::ErrorKind::PermissionDenied => UnknownCause::Denied,
            _ => UnknownCause::Unreadable(cause.to_string()),
        };
        Unknown { place, cause }
    }

    /// Whether the file is simply missing.
    pub fn is_missing(&self) -> bool {
        self.cause == UnknownCause::Missing
    }
}

impl Serialize for Unknown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("unknown", &self.to_string())?;
        map.end()
    }
}

/// Serialises a fact as its value, or as `{"unknown": "place: cause"}`.
pub fn fact<T: Serialize, S: Serializer>(fact: &Fact<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match fact {
        Ok(value) => value.serialize(serializer),
        Err(unknown) => unknown.serialize(serializer),
    }
}

/// Serialises a path that may not be UTF-8 as it is displayed.
pub(super) fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// The folder below which `/proc`, `/sys` and `/dev` are read: `/` on the machine itself, any
/// other folder for a recorded tree. Paths given to its methods are absolute and mean "below it".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysRoot {
    folder: PathBuf,
}

impl SysRoot {
    /// This machine.
    pub fn host() -> Self {
        SysRoot { folder: PathBuf::from("/") }
    }

    /// A recorded tree.
    pub fn at(folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        // Canonical, because canonical paths below it are compared with it.
        SysRoot { folder: std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf()) }
    }

    /// Whether this is the machine itself.
    pub fn is_host(&self) -> bool {
        self.folder == Path::new("/")
    }

    /// The path of a machine's file for this process.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        let mut resolved = self.folder.clone();
        for component in path.as_ref().components() {
            match component {
                Component::Normal(name) => resolved.push(name),
                Component::ParentDir if resolved != self.folder => {
                    resolved.pop();
                }
                _ => {}
            }
        }
        resolved
    }

    /// The bytes of a file.
    pub(super) fn bytes(&self, path: impl AsRef<Path>) -> Fact<Vec<u8>> {
        let path = path.as_ref();
        std::fs::read(self.resolve(path)).map_err(|cause| Unknown::from_os(path, &cause))
    }

    /// The text of a file; what is not UTF-8 in it is replaced.
    pub fn text(&self, path: impl AsRef<Path>) -> Fact<String> {
        self.bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The text of a file of one value, without the blanks around it.
    pub fn value(&self, path: impl AsRef<Path>) -> Fact<String> {
        self.text(path).map(|text| text.trim().to_string())
    }

    /// A file with one number (or anything else that can be parsed).
    pub fn parsed<T: FromStr>(&self, path: impl AsRef<Path>) -> Fact<T> {
        let path = path.as_ref();
        let value = self.value(path)?;
        value.parse().map_err(|_| Unknown::malformed(path, &value))
    }

    /// The word in brackets of a file such as `always [madvise] never`; the only word of a file
    /// without brackets.
    pub fn chosen(&self, path: impl AsRef<Path>) -> Fact<String> {
        let path = path.as_ref();
        let value = self.value(path)?;
        let inside = value.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        match inside {
            Some((word, _)) => Ok(word.to_string()),
            None if !value.is_empty() && !value.contains(' ') => Ok(value),
            None => Err(Unknown::malformed(path, &value)),
        }
    }

    /// Names in a folder, sorted.
    pub fn names(&self, path: impl AsRef<Path>) -> Fact<Vec<String>> {
        let path = path.as_ref();
        let entries = std::fs::read_dir(self.resolve(path))
            .map_err(|cause| Unknown::from_os(path, &cause))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.sort();
        Ok(names)
    }

    /// Whether there is such a file or folder.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path).exists()
    }

    /// The path without symbolic links, as the machine would name it.
    pub(super) fn canonical(&self, path: impl AsRef<Path>) -> Fact<PathBuf> {
        let path = path.as_ref();
        let resolved = std::fs::canonicalize(self.resolve(path))
            .map_err(|cause| Unknown::from_os(path, &cause))?;
        match resolved.strip_prefix(&self.folder) {
            Ok(below) => Ok(Path::new("/").join(below)),
            Err(_) => Err(Unknown::malformed(path, "a link that leads out of the recorded tree")),
        }
    }

    /// Like [`canonical`](Self::canonical) as far as the path exists; the rest stays unchanged.
    pub(super) fn canonical_as_far_as_it_exists(&self, path: &Path) -> PathBuf {
        for ancestor in path.ancestors() {
            if let Ok(canonical) = self.canonical(ancestor) {
                // `ancestor` is an ancestor of `path`, so there is a rest, perhaps an empty one.
                return match path.strip_prefix(ancestor) {
                    Ok(rest) if rest.as_os_str().is_empty() => canonical,
                    Ok(rest) => canonical.join(rest),
                    Err(_) => canonical,
                };
            }
        }
        path.to_path_buf()
    }

    /// The last name of what a link leads to.
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = std::fs::read_link(self.resolve(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }
}

/// Numbers of a list such as `0-3,8,10-11`. `None` if it is not one; empty for an empty list.
pub(super) fn parse_list(text: &str) -> Option<Vec<u32>> {
    /// More CPUs or nodes than any machine has: a longer range is not a list of them.
    const LIST_MAX: u32 = 1 << 16;
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= LIST_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    #[test]
    fn a_missing_a_malformed_and_a_chosen_value() {
        let tree = Tree::new();
        tree.file("/sys/a", "12\n").file("/sys/b", "twelve\n");
        tree.file("/sys/c", "always [madvise] never\n").file("/sys/d", "none\n");
        let root = tree.root();
        assert_eq!(root.parsed::<u32>("/sys/a"), Ok(12));
        let malformed = root.parsed::<u32>("/sys/b").unwrap_err();
        assert_eq!(malformed.to_string(), "/sys/b: not understood: \"twelve\"");
        let missing = root.parsed::<u32>("/sys/none").unwrap_err();
        assert!(missing.is_missing());
        assert_eq!(missing.to_string(), "/sys/none: no such file");
        assert_eq!(root.chosen("/sys/c").unwrap(), "madvise");
        assert_eq!(root.chosen("/sys/d").unwrap(), "none");
    }

    #[test]
    fn links_are_followed_inside_the_tree_only() {
        let tree = Tree::new();
        tree.file("/sys/devices/x/dev", "1:2").link("/sys/class/x", "../devices/x");
        tree.link("/sys/out", "/etc");
        let root = tree.root();
        assert_eq!(root.canonical("/sys/class/x").unwrap(), Path::new("/sys/devices/x"));
        assert!(!root.canonical("/sys/out").unwrap_err().is_missing());
        let far = root.canonical_as_far_as_it_exists(Path::new("/sys/class/x/new/file"));
        assert_eq!(far, Path::new("/sys/devices/x/new/file"));
        assert_eq!(root.resolve("/../../etc"), root.resolve("/etc"));
    }

    #[test]
    fn facts_serialise_as_values_or_reasons() {
        #[derive(serde::Serialize)]
        struct Facts {
            #[serde(serialize_with = "fact")]
            known: Fact<u32>,
            #[serde(serialize_with = "fact")]
            unknown: Fact<u32>,
        }
        let unknown = Err(Unknown::new("/x", UnknownCause::Denied));
        let text = serde_json::to_string(&Facts { known: Ok(3), unknown }).unwrap();
        assert_eq!(text, r#"{"known":3,"unknown":{"unknown":"/x: permission denied"}}"#);
    }

    #[test]
    fn lists_of_numbers() {
        assert_eq!(parse_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list(""), Some(vec![]));
        assert_eq!(parse_list("3-1"), None);
        assert_eq!(parse_list("a"), None);
        assert_eq!(parse_list("0-4294967295"), None);
    }
}
