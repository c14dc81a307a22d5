//! What happened when, as a picture: traces of one or several processes on one time axis.
//!
//! ```text
//!  flow::Trace ──► Chrome trace events ──► processes, tracks, spans ──► rows, bars ──► SVG
//!  trace files ───────────┘
//! ```
//!
//! A row is a track; rows are grouped by process and ordered by stage. A bar is a span; spans that
//! are narrower than a pixel are drawn together, so that the size of a picture is bounded whatever
//! was recorded, and what a bar stands for is told when the mouse rests on it. To the right of a
//! stage: its bytes per second of busy time, and how busy it was. Below a process: how many of its
//! slots were in use. The same traces give the same bytes.

mod chrome;
mod draw;
mod rows;

/// Why a trace file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// It is no JSON.
    #[error("{document}: not a trace: {cause}")]
    Json {
        /// The document's name.
        document: String,
        /// The cause, with line and column.
        #[source]
        cause: serde_json::Error,
    },
    /// It is JSON, and no trace.
    #[error(
        "{document}: not a trace: {what}\nhint: files in the Chrome trace event format, as --trace out.json writes them, are drawn"
    )]
    Shape {
        /// The document's name.
        document: String,
        /// What is missing.
        what: String,
    },
    /// It could not be brought into that format.
    #[error("cannot write the trace: {0}")]
    Write(#[from] std::io::Error),
}

/// A trace file: its name for messages, and its bytes.
pub type Document<'a> = (&'a str, &'a [u8]);

/// The picture of files in the Chrome trace event format. Their times are taken to be of one clock;
/// ours are microseconds since 1970.
///
/// # Errors
/// [`TimelineError`]: a document that is no trace.
pub fn chrome_svg(documents: &[Document<'_>]) -> Result<String, TimelineError> {
    Ok(draw::svg(&chrome::read(documents)?))
}

/// Everything recorded.
#[derive(Debug, Default)]
struct Timeline {
    processes: Vec<Process>,
    /// Spans that the recorders had no room for.
    dropped: u64,
    /// Events that are neither spans nor names.
    ignored: u64,
}

#[derive(Debug)]
struct Process {
    name: String,
    tracks: Vec<Track>,
    /// Ordered by time.
    counts: Vec<Count>,
}

/// How many slots of a ring are in use from a time on.
#[derive(Debug)]
struct Count {
    counter: String,
    at_us: f64,
    in_use: u64,
}

#[derive(Debug)]
struct Track {
    name: String,
    /// Ordered by their starts.
    spans: Vec<Span>,
}

#[derive(Debug, Clone)]
struct Span {
    name: String,
    start_us: f64,
    end_us: f64,
    chunk: Option<u64>,
    slot: Option<u64>,
    bytes: u64,
}

/// What a span is part of, in the order of the race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Read,
    CopyToDevice,
    Execute,
    CopyToHost,
    Write,
    Other,
}

impl Stage {
    const ALL: [Stage; 6] = [
        Stage::Read,
        Stage::CopyToDevice,
        Stage::Execute,
        Stage::CopyToHost,
        Stage::Write,
        Stage::Other,
    ];

    /// By the name of a span, or else by that of its track.
    fn of(span: &str, track: &str) -> Stage {
        let by = |name: &str| {
            let name = name.to_ascii_lowercase();
            let starts = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
            if starts(&["copy to device", "h2d"]) {
                Some(Stage::CopyToDevice)
            } else if starts(&["copy to host", "d2h"]) {
                Some(Stage::CopyToHost)
            } else if starts(&["execute", "kernel", "copy and execute"]) {
                Some(Stage::Execute)
            } else if starts(&["read"]) {
                Some(Stage::Read)
            } else if starts(&["write"]) {
                Some(Stage::Write)
            } else {
                None
            }
        };
        by(span).or_else(|| by(track)).unwrap_or(Stage::Other)
    }

    fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::CopyToDevice => "copy to device",
            Stage::Execute => "execute",
            Stage::CopyToHost => "copy to host",
            Stage::Write => "write",
            Stage::Other => "other",
        }
    }

    /// Okabe and Ito's colours: told apart by colour-blind readers too.
    fn colour(self) -> &'static str {
        match self {
            Stage::Read => "#0072B2",
            Stage::CopyToDevice => "#E69F00",
            Stage::Execute => "#009E73",
            Stage::CopyToHost => "#D55E00",
            Stage::Write => "#CC79A7",
            Stage::Other => "#777777",
        }
    }
}

#[cfg(test)]
mod tests;
