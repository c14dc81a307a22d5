//! The record as pictures.

use super::record::{Figure, Limits, OocRecord, OperatorRecord, Point};
use super::render::{cache_name, detailed, is_cache};
use super::stages::StageTimes;
use crate::plot::{
    Bar, BarPlot, CeilingLine, MarkLine, PlotError, SweepPlot, SweepPoint, XAxis, bars_svg,
    sweep_svg,
};
use crate::transfer::CacheState;

const GB_PER_S: &str = "GB/s (10^9 bytes)";

/// The pictures, each with the name of its file. Where a comparison has no point there is none: the
/// tables say why.
///
/// # Errors
/// [`PlotError`].
pub fn pictures(record: &OocRecord) -> Result<Vec<(String, String)>, PlotError> {
    let mut pictures = Vec::new();
    for operator in &record.operators {
        for (name, plot) in curves(operator, &record.limits) {
            if !plot.points.is_empty() {
                pictures.push((format!("{}-{name}.svg", operator.operator), sweep_svg(&plot)?));
            }
        }
        let bars = stages(operator);
        if !bars.bars.is_empty() {
            pictures.push((format!("{}-stages.svg", operator.operator), bars_svg(&bars)?));
        }
    }
    Ok(pictures)
}

fn curves(operator: &OperatorRecord, limits: &Limits) -> Vec<(&'static str, SweepPlot)> {
    let records = format!("M {}/s", operator.records_name);
    let throughput = |y_label: &str, y: fn(&Point) -> f64| SweepPlot {
        title: format!("{}: throughput against size, cold", operator.operator),
        x_label: "input".to_string(),
        y_label: y_label.to_string(),
        points: points(operator.of(Figure::Throughput), |point| point.input_bytes as f64, y),
        marks: marks(limits),
        ..SweepPlot::default()
    };
    vec![
        ("throughput", throughput(GB_PER_S, |point| point.gb_per_s)),
        ("records", throughput(&records, |point| point.records_per_s / 1e6)),
        ("model", model(operator)),
        ("selectivity", selectivity(operator)),
        ("methods-cold", methods(operator, CacheState::Cold)),
        ("methods-hot", methods(operator, CacheState::Hot)),
    ]
}

/// What fits the memories: beyond, the input is out of core.
fn marks(limits: &Limits) -> Vec<MarkLine> {
    let mark = |name: &str, bytes: u64| MarkLine { name: name.to_string(), x: bytes as f64 };
    let host = (limits.host_bytes > 0).then(|| mark("host memory limit", limits.host_bytes));
    let device = limits.device_bytes.map(|bytes| mark("device memory limit", bytes));
    host.into_iter().chain(device).collect()
}

fn points<'a>(
    points: impl Iterator<Item = &'a Point>,
    x: fn(&Point) -> f64,
    y: fn(&Point) -> f64,
) -> Vec<SweepPoint> {
    let point =
        |point: &Point| SweepPoint { series: point.variant.clone(), x: x(point), y: y(point) };
    points.map(point).collect()
}

/// Each variant that reads files as it was measured, as the model has it, and the plain reads.
fn model(operator: &OperatorRecord) -> SweepPlot {
    let mut points = Vec::new();
    for point in operator.of(Figure::Throughput) {
        let (Some(roof), Some(predicted)) = (&point.roofline, &point.predicted) else { continue };
        let of = |series: String, y| SweepPoint { series, x: point.input_bytes as f64, y };
        points.push(of(format!("{}, measured", point.variant), point.gb_per_s));
        points.push(of(format!("{}, predicted", point.variant), predicted.gb_per_s));
        points.push(of(format!("plain reads ({})", point.processor), roof.gb_per_s));
    }
    SweepPlot {
        title: format!("{}: predicted, measured, and plain reads", operator.operator),
        x_label: "input".to_string(),
        y_label: GB_PER_S.to_string(),
        points,
        ..SweepPlot::default()
    }
}

fn selectivity(operator: &OperatorRecord) -> SweepPlot {
    let share = |point: &Point| point.selectivity.unwrap_or(0.0) * 100.0;
    SweepPlot {
        title: format!("{}: share of common keys", operator.operator),
        x_label: "common keys".to_string(),
        y_label: GB_PER_S.to_string(),
        points: points(operator.of(Figure::Selectivity), share, |point| point.gb_per_s),
        x_axis: XAxis::Percent,
        ..SweepPlot::default()
    }
}

fn methods(operator: &OperatorRecord, cache: CacheState) -> SweepPlot {
    let measured = operator.of(Figure::Methods).filter(|point| is_cache(point, cache));
    let chunk = |point: &Point| point.chunk_bytes.unwrap_or(0) as f64;
    let name =
        |memory: Option<&str>| memory.map(|memory| format!(", {memory}")).unwrap_or_default();
    let plain = operator.plain.iter().filter(|plain| {
        plain.operation == "read"
            && (plain.cache, plain.input_bytes) == (cache, operator.detail_bytes)
    });
    let ceilings = plain.map(|plain| CeilingLine {
        name: format!("plain {} to {}{}", plain.way, plain.target, name(plain.memory)),
        y: plain.gb_per_s,
    });
    SweepPlot {
        title: format!("{}: ways of reading, {}", operator.operator, cache_name(cache)),
        x_label: "chunk size".to_string(),
        y_label: GB_PER_S.to_string(),
        points: points(measured, chunk, |point| point.gb_per_s),
        ceilings: ceilings.collect(),
        ..SweepPlot::default()
    }
}

fn stages(operator: &OperatorRecord) -> BarPlot {
    let bar = |point: &Point| Bar {
        name: point.variant.clone(),
        values: point.stages.named().iter().map(|(_, ns)| *ns as f64 / 1e9).collect(),
        mark: Some(point.best_s),
    };
    let size = headrace_io::decimal_bytes(operator.detail_bytes);
    BarPlot {
        title: format!("{}: when stages were busy, of {size}; they overlap", operator.operator),
        x_label: "seconds".to_string(),
        mark_name: "wall time".to_string(),
        parts: StageTimes::NAMES.map(str::to_string).to_vec(),
        bars: detailed(operator).map(bar).collect(),
    }
}
