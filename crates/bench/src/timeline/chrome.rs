//! The Chrome trace event format, read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Count, Document, Process, Span, Timeline, TimelineError, Track};

/// Counters of slots, one for each ring, are named so or end so.
const SLOTS_COUNTER: &str = "slots";

/// An event; members that we do not know are of no concern.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    tid: Value,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    trace_events: Vec<Event>,
    #[serde(default)]
    other_data: Value,
}

#[derive(Default)]
struct ReadProcess {
    name: Option<String>,
    tracks: BTreeMap<Key, ReadTrack>,
    counts: Vec<Count>,
}

#[derive(Default)]
struct ReadTrack {
    name: Option<String>,
    spans: Vec<Span>,
}

/// Process and thread ids are numbers or names; numbers are ordered as such.
type Key = (u64, String);

fn key(id: &Value) -> Key {
    match (id.as_u64(), id) {
        (Some(number), _) => (number, String::new()),
        (None, Value::String(name)) => (u64::MAX, name.clone()),
        (None, other) => (u64::MAX, other.to_string()),
    }
}

/// The processes of all documents; one id in two documents is two processes.
pub(super) fn read(documents: &[Document<'_>]) -> Result<Timeline, TimelineError> {
    let mut timeline = Timeline::default();
    for (name, bytes) in documents {
        let Object { trace_events, other_data } = parse(name, bytes)?;
        timeline.dropped += other_data["dropped_spans"].as_u64().unwrap_or(0);
        let mut processes: BTreeMap<Key, ReadProcess> = BTreeMap::new();
        for event in trace_events {
            timeline.ignored += u64::from(!take(&mut processes, event));
        }
        timeline.processes.extend(processes.into_iter().filter_map(process_of));
    }
    number_namesakes(&mut timeline.processes);
    Ok(timeline)
}

/// An object with `traceEvents`, or the array of events itself.
fn parse(document: &str, bytes: &[u8]) -> Result<Object, TimelineError> {
    let json = |cause| TimelineError::Json { document: document.to_string(), cause };
    let shape = |what: &str| TimelineError::Shape {
        document: document.to_string(),
        what: what.to_string(),
    };
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => serde_json::from_slice(bytes).map_err(|cause| match cause.is_data() {
            true => shape(&cause.to_string()),
            false => json(cause),
        }),
        Some(b'[') => serde_json::from_slice(bytes)
            .map(|trace_events| Object { trace_events, other_data: Value::Null })
            .map_err(json),
        Some(_) => Err(shape("it begins neither as an object nor as an array")),
        None => Err(shape("it is empty")),
    }
}

/// Whether the event was one of those that are drawn.
fn take(processes: &mut BTreeMap<Key, ReadProcess>, event: Event) -> bool {
    let Event { ph, name, pid, tid, ts, dur, args } = event;
    let process = processes.entry(key(&pid)).or_default();
    let named = || args["name"].as_str().map(ToString::to_string);
    match (ph.as_str(), name.as_str()) {
        ("M", "process_name") => process.name = named(),
        ("M", "thread_name") => {
            process.tracks.entry(key(&tid)).or_default().name = named();
        }
        ("X", _) if ts.is_finite() && dur.is_finite() && dur >= 0.0 => {
            let span = Span {
                name,
                start_us: ts,
                end_us: ts + dur,
                chunk: args["chunk"].as_u64(),
                slot: args["slot"].as_u64(),
                bytes: args["bytes"].as_u64().unwrap_or(0),
            };
            process.tracks.entry(key(&tid)).or_default().spans.push(span);
        }
        ("C", _) if ts.is_finite() => {
            // Of other counters there is no row.
            if name.ends_with(SLOTS_COUNTER) {
                process.counts.push(Count {
                    in_use: slots_in_use(&args),
                    counter: name,
                    at_us: ts,
                });
            }
        }
        _ => return false,
    }
    true
}

/// The slots of a ring that are not free.
fn slots_in_use(values: &Value) -> u64 {
    let values = values.as_object().into_iter().flatten();
    values.filter(|(kind, _)| *kind != "free").filter_map(|(_, count)| count.as_u64()).sum()
}

/// `None` without any span.
fn process_of((id, process): (Key, ReadProcess)) -> Option<Process> {
    let id_text = |(number, name): &Key| {
        if name.is_empty() { number.to_string() } else { name.clone() }
    };
    let tracks: Vec<Track> = process
        .tracks
        .into_iter()
        .filter(|(_, track)| !track.spans.is_empty())
        .map(|(thread, mut track)| {
            track.spans.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
            let name = track.name.unwrap_or_else(|| format!("thread {}", id_text(&thread)));
            Track { name, spans: track.spans }
        })
        .collect();
    let name = process.name.unwrap_or_else(|| format!("process {}", id_text(&id)));
    let mut counts = process.counts;
    counts.sort_by(|a, b| a.at_us.total_cmp(&b.at_us));
    (!tracks.is_empty()).then_some(Process { name, tracks, counts })
}

/// Sessions of one program bear one name: the second becomes "name #2".
fn number_namesakes(processes: &mut [Process]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for process in processes {
        let count = seen.entry(process.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            process.name = format!("{} #{count}", process.name);
        }
    }
}
