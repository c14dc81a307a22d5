//! A record as readable tables and as JSON.

use headrace_io::{binary_bytes, decimal_bytes};
use serde::Serialize;
use serde_json::json;

use super::record::{Figure, Missing, OocRecord, OperatorRecord, Point};
use super::stages::StageTimes;
use super::table::Table;
use crate::transfer::CacheState;

/// Version of the JSON document; raised when a member changes its meaning.
const VERSION: u32 = 1;

/// The JSON document: `{"version":1,"machine":{…},"ooc":{…}}`, as text that ends with a line feed.
pub fn json_document(machine: &impl Serialize, record: &OocRecord) -> String {
    let value = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default();
    let document = json!({
        "version": VERSION,
        "machine": value(serde_json::to_value(machine)),
        "ooc": value(serde_json::to_value(record)),
    });
    format!("{document:#}\n")
}

/// The tables for a terminal.
pub fn text(record: &OocRecord) -> String {
    let tables: Vec<String> = tables(record).iter().map(Table::text).collect();
    format!("{}\n{}", head(record).join("\n"), tables.join("\n"))
}

/// The tables for a document.
pub fn markdown(record: &OocRecord) -> String {
    let head: Vec<String> = head(record).iter().map(|line| format!("* {line}\n")).collect();
    let tables: Vec<String> = tables(record).iter().map(Table::markdown).collect();
    format!("## Out-of-core operators\n\n{}\n{}", head.concat(), tables.concat())
}

fn head(record: &OocRecord) -> Vec<String> {
    let OocRecord { versions, limits, .. } = record;
    let mut lines = vec![
        format!("{}, headrace {}", record.command, versions.headrace),
        format!(
            "in {}, at most {} at a time; {} runs of each point, the median counts",
            record.folder,
            decimal_bytes(record.max_bytes),
            record.runs
        ),
    ];
    let host = format!("an operator may take {} of host memory", decimal_bytes(limits.host_bytes));
    lines.push(match (limits.device_bytes, &record.no_gpu) {
        (Some(bytes), _) => format!("{host}, {} of device memory", decimal_bytes(bytes)),
        (None, Some(why)) => format!("{host}; no GPU: {why}"),
        (None, None) => host,
    });
    lines.extend(record.partial.map(|why| format!("partial: {why}")));
    lines
}

fn tables(record: &OocRecord) -> Vec<Table> {
    let mut tables = Vec::new();
    for operator in &record.operators {
        tables.extend([
            throughput(operator),
            model(operator),
            stages(operator),
            chunk_times(operator),
            plain(operator),
        ]);
        for cache in [CacheState::Cold, CacheState::Hot] {
            tables.push(methods(operator, cache));
        }
        if operator.has_selectivities {
            tables.push(selectivity(operator));
        }
    }
    tables
}

/// All missing points of a comparison, each reason once.
fn not_measured(operator: &OperatorRecord, figure: Figure) -> Vec<String> {
    let mut reasons: Vec<(&Missing, Vec<&str>)> = Vec::new();
    for missing in operator.missing_of(figure) {
        let is_same = |(known, _): &&mut (&Missing, Vec<&str>)| {
            (known.input_bytes, &known.reason, known.is_failure)
                == (missing.input_bytes, &missing.reason, missing.is_failure)
        };
        match reasons.iter_mut().find(is_same) {
            Some((_, variants)) if variants.contains(&missing.variant.as_str()) => {}
            Some((_, variants)) => variants.push(&missing.variant),
            None => reasons.push((missing, vec![&missing.variant])),
        }
    }
    let mut notes: Vec<String> = reasons
        .into_iter()
        .map(|(Missing { input_bytes, reason, is_failure, .. }, variants)| {
            let what = if *is_failure { "failed" } else { "not measured" };
            let size = input_bytes.map(|bytes| format!(" of {}", decimal_bytes(bytes)));
            format!("{what}: {}{}: {reason}", variants.join("; "), size.unwrap_or_default())
        })
        .collect();
    let is_empty = match figure {
        Figure::Plain => operator.plain.is_empty(),
        _ => operator.of(figure).next().is_none(),
    };
    if is_empty && notes.is_empty() {
        notes.push("not measured: it ended before".to_string());
    }
    notes
}

fn notes_of<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for point in points {
        let of_cache = point.cache.iter().flat_map(|cache| &cache.notes);
        for note in point.notes.iter().chain(of_cache) {
            let note = format!("{}: {note}", point.variant);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

fn throughput(operator: &OperatorRecord) -> Table {
    let title = format!("{}: throughput against size", operator.operator);
    let records = format!("M {}/s", operator.records_name);
    let mut table = Table::new(
        title,
        &[
            "input", "variant", "way", "best s", "median s", "GB/s", &records, "of plain reads",
            "host", "resident", "device", "limit",
        ],
    );
    for point in operator.of(Figure::Throughput) {
        let share = point.roofline.as_ref().map(|roof| format!("{:.0}%", roof.share * 100.0));
        table.rows.push(vec![
            decimal_bytes(point.input_bytes),
            point.variant.clone(),
            or_dash(point.way.map(str::to_string)),
            format!("{:.4}", point.best_s),
            format!("{:.4}", point.median_s),
            format!("{:.2}", point.gb_per_s),
            format!("{:.1}", point.records_per_s / 1e6),
            or_dash(share),
            decimal_bytes(point.host_peak_bytes),
            or_dash(point.resident_peak_bytes.map(decimal_bytes)),
            or_dash((point.device_peak_bytes > 0).then(|| decimal_bytes(point.device_peak_bytes))),
            or_dash(point.limited_by.clone()),
        ]);
    }
    table.notes = not_measured(operator, Figure::Throughput);
    table.notes.extend(notes_of(operator.of(Figure::Throughput)));
    table
}

fn model(operator: &OperatorRecord) -> Table {
    let title = format!("{}: predicted and measured", operator.operator);
    let header = [
        "input", "variant", "plain read GB/s", "predicted GB/s", "measured GB/s",
        "measured/predicted", "predicted limit",
    ];
    let mut table = Table::new(title, &header);
    for point in operator.of(Figure::Throughput) {
        let (Some(roof), Some(predicted)) = (&point.roofline, &point.predicted) else { continue };
        table.rows.push(vec![
            decimal_bytes(point.input_bytes),
            point.variant.clone(),
            format!("{:.2} ({})", roof.gb_per_s, roof.way),
            format!("{:.2}", predicted.gb_per_s),
            format!("{:.2}", point.gb_per_s),
            format!("{:.0}%", point.gb_per_s / predicted.gb_per_s * 100.0),
            predicted.bottleneck.clone(),
        ]);
    }
    if table.rows.is_empty() {
        table
            .notes
            .push("no variant that reads files has a plain read to compare with".to_string());
    }
    table
}

fn stages(operator: &OperatorRecord) -> Table {
    let size = decimal_bytes(operator.detail_bytes);
    let title = format!(
        "{}: when stages were busy, of {size}, best run, seconds (they overlap)",
        operator.operator
    );
    let mut header = vec!["variant"];
    header.extend(StageTimes::NAMES);
    header.push("wall");
    let mut table = Table::new(title, &header);
    for point in detailed(operator) {
        let mut row = vec![point.variant.clone()];
        let times = point.stages.named();
        row.extend(times.map(|(_, ns)| or_dash((ns > 0).then(|| seconds(ns)))));
        row.push(format!("{:.4}", point.best_s));
        table.rows.push(row);
    }
    table.notes = not_measured(operator, Figure::Throughput);
    table
}

fn chunk_times(operator: &OperatorRecord) -> Table {
    let size = decimal_bytes(operator.detail_bytes);
    let title = format!("{}: times of chunks in stages, of {size}, ms", operator.operator);
    let mut table = Table::new(title, &["variant", "stage", "chunks", "p5", "p50", "p95"]);
    for point in detailed(operator) {
        table.rows.extend(point.chunk_times.iter().map(|times| {
            let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
            let count = times.count.to_string();
            let (p5, p50, p95) = (ms(times.p5_ns), ms(times.p50_ns), ms(times.p95_ns));
            vec![point.variant.clone(), times.stage.to_string(), count, p5, p50, p95]
        }));
    }
    if table.rows.is_empty() {
        table.notes = not_measured(operator, Figure::Throughput);
    }
    table
}

/// The points of all variants at the size at which the rest is varied.
fn detailed(operator: &OperatorRecord) -> impl Iterator<Item = &Point> {
    let bytes = operator.detail_bytes;
    operator.of(Figure::Throughput).filter(move |point| point.input_bytes == bytes)
}

fn plain(operator: &OperatorRecord) -> Table {
    let title = format!("{}: plain reads and writes of the same files", operator.operator);
    let header = ["input", "transfer", "way", "to", "memory", "page cache", "GB/s"];
    let mut table = Table::new(title, &header);
    for plain in &operator.plain {
        table.rows.push(vec![
            decimal_bytes(plain.input_bytes),
            plain.operation.to_string(),
            plain.way.to_string(),
            plain.target.clone(),
            or_dash(plain.memory.map(str::to_string)),
            cache_name(plain.cache).to_string(),
            format!("{:.2}", plain.gb_per_s),
        ]);
        table.notes.extend(plain.notes.iter().map(|note| format!("{}: {note}", plain.way)));
    }
    table.notes.dedup();
    table.notes.extend(not_measured(operator, Figure::Plain));
    table
}

fn methods(operator: &OperatorRecord, cache: CacheState) -> Table {
    let title = format!(
        "{}: ways of reading by chunk size, {}, of {}, GB/s",
        operator.operator,
        cache_name(cache),
        decimal_bytes(operator.detail_bytes)
    );
    let points = || operator.of(Figure::Methods).filter(move |point| is_cache(point, cache));
    let cell = |point: &Point| {
        let column = binary_bytes(point.chunk_bytes.unwrap_or(0));
        (point.variant.clone(), column, format!("{:.2}", point.gb_per_s))
    };
    let mut table = Table::pivot(title, "way", points().map(cell));
    table.notes = not_measured(operator, Figure::Methods);
    table.notes.extend(notes_of(points()));
    table
}

/// Whether a point was measured with the page cache in this state.
fn is_cache(point: &Point, cache: CacheState) -> bool {
    point.cache.as_ref().is_some_and(|found| found.asked == cache)
}

fn selectivity(operator: &OperatorRecord) -> Table {
    let size = decimal_bytes(operator.detail_bytes);
    let title = format!("{}: share of common keys, of {size}, GB/s", operator.operator);
    let cell = |point: &Point| {
        let share = format!("{:.0}%", point.selectivity.unwrap_or(0.0) * 100.0);
        (share, point.variant.clone(), format!("{:.2}", point.gb_per_s))
    };
    let mut table = Table::pivot(title, "common", operator.of(Figure::Selectivity).map(cell));
    table.notes = not_measured(operator, Figure::Selectivity);
    table
}

/// Its form in tables.
pub(super) fn cache_name(cache: CacheState) -> &'static str {
    match cache {
        CacheState::AsIs => "as it is",
        CacheState::Cold | CacheState::ColdEverything => "cold",
        CacheState::Hot => "hot",
    }
}

fn seconds(ns: u64) -> String {
    format!("{:.4}", ns as f64 / 1e9)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_string())
}
