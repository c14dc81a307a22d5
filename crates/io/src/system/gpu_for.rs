//! Which GPU takes the files below a path, where somebody says so.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// For files below paths the GPU that takes them, whichever is nearest to their storage. As text `PATH=N,PATH=N`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFor(pub Vec<(PathBuf, usize)>);

impl GpuFor {
    /// The GPU of a file: that of the longest of the paths above it.
    pub fn gpu(&self, file: &Path) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        let absolute =
            |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let file = absolute(file);
        let above = self.0.iter().filter(|(path, _)| file.starts_with(absolute(path)));
        above.max_by_key(|(path, _)| absolute(path).components().count()).map(|(_, gpu)| *gpu)
    }

    /// One path with its GPU.
    ///
    /// # Errors
    /// What a path with its GPU looks like.
    pub fn one(text: &str) -> Result<(PathBuf, usize), String> {
        let parsed = text.rsplit_once('=').and_then(|(path, gpu)| {
            (!path.is_empty()).then_some(())?;
            Some((PathBuf::from(path), gpu.parse().ok()?))
        });
        parsed.ok_or_else(|| format!("{text:?}: write PATH=N, such as /data1=0"))
    }
}

impl fmt::Display for GpuFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(path, gpu): &(PathBuf, usize)| format!("{}={gpu}", path.display());
        f.write_str(&self.0.iter().map(one).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for GpuFor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        text.split(',').map(|one| Self::one(one.trim())).collect::<Result<_, _>>().map(Self)
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
        let text = format!("{}=0, {}=3", folder.path().display(), below.display());
        let gpus: GpuFor = text.parse().unwrap();
        assert_eq!((gpus.gpu(&file), gpus.gpu(&other)), (Some(3), Some(0)));
        assert_eq!(gpus.gpu(Path::new("/elsewhere")), None);
        assert_eq!(gpus.to_string().parse(), Ok(gpus));
        // By another name it is the same file.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&below, &link).unwrap();
        assert_eq!(GpuFor(vec![(link, 1)]).gpu(&file), Some(1));
    }

    #[test]
    fn paths_with_their_gpus() {
        assert_eq!(GpuFor::one("/a=b=2").unwrap(), (PathBuf::from("/a=b"), 2));
        assert_eq!("".parse(), Ok(GpuFor::default()));
        for wrong in ["/a", "=1", "/a=", "/a=x", "/a=1,", "/a=-1"] {
            assert!(wrong.parse::<GpuFor>().is_err(), "{wrong}");
        }
    }
}
