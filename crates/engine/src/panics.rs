//! A panic while a statement is planned or run is an error of that statement: whoever asked goes on.
//!
//! What Rust would print of it names lines of source on the machine that built the program. A door silences that
//! ([`silence_panics`]): whoever catches a panic tells of it as an error.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use datafusion::common::{DataFusionError, Result};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};

/// The outcome of `work`; its panic as an error.
pub async fn caught<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    told(done.unwrap_or_else(|panic| Err(error_of(&*panic))))
}

/// The items of a stream; its panic as an error, behind which nothing comes.
pub fn caught_stream<T: Send + 'static>(
    items: impl Stream<Item = Result<T>> + Send + 'static,
) -> BoxStream<'static, Result<T>> {
    let items = AssertUnwindSafe(items).catch_unwind();
    items.map(|item| told(item.unwrap_or_else(|panic| Err(error_of(&*panic))))).boxed()
}

/// Has a panic print nothing, but where `HEADRACE_LOG` asks for what happens inside.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|place| (source_of(place.file()), place.line()));
        tracing::debug!(?place, "a panic: {}", text_of(panic.payload()));
    }));
}

/// What is said of a panic that nobody expected, with what helps.
pub fn fault(panic: &(dyn Any + Send)) -> String {
    described(text_of(panic))
}

fn described(text: &str) -> String {
    format!(
        "a fault of the program, not of the statement: {text}\n\
         hint: nothing else is harmed; written another way the statement may run"
    )
}

/// The part of a source file's path that is the same on every machine.
fn source_of(file: &str) -> &str {
    let begin = ["/crates/", "/registry/src/"].iter().find_map(|folder| file.rfind(folder));
    begin.map_or(file, |at| &file[at + 1..])
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it panicked")
}

/// A panic as an error.
pub fn error_of(panic: &(dyn Any + Send)) -> DataFusionError {
    DataFusionError::Execution(fault(panic))
}

/// The panic of a thread that somebody waited for, as an error.
fn told<T>(done: Result<T>) -> Result<T> {
    done.map_err(|error| match error.find_root() {
        DataFusionError::ExecutionJoin(join) if join.is_panic() => {
            let text = join.to_string();
            let text =
                text.split_once("panicked with message ").map_or("it panicked", |(_, text)| text);
            DataFusionError::Execution(described(text.trim_matches('"')))
        }
        _ => error,
    })
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
        let joined = async { tokio::spawn(async { panic!("a task's") }).await };
        let joined = caught::<()>(async {
            joined.await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
        });
        let error = joined.await.unwrap_err().to_string();
        assert!(error.contains("not of the statement: a task's\nhint"), "{error}");
        let tenth = |by| Ok(10_u32.checked_div(by).unwrap());
        let mut items = caught_stream(iter([1, 0, 2]).map(tenth));
        assert_eq!(items.try_next().await.unwrap(), Some(10));
        assert!(items.try_next().await.is_err());
        assert_eq!(items.try_next().await.unwrap(), None);
    }
}
