//! An executor: Ballista's, with one runner for all of its tasks.

use std::net::SocketAddr;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::error::BallistaError;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::utils::{GrpcServerConfig, create_grpc_server};
use ballista_executor::ArrowFlightServerProvider;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::shutdown::Shutdown;
use datafusion::execution::runtime_env::RuntimeEnv;
use headrace_engine::{RunnerOptions, Session, SessionOptions};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::service::interceptor::InterceptedService;

use crate::access::{Access, check_listen, check_told};
use crate::args::ExecutorArgs;
use crate::codec::ClusterCodec;
use crate::place::Place;
use crate::settings::{
    MESSAGE_BYTES_MAX, Scheduler, connecting, greeted, incoming, session_config,
};

/// Tasks at a time: each has all cores while it races. Of several, one of a stage that is run again as a whole could still run beside
/// those in its place, and Ballista 55 has them write the same files: rows would be missing.
const TASKS: usize = 1;

/// Serves until a signal ends it; tasks that run then are waited for.
///
/// # Errors
/// There is no scheduler, or one of another version; the address is not this machine's, or taken.
pub async fn serve(args: &ExecutorArgs) -> Result<(), String> {
    let access = Access::of_both(&args.certificate, &args.member)?;
    check_listen(args.listen, &access)?;
    check_told(args.listen)?;
    greeted(&Scheduler { address: args.scheduler, access: access.clone() }).await?;
    let failed =
        |error: &dyn std::fmt::Display| format!("cannot listen at {}: {error}", args.listen);
    let listener = TcpListener::bind(args.listen).await.map_err(|error| failed(&error))?;
    let place = listener.local_addr().map_err(|error| failed(&error))?;
    let limits =
        RunnerOptions { memory_limit_bytes: args.memory_limit, ..RunnerOptions::default() };
    let session = Session::new(SessionOptions { limits, ..SessionOptions::default() });
    let session = session.map_err(|error| format!("the executor cannot start: {error}"))?;
    // A temporary one is there as long as this function.
    let (folder, _temporary) = match &args.work_folder {
        Some(folder) => (shown(folder)?, None),
        None => {
            let made = tempfile::Builder::new().prefix("headrace-cluster-").tempdir();
            let made = made.map_err(|error| format!("a temporary folder: {error}"))?;
            (shown(made.path())?, Some(made))
        }
    };
    eprintln!("executor at {place}, scheduler at {}", args.scheduler);
    let config = config(args, place, folder, &session, (serving(listener, &access), &access));
    let done = start_executor_process(Arc::new(config)).await;
    done.map_err(|error| format!("the executor ended: {error}"))
}

/// A folder by the name that Ballista takes.
fn shown(folder: &std::path::Path) -> Result<String, String> {
    let cause = |what: &dyn std::fmt::Display| format!("{}: {what}", folder.display());
    std::fs::create_dir_all(folder).map_err(|error| cause(&error))?;
    match folder.to_str() {
        Some(text) => Ok(text.to_string()),
        None => Err(cause(&"the name of a work folder must be text")),
    }
}

fn config(
    args: &ExecutorArgs,
    place: SocketAddr,
    work_dir: String,
    session: &Session,
    (serving, access): (Arc<ArrowFlightServerProvider>, &Access),
) -> ExecutorProcessConfig {
    let state = session.context().state();
    let runtime: Arc<RuntimeEnv> = Arc::clone(state.runtime_env());
    let connected = access.clone();
    let codec = ClusterCodec::at(Arc::new(Place::of(session, place)));
    ExecutorProcessConfig {
        bind_host: place.ip().to_string(),
        external_host: Some(place.ip().to_string()),
        port: place.port(),
        scheduler_host: match args.scheduler.ip() {
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
            ip => ip.to_string(),
        },
        scheduler_port: args.scheduler.port(),
        vcores: TASKS,
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        work_dir: Some(work_dir),
        grpc_max_decoding_message_size: MESSAGE_BYTES_MAX as u32,
        grpc_max_encoding_message_size: MESSAGE_BYTES_MAX as u32,
        // No pool for each task: all have the session's, which counts in the runner's budget.
        memory_pool_size: Some(0),
        override_runtime_producer: Some(Arc::new(move |_| Ok(Arc::clone(&runtime)))),
        override_function_registry: Some(Arc::new(BallistaFunctionRegistry::from(&state))),
        override_config_producer: Some(Arc::new(move || session_config(&connected))),
        override_physical_codec: Some(Arc::new(codec)),
        override_arrow_flight_service: Some(serving),
        override_create_grpc_client_endpoint: Some(connecting(access)),
        ..ExecutorProcessConfig::default()
    }
}

/// Serves what tasks have made, at an address that is taken already: Ballista would tell others a port before it has it.
fn serving(listener: TcpListener, access: &Access) -> Arc<ArrowFlightServerProvider> {
    let (listener, access) = (Mutex::new(Some(listener)), access.clone());
    let serve =
        move |folder: String, _: SocketAddr, mut ending: Shutdown, config: GrpcServerConfig| {
            let (listener, access) = (listener.lock().take(), access.clone());
            let served: JoinHandle<Result<(), BallistaError>> = tokio::spawn(async move {
                let once = || BallistaError::Internal("an executor serves once".into());
                let listener = listener.ok_or_else(once)?;
                let service = FlightServiceServer::new(BallistaFlightService::new(folder))
                    .max_decoding_message_size(MESSAGE_BYTES_MAX)
                    .max_encoding_message_size(MESSAGE_BYTES_MAX);
                let checked = access.clone();
                let service = InterceptedService::new(service, move |it| checked.check(it));
                let server = create_grpc_server(&config).add_service(service);
                let end = ending.recv();
                let served = match access.handshaken(listener) {
                    Ok(incoming) => server.serve_with_incoming_shutdown(incoming, end).await,
                    Err(open) => server.serve_with_incoming_shutdown(incoming(open), end).await,
                };
                served.map_err(BallistaError::TonicError)
            });
            served
        };
    Arc::new(serve)
}
