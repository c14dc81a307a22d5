//! Files of views: what is left to do to one when its statement has taken effect.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use headrace_io::write::Appended;
use tokio::sync::OwnedMutexGuard;

/// The longest text of a view.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// What is left to do to the file of a view when its statement has taken effect.
pub struct Kept {
    pub name: String,
    pub step: Step,
    /// What has the name until then.
    pub old: Option<Arc<dyn TableProvider>>,
    /// Nobody else changes views of this home meanwhile.
    pub changing: OwnedMutexGuard<()>,
}

/// The step.
pub enum Step {
    Put(Appended, PathBuf),
    Remove(PathBuf),
}

impl Kept {
    /// The file that the view has then.
    pub fn file(&self) -> Option<PathBuf> {
        match &self.step {
            Step::Put(_, path) => Some(path.clone()),
            Step::Remove(_) => None,
        }
    }
}

impl Step {
    /// Takes it.
    pub fn take(self) -> Result<()> {
        match self {
            Self::Put(file, path) => file.commit().map_err(|error| failed(&path, &error)),
            Self::Remove(path) => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(failed(&path, &error))
                }
                _ => Ok(()),
            },
        }
    }
}

/// An error of a file.
pub fn failed(path: &Path, error: &dyn std::fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("{}: {error}", path.display()))
}

/// The text of a view's file; `None`: it is no text of a view.
pub fn text_of(path: &Path) -> Option<String> {
    // Others may wait for ever, or never end.
    if !path.metadata().is_ok_and(|file| file.is_file()) {
        return None;
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= TEXT_BYTES_MAX).then(|| String::from_utf8(bytes).ok()).flatten()
}
