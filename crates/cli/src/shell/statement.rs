//! One statement of SQL, from its text to its rows.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use futures::StreamExt;
use headrace_engine::failure::Failure;
use headrace_engine::{Query, QueryReport};
use headrace_io::decimal_bytes;
use headrace_io::write::hidden;

use super::Shell;
use super::ending::Ending;
use super::progress::Progress;
use super::split::Piece;
use crate::error::{CliError, Result};
use crate::output::{Format, Printer};
use crate::session::{self, LEVERS};

/// How long rows are counted that a terminal does not show.
const COUNTING_MAX: Duration = Duration::from_secs(1);

/// Rows received.
pub(super) struct Received {
    rows: u64,
    /// Whether they are all.
    is_whole: bool,
}

impl Shell {
    /// Runs a statement and reports its time.
    pub(super) async fn statement(&mut self, piece: &Piece) -> Result<()> {
        let sql = self.variables.put_into(&piece.text);
        let mut ending = Ending::of_command(&piece.ending);
        let dialect = session::dialect(&self.session);
        let whole = ending.take_format(&sql, dialect.as_ref())?;
        let sql = whole.unwrap_or(sql);
        self.last.clone_from(&piece.text);
        let before = (self.format, self.file_format, self.expanded);
        if let Some(file) = &ending.file {
            self.redirect(file)?;
            self.once = true;
        }
        if let Some(format) = ending.format {
            (self.format, self.file_format) = (format, None);
        }
        self.expanded = ending.expanded.unwrap_or(self.expanded);
        let done = self.answer_and_tell(&sql, piece).await;
        (self.format, self.file_format, self.expanded) = before;
        done
    }

    async fn answer_and_tell(&mut self, sql: &str, piece: &Piece) -> Result<()> {
        // Files that the statement writes are told of where it is interrupted, those before it are not.
        hidden::take_whole();
        let failed = |error: CliError| error.within(piece.line, piece.column);
        let (query, received) = self.answer(sql).await.map_err(failed)?;
        if self.timing {
            let report = query.report(received.rows);
            let head = head(&query, &received, report.wall_ms / 1e3);
            say!("{}", summary(&report, head));
            self.tell_why_not_on_the_gpu(&report);
        }
        Ok(())
    }

    /// The reason against the GPU is shown only if a GPU was requested, and only once; EXPLAIN always
    /// shows it.
    fn tell_why_not_on_the_gpu(&mut self, report: &QueryReport) {
        if self.engine.processor != "cuda" {
            return;
        }
        for reason in report.pipelines.iter().filter_map(|p| p.streamed.processor_why_not.as_ref())
        {
            if self.told.insert(reason.clone()) {
                say!("not on the GPU: {reason}");
            }
        }
    }

    /// Streams an answer as it arrives, so that it may be larger than memory.
    pub(super) async fn answer(&mut self, sql: &str) -> Result<(Query, Received)> {
        let session = self.session.clone();
        let failed = |error| CliError::from(Failure::of_statement(&session, sql, &error, &LEVERS));
        let query = session.sql(sql).await.map_err(failed)?;
        let mut progress = Progress::new(self.timing);
        let mut stream = query.stream().map_err(failed)?;
        let mut printer = self.printer(&query)?;
        let mut received = Received { rows: 0, is_whole: true };
        let mut counting: Option<Instant> = None;
        loop {
            let batch = tokio::select! {
                batch = stream.next() => batch,
                () = progress.tick() => {
                    progress.draw(&query, received.rows);
                    continue;
                }
            };
            let Some(batch) = batch else { break };
            let batch = batch.map_err(|error| {
                progress.clear();
                failed(error)
            })?;
            received.rows += batch.num_rows() as u64;
            if !printer.is_full() {
                progress.clear();
            }
            self.write(|out| printer.write(out, &batch))?;
            if printer.is_full() {
                let since = *counting.get_or_insert_with(Instant::now);
                received.is_whole = since.elapsed() < COUNTING_MAX;
            }
            if !received.is_whole {
                break;
            }
            // Ctrl-C is heard between two batches even if they are always there.
            tokio::task::yield_now().await;
        }
        progress.clear();
        drop(stream);
        self.write(|out| printer.finish(out, received.is_whole))?;
        Ok((query, received))
    }

    fn printer(&mut self, query: &Query) -> Result<Printer> {
        let layout = self.layout();
        let schema = query.schema();
        if !schema.fields().is_empty() {
            self.begin_result(layout.terminal.is_some())?;
        }
        let path = self.out.as_ref().map(|out| out.path());
        Printer::new(&layout, schema, path).map_err(CliError::new)
    }

    /// Parquet only goes to files, Arrow never to a terminal.
    fn begin_result(&mut self, is_terminal: bool) -> Result<()> {
        let format = self.result_format();
        match (&mut self.out, format.name()) {
            (Some(out), name) => out.begin(format.is_one_result().then_some(name.as_str())),
            (None, name) if format.is_binary() && (is_terminal || format == Format::Parquet) => {
                let place = if is_terminal { "a terminal" } else { "standard output" };
                Err(CliError::new(format!("{name} is not written to {place}"))
                    .hint("name a file: -o FILE, or \\o FILE in front of the statement"))
            }
            (None, _) => Ok(()),
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let written = match &mut self.out {
            Some(out) => write(out.writer()),
            None => write(&mut io::stdout().lock()),
        };
        written.map_err(|error| self.output_failure(error))
    }
}

fn head(query: &Query, received: &Received, wall_s: f64) -> String {
    if query.schema().fields().is_empty() {
        return format!("done, {wall_s:.3} s");
    }
    let more = if received.is_whole { "" } else { "more than " };
    let rows = if received.rows == 1 { "row" } else { "rows" };
    format!("{more}{} {rows}, {wall_s:.3} s", received.rows)
}

/// After rows and time: bytes, speed, processor and limit.
fn summary(report: &QueryReport, head: String) -> String {
    let mut text = head;
    if report.bytes_read > 0 {
        let gb = report.bytes_read as f64 / 1e9;
        text += &format!(", {gb:.3} GB, {:.2} GB/s", gb / (report.wall_ms / 1e3));
    }
    if report.remote_requests > 0 {
        let fetched = decimal_bytes(report.remote_bytes);
        text += &format!(", {fetched} fetched in {} requests", report.remote_requests);
    }
    text += &format!(", {}", report.processor);
    if let Some(bottleneck) = &report.bottleneck {
        text += &format!(", {bottleneck}");
    }
    let elsewhere: Vec<&String> =
        report.pipelines.iter().filter_map(|p| p.streamed.processor_why_not.as_ref()).collect();
    for reason in report.why_not.iter().filter(|r| !elsewhere.contains(r)) {
        text += &format!("\nleft to the planner: {reason}");
    }
    for note in &report.notes {
        text += &format!("\n{note}");
    }
    text
}
