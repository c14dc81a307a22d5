//! Work that blocks, beside the async threads.

use crate::error::{CliError, Result};

/// Blocking work off the async threads, so that Ctrl-C is noticed.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => Err(CliError::fault(&*panic)),
        Err(error) => Err(CliError::new(error)),
    })
}
