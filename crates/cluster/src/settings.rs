//! What both sides of a connection agree on.

use std::error::Error;
use std::fmt;
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

use crate::access::Access;

/// Bytes of a message: a plan with long lists, the places of all that a stage has made.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// How long a scheduler may take to answer at first.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to answer a question. None of them waits for a job.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// A scheduler, and how it is connected to.
#[derive(Clone)]
pub struct Scheduler {
    pub address: SocketAddr,
    pub access: Access,
}

/// The secret is nobody's who reads a plan.
impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
    }
}

/// What connections of Ballista's are made with.
pub fn connecting(access: &Access) -> EndpointOverrideFn {
    let access = access.clone();
    Arc::new(move |endpoint| access.told(endpoint))
}

/// Settings of Ballista's on all sides.
pub fn session_config(access: &Access) -> SessionConfig {
    SessionConfig::new_with_ballista()
        .with_ballista_grpc_client_max_message_size(MESSAGE_BYTES_MAX)
        .with_ballista_override_create_grpc_client_endpoint(connecting(access))
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

/// Connects to a scheduler that takes this program: Ballista's own calls would try for ever, or fail with less.
///
/// # Errors
/// There is none, or it is of another version, or does not let this side in.
pub async fn greeted(
    Scheduler { address, access }: &Scheduler,
) -> Result<SchedulerGrpcClient<Channel>, String> {
    let fail = |cause: &dyn fmt::Display| {
        format!(
            "{address}: there is no scheduler: {cause}\n\
             hint: headrace-cluster scheduler --listen {address}"
        )
    };
    // What is heard there is not what is spoken here.
    let strange = |error: &(dyn Error + 'static)| {
        let remedy = match access.has_tls() {
            true => {
                "its certificate is to be of --tls-authority and for this address, or it speaks no TLS"
            }
            false => "if it speaks TLS: --tls-authority and --secret-file",
        };
        format!("{address}: no scheduler can be understood: {}\nhint: {remedy}", causes(error))
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|e| fail(&e))?;
    let endpoint = access.told(endpoint).map_err(|error| format!("{address}: {error}"))?;
    let endpoint = endpoint.connect_timeout(CONNECT_PATIENCE).timeout(ANSWER_PATIENCE);
    let channel = match endpoint.connect().await {
        Ok(channel) => channel,
        Err(error) if is_nobody(&causes(&error)) => return Err(fail(&causes(&error))),
        Err(error) => return Err(strange(&error)),
    };
    let mut client = SchedulerGrpcClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    // Of no job: what comes of it is nothing, or that there is none.
    let asked = GetJobStatusParams { job_id: String::new() };
    match client.get_job_status(asked).await {
        Err(status)
            if matches!(status.code(), Code::FailedPrecondition | Code::Unauthenticated) =>
        {
            Err(format!("{address}: {}", status.message()))
        }
        Err(status) => match status.source() {
            Some(cause) => Err(strange(cause)),
            None if matches!(status.code(), Code::Unavailable | Code::Unimplemented) => {
                Err(fail(&status.message()))
            }
            None => Ok(client),
        },
        Ok(_) => Ok(client),
    }
}

/// Whether nobody was there to be understood, by what the library says.
fn is_nobody(causes: &str) -> bool {
    ["tcp connect error", "deadline"].iter().any(|sign| causes.contains(sign))
}

/// An error, and what caused it.
fn causes(error: &(dyn Error + 'static)) -> String {
    let all = std::iter::successors(Some(error), |error| (**error).source());
    let mut texts: Vec<String> = all.map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}
