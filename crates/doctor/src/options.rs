//! What is asked of an examination.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use headrace_flow::Trace;

/// Receives the current step in words.
pub type ProgressSink = Arc<dyn Fn(&str) + Send + Sync>;

/// Options of an examination.
#[derive(Clone, Default)]
pub struct Options {
    /// No timing; every access path is still tried.
    pub quick: bool,
    /// Write a file to each path (beside it, if it is a file), read it back and remove it.
    pub write: bool,
    /// Do not touch the shared record of ceilings.
    pub forget: bool,
    /// Once set, nothing more is begun; the report then says what was omitted.
    pub cancel: Arc<AtomicBool>,
    /// Receives the current step.
    pub progress: Option<ProgressSink>,
    /// Records the races of the tries.
    pub trace: Option<Trace>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("quick", &self.quick)
            .field("write", &self.write)
            .field("forget", &self.forget)
            .finish_non_exhaustive()
    }
}

impl Options {
    pub(crate) fn say(&self, what: &str) {
        if let Some(progress) = &self.progress {
            progress(what);
        }
    }
}
