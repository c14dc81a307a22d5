//! What both sides of a connection agree on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::extension::{EndpointOverrideFn, SessionConfigExt};
use ballista_core::serde::protobuf::GetJobStatusParams;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use datafusion::prelude::SessionConfig;
use futures::{Stream, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::version::told;

/// Bytes of a message: a plan with long lists, the places of all that a stage has made.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// How long a scheduler may take to answer at first.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to answer a question. None of them waits for a job.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// What connections of Ballista's are made with.
pub fn connecting() -> EndpointOverrideFn {
    Arc::new(told)
}

/// Settings of Ballista's on all sides.
pub fn session_config() -> SessionConfig {
    SessionConfig::new_with_ballista()
        .with_ballista_grpc_client_max_message_size(MESSAGE_BYTES_MAX)
        .with_ballista_override_create_grpc_client_endpoint(connecting())
}

/// Connections that somebody makes. What is written leaves at once: otherwise the end of an answer waits 40 ms for the other side's
/// word that it has the beginning.
pub fn incoming(listener: TcpListener) -> impl Stream<Item = io::Result<TcpStream>> {
    TcpListenerStream::new(listener).map(|made| {
        let connection = made?;
        connection.set_nodelay(true)?;
        Ok(connection)
    })
}

fn url(scheduler: SocketAddr) -> String {
    format!("http://{scheduler}")
}

/// Connects to a scheduler that takes this program: Ballista's own calls would try for ever, or fail with less.
///
/// # Errors
/// There is none, or it is of another version.
pub async fn greeted(scheduler: SocketAddr) -> Result<SchedulerGrpcClient<Channel>, String> {
    let fail = |cause: &dyn std::fmt::Display| {
        format!(
            "{scheduler}: there is no scheduler: {cause}\n\
             hint: headrace-cluster scheduler --listen {scheduler}"
        )
    };
    let endpoint = Endpoint::from_shared(url(scheduler)).map_err(|error| fail(&error))?;
    let endpoint = endpoint.connect_timeout(CONNECT_PATIENCE).timeout(ANSWER_PATIENCE);
    let endpoint = told(endpoint).map_err(|error| fail(&error))?;
    let channel = endpoint.connect().await.map_err(|error| fail(&error))?;
    let mut client = SchedulerGrpcClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    // Of no job: what comes of it is nothing, or that there is none.
    let asked = GetJobStatusParams { job_id: String::new() };
    match client.get_job_status(asked).await {
        Err(status) if status.code() == Code::FailedPrecondition => {
            Err(format!("{scheduler}: {}", status.message()))
        }
        Err(status) if matches!(status.code(), Code::Unavailable | Code::Unimplemented) => {
            Err(fail(&status.message()))
        }
        _ => Ok(client),
    }
}
