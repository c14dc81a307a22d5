//! What all requests share.

use std::time::Duration;

use arrow_schema::SchemaRef;
use chrono::{DateTime, Utc};
use headrace_engine::catalog::{Reach, table_name};
use headrace_engine::failure::{Failure, Levers};
use headrace_engine::{GpuService, PUBLIC, RunnerOptions, Session, SessionOptions, Settings};

use tokio::sync::watch;

use crate::admission::Admission;
use crate::args::DataArgs;
use crate::metrics::{Metrics, Now};
use crate::open::OpenAnswers;
use crate::users::Users;
use crate::work::Work;

/// Small statements that run at a time.
const SMALL_RUNNING: usize = 64;

/// What helps, as it is called here.
pub const LEVERS: Levers = Levers {
    memory_limit: "the server's --memory-limit",
    make_tables: "the server's --data names files of tables",
    list_functions: "SHOW FUNCTIONS LIKE 'NAME'",
};

/// Waits until something is so.
pub async fn until(is_so: &mut watch::Receiver<bool>) {
    // Whoever would say so has gone: then it is.
    let _ = is_so.wait_for(|is_so| *is_so).await;
}

/// A table that is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub schema: String,
    pub name: String,
}

impl Listed {
    /// As its users name it: with its schema, if that is not the one that is always there.
    pub fn shown(&self) -> String {
        match self.schema.as_str() {
            PUBLIC => self.name.clone(),
            schema => format!("{schema}.{}", self.name),
        }
    }

    /// In a statement.
    pub fn quoted(&self) -> String {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        match self.schema.as_str() {
            PUBLIC => quoted(&self.name),
            schema => format!("{}.{}", quoted(schema), quoted(&self.name)),
        }
    }
}

/// All tables.
pub fn all_tables(session: &Session) -> Vec<Listed> {
    let tables = session.tables_by_schema().into_iter();
    tables.map(|(schema, name)| Listed { schema, name }).collect()
}

/// The columns of a table; `None`: it cannot be opened.
pub async fn columns_of(session: &Session, table: &Listed) -> Option<SchemaRef> {
    let query = session.sql(&format!("SELECT * FROM {} LIMIT 0", table.quoted())).await.ok()?;
    Some(query.schema())
}

/// All tables that can be opened, with their columns.
pub async fn all_columns(session: &Session) -> Vec<(Listed, SchemaRef)> {
    let mut all = Vec::new();
    for table in all_tables(session) {
        if let Some(schema) = columns_of(session, &table).await {
            all.push((table, schema));
        }
    }
    all
}

/// Tables, users, and those who are served.
pub struct Server {
    /// Each statement has a session beside this one.
    base: Session,
    pub users: Option<Users>,
    pub work: Work,
    /// Turns of statements that may do much.
    pub admission: Admission,
    /// Turns of small statements; many of them may run.
    pub small: Admission,
    pub open: OpenAnswers,
    pub metrics: Metrics,
    pub is_writable: bool,
    /// Statements may use whatever this process may.
    pub reaches_all: bool,
    pub slow: Duration,
    pub started: DateTime<Utc>,
}

impl Server {
    pub async fn new(args: &DataArgs, users: Option<Users>, work: Work) -> Result<Self, String> {
        let settings = Settings {
            processor: args.processor.parse().map_err(|error| format!("--processor: {error}"))?,
            gpu_service: GpuService::Auto,
            ..Settings::default()
        };
        let limits =
            RunnerOptions { memory_limit_bytes: args.memory_limit, ..RunnerOptions::default() };
        let told = |error| Failure::of(&error, &LEVERS);
        let options = SessionOptions { settings, limits };
        let base = Session::new(options).map_err(|error| told(error).cause)?;
        let base = base.computed_on(work.0.clone());
        if let Some(folder) = headrace_gpu::cache_folder() {
            base.keep_metadata_in(folder.join("tables"));
        }
        base.runner().allow_rehearsals();
        // Before any file is opened: a view names what its maker wants.
        if !args.any_files {
            base.restrict_to(Reach::below(&args.data));
        }
        let mut tables = 0;
        for place in &args.data {
            let found = match args.data.len() > 1 && place.is_dir() {
                true => base.register_schema(&table_name(place), place).await,
                false => base.register_place(place).await,
            };
            let found = found.map_err(|error| {
                let failure = told(error).in_place(&place.display().to_string());
                let hint = failure.hint.map(|hint| format!("\n\nhint: {hint}")).unwrap_or_default();
                format!("{}{hint}", failure.cause)
            })?;
            tables += found.tables.len();
        }
        if let (true, [folder]) = (args.writable, args.data.as_slice())
            && folder.is_dir()
        {
            base.keep_tables_in(folder);
        }
        if args.statement_timeout > 0 {
            let set = format!("SET statement_timeout = '{}s'", args.statement_timeout);
            base.sql(&set).await.map_err(|error| told(error).cause)?;
        }
        eprintln!("{tables} tables");
        let max_wait = Duration::from_secs(args.max_wait);
        let (running, of_user) = (args.max_running as usize, args.max_running_of_user as usize);
        Ok(Self {
            base,
            users,
            work,
            admission: Admission::new(running, of_user, max_wait),
            small: Admission::new(SMALL_RUNNING, SMALL_RUNNING, max_wait),
            open: OpenAnswers::new(),
            metrics: Metrics::default(),
            is_writable: args.writable,
            reaches_all: args.any_files,
            slow: Duration::from_secs_f64(args.slow.max(0.0)),
            started: Utc::now(),
        })
    }

    /// A session for a statement, over the same tables and memory.
    pub fn session(&self) -> Session {
        self.base.beside()
    }

    /// What Prometheus is told.
    pub fn metrics_text(&self) -> String {
        let (running, waiting) = self.admission.counts();
        let budget = self.base.runner().budget();
        self.metrics.text(Now {
            running,
            waiting,
            memory_used_bytes: budget.uses().total_bytes(),
            memory_limit_bytes: budget.limit_bytes(),
        })
    }
}
