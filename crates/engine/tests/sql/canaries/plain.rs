//! Plain DataFusion: its own parser, rules and functions.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::FutureExt;

/// The faulty answer that a statement still gets.
pub enum Still {
    /// These rows, values apart by a space.
    Rows(&'static [&'static str]),
    /// An error with this text in it.
    Error(&'static str),
    /// A panic with this text in it.
    Panic(&'static str),
}

/// A session of DataFusion.
pub struct Plain {
    config: SessionConfig,
    memory: Option<usize>,
    context: std::sync::OnceLock<SessionContext>,
}

impl Plain {
    /// One of so many partitions.
    pub fn of(partitions: usize) -> Self {
        let config = SessionConfig::new().with_target_partitions(partitions);
        Self { config, memory: None, context: Default::default() }
    }

    /// Whose operators have so many bytes.
    pub fn memory(self, bytes: usize) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Whose batches have so many rows.
    pub fn batch_rows(self, rows: usize) -> Self {
        Self { config: self.config.with_batch_size(rows), ..self }
    }

    pub fn context(&self) -> &SessionContext {
        self.context.get_or_init(|| {
            let mut runtime = RuntimeEnvBuilder::new();
            if let Some(bytes) = self.memory {
                runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
            }
            SessionContext::new_with_config_rt(self.config.clone(), runtime.build_arc().unwrap())
        })
    }

    /// Runs a statement that prepares others.
    pub async fn run(&self, sql: &str) {
        self.context().sql(sql).await.unwrap().collect().await.unwrap();
    }

    /// The answer of a statement: rows as text, or the error.
    async fn answer(&self, sql: &str) -> Result<Vec<String>, String> {
        let work = async { self.context().sql(sql).await?.collect().await };
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(batches)) => Ok(batches.iter().flat_map(texts).collect()),
            Ok(Err(error)) => Err(format!("error: {error}")),
            Err(panic) => Err(format!("panic: {}", text_of(&*panic))),
        }
    }

    /// Whether a fault is still there.
    pub async fn still(&self, file: &str, sql: &str, expected: &Still) {
        let answer = self.answer(sql).await;
        let is_there = match (expected, &answer) {
            (Still::Rows(expected), Ok(rows)) => rows == expected,
            (Still::Error(text), Err(said)) => said.starts_with("error") && said.contains(text),
            (Still::Panic(text), Err(said)) => said.contains("panic") && said.contains(text),
            _ => false,
        };
        assert!(
            is_there,
            "upstream has mended this: fixes/{file}.rs can go\n{sql}\nnow: {answer:?}"
        );
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn texts(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns = batch.columns().iter();
    let columns: Vec<_> =
        columns.map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    let row = |row| {
        let values: Vec<_> = columns.iter().map(|column| column.value(row).to_string()).collect();
        values.join(" ")
    };
    (0..batch.num_rows()).map(row).collect()
}
