//! A session: tables, settings, queries.
//!
//! A plan that spills can deadlock in DataFusion 55, because a repartition's reader stays with its oldest spill
//! file. Sessions close a spill file after each batch.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{SchemaProvider, TableFunctionImpl, TableProvider};
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::common::format::ExplainFormat;
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{DdlStatement, LogicalPlan, ScalarUDF};
use datafusion::optimizer::{Analyzer, AnalyzerRule};
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::stream::{iter, try_unfold};
use futures::{StreamExt, TryStreamExt};

use headrace_flow::Trace;
use headrace_runner::{Given, Runner, RunnerOptions, Settings};
use tokio::runtime::Handle;

use crate::apart::{Threads, Waiting};
use crate::catalog::remote::traffic;
use crate::catalog::{
    Found, FoundTable, HeadraceTable, Reach, Schemas, TableEntry, Tables, find_tables, table_notes,
    with_opened,
};
use crate::config::{HeadraceConfig, settings_of, statement_timeout_of};
use crate::copy::Staging;
use crate::copy_beside::staged;
use crate::error::blocking;
use crate::explain::{as_shown, explained, is_explained};
use crate::fixes::cast_names::Named;
use crate::fixes::deep_expressions::OnLargeStack;
use crate::fixes::extremes;
use crate::fixes::parts::{InParts, Restoring};
use crate::fixes::stars::{Everything, OfSubqueries};
use crate::fixes::unread_joins::{Reader, Readers, watched};
use crate::functions;
use crate::held_tables::with_table_made;
use crate::home_folder::Home;
use crate::overflow::CheckedArithmeticRule;
use crate::overflow::avg::exact_avg;
use crate::overflow::sum::checked_sum;
use crate::panics::{caught, caught_stream};
use crate::plan_cache::{KnownPlan, Loan, PlanCache, changes_session, context_of_known, tables_of};
use crate::planner_memory;
use crate::planner_rules::optimizer_rules;
use crate::report::{QueryProgress, QueryReport, rows_streamed};
use crate::rule::PipelineRule;
use crate::semantics;
use crate::sql::cuda_function::FunctionStatement;
use crate::sql::effect::Effect;
use crate::sql::filled::{Parameter, filled, statements};
use crate::sql::{
    CellText, Change, Headers, OfAsOfJoins, Parsed, Planned, Remembered, RowsAsked, Written,
    dialect,
};
use crate::table_calls::{OfTableCalls, TableCallPlanner};
use crate::view_files::Kept;

/// How a session is set up. Settings can be changed later by `SET`; limits cannot.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Settings.
    pub settings: Settings,
    /// Limits.
    pub limits: RunnerOptions,
}

/// A size that every batch exceeds, so that a repartition closes a spill file after one batch.
///
/// All inputs of a repartition spill to one pool, in as many open files as there are inputs that
/// write at the same moment, and DataFusion 55 reads the oldest file to its end before it looks
/// at the next. As long as the oldest is open and has nothing unread, batches in the younger ones
/// are out of reach; the reader stops, the channels fill, the writers stop, and nobody is left to
/// go on (apache/datafusion#24883, until a release has #24891). A closed file is never waited
/// for. The price is a file, and a file descriptor until it is read, for each spilled batch.
fn one_batch_a_spill_file() -> Result<ConfigNonZeroUsize> {
    ConfigNonZeroUsize::try_new(1)
}

/// The zone in which moments are shown, until a session is set to another.
const UTC: &str = "UTC";

/// The planner's rules for what a statement means, and ours around them.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let ours = [Arc::new(CheckedArithmeticRule) as _].into_iter().chain(semantics::rules());
    let rules = [semantics::untyped_rule()].into_iter().chain(Analyzer::new().rules).chain(ours);
    let mut rules: Vec<_> = rules.collect();
    rules.insert(0, Arc::new(InParts::before(&rules)));
    rules
}

/// Tables of a statement, by name.
pub type GivenTables = Vec<(String, Arc<dyn TableProvider>)>;

/// Tables, settings, queries. A clone is the same session.
#[derive(Clone)]
pub struct Session {
    pub(crate) context: SessionContext,
    pub(crate) tables: Arc<Tables>,
    runner: Arc<Runner>,
    plans: Arc<PlanCache>,
    pub(crate) remembered: Arc<Remembered>,
    pub(crate) home: Arc<Home>,
    pub(crate) schemas: Arc<Schemas>,
    /// What plans and answers statements.
    threads: Threads,
}

impl Session {
    /// A session without tables.
    ///
    /// # Errors
    /// If DataFusion's runtime cannot be set up.
    pub fn new(options: SessionOptions) -> Result<Self> {
        let runner = Arc::new(Runner::new(&options.limits));
        let remembered = Arc::new(Remembered::default());
        let mut config = SessionConfig::new()
            .with_extension(Arc::clone(&remembered))
            .with_information_schema(true)
            .with_target_partitions(options.settings.threads)
            .with_option_extension(HeadraceConfig::of(options.settings));
        let options = config.options_mut();
        options.explain.format = ExplainFormat::Indent;
        // It takes `x IS FALSE` for a value that is never NULL in one of its plans, and refuses the other.
        options.execution.skip_physical_aggregate_schema_check = true;
        // Without one, TIMESTAMPTZ would be a timestamp like any other.
        options.execution.time_zone = Some(UTC.to_string());
        options.execution.max_spill_file_size_bytes = one_batch_a_spill_file()?;
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(bytes) = runner.memory().planner_bytes {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            runtime =
                runtime.with_memory_pool(planner_memory::limited(options, runner.budget(), bytes)?);
        }
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime.build_arc()?)
            .with_default_features()
            .with_optimizer_rules(optimizer_rules())
            .with_analyzer_rules(analyzer_rules())
            .with_query_planner(Arc::new(Restoring::with(vec![Arc::new(TableCallPlanner)])))
            .with_relation_planners(vec![
                Arc::new(OfSubqueries),
                Arc::new(OfAsOfJoins),
                Arc::new(OfTableCalls),
            ])
            .with_physical_optimizer_rules(PipelineRule::rules(Arc::clone(&runner)));
        let state = state.build();
        let context = SessionContext::new_with_state(state);
        context.register_udf(Named::function());
        context.register_udf(Everything::function());
        context.register_udf(RowsAsked::function());
        for function in semantics::functions() {
            context.register_udf(function);
        }
        context.register_udf(CellText::function());
        context.register_udaf(checked_sum());
        context.register_udaf(exact_avg());
        for extreme in extremes::of_floats() {
            context.register_udaf(extreme);
        }
        functions::register(&context, runner.budget())?;
        let tables = Arc::new(Tables::default());
        let names = context.state_ref().read().config_options().catalog.clone();
        if let Some(catalog) = context.catalog(&names.default_catalog) {
            catalog.register_schema(&names.default_schema, Arc::clone(&tables) as _)?;
        }
        // The catalog exists: sessions beside this one must not make it again. They share these settings until they change
        // one, and so the plans that were made with them.
        let state = context.state_ref();
        state.write().config_mut().options_mut().catalog.create_default_catalog_and_schema = false;
        let (plans, home, schemas) = Default::default();
        Ok(Self {
            context,
            tables,
            runner,
            plans,
            remembered,
            home,
            schemas,
            threads: Threads::Apart,
        })
    }

    /// Another session over the same tables, memory and devices, with settings and prepared statements of its own.
    #[must_use]
    pub fn beside(&self) -> Self {
        let remembered = Arc::new(self.remembered.beside());
        let state = self.context.state();
        let config = state.config().clone().with_extension(Arc::clone(&remembered));
        let state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
        let context = SessionContext::new_with_state(state);
        Self { context, remembered, ..self.clone() }
    }

    /// From now on statements may only name files within reach by their paths.
    pub fn restrict_to(&self, reach: Reach) {
        self.tables.restrict_to(reach);
    }

    /// The statements of a text, and where each begins.
    ///
    /// # Errors
    /// A text that has no tokens.
    pub fn statements<'a>(&self, text: &'a str) -> Result<Vec<(usize, &'a str)>> {
        statements(text, &self.context.state_ref().read())
    }

    /// A statement with what `value` makes of each of its parameters.
    ///
    /// # Errors
    /// Those of [`filled`].
    pub fn filled(
        &self,
        text: &str,
        value: impl FnMut(Parameter<'_>) -> Result<String>,
    ) -> Result<String> {
        let dialect = dialect::of(&self.context.state_ref().read());
        filled(text, dialect.as_ref(), value)
    }

    /// What a statement would change.
    pub fn effect(&self, text: &str) -> Effect {
        Effect::of(text, &self.context.state_ref().read())
    }

    /// Has statements planned and answered where they are waited for, which saves the start of two threads. Who drops
    /// one meanwhile waits for its next pause: for a process that ends with its statement.
    #[must_use]
    pub fn inline(self) -> Self {
        Self { threads: Threads::Waiting, ..self }
    }

    /// Has statements planned and answered on threads of another runtime than the one that waits for them: that one serves its
    /// clients while they compute.
    #[must_use]
    pub fn computed_on(self, runtime: Handle) -> Self {
        Self { threads: Threads::ApartOn(runtime), ..self }
    }

    /// DataFusion's context, for what this façade does not offer.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// What the session's pipelines share.
    pub fn runner(&self) -> &Arc<Runner> {
        &self.runner
    }

    /// Has what opening tables of many files, or of files elsewhere, reads kept in a folder, for the next time that they are
    /// opened, by whatever session: files that have changed since are read again.
    pub fn keep_metadata_in(&self, folder: impl Into<PathBuf>) {
        self.tables.keep_metadata_in(folder.into());
    }

    /// Records the races of all later queries; [`Trace::write_json`] writes what Perfetto and
    /// Chrome show.
    pub fn start_trace(&self) -> Trace {
        self.runner.start_trace()
    }

    /// Adds a function, in place of one of its name. Plans that were made before are not used again.
    pub fn register_function(&self, function: ScalarUDF) {
        self.context.register_udf(function);
        self.leave_plans();
    }

    /// Adds a function that is a table, in place of one of its name.
    pub(crate) fn register_table_function(&self, name: &str, function: Arc<dyn TableFunctionImpl>) {
        self.context.register_udtf(name, function);
        self.leave_plans();
    }

    /// Takes a function away, and the plans that may have it.
    pub(crate) fn drop_function(&self, name: &str) {
        self.context.deregister_udf(name);
        self.context.deregister_udtf(name);
        self.leave_plans();
    }

    /// From now on, this session finds no plan that was made before.
    fn leave_plans(&self) {
        let state = self.context.state_ref();
        let mut state = state.write();
        // Settings that are held are replaced when they are changed: plans of sessions beside this one have another key.
        let _held = Arc::clone(state.config().options());
        let _ = state.config_mut().options_mut();
    }

    /// The present settings.
    pub fn settings(&self) -> Settings {
        settings_of(self.context.state_ref().read().config_options())
    }

    /// Registers Arrow files and folders as one table, in place of a table of that name.
    ///
    /// # Errors
    /// A file that is no valid Arrow file, or does not have the columns of the others.
    pub fn register_arrow(&self, name: &str, paths: &[PathBuf]) -> Result<Arc<HeadraceTable>> {
        let table = HeadraceTable::open(name, paths)?;
        let entry = TableEntry(Arc::clone(&table));
        self.context.deregister_table(TableReference::bare(name))?;
        self.context.register_table(TableReference::bare(name), Arc::new(entry))?;
        Ok(table)
    }

    /// Makes tables of a file, or of all files and folders of files below a folder, named by their stems. They
    /// are opened when they are named, and what is wrong with one is the error of whoever names it.
    ///
    /// # Errors
    /// A path that cannot be read.
    pub fn register_path(&self, path: &Path) -> Result<Found> {
        let mut found = find_tables(path)?;
        self.tables.add(&found.tables);
        // They are planned when they are made known, which waits for files.
        found.unknown.extend(found.views.drain(..).map(|view| view.path));
        Ok(found)
    }

    /// The same of a path that may be an address, whose server is waited for elsewhere.
    ///
    /// # Errors
    /// A path that cannot be read.
    pub async fn register_place(&self, path: &Path) -> Result<Found> {
        let place = path.to_path_buf();
        let mut found = blocking(move || find_tables(&place)).await?;
        self.tables.add(&found.tables);
        self.take_views(&mut found).await;
        Ok(found)
    }

    /// Makes a file, or a folder of files of one kind, the table of a name, in place of what has it.
    ///
    /// # Errors
    /// What keeps it from being a table.
    pub async fn register_as(&self, name: &str, path: &Path) -> Result<Arc<dyn TableProvider>> {
        self.context.deregister_table(TableReference::bare(name))?;
        self.tables.add(&[FoundTable { name: name.to_string(), path: path.to_path_buf() }]);
        let opened = self.tables.open(name).await?;
        opened.ok_or_else(|| DataFusionError::Internal("a table that was just added".into()))
    }

    /// Makes a table known by a name, in place of what has it.
    pub fn give(&self, name: &str, table: Arc<dyn TableProvider>) {
        self.tables.give(name, table);
    }

    /// Whether there is a table of this name, whatever may be wrong with it.
    pub fn has_table(&self, name: &str) -> bool {
        self.tables.table_exist(name)
    }

    /// The names of tables in a statement that this session has no table for, as the planner would look for them; none of
    /// a text that is no statement.
    pub fn unknown_tables(&self, text: &str) -> Vec<String> {
        let state = self.context.state();
        let names = Parsed::of(text, &state).and_then(|parsed| parsed.tables(&state));
        let names = names.unwrap_or_default().into_iter();
        let is_unknown = |name: &TableReference| {
            let is_bare = matches!(name, TableReference::Bare { .. });
            is_bare && !self.tables.table_exist(name.table())
        };
        names.filter(is_unknown).map(|name| name.table().to_string()).collect()
    }

    /// What a text is to whoever makes larger queries of it.
    pub fn written(&self, text: &str) -> Written {
        Written::of(text, &self.context.state_ref().read())
    }

    /// Parses and plans one statement. Statements that change the session (`SET`, `CREATE
    /// TABLE`, ..) take effect here. Dropping the future ends the statement.
    ///
    /// # Errors
    /// SQL that does not parse or plan, or takes longer than `statement_timeout` to; with `headrace.fallback = forbid`, a part of the query
    /// that no pipeline can run.
    pub async fn sql(&self, text: &str) -> Result<Query> {
        self.sql_over(text, Vec::new()).await
    }

    /// As [`sql`](Self::sql), where these tables, by name, are there for this statement alone.
    ///
    /// # Errors
    /// Those of [`sql`](Self::sql).
    pub async fn sql_over(&self, text: &str, given: GivenTables) -> Result<Query> {
        let (started, traffic) = (Instant::now(), traffic());
        let limit = statement_timeout_of(self.context.state_ref().read().config_options());
        let waiting = Waiting::new(self.threads.clone(), started, limit)?;
        // A CREATE TABLE of a query runs it while it is planned.
        let planning = Arc::<Readers>::default();
        let planned_for = planning.one();
        let cached = match given.is_empty() {
            true => self.plans.get(text, &self.context, self.threads.are_apart()).await?,
            false => None,
        };
        let plan_cached = cached.is_some();
        let (KnownPlan { plan, headers, notes, loan }, staging) = match cached {
            Some(known) => (known, None),
            None => {
                let (session, text, readers) =
                    (self.clone(), text.to_string(), Arc::clone(&planning));
                let planned =
                    move || async move { session.plan_caught(&text, given, &readers).await };
                waiting.work(planned).await?
            }
        };
        let context = match plan_cached {
            true => context_of_known(&self.context.state_ref().read()),
            false => TaskContext::from(&*self.context.state_ref().read()),
        };
        let context = Arc::new(planner_memory::shared(context, &plan));
        let planning_ms = started.elapsed().as_secs_f64() * 1e3;
        drop(planned_for);
        let readers = Arc::default();
        let plan = watched(plan, &readers)?;
        let runner = Arc::clone(&self.runner);
        let before = runner.progress().given();
        let staging = staging.map(Arc::new);
        Ok(Query {
            plan,
            headers,
            loan: loan.map(Arc::new),
            waiting,
            context,
            readers,
            staging,
            notes,
            runner,
            before,
            traffic,
            started,
            planning_ms,
            plan_cached,
        })
    }

    /// Has something done as statements are planned: on threads for it, and within `statement_timeout`.
    pub(crate) async fn in_time<T, F>(&self, work: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let limit = statement_timeout_of(self.context.state_ref().read().config_options());
        let waiting = Waiting::new(self.threads.clone(), Instant::now(), limit)?;
        waiting.work(move || caught(OnLargeStack::new(work()))).await
    }

    async fn plan_caught(
        &self,
        text: &str,
        given: GivenTables,
        readers: &Arc<Readers>,
    ) -> Result<(KnownPlan, Option<Staging>)> {
        caught(OnLargeStack::new(self.plan(text, given, readers))).await
    }

    async fn plan(
        &self,
        text: &str,
        given: GivenTables,
        readers: &Arc<Readers>,
    ) -> Result<(KnownPlan, Option<Staging>)> {
        let state = self.context.state();
        let options = Arc::clone(state.config().options());
        let is_alone = given.is_empty();
        if let Some(statement) = FunctionStatement::of(text, &state)? {
            self.change_functions(statement, &state).await?;
            return Ok((nothing_left(), None));
        }
        let mut parsed = Parsed::of(text, &state)?;
        if let Some(alteration) = parsed.alteration()? {
            self.plans.clear();
            self.alter(&alteration, &state).await?;
            return Ok((nothing_left(), None));
        }
        self.tables.add_calls(parsed.take_calls());
        let references = parsed.tables(&state)?;
        // What is wrong with a table is told by opening it; to the planner it is not there.
        let opened = self.open_now(&references, &options, &[]).await?;
        let notes: Vec<String> =
            opened.iter().flat_map(|(name, table)| table_notes(name, table)).collect();
        let only_tables = opened.len() == references.len()
            && opened.iter().all(|(_, table)| table.is::<TableEntry>());
        let (may_be_kept, is_temporary) =
            (only_tables && parsed.is_of_its_text(), parsed.is_temporary());
        let residence = parsed.residence();
        self.check_residence(residence, is_temporary)?;
        let opened: HashMap<_, _> = opened.into_iter().chain(given).collect();
        let planned = with_opened(opened.clone(), parsed.plan(&state)).await?;
        let Planned { mut logical, headers } = planned;
        let known = |plan, headers| KnownPlan { plan, headers, notes: notes.clone(), loan: None };
        self.check_targets(&logical)?;
        if let LogicalPlan::Copy(copy) = &logical
            && let Some((plan, staging)) = self.plan_own_copy(copy).await?
        {
            self.plans.clear();
            return Ok((known(plan, headers), staging));
        }
        if let Some(plan) = self.plan_change(&logical).await? {
            self.plans.clear();
            return Ok((known(plan, headers), None));
        }
        if !is_temporary && self.create_file(&logical, &opened, readers).await? {
            self.plans.clear();
            if let (Some(residence), Some(name)) = (residence, made_table(&logical)) {
                self.set_residence(name, residence).await?;
            }
            return Ok((nothing_left(), None));
        }
        let staging = staged(&mut logical)?;
        // A view has no place in the plan of a query over it: nothing would tell that it was replaced.
        let tables = if may_be_kept { tables_of(&logical)? } else { None };
        // Plans of other settings have another key.
        if changes_session(&logical) && !matches!(logical, LogicalPlan::Statement(_)) {
            self.plans.clear();
        }
        // What was cancelled meanwhile takes no effect.
        if self.threads.are_apart() {
            tokio::task::yield_now().await;
        }
        self.release_dropped(&logical).await?;
        let change = Change::of(&logical, state.config_options());
        let kept = self.keep_view(&logical, text, is_alone, &state).await?;
        let logical =
            with_table_made(&self.context, self.runner.budget(), readers, logical).await?;
        let frame = self.context.execute_logical_plan(logical).await?;
        // Together, and before anything is waited for: who is cancelled leaves nothing half done.
        let file = kept.as_ref().and_then(Kept::file);
        let earlier = self.remembered.apply(change, text, file);
        if let Some(kept) = kept {
            self.settle_view(kept, earlier).await?;
        }
        let plan = match explained(&state, frame.logical_plan()).await? {
            Some(plan) => plan,
            None => frame.create_physical_plan().await?,
        };
        let known = known(plan, headers);
        let loan = tables.and_then(|tables| self.plans.put(text, options, tables, &known));
        Ok((KnownPlan { loan, ..known }, staging))
    }
}

/// The name of a table that a statement makes.
fn made_table(logical: &LogicalPlan) -> Option<&str> {
    match logical {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => Some(create.name.table()),
        _ => None,
    }
}

/// The plan of a statement that has taken effect.
fn nothing_left() -> KnownPlan {
    let plan = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
    KnownPlan { plan, headers: Headers::default(), notes: Vec::new(), loan: None }
}

/// A planned statement, to be run once.
pub struct Query {
    plan: Arc<dyn ExecutionPlan>,
    headers: Headers,
    /// The plan's, until all is done with it.
    loan: Option<Arc<Loan>>,
    waiting: Waiting,
    context: Arc<TaskContext>,
    readers: Arc<Readers>,
    /// Where a COPY writes to.
    staging: Option<Arc<Staging>>,
    /// Found while it was planned: what is answered from statistics has no scan left.
    notes: Vec<String>,
    runner: Arc<Runner>,
    /// What earlier queries were given.
    before: Given,
    /// What was sent and received before.
    traffic: (u64, u64),
    started: Instant,
    planning_ms: f64,
    plan_cached: bool,
}

impl Query {
    /// Columns of the answer, called as they were written; two may have one name.
    pub fn schema(&self) -> SchemaRef {
        self.headers.apply(&self.plan.schema())
    }

    /// The optimised physical plan.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// Starts it; rows come as they are ready. Dropping the stream cancels whatever still runs.
    ///
    /// # Errors
    /// If the plan cannot be started; what fails later comes through the stream.
    pub fn stream(&self) -> Result<SendableRecordBatchStream> {
        let reader = self.readers.one();
        let started = || execute_stream(Arc::clone(&self.plan), Arc::clone(&self.context));
        let rows = self.waiting.started(started)?;
        self.delivered(rows, reader)
    }

    /// As [`stream`](Self::stream), one partition of the plan after the other: all rows of a table come in its order, which
    /// is worth something to whoever keeps them. At most one partition runs at a time.
    ///
    /// # Errors
    /// Those of [`stream`](Self::stream).
    pub fn stream_in_order(&self) -> Result<SendableRecordBatchStream> {
        let reader = self.readers.one();
        let (plan, context) = (Arc::clone(&self.plan), Arc::clone(&self.context));
        let partitions = 0..plan.output_partitioning().partition_count();
        let started = move |partition| plan.execute(partition, Arc::clone(&context));
        let batches = iter(partitions).map(started).try_flatten();
        self.delivered(Box::pin(RecordBatchStreamAdapter::new(self.plan.schema(), batches)), reader)
    }

    fn delivered(
        &self,
        stream: SendableRecordBatchStream,
        reader: Reader,
    ) -> Result<SendableRecordBatchStream> {
        let (headers, loan) = (self.headers.clone(), self.loan.clone());
        let explained = is_explained(self.plan.as_ref()).then(|| Arc::clone(&self.plan));
        let rename = move |batch: Result<RecordBatch>| {
            let _held = &loan;
            let batch = renamed(batch?, &headers)?;
            match &explained {
                Some(plan) => as_shown(batch, plan.as_ref()),
                None => Ok(batch),
            }
        };
        let batches = caught_stream(stream.map(rename));
        let batches = self.waiting.clone().stream(batches).inspect(move |_| {
            let _reads = &reader;
        });
        let Some(staging) = self.staging.clone() else {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)));
        };
        // Nothing comes after an error, so what comes last is the commit.
        let batches = try_unfold((batches, staging), |(mut batches, staging)| async move {
            if let Some(batch) = batches.try_next().await? {
                return Ok(Some((batch, (batches, staging))));
            }
            blocking(move || staging.commit()).await?;
            Ok(None)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    /// As [`stream`](Self::stream); where the rows of a table only pass filters and projections, in the table's order.
    ///
    /// # Errors
    /// Those of [`stream`](Self::stream).
    pub fn stream_as_they_lie(&self) -> Result<SendableRecordBatchStream> {
        let partitions = self.plan.output_partitioning().partition_count();
        if partitions < 2 || !only_passes(&self.plan) {
            return self.stream();
        }
        let reader = self.readers.one();
        let started = |partition| {
            let rows = self.plan.execute(partition, Arc::clone(&self.context))?;
            Ok(spawn_buffered(rows, AHEAD_BATCHES))
        };
        let streams = || (0..partitions).map(started).collect::<Result<Vec<_>>>();
        let streams = self.waiting.started(streams)?;
        let batches = iter(streams).flatten();
        self.delivered(Box::pin(RecordBatchStreamAdapter::new(self.plan.schema(), batches)), reader)
    }

    /// How far it has come, while it runs and no other query of the session does.
    pub fn progress(&self) -> QueryProgress {
        let now = self.runner.progress().given();
        QueryProgress {
            rows: now.rows - self.before.rows,
            bytes: now.bytes - self.before.bytes,
            rows_total: rows_streamed(&self.plan),
        }
    }

    /// What has been done so far; complete when the stream has ended. `rows` is what the caller
    /// has received.
    pub fn report(&self, rows: u64) -> QueryReport {
        let mut report = QueryReport::of(&self.plan);
        let more: Vec<_> =
            self.notes.iter().filter(|note| !report.notes.contains(note)).cloned().collect();
        report.notes.extend(more);
        QueryReport {
            rows,
            wall_ms: self.started.elapsed().as_secs_f64() * 1e3,
            planning_ms: self.planning_ms,
            plan_cached: self.plan_cached,
            remote_requests: traffic().0 - self.traffic.0,
            remote_bytes: traffic().1 - self.traffic.1,
            ..report
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// Whatever fails on the way.
    pub async fn collect(self) -> Result<(Vec<RecordBatch>, QueryReport)> {
        let batches: Vec<RecordBatch> = self.stream()?.try_collect().await?;
        let rows = batches.iter().map(|b| b.num_rows() as u64).sum();
        let report = self.report(rows);
        Ok((batches, report))
    }
}

/// Batches of a partition that are made before those of the partitions in front of it are taken.
const AHEAD_BATCHES: usize = 16;

/// Whether a plan hands on rows of a table in memory, partition by partition as they lie there.
fn only_passes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let passes = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<DataSourceExec>();
    passes && plan.children().into_iter().all(only_passes)
}

/// A batch with the names that the user gave its columns.
fn renamed(batch: RecordBatch, headers: &Headers) -> Result<RecordBatch> {
    let schema = headers.apply(&batch.schema());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema, batch.columns().to_vec(), &options)?)
}
