//! A job of a scheduler's: sent, waited for, read, and ended, also where nobody wants its rows any more.
//!
//! Ballista's own client leaves a job that nobody waits for to its end, and its session for good.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ballista_core::client::BallistaClient;
use ballista_core::error::BallistaError;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::execute_query_result::Result as Submitted;
use ballista_core::serde::protobuf::job_status::Status;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    CancelJobParams, CleanJobDataParams, ExecuteQueryParams, GetJobMetricsParams,
    GetJobStatusParams, JobStageMetrics, KeyValuePair, PartitionLocation, RemoveSessionParams,
};
use ballista_core::utils::GrpcClientConfig;
use ballista_core::version::insert_version_header;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_datafusion_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use tokio::runtime::Handle;
use tonic::Code;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::access::Access;
use crate::failure::heard;
use crate::settings::{MESSAGE_BYTES_MAX, Scheduler, greeted, session_config};

/// How long is waited between two questions whether a job is done: a twentieth of the time that it has taken, so that the end of a
/// short one is soon known, and a long one is not often asked for.
const ASK_INTERVAL_PART: u32 = 20;
const ASK_INTERVAL_MIN: Duration = Duration::from_millis(2);
const ASK_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// How long a scheduler may not know a job that it has taken.
const KNOWN_PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of a process waits until schedulers know that its jobs are over.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Jobs of this process that schedulers do not know to be over.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A job.
pub struct Job {
    address: SocketAddr,
    scheduler: SchedulerGrpcClient<Channel>,
    id: String,
    session: String,
    /// Whether all of its tasks have come to their end.
    is_over: bool,
    /// Where its end is told.
    runtime: Handle,
}

impl Job {
    /// Sends a plan.
    ///
    /// # Errors
    /// There is no scheduler, or it does not take the plan.
    pub async fn submit(place: &Scheduler, plan: Vec<u8>) -> Result<Self> {
        let mut scheduler =
            greeted(place).await.map_err(|cause| exec_datafusion_err!("{cause}"))?;
        // Each has a session of its own there, with nothing of another one's.
        let session = Uuid::new_v4().to_string();
        let mut request = tonic::Request::new(ExecuteQueryParams {
            query: Some(Query::PhysicalPlan(plan)),
            settings: settings(&place.access),
            session_id: session.clone(),
            operation_id: Uuid::new_v4().to_string(),
        });
        insert_version_header(request.metadata_mut());
        let submitted = scheduler.execute_query(request).await.map_err(failed)?;
        let id = match submitted.into_inner().result {
            Some(Submitted::Success(success)) => success.job_id,
            Some(Submitted::Failure(failure)) => {
                return Err(heard(exec_datafusion_err!("{failure:?}")));
            }
            None => return Err(heard(exec_datafusion_err!("the scheduler said nothing"))),
        };
        OPEN.fetch_add(1, Ordering::Relaxed);
        let address = place.address;
        Ok(Self { address, scheduler, id, session, is_over: false, runtime: Handle::current() })
    }

    /// Waits until it is done; returns where its rows are.
    ///
    /// # Errors
    /// Why it failed.
    pub async fn done(&mut self) -> Result<Vec<PartitionLocation>> {
        let began = Instant::now();
        // A scheduler may hear of a job a moment after it has taken it.
        let mut known_until = Instant::now() + KNOWN_PATIENCE;
        loop {
            let asked = GetJobStatusParams { job_id: self.id.clone() };
            let told = self.scheduler.get_job_status(asked).await;
            let told = told.map_err(|status| self.failed(&status))?;
            match told.into_inner().status.and_then(|status| status.status) {
                Some(Status::Failed(job)) => {
                    return Err(heard(exec_datafusion_err!("{}", job.error)));
                }
                Some(Status::Successful(job)) => {
                    self.is_over = true;
                    return Ok(job.partition_location);
                }
                Some(Status::Queued(_) | Status::Running(_)) => known_until = Instant::now(),
                None if Instant::now() > known_until => {
                    return Err(self.lost("it has been started again"));
                }
                None => {}
            }
            let interval = began.elapsed() / ASK_INTERVAL_PART;
            tokio::time::sleep(interval.clamp(ASK_INTERVAL_MIN, ASK_INTERVAL_MAX)).await;
        }
    }
}

impl Job {
    fn failed(&self, status: &tonic::Status) -> DataFusionError {
        match status.code() {
            Code::Unavailable | Code::Unknown => self.lost(status.message()),
            _ => failed(status.clone()),
        }
    }

    /// A scheduler that ends forgets its jobs; one that comes in its place has never heard of them.
    fn lost(&self, cause: &str) -> DataFusionError {
        exec_datafusion_err!(
            "{}: the scheduler is lost, and the query with it: {cause}\nhint: run the query again",
            self.address
        )
    }

    /// What the stages did of one that is done.
    ///
    /// # Errors
    /// The scheduler does not know any more.
    pub async fn stages(&mut self) -> Result<Vec<JobStageMetrics>> {
        let asked = GetJobMetricsParams { job_id: self.id.clone() };
        Ok(self.scheduler.get_job_metrics(asked).await.map_err(failed)?.into_inner().stages)
    }
}

impl Drop for Job {
    /// No more of its tasks are dealt out, and what they have made is removed.
    fn drop(&mut self) {
        let (mut scheduler, session_id) = (self.scheduler.clone(), self.session.clone());
        let (job_id, is_over) = (self.id.clone(), self.is_over);
        self.runtime.spawn(async move {
            // Who is gone has nothing to be told.
            if !is_over {
                let _ = scheduler.cancel_job(CancelJobParams { job_id: job_id.clone() }).await;
            }
            let remove_stage_ids = Vec::new();
            let _ = scheduler.clean_job_data(CleanJobDataParams { job_id, remove_stage_ids }).await;
            let _ = scheduler.remove_session(RemoveSessionParams { session_id }).await;
            OPEN.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Waits until schedulers know which jobs of this process are over, but not for long.
pub async fn ended() {
    let all = async {
        while OPEN.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(ASK_INTERVAL_MIN).await;
        }
    };
    let _ = tokio::time::timeout(END_PATIENCE, all).await;
}

/// Rows of a job.
///
/// # Errors
/// Whoever has them is gone.
pub async fn fetched(
    location: PartitionLocation,
    access: Access,
) -> Result<SendableRecordBatchStream> {
    let layout = location.layout();
    let (Some(executor), Some(partition)) = (location.executor_meta, location.partition_id) else {
        return Err(internal_datafusion_err!("rows of a job that lie nowhere"));
    };
    let config = session_config(&access);
    let retries = GrpcClientConfig::from(&config.ballista_config());
    let (host, port) = (executor.host.as_str(), executor.port as u16);
    let client = BallistaClient::try_new(
        host,
        port,
        MESSAGE_BYTES_MAX,
        false,
        config.ballista_override_create_grpc_client_endpoint(),
        retries.io_retries_times,
        retries.io_retry_wait_time_ms,
        0,
        0,
    );
    let gone = |error: BallistaError| {
        exec_datafusion_err!(
            "executor {host}:{port} has the answer and does not give it: {error}\nhint: run the query again"
        )
    };
    let mut client = client.await.map_err(gone)?;
    let rows = client
        .fetch_partition_proxied(
            &executor.id,
            &partition.into(),
            location.file_id,
            layout,
            host,
            port,
            true,
        )
        .await;
    let rows = rows.map_err(gone)?;
    Ok(Box::pin(RecordBatchStreamAdapter::new(rows.schema(), rows.map_err(heard))))
}

/// What tasks are to know of Ballista's settings.
fn settings(access: &Access) -> Vec<KeyValuePair> {
    let config = session_config(access);
    let entries = config.options().entries().into_iter();
    entries.map(|entry| KeyValuePair { key: entry.key, value: entry.value }).collect()
}

fn failed(status: tonic::Status) -> DataFusionError {
    heard(exec_datafusion_err!("{}", status.message()))
}
