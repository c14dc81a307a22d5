//! Two sessions over the same files: one whose pipelines run on the cores, and one without pipelines.

use std::path::Path;
use std::time::Duration;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use headrace_engine::{Processor, RunnerOptions, Session, SessionOptions, Settings};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// As the command line gives its threads.
const STACK_BYTES: usize = 16 << 20;

/// What takes longer has no answer: products of tables are as long as one likes.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Rows of an answer that are looked at.
const ROWS_MAX: usize = 100_000;

/// Of both sessions each.
const MEMORY_BYTES: u64 = 256 << 20;

/// Of two floats that are one: sums depend on the order of rows.
const FLOAT_ERROR_MAX: f64 = 1e-6;

/// Memory, where there is a folder of it: files are written anew for each input.
const FOLDER_IN_MEMORY: &str = "/dev/shm";

/// Both.
pub struct Sessions {
    runtime: Runtime,
    off: Session,
    cpu: Session,
    // Removed last.
    folder: TempDir,
}

/// A row, so that two of one answer are equal in whatever is exact.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
struct Row {
    exact: Vec<String>,
    floats: Vec<f64>,
}

impl Sessions {
    /// Without tables.
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()
            .expect("threads");
        let place = std::env::var_os("HEADRACE_FUZZ_FOLDER").map(Into::into);
        let in_memory = || Path::new(FOLDER_IN_MEMORY).is_dir().then(|| FOLDER_IN_MEMORY.into());
        let place = place.or_else(in_memory).unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new().prefix("headrace-fuzz.").tempdir_in(place);
        let folder = folder.expect("a folder for files");
        let session = |processor| {
            let settings = Settings { processor, threads: 1, ..Settings::default() };
            let limits = RunnerOptions {
                memory_limit_bytes: Some(MEMORY_BYTES),
                spill_folder: Some(folder.path().to_path_buf()),
                ..RunnerOptions::default()
            };
            Session::new(SessionOptions { settings, limits }).expect("a session")
        };
        let (off, cpu) = (session(Processor::Off), session(Processor::Cpu));
        Self { runtime, off, cpu, folder }
    }

    /// Where files of tables may be.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// That with pipelines.
    pub fn cpu(&self) -> &Session {
        &self.cpu
    }

    /// Where work of the sessions runs.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Does the same with both; whether it went well with both.
    pub fn both<T, E>(&self, work: impl AsyncFn(&Session) -> Result<T, E>) -> bool {
        [&self.off, &self.cpu].map(|session| self.runtime.block_on(work(session)).is_ok())
            == [true; 2]
    }

    /// Runs a query on both, and compares the answers if there are two, and chance has no part in them; whether there are.
    ///
    /// # Panics
    /// If they differ.
    pub fn compare(&self, sql: &str, is_certain: bool) -> bool {
        let (cpu, off) = (self.answer(&self.cpu, sql), self.answer(&self.off, sql));
        let (Some(cpu), Some(off)) = (cpu, off) else { return false };
        if is_certain {
            same(sql, &cpu, &off);
        }
        true
    }

    /// As the planner's own operators answer it; `None`: an error, or too much.
    pub fn rows(&self, sql: &str) -> Option<Vec<String>> {
        let rows = self.answer(&self.off, sql)?;
        Some(rows.iter().map(|row| format!("{row:?}")).collect())
    }

    fn answer(&self, session: &Session, sql: &str) -> Option<Vec<Row>> {
        let run = async {
            let query = session.sql(sql).await?;
            let (mut stream, mut rows) = (query.stream()?, Vec::new());
            while let Some(batch) = stream.try_next().await? {
                if rows.len() + batch.num_rows() > ROWS_MAX {
                    return Ok(None);
                }
                rows_of(&batch, &mut rows)?;
            }
            drop(stream);
            let _ = query.report(rows.len() as u64);
            Ok::<_, datafusion::error::DataFusionError>(Some(rows))
        };
        let timed = async { tokio::time::timeout(TIME_MAX, run).await };
        let mut rows = match self.runtime.block_on(timed).ok()? {
            Ok(rows) => rows?,
            Err(error) => {
                // Errors are written by whoever gets them.
                let _ = error.to_string();
                return None;
            }
        };
        rows.sort_by(|a, b| a.exact.cmp(&b.exact).then_with(|| floats_order(a, b)));
        Some(rows)
    }
}

fn floats_order(a: &Row, b: &Row) -> std::cmp::Ordering {
    let pairs = a.floats.iter().zip(&b.floats);
    pairs
        .map(|(a, b)| a.total_cmp(b))
        .find(|order| order.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}

fn rows_of(
    batch: &RecordBatch,
    rows: &mut Vec<Row>,
) -> Result<(), datafusion::arrow::error::ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let is_float = |column: &&ArrayRef| column.data_type().is_floating();
    let floats = batch.columns().iter().filter(is_float);
    let floats = floats.map(|c| cast(c, &DataType::Float64)).collect::<Result<Vec<_>, _>>()?;
    let exact = batch.columns().iter().filter(|column| !is_float(column));
    let exact =
        exact.map(|c| ArrayFormatter::try_new(c, &options)).collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        let mut texts = Vec::with_capacity(exact.len() + floats.len());
        for column in &exact {
            texts.push(column.value(row).try_to_string()?);
        }
        texts.extend(floats.iter().map(|column| column.is_null(row).to_string()));
        let value = |column: &ArrayRef| match column.is_null(row) {
            true => 0.0,
            // Both zeros are one, and all that are no numbers.
            false => match column.as_primitive::<Float64Type>().value(row) + 0.0 {
                value if value.is_nan() => f64::NAN,
                value => value,
            },
        };
        rows.push(Row { exact: texts, floats: floats.iter().map(value).collect() });
    }
    Ok(())
}

fn same(sql: &str, cpu: &[Row], off: &[Row]) {
    let first = cpu.iter().zip(off).find(|(cpu, off)| !equal(cpu, off));
    assert!(
        cpu.len() == off.len() && first.is_none(),
        "rows differ: {} with pipelines, {} without; first {first:?}\n{sql}",
        cpu.len(),
        off.len()
    );
}

fn equal(a: &Row, b: &Row) -> bool {
    let near = |(a, b): (&f64, &f64)| {
        a.to_bits() == b.to_bits()
            || (a - b).abs() <= FLOAT_ERROR_MAX * a.abs().max(b.abs()).max(1.0)
    };
    a.exact == b.exact
        && a.floats.len() == b.floats.len()
        && a.floats.iter().zip(&b.floats).all(near)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Sessions whose tables t are of these texts.
    fn of(off: &str, cpu: &str) -> Sessions {
        let sessions = Sessions::new();
        for (session, name, text) in [(&sessions.off, "a.csv", off), (&sessions.cpu, "b.csv", cpu)]
        {
            let path = sessions.folder().join(name);
            std::fs::write(&path, text).unwrap();
            sessions.runtime.block_on(session.register_as("t", &path)).unwrap();
        }
        sessions
    }

    #[test]
    fn rows_that_differ_are_noticed_and_their_order_is_not() {
        let text = "a,b\n1,0.5\n2,\n3,NaN\n";
        assert!(of(text, "a,b\n3,NaN\n2,\n1,0.5000000001\n").compare("select * from t", true));
        for other in [
            "a,b\n1,0.5\n2,\n", "a,b\n1,0.5\n2,\n3,7\n", "a,b\n1,0.5\n2,0\n3,NaN\n",
            "a,b\n1,0.6\n2,\n3,NaN\n",
        ] {
            let sessions = of(text, other);
            let compare = || sessions.compare("select * from t", true);
            assert!(catch_unwind(AssertUnwindSafe(compare)).is_err(), "{other}");
            assert!(sessions.compare("select * from t", false));
        }
        assert!(!of(text, text).compare("select c from t", true));
    }
}
