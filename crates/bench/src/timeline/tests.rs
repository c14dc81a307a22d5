#![allow(clippy::unwrap_used)]
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rows::{Scale, Work, bars, occupancy, rows, work};
use super::*;
use crate::plot::xml::check;
use headrace_flow::Trace;

const MIB: u64 = 1 << 20;

/// Three chunks through two slots: reads of 2 ms, copies of 1 ms, kernels of 0.5 ms.
fn trace(name: &str) -> Trace {
    let trace = Trace::new(name, 1000);
    let zero = Instant::now();
    let at = |us: u64| zero + Duration::from_micros(us);
    for chunk in 0..3u64 {
        let slot = (chunk % 2) as usize;
        let start = chunk * 2000;
        let record = |track: String, name: &'static str, from: u64, to: u64| {
            let span = (at(start + from), at(start + to));
            trace.record_between(track, name, span, chunk as usize, Some(slot), 32 * MIB);
        };
        record(format!("read slot {slot}"), "read", 0, 2000);
        record("H2D".to_string(), "copy to device", 2000, 3000);
        record("kernel".to_string(), "execute", 3000, 3500);
    }
    trace
}

fn bar_rects(document: &check::Document) -> Vec<&check::Element> {
    let titled = |element: &&check::Element| {
        element.name == "rect" && element.attributes.iter().any(|(name, _)| name == "fill-opacity")
    };
    document.elements.iter().filter(titled).collect()
}

#[test]
fn every_span_is_a_bar_and_every_stage_tells_its_rate() {
    let mut json = Vec::new();
    Trace::write_merged(&[trace("cold & <dark>"), trace("warm")], &mut json).unwrap();
    let svg = chrome_svg(&[("trace", &json)]).unwrap();
    let document = check::parse(&svg).unwrap();
    assert_eq!(bar_rects(&document).len(), 18);
    for text in [
        "cold & <dark>, 7.50 ms",
        "warm, 7.50 ms",
        "read slot 0",
        "read slot 1",
        "kernel",
        // 3 x 32 MiB in 6, 3 and 1.5 ms, of 7.5 ms.
        "read: 16.78 GB/s, busy 80%",
        "copy to device: 33.55 GB/s, busy 40%",
        "execute: 67.11 GB/s, busy 20%",
        "read, chunk 1, slot 1, 33554432 bytes, 2.000 ms from",
        "slots in use",
        "at most 2 slots",
        "ms",
    ] {
        assert!(document.says(text), "{text} is missing in\n{svg}");
    }
    // Nothing lies outside of the picture.
    let (width, height) =
        (document.elements[0].number("width"), document.elements[0].number("height"));
    for bar in bar_rects(&document) {
        assert!(bar.number("x") >= 180.0 && bar.number("x") + bar.number("width") <= width - 269.0);
        assert!(bar.number("y") > 0.0 && bar.number("y") < height);
    }
}

#[test]
fn the_same_trace_gives_the_same_picture() {
    let mut json = Vec::new();
    trace("one").write_json(&mut json).unwrap();
    let picture = || chrome_svg(&[("a.json", &json), ("b.json", &json)]).unwrap();
    let svg = picture();
    assert_eq!(svg, picture());
    let document = check::parse(&svg).unwrap();
    assert!(document.says("one, 7.50 ms") && document.says("one #2, 7.50 ms"));
    assert_eq!(bar_rects(&document).len(), 18);
}

fn chrome(spans: &[(&str, f64, f64)]) -> Vec<u8> {
    let mut names: Vec<&str> = spans.iter().map(|span| span.0).collect();
    names.sort_unstable();
    names.dedup();
    let thread = |name: &str| names.binary_search(&name).unwrap();
    let mut events: Vec<Value> = names
        .iter()
        .map(|name| {
            json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": thread(name), "args": {"name": name}})
        })
        .collect();
    events.extend(spans.iter().map(|(track, ts, dur)| {
        json!({"ph": "X", "name": "read", "pid": 1, "tid": thread(track), "ts": ts, "dur": dur,
               "args": {"bytes": 1000}})
    }));
    serde_json::to_vec(&json!(events)).unwrap()
}

#[test]
fn a_picture_is_bounded_whatever_was_recorded() {
    // 100 000 spans of 0.4 us each, far below a pixel, on 10 tracks.
    let tracks: Vec<String> = (0..10).map(|n| format!("read slot {n}")).collect();
    let spans: Vec<(&str, f64, f64)> =
        (0..100_000).map(|n| (tracks[n % 10].as_str(), n as f64 * 7.3, 0.4)).collect();
    let svg = chrome_svg(&[("many", &chrome(&spans))]).unwrap();
    assert!(svg.len() < 4_000_000, "{} bytes", svg.len());
    let document = check::parse(&svg).unwrap();
    assert!(bar_rects(&document).len() <= 12_000);
    // No span is lost: the rate counts them all.
    assert!(document.says("spans, the first: read"));
    // More tracks than rows: one row a stage.
    let tracks: Vec<String> = (0..5000).map(|n| format!("read slot {n}")).collect();
    let spans: Vec<(&str, f64, f64)> =
        tracks.iter().enumerate().map(|(n, name)| (name.as_str(), n as f64, 3.0)).collect();
    let document = check::parse(&chrome_svg(&[("wide", &chrome(&spans))]).unwrap()).unwrap();
    assert!(document.says("read, 5000 tracks"));
    assert!(document.elements[0].number("height") < 500.0);
}

fn span(name: &str, start_us: f64, end_us: f64, chunk: u64, slot: u64) -> Span {
    Span { name: name.into(), start_us, end_us, chunk: Some(chunk), slot: Some(slot), bytes: 10 }
}

fn process(spans: &[(&str, Span)]) -> Process {
    let mut tracks: Vec<Track> = Vec::new();
    for (name, span) in spans {
        match tracks.iter_mut().find(|track| track.name == *name) {
            Some(track) => track.spans.push(span.clone()),
            None => tracks.push(Track { name: (*name).into(), spans: vec![span.clone()] }),
        }
    }
    Process { name: "p".into(), tracks, counts: Vec::new() }
}

#[test]
fn rows_are_ordered_by_stage_and_by_number() {
    let one = || span("x", 0.0, 1.0, 0, 0);
    let names = ["write 1", "kernel", "read slot 10", "read slot 9", "D2H", "H2D", "gc"];
    let process = process(&names.map(|name| (name, one())));
    let labels: Vec<String> = rows(&process, false).into_iter().map(|row| row.label).collect();
    assert_eq!(labels, ["read slot 9", "read slot 10", "H2D", "kernel", "D2H", "write 1", "gc"]);
}

#[test]
fn narrow_spans_become_one_bar_and_wide_ones_stay() {
    let scale = Scale { start_us: 0.0, px_per_us: 1.0 };
    let spans = [
        span("a", 0.0, 0.2, 0, 0),
        span("b", 0.5, 0.7, 1, 0),
        span("c", 0.9, 1.0, 2, 0),
        span("wide", 1.0, 9.0, 3, 0),
        span("covered", 2.0, 3.0, 4, 0),
        span("overlapping", 8.0, 12.0, 5, 0),
        span("far", 20.0, 20.1, 6, 0),
    ];
    let found = bars(&spans.iter().collect::<Vec<_>>(), scale, 1.0);
    let shape: Vec<(&str, usize, f64, f64)> = found
        .iter()
        .map(|bar| (bar.first.name.as_str(), bar.spans, bar.start_us, bar.end_us))
        .collect();
    assert_eq!(
        shape,
        [
            ("a", 3, 0.0, 1.0),
            ("wide", 2, 1.0, 9.0),
            ("overlapping", 1, 9.0, 12.0),
            ("far", 1, 20.0, 20.1)
        ]
    );
    assert_eq!(found.iter().map(|bar| bar.bytes).sum::<u64>(), 70);
    assert!((found[0].busy_us - 0.5).abs() < 1e-9);
}

#[test]
fn busy_time_counts_overlapping_spans_once() {
    let process = process(&[
        ("read slot 0", span("read", 0.0, 4.0, 0, 0)),
        ("read slot 1", span("read", 2.0, 6.0, 1, 1)),
        ("read slot 0", span("read", 8.0, 9.0, 2, 0)),
        ("H2D", span("copy to device", 0.0, 100.0, 0, 0)),
    ]);
    let rows = rows(&process, false);
    assert_eq!(work(&rows, Stage::Read), Work { bytes: 30, busy_us: 7.0 });
}

#[test]
fn a_slot_is_in_use_from_the_read_to_the_end_of_the_last_stage() {
    let process = process(&[
        ("read slot 0", span("read", 0.0, 2.0, 0, 0)),
        ("read slot 1", span("read", 1.0, 3.0, 1, 1)),
        ("kernel", span("execute", 4.0, 5.0, 0, 0)),
        ("kernel", span("execute", 5.0, 6.0, 1, 1)),
        // The next query: the same chunk and slot again.
        ("read slot 0", span("read", 10.0, 11.0, 0, 0)),
    ]);
    assert_eq!(
        occupancy(&process, &rows(&process, false)),
        [(0.0, 1), (1.0, 2), (5.0, 1), (6.0, 0), (10.0, 1), (11.0, 0)]
    );
    let without = Span { slot: None, ..span("read", 0.0, 1.0, 0, 0) };
    let without = super::tests::process(&[("read", without)]);
    assert!(occupancy(&without, &rows(&without, false)).is_empty());
}

#[test]
fn what_a_race_counted_goes_before_what_spans_tell() {
    let counter = |name: &str, ts: u64, reading: u64, free: u64| {
        json!({"ph": "C", "name": name, "pid": 1, "ts": ts,
               "args": {"reading": reading, "on device": 1, "free": free}})
    };
    let text = json!([
        {"ph": "X", "name": "read", "pid": 1, "tid": 1, "ts": 0, "dur": 9, "args": {"slot": 3}},
        counter("device 0 slots", 0, 2, 5),
        counter("device 1 slots", 1, 0, 8),
        counter("device 0 slots", 2, 0, 7),
        counter("device 0 bytes", 3, 1_000_000, 0),
    ]);
    let bytes = serde_json::to_vec(&text).unwrap();
    let timeline = chrome::read(&[("counted", &bytes)]).unwrap();
    let process = &timeline.processes[0];
    let steps = occupancy(process, &rows(process, false));
    assert_eq!(steps, [(0.0, 3), (1.0, 4), (2.0, 2)]);
    assert_eq!(timeline.ignored, 0);
    let document = check::parse(&chrome_svg(&[("counted", &bytes)]).unwrap()).unwrap();
    assert!(document.says("at most 4 slots"));
}

#[test]
fn what_is_no_trace_is_named() {
    for (text, shape) in [
        ("", true),
        ("SQLite format 3", true),
        ("{\"traceEvents\": 3}", true),
        ("{\"other\": []}", true),
        ("{\"traceEvents\": [", false),
        ("[1, 2", false),
    ] {
        let error = chrome_svg(&[("bad.json", text.as_bytes())]).unwrap_err();
        assert_eq!(matches!(error, TimelineError::Shape { .. }), shape, "{text}: {error}");
        assert!(error.to_string().contains("bad.json"), "{error}");
    }
}

#[test]
fn odd_events_are_counted_and_harmless() {
    let text = json!([
        {"ph": "B", "name": "begin", "pid": 1, "tid": 1, "ts": 0},
        {"ph": "X", "name": "negative", "pid": 1, "tid": 1, "ts": 0, "dur": -5},
        {"ph": "X", "name": "moment", "pid": "gpu", "tid": "stream 7", "ts": 5},
        {},
    ]);
    let svg = chrome_svg(&[("odd", &serde_json::to_vec(&text).unwrap())]).unwrap();
    let document = check::parse(&svg).unwrap();
    assert!(document.says("3 events of other kinds are not drawn"));
    assert!(document.says("process gpu") && document.says("thread stream 7"));
    let empty = check::parse(&chrome_svg(&[]).unwrap()).unwrap();
    assert!(empty.says("nothing was recorded"));
}
