//! Runs one benchmark query several times and keeps the important results.

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use headrace_engine::{PipelineShare, QueryReport, Session};
use headrace_flow::BytesByPath;
use headrace_io::{SourceFile, drop_cache};
use headrace_suites::{Limit, Query};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::{CliError, Context, Result};
use crate::session::failure;

/// One query on one processor.
#[derive(Debug, Serialize)]
pub struct Measurement {
    /// Such as "1.1".
    pub query: String,
    /// The processor that really ran it.
    pub processor: String,
    /// Rows of the answer.
    pub rows: u64,
    /// Wall time of the first run, including planning. The files are out of the page cache only
    /// with `--cold`.
    pub cold_ms: f64,
    /// Whether the files were dropped from the page cache before the first run.
    pub page_cache_dropped: bool,
    /// Wall times of the runs after the first.
    pub hot_ms: Vec<f64>,
    /// Parsing and planning in the fastest hot run.
    pub planning_ms: f64,
    /// Time of the race alone (from first read to last merge) in the fastest hot run.
    pub race_ms: f64,
    /// Table bytes that the pipelines needed in the last run, from all sources.
    pub bytes_read: u64,
    /// The same by access path, last run.
    pub bytes_by_path: BytesByPath,
    /// The same by access path, first run.
    pub cold_bytes_by_path: BytesByPath,
    /// Time in GPU kernels in the fastest hot run; `null` if there were none.
    pub kernel_ms: Option<f64>,
    /// The limiting stage of the last run.
    pub bottleneck: String,
    /// SHA-256 over the answer's rows as text, sorted.
    pub answer_sha256: String,
    /// Whether the planner's own plan gives the same rows; `null` without `--check`.
    pub equal_to_off: Option<bool>,
    /// How much of it ran as pipelines: "all", "part" or "none".
    pub pipelines: &'static str,
    /// Joins and groupings by the planner's own operators.
    pub planner_operators: Vec<String>,
    /// Why a requested pipeline did not run.
    pub why_not: Vec<String>,
}

impl Measurement {
    /// Fastest hot run, or the first run if it is the only one.
    pub fn best_ms(&self) -> f64 {
        self.hot_ms.iter().copied().reduce(f64::min).unwrap_or(self.cold_ms)
    }

    /// Table bytes per second of the fastest hot run, in GB/s.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes_read as f64 / 1e6 / self.best_ms()
    }
}

/// An answer in comparable and hashable form: rows as text, sorted. If a LIMIT cuts off an order,
/// rows that tie with the last one are reduced to their keys, because any equal row could be in
/// their place.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer(Vec<String>);

impl Answer {
    /// Rows of a result, in order.
    pub fn of(batches: &[RecordBatch], limit: Option<Limit>) -> Result<Self> {
        let options = FormatOptions::default().with_null("NULL");
        let mut rows = Vec::new();
        for batch in batches {
            let columns = batch
                .columns()
                .iter()
                .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
                .collect::<std::result::Result<Vec<_>, _>>()
                .at("answer")?;
            for row in 0..batch.num_rows() {
                let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
                rows.push(cells);
            }
        }
        if let Some(limit) = limit.filter(|limit| limit.rows == rows.len()) {
            blur_last(&mut rows, limit.keys);
        }
        let mut rows: Vec<String> = rows.iter().map(|cells| cells.join("\t")).collect();
        rows.sort_unstable();
        Ok(Self(rows))
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.0.len() as u64
    }

    /// Hexadecimal SHA-256 of the rows, each ended by a line feed.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for row in &self.0 {
            hash.update(row);
            hash.update("\n");
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Reduces the rows that tie with the last one to their keys.
fn blur_last(rows: &mut [Vec<String>], keys: &[usize]) {
    let key = |cells: &Vec<String>| -> Vec<String> {
        keys.iter().filter_map(|&column| cells.get(column).cloned()).collect()
    };
    let Some(last) = rows.last().map(key) else { return };
    rows.iter_mut().filter(|cells| key(cells) == last).for_each(|cells| cells.clone_from(&last));
}

/// One run: answer and report.
pub async fn run_once(session: &Session, query: &Query) -> Result<(Answer, QueryReport)> {
    let place = format!("query {}", query.id);
    let failed = |error| failure(&place, &error);
    let (batches, report) =
        session.sql(query.sql).await.map_err(failed)?.collect().await.map_err(failed)?;
    Ok((Answer::of(&batches, query.limit)?, report))
}

/// Options of a measurement.
pub struct Plan<'a> {
    /// Hot runs.
    pub runs: u32,
    /// Files to drop from the page cache before the first run; empty: leave the cache unchanged.
    pub drop_before_first: &'a [PathBuf],
    /// A session with processor `off` to compare with.
    pub baseline: Option<&'a Session>,
}

/// Runs a query as planned.
pub async fn measure(session: &Session, query: &Query, plan: &Plan<'_>) -> Result<Measurement> {
    if !plan.drop_before_first.is_empty() {
        // What an earlier query left in our own caches would make this one warm.
        session.runner().clear_caches();
        plan.drop_before_first.iter().try_for_each(|path| drop_page_cache(path))?;
    }
    let (answer, first) = run_once(session, query).await?;
    let mut hot = Vec::new();
    for _ in 0..plan.runs {
        // Hot is what stays: with the kernels that the run before asked for.
        session.runner().settle();
        let (again, report) = run_once(session, query).await?;
        if again != answer {
            return Err(CliError::new(format!(
                "query {}: two runs gave different answers",
                query.id
            )));
        }
        hot.push(report);
    }
    let equal_to_off = match plan.baseline {
        Some(baseline) => Some(run_once(baseline, query).await?.0 == answer),
        None => None,
    };
    Ok(summary(query, &answer, &first, &hot, plan, equal_to_off))
}

/// Evicts a file from the page cache, as far as the kernel allows.
fn drop_page_cache(path: &Path) -> Result<()> {
    let file = SourceFile::open(path).at(path.display())?;
    drop_cache(file.as_ref()).at(path.display())
}

fn summary(
    query: &Query,
    answer: &Answer,
    first: &QueryReport,
    hot: &[QueryReport],
    plan: &Plan<'_>,
    equal_to_off: Option<bool>,
) -> Measurement {
    let last = hot.last().unwrap_or(first);
    let best = hot.iter().min_by(|a, b| a.wall_ms.total_cmp(&b.wall_ms)).unwrap_or(first);
    Measurement {
        query: query.id.to_string(),
        processor: last.processor.clone(),
        rows: answer.rows(),
        cold_ms: first.wall_ms,
        page_cache_dropped: !plan.drop_before_first.is_empty(),
        hot_ms: hot.iter().map(|report| report.wall_ms).collect(),
        planning_ms: best.planning_ms,
        race_ms: best.pipelines.iter().map(|p| p.streamed.race.wall_ns as f64 / 1e6).sum(),
        bytes_read: last.bytes_read,
        bytes_by_path: last.bytes_by_path,
        cold_bytes_by_path: first.bytes_by_path,
        kernel_ms: (best.kernel_ms > 0.0).then_some(best.kernel_ms),
        bottleneck: last.bottleneck.clone().unwrap_or_default(),
        answer_sha256: answer.sha256(),
        equal_to_off,
        pipelines: match last.pipeline_share() {
            PipelineShare::Whole => "all",
            PipelineShare::Part => "part",
            PipelineShare::None => "none",
        },
        planner_operators: last.planner_operators.clone(),
        why_not: last.why_not.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_limit_the_last_ties_are_known_by_their_keys_alone() {
        let rows = |cells: &[[&str; 2]]| -> Vec<Vec<String>> {
            cells.iter().map(|row| row.map(String::from).to_vec()).collect()
        };
        let mut found = rows(&[["a", "3"], ["b", "2"], ["c", "1"], ["d", "1"]]);
        let mut other = rows(&[["a", "3"], ["b", "2"], ["e", "1"], ["c", "1"]]);
        let mut wrong = rows(&[["a", "3"], ["x", "2"], ["c", "1"], ["d", "1"]]);
        for rows in [&mut found, &mut other, &mut wrong] {
            blur_last(rows, &[1]);
        }
        assert_eq!(found, other);
        assert_ne!(found, wrong);
    }
}
