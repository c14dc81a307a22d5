//! Cancellation from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a race that waits looks at its token: the longest delay of a cancellation, besides
/// reads, consumers and kernels that are under way.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A flag that many hold and any may set. Once set it stays set.
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    cancelled: Arc<AtomicBool>,
}

/// The flag of somebody who knows nothing of races.
impl From<Arc<AtomicBool>> for CancelToken {
    fn from(cancelled: Arc<AtomicBool>) -> Self {
        CancelToken { cancelled }
    }
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels whatever runs with this token or a clone of it.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}
