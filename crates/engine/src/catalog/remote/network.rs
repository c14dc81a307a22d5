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
        match tokio::time::timeout(limit, self.0.execute(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(HttpError::new(HttpErrorKind::Timeout, no_answer(limit))),
        }
    }
}

/// The error of a server that keeps silent.
pub fn no_answer(after: Duration) -> io::Error {
    let text = format!("the server did not answer for {} s", after.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}
