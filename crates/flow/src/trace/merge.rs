//! Trace files of several processes made into one.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::path::Path;

use serde_json::{Value, json};

/// Writes events as one trace document.
pub(super) fn write_document(
    events: Vec<Value>,
    dropped: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    let document = json!({
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": { "dropped_spans": dropped },
    });
    serde_json::to_writer(&mut *out, &document)?;
    out.flush()
}

/// See [`Trace::merge_files`](super::Trace::merge_files).
pub(super) fn merge_files(paths: &[impl AsRef<Path>], out: &mut impl Write) -> io::Result<()> {
    let mut events = Vec::new();
    let mut dropped = 0;
    let mut processes = 0;
    for path in paths {
        let (more, lost) = read(path.as_ref())?;
        dropped += lost;
        append(&mut events, more, &mut processes);
    }
    write_document(events, dropped, out)
}

/// Adds a file's events, its processes numbered on from `processes`.
fn append(events: &mut Vec<Value>, more: Vec<Value>, processes: &mut u64) {
    let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
    for mut event in more {
        let Some(fields) = event.as_object_mut() else { continue };
        // Two processes may well have had the same number, on two machines or one after the other.
        let own = fields.get("pid").map_or_else(String::new, Value::to_string);
        let number = *numbers.entry(own).or_insert_with(|| {
            *processes += 1;
            *processes
        });
        fields.insert("pid".to_string(), json!(number));
        events.push(event);
    }
}

/// The events of a file, and how many it says were dropped. Both forms of the format are read:
/// an object with `traceEvents`, and the bare list.
fn read(path: &Path) -> io::Result<(Vec<Value>, u64)> {
    let place = |cause: &dyn std::fmt::Display| format!("{}: {cause}", path.display());
    let file =
        std::fs::File::open(path).map_err(|error| io::Error::new(error.kind(), place(&error)))?;
    let invalid =
        |what: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, place(what));
    let mut document: Value = serde_json::from_reader(BufReader::new(file))
        .map_err(|error| invalid(&format!("not a trace: {error}")))?;
    let dropped = document["otherData"]["dropped_spans"].as_u64().unwrap_or(0);
    let events = match &mut document {
        Value::Array(events) => std::mem::take(events),
        Value::Object(fields) => match fields.remove("traceEvents") {
            Some(Value::Array(events)) => events,
            _ => return Err(invalid(&"not a trace: it has no list of traceEvents")),
        },
        _ => return Err(invalid(&"not a trace: it is neither an object nor a list")),
    };
    if let Some(odd) = events.iter().find(|event| !event.is_object()) {
        return Err(invalid(&format!("not a trace: {odd} is not an event")));
    }
    Ok((events, dropped))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use super::*;
    use crate::Trace;

    #[test]
    fn files_of_several_processes_become_one_trace() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, spans_max| {
            let trace = Trace::new(name, spans_max);
            for chunk in 0..3 {
                trace.record("read".to_string(), "read", Instant::now(), chunk, None, 1);
            }
            let path = dir.path().join(name);
            trace.write_json(std::fs::File::create(&path).unwrap()).unwrap();
            path
        };
        let mut paths = vec![write("one", 10), write("two", 2)];
        let bare = dir.path().join("bare");
        std::fs::write(&bare, r#"[{"ph":"X","pid":7,"ts":1},{"ph":"X","pid":9,"ts":2}]"#).unwrap();
        paths.push(bare);
        let mut out = Vec::new();
        Trace::merge_files(&paths, &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["otherData"]["dropped_spans"], 1);
        let events = document["traceEvents"].as_array().unwrap();
        let spans_of =
            |pid: u64| events.iter().filter(|e| e["ph"] == "X" && e["pid"] == pid).count();
        assert_eq!([1, 2, 3, 4, 5].map(spans_of), [3, 2, 1, 1, 0]);
    }

    #[test]
    fn what_is_not_a_trace_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "7", "{}", "[7]", r#"{"traceEvents":3}"#, "[{]"] {
            let path = dir.path().join("odd.json");
            std::fs::write(&path, text).unwrap();
            let error = Trace::merge_files(&[&path], Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{text}");
            assert!(error.to_string().contains("odd.json"), "{error}");
        }
        let error = Trace::merge_files(&[dir.path().join("none")], Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
