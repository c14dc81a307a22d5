//! Which GPU takes the files below a path, where somebody says so.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// For files below paths the GPU that takes them, whichever is nearest to their storage. As text `PATH=N,PATH=all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFor(pub Vec<(PathBuf, Taker)>);

/// Who takes files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Taker {
    /// Any GPU.
    All,
    /// A GPU, by its ordinal.
    Gpu(usize),
}

impl GpuFor {
    /// Of paths, each with who takes what is below it.
    ///
    /// # Errors
    /// A path that is named twice.
    pub fn of(all: Vec<(PathBuf, Taker)>) -> Result<Self, String> {
        let twice = (1..all.len()).find(|&at| all[..at].iter().any(|(path, _)| *path == all[at].0));
        match twice {
            Some(at) => Err(format!("{} is named twice", all[at].0.display())),
            None => Ok(Self(all)),
        }
    }

    /// Who takes a file: what the longest of the paths above it says.
    pub fn taker(&self, file: &Path) -> Option<Taker> {
        if self.0.is_empty() {
            return None;
        }
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let file = real(file);
        let above = self.0.iter().filter(|(path, _)| file.starts_with(real(path)));
        above.max_by_key(|(path, _)| real(path).components().count()).map(|(_, taker)| *taker)
    }

    /// One path with who takes what is below it. The path means the same to a process that works elsewhere.
    ///
    /// # Errors
    /// What that looks like.
    pub fn one(text: &str) -> Result<(PathBuf, Taker), String> {
        let parsed = text.rsplit_once('=').and_then(|(path, taker)| {
            let path = std::path::absolute(path).ok()?;
            let taker = match taker.eq_ignore_ascii_case("all") {
                true => Taker::All,
                false => Taker::Gpu(taker.parse().ok()?),
            };
            Some((path, taker))
        });
        parsed.ok_or_else(|| format!("{text:?}: write PATH=N, such as /data1=0, or PATH=all"))
    }
}

impl fmt::Display for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Gpu(ordinal) => write!(f, "{ordinal}"),
        }
    }
}

impl fmt::Display for GpuFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(path, taker): &(PathBuf, Taker)| format!("{}={taker}", path.display());
        f.write_str(&self.0.iter().map(one).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for GpuFor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let all = text.split(',').map(|one| Self::one(one.trim()));
        Self::of(all.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_longest_path_above_a_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let (file, other) = (below.join("a.arrow"), folder.path().join("b.arrow"));
        for file in [&file, &other] {
            std::fs::write(file, "x").unwrap();
        }
        let text = format!("{}=all, {}=3", folder.path().display(), below.display());
        let gpus: GpuFor = text.parse().unwrap();
        assert_eq!(gpus.taker(&file), Some(Taker::Gpu(3)));
        assert_eq!(gpus.taker(&other), Some(Taker::All));
        assert_eq!(gpus.taker(Path::new("/elsewhere")), None);
        assert_eq!(gpus.to_string().parse(), Ok(gpus));
        // By another name it is the same file.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&below, &link).unwrap();
        assert_eq!(GpuFor(vec![(link, Taker::Gpu(1))]).taker(&file), Some(Taker::Gpu(1)));
    }

    #[test]
    fn paths_with_who_takes_them() {
        assert_eq!(GpuFor::one("/a=b=2").unwrap(), (PathBuf::from("/a=b"), Taker::Gpu(2)));
        assert!(GpuFor::one("a=ALL").is_ok_and(|(path, _)| path.is_absolute()));
        assert_eq!("".parse(), Ok(GpuFor::default()));
        for wrong in ["/a", "=1", "/a=", "/a=x", "/a=1,", "/a=-1", "/a=0,/a=1"] {
            assert!(wrong.parse::<GpuFor>().is_err(), "{wrong}");
        }
    }
}
