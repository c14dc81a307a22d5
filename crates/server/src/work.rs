//! Threads of the engine's, apart from those that hear clients.

use headrace_engine::failure::{Class, Failure};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Ends the task when nobody waits for it.
struct Ended<T>(JoinHandle<T>);

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where statements are planned and run: what takes a processor for long there keeps nobody from being heard.
#[derive(Clone, Debug)]
pub struct Work(pub Handle);

impl Work {
    /// What comes of something that the engine does.
    pub async fn of<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut task = Ended(self.0.spawn(work));
        (&mut task.0).await.map_err(|error| Failure::new(Class::Internal, error.to_string()))
    }
}
