//! One connection of HTTP: how long a client may take, and how many there may be.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use headrace_engine::failure::{Class, Failure};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::answer::failed;
use crate::server::until;
use crate::tls::Tls;

/// The longest statement.
const STATEMENT_BYTES_MAX: usize = 16 << 20;

/// How much more of a request is read only to be thrown away. A client that still sends when its connection is closed sees
/// that, and not the answer.
const DRAINED_BYTES_MAX: usize = 256 << 20;

/// How long a client may take to send the head of a request, or is idle between two.
const HEAD: Duration = Duration::from_secs(60);

/// How long it may take to send the body.
const BODY: Duration = Duration::from_secs(60);

/// The answer to a request that is not taken.
pub type Refusal = Box<Response>;

/// Serves a connection to its end, or until the server's: what is answered then is still sent.
pub async fn serve(
    mut socket: TcpStream,
    tls: Option<Tls>,
    routes: Router,
    has_place: bool,
    ending: watch::Receiver<bool>,
) {
    match tls {
        // To say more would take the work of a handshake.
        Some(_) if !has_place => {}
        Some(tls) => {
            if let Ok(stream) = tls.accept(socket).await {
                requests(stream, routes, ending).await;
            }
        }
        None if !has_place => {
            let full = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = socket.write_all(full.as_bytes()).await;
        }
        None => requests(socket, routes, ending).await,
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    routes: Router,
    mut ending: watch::Receiver<bool>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let service = TowerToHyperService::new(routes);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
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
