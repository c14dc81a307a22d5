//! A panic while a statement is planned or run is an error of that statement: whoever asked goes on.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use datafusion::common::{DataFusionError, Result};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};

/// The outcome of `work`; its panic as an error.
pub async fn caught<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| Err(error_of(&*panic)))
}

/// The items of a stream; its panic as an error, behind which nothing comes.
pub fn caught_stream<T: Send + 'static>(
    items: impl Stream<Item = Result<T>> + Send + 'static,
) -> BoxStream<'static, Result<T>> {
    let items = AssertUnwindSafe(items).catch_unwind();
    items.map(|item| item.unwrap_or_else(|panic| Err(error_of(&*panic)))).boxed()
}

/// A panic in words.
pub fn error_of(panic: &(dyn Any + Send)) -> DataFusionError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    DataFusionError::Execution(format!(
        "a fault of the program, not of the statement: {}\n\
         hint: nothing else is harmed; written another way the statement may run",
        text.unwrap_or("it panicked")
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::TryStreamExt;
    use futures::stream::iter;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_end() {
        let error = caught::<()>(async { panic!("no {}", "plan") }).await;
        assert!(error.unwrap_err().to_string().contains("no plan"));
        let tenth = |by| Ok(10_u32.checked_div(by).unwrap());
        let mut items = caught_stream(iter([1, 0, 2]).map(tenth));
        assert_eq!(items.try_next().await.unwrap(), Some(10));
        assert!(items.try_next().await.is_err());
        assert_eq!(items.try_next().await.unwrap(), None);
    }
}
