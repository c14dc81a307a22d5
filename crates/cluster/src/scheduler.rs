//! The scheduler: Ballista's, behind a check of who comes.

use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use ballista_scheduler::scheduler_server::JobIdGenerator;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tonic::codegen::async_trait;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use uuid::Uuid;

use crate::access::{Access, check_listen};
use crate::args::SchedulerArgs;
use crate::codec::ClusterCodec;
use crate::settings::{MESSAGE_BYTES_MAX, connecting, incoming, session_config};
use crate::waiting::Waiting;

/// Attempts at a task whose reading failed.
const TASK_ATTEMPTS: usize = 4;

/// Seconds between two looks for executors that are lost.
const LOOK_INTERVAL_S: u64 = 2;

/// Seconds that jobs wait for an executor at least when all are lost: one that was only busy comes back.
const NO_EXECUTORS_S: u64 = 60;

/// Names of jobs. Ballista's own have a thread that looks at the clock a thousand times a second.
struct Names;

#[async_trait]
impl JobIdGenerator for Names {
    async fn next_id(&self) -> String {
        Uuid::new_v4().simple().to_string()
    }
}

/// Serves until the process ends.
///
/// # Errors
/// The address is not this machine's, or taken.
pub async fn serve(args: &SchedulerArgs) -> Result<(), String> {
    let access = Access::of_server(&args.certificate, args.secret_file.as_deref())?;
    check_listen(args.listen, &access)?;
    let failed =
        |error: &dyn std::fmt::Display| format!("cannot listen at {}: {error}", args.listen);
    let listener = TcpListener::bind(args.listen).await.map_err(|error| failed(&error))?;
    let place = listener.local_addr().map_err(|error| failed(&error))?;
    let work = Arc::new(Notify::new());
    let told = Arc::clone(&work);
    let config = SchedulerConfig {
        external_host: place.ip().to_string(),
        bind_host: place.ip().to_string(),
        bind_port: place.port(),
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        executor_timeout_seconds: args.executor_timeout,
        expire_dead_executor_interval_seconds: LOOK_INTERVAL_S,
        no_executors_grace_period_seconds: args.executor_timeout.max(NO_EXECUTORS_S),
        task_max_failures: TASK_ATTEMPTS,
        grpc_server_max_decoding_message_size: MESSAGE_BYTES_MAX as u32,
        grpc_server_max_encoding_message_size: MESSAGE_BYTES_MAX as u32,
        grpc_client_max_message_size: MESSAGE_BYTES_MAX as u32,
        override_config_producer: Some(Arc::new({
            let access = access.clone();
            move || session_config(&access)
        })),
        override_physical_codec: Some(Arc::new(ClusterCodec::default())),
        override_create_grpc_client_endpoint: Some(connecting(&access)),
        job_id_generator: Some(Arc::new(Names)),
        on_work_available: Some(Arc::new(move |_| told.notify_waiters())),
        ..SchedulerConfig::default()
    };
    let broken = |error: &dyn std::fmt::Display| format!("the scheduler cannot start: {error}");
    config.validate().map_err(|error| broken(&error))?;
    let cluster = BallistaCluster::new_from_config(&config).await.map_err(|e| broken(&e))?;
    let scheduler =
        create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config)).await;
    let scheduler = scheduler.map_err(|error| broken(&error))?;
    let service = SchedulerGrpcServer::new(Waiting::new(scheduler, work))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let checked = access.clone();
    let service = InterceptedService::new(service, move |request| checked.check(request));
    eprintln!("scheduler at {place} for {}", access.whom());
    let served = Server::builder().add_service(service);
    let served = match access.handshaken(listener) {
        Ok(incoming) => served.serve_with_incoming(incoming).await,
        Err(listener) => served.serve_with_incoming(incoming(listener)).await,
    };
    served.map_err(|error| broken(&error))
}
