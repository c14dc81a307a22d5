//! A record as readable text and as JSON.

use headrace_io::{binary_bytes, decimal_bytes};
use serde::Serialize;
use serde_json::{Value, json};

use super::record::{BenchRun, DeviceRecord, StageRecord, Verification};
use super::{Sweep, SweepPoint};
use crate::aligned;

/// Version of the JSON document; raised when a member changes its meaning.
const VERSION: u32 = 1;

/// The JSON document: `{"version":1,"machine":{…},"runs":[…]}`, as text that ends with a line feed.
pub fn json_document(machine: &impl Serialize, runs: &[BenchRun]) -> String {
    let document = json!({
        "version": VERSION,
        "machine": value(machine),
        "runs": value(&runs),
    });
    format!("{document:#}\n")
}

/// The JSON document of a sweep: like [`json_document`], with a member `sweep` that has the
/// settings of the runs in order, the index of the best one, and the settings without a run.
pub fn sweep_document(machine: &impl Serialize, sweep: &Sweep) -> String {
    let runs: Vec<&BenchRun> = sweep.runs().collect();
    let measured = |point: &&SweepPoint| point.outcome.is_ok();
    let settings: Vec<Value> =
        sweep.points.iter().filter(measured).map(|point| value(&point.setting)).collect();
    let unavailable: Vec<Value> = sweep
        .points
        .iter()
        .filter_map(|point| {
            let reason = point.outcome.as_ref().err()?;
            Some(json!({ "setting": value(&point.setting), "reason": reason }))
        })
        .collect();
    let best = sweep
        .best()
        .map(|best| sweep.points[..best].iter().filter(|point| point.outcome.is_ok()).count());
    let document = json!({
        "version": VERSION,
        "machine": value(machine),
        "runs": value(&runs),
        "sweep": {
            "settings": settings,
            "best": best,
            "unavailable": unavailable,
            "left_out": sweep.left_out,
            "interrupted": sweep.interrupted,
        },
    });
    format!("{document:#}\n")
}

const COLUMNS: [&str; 12] = [
    "path", "to", "paths", "memory", "threads", "chunk", "slots", "GB/s", "IOPS", "p50", "p99",
    "cpu",
];

/// A sweep as a table in grid order, the best run marked; unavailable access paths follow, each
/// with its reason.
pub fn sweep_table(sweep: &Sweep) -> String {
    let best = sweep.best();
    let (mut rows, mut marks) = (vec![COLUMNS.map(str::to_string)], vec![""]);
    for (index, point) in sweep.points.iter().enumerate() {
        if let Ok(run) = &point.outcome {
            rows.push(cells(point, run));
            marks.push(match run.cache.is_as_asked {
                false => "  not cold",
                true if best == Some(index) => "  <- best",
                true => "",
            });
        }
    }
    // Names to the left, numbers to the right.
    let lines = aligned(&rows, |_, column| !matches!(column, 0 | 1 | 3));
    let lines = lines.into_iter().zip(marks);
    let mut text: String = lines.map(|(line, mark)| format!("{line}{mark}\n")).collect();
    let mut reasons: Vec<String> = sweep
        .points
        .iter()
        .filter_map(|point| {
            let reason = point.outcome.as_ref().err()?;
            Some(format!("{} to {}: {reason}", point.setting.path, point.setting.target))
        })
        .collect();
    reasons.sort();
    reasons.dedup();
    reasons.iter().for_each(|reason| text.push_str(&format!("not measured: {reason}\n")));
    if sweep.left_out > 0 {
        let why = if sweep.interrupted { "interrupted" } else { "the time was up" };
        text.push_str(&format!("not measured: {} more points, {why}\n", sweep.left_out));
    }
    text
}

fn cells(point: &SweepPoint, run: &BenchRun) -> [String; COLUMNS.len()] {
    let setting = &point.setting;
    let latency = |ns| if run.latency.count > 0 { time(ns) } else { "-".to_string() };
    [
        setting.path.to_string(),
        setting.target.clone(),
        setting.paths.to_string(),
        setting.memory.map_or("-", |memory| memory.name()).to_string(),
        setting.threads.to_string(),
        binary_bytes(setting.chunk_bytes),
        run.slots.to_string(),
        format!("{:.2}", run.gb_per_s),
        run.iops.map_or_else(|| "-".to_string(), |iops| format!("{iops:.0}")),
        latency(run.latency.p50_ns),
        latency(run.latency.p99_ns),
        format!("{:.0}%", run.cpu.percent),
    ]
}

/// A failure to serialise is reported in place.
fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_else(|error| json!({ "error": error.to_string() }))
}

/// A run, in lines of "name  value".
pub fn text(run: &BenchRun) -> String {
    let mut lines = Lines::default();
    lines.add(run.operation, headline(run));
    if let Some(why) = run.partial {
        lines.add("partial", format!("{why}: {} of the run was done", decimal_bytes(run.bytes)));
    }
    lines.add("way", way(run));
    lines.add("by path", by_path(run));
    if run.operation == "read" {
        lines.add("page cache", page_cache(run));
    }
    if run.latency.count > 0 {
        let at = &run.latency;
        let mean = match run.mean_request_bytes {
            0 => String::new(),
            bytes => format!("; mean request {}", binary_bytes(bytes)),
        };
        let pieces = if run.pattern == "random" { "blocks" } else { "chunks" };
        lines.add(
            "latency",
            format!(
                "p50 {}  p90 {}  p99 {}  max {}  ({} {pieces}{mean})",
                time(at.p50_ns),
                time(at.p90_ns),
                time(at.p99_ns),
                time(at.max_ns),
                at.count,
            ),
        );
    }
    if let Some(ring) = &run.ring {
        let (first, all) = (time(ring.first_ready_ns), time(ring.ready_ns));
        let bytes = binary_bytes(ring.bytes);
        lines.add(
            "ring",
            format!("{bytes} pinned before the clock started: first slot after {first}, all {all}"),
        );
    }
    if run.first_chunk_ns > 0 {
        lines.add("first chunk", format!("after {}", time(run.first_chunk_ns)));
    }
    for stage in &run.stages {
        lines.add(stage.stage, stage_text(stage));
    }
    for device in &run.devices {
        lines.add(&device.name, device_text(device));
    }
    if let Some(share) = run.consumer_wait_share {
        lines.add("consumer", format!("waited {:.0}% of its time", share * 100.0));
    }
    lines.add("cpu", format!("{:.0}% (100% is one core)", run.cpu.percent));
    if let Some(bottleneck) = &run.bottleneck {
        lines.add("bottleneck", bottleneck.clone());
    }
    if let Some(predicted) = &run.predicted {
        let beside =
            headrace_ceilings::model::beside_measured(predicted.seconds, run.wall_ns as f64 / 1e9);
        let (speed, limit) = (predicted.gb_per_s, &predicted.bottleneck);
        lines.add("model", format!("{beside}; {speed:.2} GB/s, bound by {limit}"));
    }
    if let Some(verification) = &run.verification {
        verified(verification, &mut lines);
    }
    for reason in &run.path_reasons {
        lines.add("why not", reason.clone());
    }
    for note in run.cache.notes.iter().chain(&run.notes) {
        lines.add("note", note.clone());
    }
    lines.text
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn add(&mut self, name: &str, value: impl AsRef<str>) {
        self.text.push_str(&format!("{name:<11} {}\n", value.as_ref()));
    }
}

fn headline(run: &BenchRun) -> String {
    let what = match run.files {
        1 => run.paths.join(" "),
        files => format!("{} ({files} files)", run.paths.join(" ")),
    };
    let direction = if run.operation == "write" { "from" } else { "to" };
    if run.bytes == 0 {
        return format!("{what}, {direction} {}: 0 bytes, nothing to measure", run.target);
    }
    let speed = match run.iops {
        Some(iops) => format!("{iops:.0} IOPS, {:.3} GB/s", run.gb_per_s),
        None => format!("{:.2} GB/s", run.gb_per_s),
    };
    format!(
        "{what}, {direction} {}: {speed} ({} in {:.3} s)",
        run.target,
        decimal_bytes(run.bytes),
        run.wall_ns as f64 / 1e9
    )
}

fn way(run: &BenchRun) -> String {
    let memory = run.memory.map_or_else(String::new, |memory| format!(", {memory}"));
    let engines = match run.engines.is_empty() {
        true => String::new(),
        false => format!("; {}", run.engines.join("; ")),
    };
    format!(
        "{}, {} {}, {} slots, {} threads{memory}{engines}",
        run.path,
        run.pattern,
        binary_bytes(run.chunk_bytes),
        run.slots,
        run.threads
    )
}

fn by_path(run: &BenchRun) -> String {
    let by = &run.bytes_by_path;
    let ways = [
        ("ram2gpu", by.ram2gpu),
        ("ssd2gpu", by.ssd2gpu),
        ("cufile", by.cufile),
        ("ram2host", by.ram2host),
        ("ssd2host", by.ssd2host),
        ("host2ssd", by.host2ssd),
        ("gpu2ssd", by.gpu2ssd),
    ];
    let parts = [
        ("mapped", by.mapped),
        ("cached", by.cached),
        ("buffered", by.buffered),
        ("direct", by.direct),
        ("registered", by.registered),
    ];
    let list = |of: &[(&str, u64)]| {
        let shown: Vec<String> = of
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(name, bytes)| format!("{name} {}", decimal_bytes(*bytes)))
            .collect();
        shown.join(", ")
    };
    match (list(&ways), list(&parts)) {
        (ways, _) if ways.is_empty() => "nothing".to_string(),
        (ways, parts) if parts.is_empty() => ways,
        (ways, parts) => format!("{ways} ({parts})"),
    }
}

fn page_cache(run: &BenchRun) -> String {
    use super::CacheState;
    let asked = match run.cache.asked {
        CacheState::AsIs => "left as it was",
        CacheState::Cold => "files dropped (--cold)",
        CacheState::ColdEverything => "everything dropped",
        CacheState::Hot => "read once before (--hot)",
    };
    match run.cache.resident_share_before {
        Some(share) => format!("{asked}; {:.1}% in memory before the run", share * 100.0),
        None => asked.to_string(),
    }
}

fn stage_text(stage: &StageRecord) -> String {
    let ceiling = match (stage.ceiling_gb_per_s, stage.ceiling_share) {
        // Above 1 the run sets a new mark, which the bottleneck's line says.
        (Some(ceiling), Some(share)) if share <= 1.0 => {
            format!("; the run is at {:.0}% of its ceiling of {ceiling:.2} GB/s", share * 100.0)
        }
        _ => String::new(),
    };
    format!(
        "{:.2} GB/s, busy {:.0}% of the time{ceiling}",
        stage.gb_per_s,
        stage.busy_share * 100.0
    )
}

fn device_text(device: &DeviceRecord) -> String {
    format!(
        "read {:.2} GB/s, write {:.2} GB/s, {:.0} requests/s of {}, busy {:.0}%",
        device.read_gb_per_s,
        device.write_gb_per_s,
        device.requests_per_s,
        binary_bytes(device.mean_request_bytes),
        device.busy_share * 100.0
    )
}

fn verified(verification: &Verification, lines: &mut Lines) {
    let v = verification;
    if v.mismatch_count == 0 {
        let text = format!(
            "{} chunks, {}: no mismatch, checksum {}",
            v.chunks,
            decimal_bytes(v.bytes),
            v.checksum
        );
        return lines.add("verified", text);
    }
    lines.add(
        "MISMATCH",
        format!("{} of {} chunks differ from {}", v.mismatch_count, v.chunks, v.reference),
    );
    for wrong in &v.mismatches {
        lines.add(
            "",
            format!(
                "chunk {} of {}: {} bytes at offset {}",
                wrong.chunk, wrong.file, wrong.bytes, wrong.offset
            ),
        );
    }
}

fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{:.1} us", ns as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}
