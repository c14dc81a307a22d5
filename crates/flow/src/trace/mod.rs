//! A bounded recorder of events, written in the Chrome trace event format for Perfetto and
//! `chrome://tracing`.

mod merge;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value, json};

/// The number of a trace's one process.
const PROCESS: u64 = 1;

/// A span of work on a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Track, such as "read slot 3" or "execute 0". Spans of one track should not overlap.
    pub track: String,
    /// What was done.
    pub name: &'static str,
    /// Begin, nanoseconds since the trace was made.
    pub start_ns: u64,
    /// Duration.
    pub duration_ns: u64,
    /// The chunk concerned.
    pub chunk: usize,
    /// The slot, if one was used.
    pub slot: Option<usize>,
    /// Bytes that were worked on.
    pub bytes: u64,
}

/// Counts from a moment on: a step of a curve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The curve, such as "slots of device 0".
    pub counter: String,
    /// The moment, nanoseconds since the trace was made.
    pub at_ns: u64,
    /// The count of each kind ("reading", 3).
    pub values: Vec<(&'static str, u64)>,
}

/// A recorder that races write to; clones share it. When disabled it costs one branch per chunk.
#[derive(Debug, Clone)]
pub struct Trace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    process: String,
    start: Instant,
    /// Wall-clock time of `start`, so that traces of several processes share one time axis.
    start_unix_us: f64,
    spans_max: usize,
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    spans: Vec<Span>,
    counts: Vec<Count>,
    dropped: u64,
}

impl Trace {
    /// A recorder of at most `spans_max` spans and as many counts, shown under the name `process`.
    pub fn new(process: impl Into<String>, spans_max: usize) -> Trace {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Trace {
            inner: Arc::new(Inner {
                process: process.into(),
                start: Instant::now(),
                start_unix_us: since_epoch.as_nanos() as f64 / 1e3,
                spans_max,
                recorded: Mutex::new(Recorded::default()),
            }),
        }
    }

    /// Records a span that began at `start` and ends now.
    pub fn record(
        &self,
        track: String,
        name: &'static str,
        start: Instant,
        chunk: usize,
        slot: Option<usize>,
        bytes: u64,
    ) {
        self.record_between(track, name, (start, Instant::now()), chunk, slot, bytes);
    }

    /// Records a span with known begin and end.
    pub fn record_between(
        &self,
        track: String,
        name: &'static str,
        (start, end): (Instant, Instant),
        chunk: usize,
        slot: Option<usize>,
        bytes: u64,
    ) {
        let span = Span {
            track,
            name,
            start_ns: start.saturating_duration_since(self.inner.start).as_nanos() as u64,
            duration_ns: end.saturating_duration_since(start).as_nanos() as u64,
            chunk,
            slot,
            bytes,
        };
        let mut recorded = self.inner.recorded.lock();
        if recorded.spans.len() < self.inner.spans_max {
            recorded.spans.push(span);
        } else {
            recorded.dropped += 1;
        }
    }

    /// Records counts from now on. Do not record unchanged counts again.
    pub fn count(&self, counter: &str, values: &[(&'static str, u64)]) {
        let count = Count {
            counter: counter.to_string(),
            at_ns: self.inner.start.elapsed().as_nanos() as u64,
            values: values.to_vec(),
        };
        let mut recorded = self.inner.recorded.lock();
        if recorded.counts.len() < self.inner.spans_max {
            recorded.counts.push(count);
        } else {
            recorded.dropped += 1;
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Vec<Count> {
        self.inner.recorded.lock().counts.clone()
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.inner.recorded.lock().spans.clone()
    }

    /// Spans and counts that were dropped for lack of room.
    pub fn dropped(&self) -> u64 {
        self.inner.recorded.lock().dropped
    }

    /// Writes this trace as one JSON object with `traceEvents`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_json(&self, mut out: impl Write) -> std::io::Result<()> {
        merge::write_document(self.events(), self.dropped(), &mut out)
    }

    /// Merges the trace files of several processes. Times are wall-clock times, so concurrent work
    /// lines up; each process of each file stays a process of its own.
    ///
    /// # Errors
    /// Those of reading and writing; `InvalidData`, with the file, for what is not a trace.
    pub fn merge_files(paths: &[impl AsRef<Path>], mut out: impl Write) -> std::io::Result<()> {
        merge::merge_files(paths, &mut out)
    }

    fn events(&self) -> Vec<Value> {
        let spans = self.spans();
        let mut tracks: Vec<&str> = spans.iter().map(|span| span.track.as_str()).collect();
        tracks.sort_unstable();
        tracks.dedup();
        let name = |kind: &str, thread: usize, name: &str| {
            json!({
                "ph": "M", "name": kind, "pid": PROCESS, "tid": thread,
                "args": { "name": name },
            })
        };
        let mut events = vec![name("process_name", 0, &self.inner.process)];
        events.extend(
            tracks.iter().enumerate().map(|(index, track)| name("thread_name", index + 1, track)),
        );
        events.extend(spans.iter().map(|span| {
            let thread = tracks.binary_search(&span.track.as_str()).unwrap_or(0) + 1;
            json!({
                "ph": "X", "cat": "race", "name": span.name, "pid": PROCESS, "tid": thread,
                "ts": self.inner.start_unix_us + span.start_ns as f64 / 1e3,
                "dur": span.duration_ns as f64 / 1e3,
                "args": { "chunk": span.chunk, "slot": span.slot, "bytes": span.bytes },
            })
        }));
        events.extend(self.counts().iter().map(|count| {
            let values: serde_json::Map<String, Value> = count
                .values
                .iter()
                .map(|(kind, number)| (kind.to_string(), json!(number)))
                .collect();
            json!({
                "ph": "C", "cat": "race", "name": count.counter, "pid": PROCESS,
                "ts": self.inner.start_unix_us + count.at_ns as f64 / 1e3,
                "args": values,
            })
        }));
        events
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_trace_is_bounded_and_written_as_one_document() {
        let trace = Trace::new("one", 2);
        for chunk in 0..3 {
            trace.record("read slot 0".to_string(), "read", Instant::now(), chunk, Some(0), 7);
        }
        trace.count("slots", &[("reading", 2), ("free", 1)]);
        assert_eq!((trace.spans().len(), trace.dropped()), (2, 1));
        let mut out = Vec::new();
        trace.write_json(&mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        let events = document["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).count();
        assert_eq!((of("M"), of("X"), of("C")), (2, 2, 1));
        let count = events.iter().find(|e| e["ph"] == "C").unwrap();
        assert_eq!((&count["args"]["reading"], &count["pid"]), (&json!(2), &json!(PROCESS)));
        assert_eq!(document["otherData"]["dropped_spans"], 1);
        let span = events.iter().find(|e| e["ph"] == "X").unwrap();
        assert_eq!((&span["args"]["bytes"], &span["args"]["slot"]), (&json!(7), &json!(0)));
        assert!(span["ts"].as_f64().unwrap() > 1.6e15);
    }
}
