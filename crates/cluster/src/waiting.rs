//! A scheduler at which an idle executor waits for work.
//!
//! Ballista's executors ask for work, and ask again 50 ms later where there is none: before each stage of a query. Here the answer to
//! one that has nothing to do waits until there is something, or for a second.

use std::sync::Arc;
use std::time::Duration;

use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use ballista_core::serde::protobuf::{
    CancelJobParams, CancelJobResult, CleanJobDataParams, CleanJobDataResult,
    CreateUpdateSessionParams, CreateUpdateSessionResult, ExecuteQueryParams, ExecuteQueryResult,
    ExecutorStoppedParams, ExecutorStoppedResult, GetJobMetricsParams, GetJobMetricsResult,
    GetJobStatusParams, GetJobStatusResult, HeartBeatParams, HeartBeatResult, PollWorkParams,
    PollWorkResult, RegisterExecutorParams, RegisterExecutorResult, RemoveSessionParams,
    RemoveSessionResult, UpdateTaskStatusParams, UpdateTaskStatusResult,
};
use ballista_core::serde::scheduler::ExecutorSpecification;
use tokio::sync::Notify;
use tonic::codegen::async_trait;
use tonic::{Request, Response, Status};

/// How long an answer waits: an executor says nothing meanwhile, and counts as lost after six seconds at least. Tasks that are to be
/// run again are told to nobody, and may wait as long.
const WAIT: Duration = Duration::from_secs(1);

/// The scheduler.
pub struct Waiting<S> {
    inner: S,
    work: Arc<Notify>,
}

impl<S> Waiting<S> {
    /// One whose `work` is told when there is some.
    pub fn new(inner: S, work: Arc<Notify>) -> Self {
        Self { inner, work }
    }
}

/// Whether an executor has nothing to do, and so nothing that it would tell.
fn is_idle(asked: &PollWorkParams) -> bool {
    let metadata = asked.metadata.as_ref();
    let Some(specification) = metadata.and_then(|has| has.specification.clone()) else {
        return false;
    };
    let has: ExecutorSpecification = specification.into();
    has.vcores == asked.num_free_vcores
}

/// Methods that are the inner one's.
macro_rules! as_within {
    ($($name:ident: $asked:ty => $told:ty,)*) => {
        #[async_trait]
        impl<S: SchedulerGrpc> SchedulerGrpc for Waiting<S> {
            type ExecuteQueryPushStream = S::ExecuteQueryPushStream;

            async fn poll_work(
                &self,
                request: Request<PollWorkParams>,
            ) -> Result<Response<PollWorkResult>, Status> {
                self.poll(request).await
            }

            async fn execute_query_push(
                &self,
                request: Request<ExecuteQueryParams>,
            ) -> Result<Response<Self::ExecuteQueryPushStream>, Status> {
                self.inner.execute_query_push(request).await
            }

            $(async fn $name(&self, request: Request<$asked>) -> Result<Response<$told>, Status> {
                self.inner.$name(request).await
            })*
        }
    };
}

as_within! {
    register_executor: RegisterExecutorParams => RegisterExecutorResult,
    heart_beat_from_executor: HeartBeatParams => HeartBeatResult,
    update_task_status: UpdateTaskStatusParams => UpdateTaskStatusResult,
    create_update_session: CreateUpdateSessionParams => CreateUpdateSessionResult,
    remove_session: RemoveSessionParams => RemoveSessionResult,
    execute_query: ExecuteQueryParams => ExecuteQueryResult,
    get_job_status: GetJobStatusParams => GetJobStatusResult,
    get_job_metrics: GetJobMetricsParams => GetJobMetricsResult,
    executor_stopped: ExecutorStoppedParams => ExecutorStoppedResult,
    cancel_job: CancelJobParams => CancelJobResult,
    clean_job_data: CleanJobDataParams => CleanJobDataResult,
}

impl<S: SchedulerGrpc> Waiting<S> {
    async fn poll(
        &self,
        request: Request<PollWorkParams>,
    ) -> Result<Response<PollWorkResult>, Status> {
        let (metadata, extensions, asked) = request.into_parts();
        let is_idle = is_idle(&asked);
        // What its tasks have come to is told once.
        let again = PollWorkParams { task_status: Vec::new(), ..asked.clone() };
        let asked = Request::from_parts(metadata.clone(), extensions.clone(), asked);
        // What comes while the question is answered counts too.
        let mut work = std::pin::pin!(self.work.notified());
        work.as_mut().enable();
        let told = self.inner.poll_work(asked).await?;
        let PollWorkResult { tasks, jobs_to_clean } = told.get_ref();
        if !is_idle || !tasks.is_empty() || !jobs_to_clean.is_empty() {
            return Ok(told);
        }
        match tokio::time::timeout(WAIT, work).await {
            Ok(()) => self.inner.poll_work(Request::from_parts(metadata, extensions, again)).await,
            Err(_) => Ok(told),
        }
    }
}
