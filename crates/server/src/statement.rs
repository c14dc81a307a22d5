//! One statement of a user, from its text to its stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::SchemaRef;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use futures::{Stream, StreamExt};
use headrace_engine::failure::{Class, Failure};
use headrace_engine::sql::effect::Effect;
use headrace_engine::{GivenTables, Query, QueryReport, Session};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::admission::{Place, SMALL_ROWS};
use crate::open::{OPEN_MAX, Open, PAUSE_MAX, READ_PATIENCE};
use crate::pg::Command;
use crate::server::{LEVERS, Server};

/// Characters of a statement that the log has.
const LOGGED_MAX: usize = 1000;

/// Who asks, and what they may.
#[derive(Clone, Debug)]
pub struct Asker {
    pub name: String,
    /// Requests that other pages can make, such as links, change nothing.
    pub may_write: bool,
}

/// A statement that is planned. Those that change a session, tables or files have done so.
pub struct Planned {
    server: Arc<Server>,
    session: Session,
    asker: Asker,
    sql: String,
    query: Query,
    started: Instant,
}

/// A statement that runs. It is ended when it is dropped, and counted then.
pub struct Running {
    planned: Planned,
    open: Arc<Mutex<Open>>,
    size: Size,
    rows: u64,
    /// `None` until it has ended.
    is_answered: Option<bool>,
}

/// Plans a statement of somebody who may have it done, over the tables of a session and those that are given.
pub async fn plan(
    server: &Arc<Server>,
    session: &Session,
    asker: &Asker,
    sql: &str,
    given: GivenTables,
) -> Result<Planned, Failure> {
    let started = Instant::now();
    let effect = session.effect(sql);
    let planned = match may(server, effect, asker, sql) {
        Ok(()) => in_turn(server, session, effect, asker, sql, given).await,
        Err(failure) => Err(failure),
    };
    match planned {
        Ok(query) => {
            let (server, session) = (Arc::clone(server), session.clone());
            let (asker, sql) = (asker.clone(), sql.to_string());
            Ok(Planned { server, session, asker, sql, query, started })
        }
        Err(failure) => {
            server.metrics.failed(&failure, started.elapsed());
            Err(failure)
        }
    }
}

/// Plans a statement. A CREATE runs its query here, and waits for its turn before.
async fn in_turn(
    server: &Server,
    session: &Session,
    effect: Effect,
    asker: &Asker,
    sql: &str,
    given: GivenTables,
) -> Result<Query, Failure> {
    let is_create = || matches!(Command::of(sql), Command::Engine(first) if first == "CREATE");
    let _place = match effect {
        Effect::Writes | Effect::Functions if is_create() => {
            Some(turn(server, asker, Size::Large).await?)
        }
        _ => None,
    };
    let planned = session.sql_over(sql, given).await;
    planned.map_err(|error| Failure::of_statement(session, sql, &error, &LEVERS))
}

/// Whether somebody may have a statement done.
fn may(server: &Server, effect: Effect, asker: &Asker, sql: &str) -> Result<(), Failure> {
    match effect {
        Effect::Reads => return Ok(()),
        Effect::Session => return may_set(server, sql),
        Effect::Functions => return may_make_functions(server, asker),
        Effect::Writes if server.is_writable && asker.may_write => return Ok(()),
        Effect::Writes => {}
    }
    let failure = Failure::new(Class::Forbidden, "this statement changes tables or files");
    Err(failure.hint(match server.is_writable {
        true => ONLY_READS,
        false => "the server was not started with --writable",
    }))
}

const ONLY_READS: &str = "this request, or this transaction, is one that only reads";

/// Whether somebody may make functions in CUDA, or drop their own. Their code has no bounds within the GPU service: to write tables is
/// another right, and neither has the other. A name that has shown no password is nobody's.
fn may_make_functions(server: &Server, asker: &Asker) -> Result<(), Failure> {
    let name = &asker.name;
    match &server.users {
        Some(users) if users.may_make_functions(name) && asker.may_write => Ok(()),
        Some(users) if users.may_make_functions(name) => {
            let cause = "this statement makes or drops a function in CUDA";
            Err(Failure::new(Class::Forbidden, cause).hint(ONLY_READS))
        }
        Some(_) => {
            let cause = format!("{name} may not make functions in CUDA");
            let hint = format!("whoever runs the server starts it with --cuda-functions {name}");
            Err(Failure::new(Class::Forbidden, cause).hint(hint))
        }
        None => {
            let cause = "nobody may make functions in CUDA where no passwords are asked for";
            let hint = "whoever runs the server starts it with --users FILE --cuda-functions USER";
            Err(Failure::new(Class::Forbidden, cause).hint(hint))
        }
    }
}

/// Whether somebody may change a setting of a session. Those of the planner reach further than a session: to folders, to memory, to
/// how texts are read.
fn may_set(server: &Server, sql: &str) -> Result<(), Failure> {
    if server.reaches_all || is_of_session(&Command::of(sql)) {
        return Ok(());
    }
    let failure = Failure::new(Class::Forbidden, "this is no setting of a session");
    Err(failure.hint("SHOW ALL lists those of headrace, which are"))
}

/// Whether a statement changes nothing but its session. A SET that is written in another way than is known here may be of anything.
fn is_of_session(command: &Command) -> bool {
    match command {
        Command::Set { name, .. } => {
            let name = name.to_ascii_lowercase();
            let own = name.strip_prefix("headrace.").unwrap_or(&name);
            !own.contains('.') && own != "gpu_service"
        }
        Command::Engine(first) => matches!(first.as_str(), "PREPARE" | "DEALLOCATE"),
        _ => true,
    }
}

impl Planned {
    pub fn schema(&self) -> SchemaRef {
        self.query.schema()
    }

    /// Waits for the statement's turn, and begins it.
    pub async fn begin(self) -> Result<Running, Failure> {
        let size = Size::of(self.query.plan(), self.query.progress().rows_total);
        let begun =
            self.admitted(size).await.and_then(|(place, permit)| match self.query.stream() {
                Ok(stream) => Ok((place, permit, stream)),
                Err(error) => Err(Failure::of_statement(&self.session, &self.sql, &error, &LEVERS)),
            });
        match begun {
            Ok((place, permit, stream)) => {
                let open = self.server.open.begin(stream, place, permit);
                Ok(Running { planned: self, open, size, rows: 0, is_answered: None })
            }
            Err(failure) => {
                self.server.metrics.failed(&failure, self.started.elapsed());
                Err(failure)
            }
        }
    }

    async fn admitted(&self, size: Size) -> Result<(Place, OwnedSemaphorePermit), Failure> {
        let permit = self.server.open.permit().ok_or_else(|| {
            let cause = format!("{OPEN_MAX} answers are open that nobody has taken to their end");
            Failure::new(Class::Busy, cause).hint("close cursors, or take their rows")
        })?;
        Ok((turn(&self.server, &self.asker, size).await?, permit))
    }
}

/// How much a statement may do, as far as its plan tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// It reads little, and each row once: it does not wait for large ones.
    Small,
    Large,
}

impl Size {
    fn of(plan: &Arc<dyn ExecutionPlan>, rows: u64) -> Self {
        match rows < SMALL_ROWS && is_small(plan) {
            true => Self::Small,
            false => Self::Large,
        }
    }
}

/// Whether a plan has only leaves that are known to be small, and joins no rows with all others.
fn is_small(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if matches!(plan.name(), "CrossJoinExec" | "NestedLoopJoinExec" | "RecursiveQueryExec") {
        return false;
    }
    let children = plan.children();
    if !children.is_empty() {
        return children.into_iter().all(is_small);
    }
    // What a pipeline reads has been counted.
    if matches!(plan.name(), "PipelineExec" | "PlaceholderRowExec" | "EmptyExec") {
        return true;
    }
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    let rows = statistics.ok().and_then(|statistics| statistics.num_rows.get_value().copied());
    rows.is_some_and(|rows| (rows as u64) < SMALL_ROWS)
}

/// Waits until it is somebody's turn.
async fn turn(server: &Server, asker: &Asker, size: Size) -> Result<Place, Failure> {
    let admission = match size {
        Size::Small => &server.small,
        Size::Large => &server.admission,
    };
    admission.enter(&asker.name).await.ok_or_else(|| {
        let cause = "too many statements run, and it was not this one's turn in time";
        Failure::new(Class::Busy, cause).hint("ask again later")
    })
}

impl Running {
    pub fn schema(&self) -> SchemaRef {
        self.planned.schema()
    }

    /// What it did so far.
    pub fn report(&self) -> QueryReport {
        self.planned.query.report(self.rows)
    }

    /// Lets others have the place of a statement that nobody asks for rows now.
    pub fn pause(&mut self) {
        let mut open = self.open.lock();
        (open.place, open.is_paused, open.asked) = (None, true, Instant::now());
    }

    /// Waits for a place again.
    pub async fn resume(&mut self) -> Result<(), Failure> {
        if !self.open.lock().is_paused || self.is_answered.is_some() {
            return Ok(());
        }
        let place = turn(&self.planned.server, &self.planned.asker, self.size).await?;
        let mut open = self.open.lock();
        (open.place, open.is_paused, open.asked) = (Some(place), false, Instant::now());
        Ok(())
    }
}

/// The rows that a statement says that it has written, if this is what it says.
pub fn written(batch: &RecordBatch) -> Option<u64> {
    let [column] = batch.columns() else { return None };
    let counts = column.as_primitive_opt::<UInt64Type>()?;
    (!counts.is_empty()).then(|| counts.value(0))
}

impl Stream for Running {
    type Item = Result<RecordBatch, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_answered.is_some() {
            return Poll::Ready(None);
        }
        let next = {
            let mut open = self.open.lock();
            open.asked = Instant::now();
            match &mut open.stream {
                Some(stream) => {
                    let next = stream.poll_next_unpin(context);
                    open.is_busy = next.is_pending();
                    next
                }
                None => {
                    drop(open);
                    self.is_answered = Some(false);
                    let failure = Failure::new(
                        Class::TimedOut,
                        "nobody has taken rows of the answer for long",
                    );
                    let hint = format!(
                        "take them within {READ_PATIENCE:?}, of a cursor within {PAUSE_MAX:?}"
                    );
                    return Poll::Ready(Some(Err(failure.hint(hint))));
                }
            }
        };
        let Poll::Ready(next) = next else { return Poll::Pending };
        Poll::Ready(match next {
            Some(Ok(batch)) => {
                self.rows += batch.num_rows() as u64;
                Some(Ok(batch))
            }
            Some(Err(error)) => {
                self.is_answered = Some(false);
                let Planned { session, sql, .. } = &self.planned;
                Some(Err(Failure::of_statement(session, sql, &error, &LEVERS)))
            }
            None => {
                self.is_answered = Some(true);
                None
            }
        })
    }
}

impl Drop for Running {
    /// Counts the statement as failed unless all its rows were taken.
    fn drop(&mut self) {
        let Planned { server, asker, sql, started, .. } = &self.planned;
        let (report, took) = (self.report(), started.elapsed());
        let is_answered = self.is_answered == Some(true);
        server.metrics.ended(is_answered, (self.rows, report.bytes_read), took);
        if took >= server.slow {
            let sql: String = sql.chars().take(LOGGED_MAX).collect();
            let line = serde_json::json!({
                "slow": took.as_secs_f64(),
                "user": asker.name,
                "answered": is_answered,
                "rows": self.rows,
                "read_bytes": report.bytes_read,
                "processor": report.processor,
                "sql": sql,
            });
            eprintln!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_change_their_own_settings_only() {
        for (sql, is_own) in [
            ("set headrace.threads = 1", true),
            ("SET statement_timeout TO '5s'", true),
            ("set time zone 'UTC'", true),
            ("reset all", true),
            ("prepare p as select $1", true),
            ("deallocate p", true),
            ("set datafusion.runtime.memory_limit = '900G'", false),
            ("SET SESSION datafusion.runtime.temp_directory = '/tmp'", false),
            ("reset datafusion.sql_parser.dialect", false),
            ("set \"datafusion\".\"runtime\".\"memory_limit\" = '1'", false),
            ("set global datafusion.runtime.memory_limit = '1'", false),
            ("set headrace.gpu_service = '/tmp'", false),
            ("set (a, b) = (1, 2)", false),
        ] {
            assert_eq!(is_of_session(&Command::of(sql)), is_own, "{sql}");
        }
    }
}
