//! The threads that talk to servers: what is waited for, how long, and what is counted.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use headrace_io::is_abandoned;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Threads that talk to servers.
const THREADS: usize = 2;

/// Until a connection stands.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Until a server begins to answer, or goes on with what it began.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// Until it answers to what was sent to it.
const SENT_TIMEOUT: Duration = Duration::from_secs(120);

/// Ranges of files that are on their way at a time: with the size of a request they bound the memory.
const REQUESTS_MAX: usize = 32;

/// How often those who wait look whether they still have to.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Requests that were sent, repetitions included.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Bytes of files that came.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Whoever holds one of these may have a range on its way.
pub static ANSWERS: Semaphore = Semaphore::const_new(REQUESTS_MAX);

/// Requests sent and bytes of files received by this process so far.
pub fn traffic() -> (u64, u64) {
    (REQUESTS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed))
}

/// Takes note of bytes of a file.
pub fn received(bytes: usize) {
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("network")
        .enable_all()
        .build()?;
    Ok(RUNTIME.get_or_init(|| made))
}

/// Work on the network's threads. Dropped, it ends.
pub struct Task<T>(JoinHandle<T>);

impl<T> Future for Task<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(io::Error::other)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Begins work on the network's threads.
///
/// # Errors
/// If there can be none.
pub fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> io::Result<Task<T>> {
    Ok(Task(runtime()?.spawn(work)))
}

/// Has work done by the network's threads, and waits for it on whatever thread this is.
///
/// # Errors
/// If it panics, and where whoever wanted it has given up.
pub fn wait<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = sync_channel(1);
    let _task = spawn(async move {
        // Nobody listens any more if the one who waited has given up.
        let _ = sender.send(work.await);
    })?;
    loop {
        match receiver.recv_timeout(LOOK_INTERVAL) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the client of the server panicked"));
            }
            Err(RecvTimeoutError::Timeout) if is_abandoned() => {
                return Err(io::Error::other("nobody waits for it any more"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A few times, and not for long: a server that is down is an error soon.
pub fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 3.0,
        },
        max_retries: 3,
        retry_timeout: Duration::from_secs(8),
    }
}

/// A client that all web servers share; its timeouts are those of [`Watched`].
///
/// # Errors
/// If the machine's certificates cannot be read.
pub fn web_client() -> object_store::Result<HttpClient> {
    static CLIENT: OnceLock<HttpClient> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client.clone());
    }
    let options = ClientOptions::new()
        .with_allow_http(true)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout_disabled();
    let made = Watching.connect(&options)?;
    Ok(CLIENT.get_or_init(|| made).clone())
}

/// One client for whatever is to be connected.
#[derive(Debug)]
pub struct Shared(pub HttpClient);

impl HttpConnector for Shared {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.0.clone())
    }
}

/// Clients whose requests are counted, and not waited for without end.
#[derive(Debug)]
pub struct Watching;

impl HttpConnector for Watching {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Watched(inner)))
    }
}

#[derive(Debug)]
struct Watched(HttpClient);

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        let is_sent = request.body().content_length() > 0;
        let limit = if is_sent { SENT_TIMEOUT } else { ANSWER_TIMEOUT };
        let asks_part = request.headers().contains_key("range");
        match tokio::time::timeout(limit, self.0.execute(request)).await {
            Ok(Ok(answer)) if answer.status().as_u16() == 206 => {
                let header =
                    |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
                check_part(asks_part, header("content-range"), header("content-length"))
                    .map_err(|cause| HttpError::new(HttpErrorKind::Decode, cause))?;
                Ok(answer)
            }
            Ok(answer) => answer,
            Err(_) => Err(HttpError::new(HttpErrorKind::Timeout, no_answer(limit))),
        }
    }
}

/// A part of a file must have been asked for, and say which part it is: whoever took it for the whole would lose rows.
fn check_part(is_asked: bool, range: Option<&str>, length: Option<&str>) -> io::Result<()> {
    let text = range.unwrap_or_default();
    let fail = |what: &str| {
        let text: String = text.chars().take(80).collect();
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{what} (206, Content-Range '{text}')"),
        ))
    };
    if !is_asked {
        return fail("the server sent a part of the file where all of it was asked for");
    }
    let Some((first, last, size)) = part_of(text) else {
        return fail("the server sent a part of the file and does not say which");
    };
    let is_whole = length.and_then(|length| length.parse::<u64>().ok());
    let is_sound = first <= last && size.is_none_or(|size| last < size);
    match is_sound && is_whole.is_none_or(|length| last - first == length.saturating_sub(1)) {
        true => Ok(()),
        false => fail("the server sent a part that the file cannot have"),
    }
}

/// First and last byte, and the bytes of all, of `bytes 0-9/100`; `*`: the server does not know them.
fn part_of(range: &str) -> Option<(u64, u64, Option<u64>)> {
    let (part, size) = range.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = part.split_once('-')?;
    let size = match size {
        "*" => None,
        size => Some(size.parse().ok()?),
    };
    Some((first.parse().ok()?, last.parse().ok()?, size))
}

/// The error of a server that keeps silent.
pub fn no_answer(after: Duration) -> io::Error {
    let text = format!("the server did not answer for {} s", after.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_that_were_asked_for() {
        for (is_asked, range, length, is_sound) in [
            (true, Some("bytes 0-9/100"), Some("10"), true),
            (true, Some("bytes 0-9/*"), None, true),
            (true, Some("bytes 0-9/100"), Some("9"), false),
            (false, Some("bytes 0-9/100"), Some("10"), false),
            (false, None, None, false),
            (true, Some("bytes 0-9/9"), Some("10"), false),
            (true, Some("bytes 9-0/100"), None, false),
            (true, Some("9-0/-1"), None, false),
            (true, None, Some("10"), false),
        ] {
            assert_eq!(check_part(is_asked, range, length).is_ok(), is_sound, "{range:?}");
        }
    }
}
