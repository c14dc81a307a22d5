//! One connection of HTTP: how long a client may take, and how many there may be.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use headrace_engine::failure::{Class, Failure};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt;

use super::answer::failed;
use super::patient::Patient;
use crate::server::until;
use crate::tls::Tls;

/// The longest statement.
const STATEMENT_BYTES_MAX: usize = 16 << 20;

/// How much more of a request is read only to be thrown away. A client that still sends when its connection is closed sees
/// that, and not the answer.
const DRAINED_BYTES_MAX: usize = 256 << 20;

/// How long a client may take to send the head of a request, or is idle between two.
const HEAD: Duration = Duration::from_secs(60);

/// Connections whose clients have not shown that they may ask.
const STRANGERS_MAX: usize = 256;

/// How long it may take to send the body.
const BODY: Duration = Duration::from_secs(60);

/// The answer to a request that is not taken.
pub type Refusal = Box<Response>;

/// Connections of those who may ask, and of others.
#[derive(Clone)]
pub struct Places {
    known: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Places {
    pub fn new(connections_max: usize) -> Self {
        let of = |count| Arc::new(Semaphore::new(count));
        Self { known: of(connections_max), strangers: of(STRANGERS_MAX) }
    }
}

/// The place of a connection: a stranger's until one of its requests may be answered.
#[derive(Clone)]
pub struct Seat {
    places: Places,
    held: Arc<Mutex<Held>>,
}

struct Held {
    is_known: bool,
    _place: OwnedSemaphorePermit,
}

impl Seat {
    /// Takes the place of those who may ask.
    ///
    /// # Errors
    /// The answer where there is none.
    pub fn settle(&self) -> Result<(), Refusal> {
        let mut held = self.held.lock();
        if !held.is_known {
            let Ok(place) = Arc::clone(&self.places.known).try_acquire_owned() else {
                let text = "there are too many connections: --max-connections is the limit\n";
                return Err(Box::new((StatusCode::SERVICE_UNAVAILABLE, text).into_response()));
            };
            *held = Held { is_known: true, _place: place };
        }
        Ok(())
    }
}

/// Serves a connection to its end, or until the server's: what is answered then is still sent.
pub async fn serve(
    socket: TcpStream,
    tls: Option<Tls>,
    routes: Router,
    places: Places,
    ending: watch::Receiver<bool>,
) {
    // Whoever comes when there are so many strangers is left at once.
    let Ok(stranger) = Arc::clone(&places.strangers).try_acquire_owned() else { return };
    let held = Held { is_known: false, _place: stranger };
    let seat = Seat { places, held: Arc::new(Mutex::new(held)) };
    match tls {
        Some(tls) => {
            if let Ok(stream) = tls.accept(socket).await {
                requests(stream, routes, seat, ending).await;
            }
        }
        None => requests(socket, routes, seat, ending).await,
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    routes: Router,
    seat: Seat,
    mut ending: watch::Receiver<bool>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let service = service_fn(move |mut request: axum::http::Request<Incoming>| {
        request.extensions_mut().insert(seat.clone());
        routes.clone().oneshot(request)
    });
    let connection = builder.serve_connection(TokioIo::new(Patient::new(stream)), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = until(&mut ending) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Reads what a request that is refused still sends, so that its client hears why.
pub async fn drain(headers: &HeaderMap, body: Body) {
    // Such a client asks first whether it may send.
    if !headers.contains_key(header::EXPECT) {
        let _ = tokio::time::timeout(BODY, drained(body.into_data_stream(), 0)).await;
    }
}

async fn drained(mut body: axum::body::BodyDataStream, already_bytes: usize) {
    let mut read_bytes = already_bytes;
    while let Some(Ok(data)) = body.next().await {
        read_bytes += data.len();
        if read_bytes > DRAINED_BYTES_MAX {
            return;
        }
    }
}

/// The body of a request.
///
/// # Errors
/// The answer to one that is too long, comes too slowly, or breaks off.
pub async fn whole(body: Body) -> Result<Bytes, Refusal> {
    let read = async {
        let mut body = body.into_data_stream();
        let mut bytes = Vec::new();
        while let Some(data) = body.next().await {
            let data = data.map_err(|error| {
                let cause = format!("the statement broke off: {error}");
                Box::new(failed(&Failure::new(Class::Syntax, cause)))
            })?;
            if bytes.len() + data.len() > STATEMENT_BYTES_MAX {
                drained(body, bytes.len() + data.len()).await;
                let text = format!("a statement has at most {STATEMENT_BYTES_MAX} bytes\n");
                return Err(Box::new((StatusCode::PAYLOAD_TOO_LARGE, text).into_response()));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Bytes::from(bytes))
    };
    tokio::time::timeout(BODY, read).await.unwrap_or_else(|_| {
        let text = format!("the statement did not come in {} s\n", BODY.as_secs());
        Err(Box::new((StatusCode::REQUEST_TIMEOUT, text).into_response()))
    })
}
