//! From spans to what is drawn: rows, bars, how busy a stage was, how many slots were in use.

use std::collections::BTreeMap;

use super::{Count, Process, Span, Stage, Track};

/// A row of the picture.
pub(super) struct Row<'a> {
    pub label: String,
    pub stage: Stage,
    /// Ordered by their starts.
    pub spans: Vec<&'a Span>,
}

/// The rows of a process, ordered by stage, then by track as numbers count. `folded`: one row for
/// each stage.
pub(super) fn rows(process: &Process, folded: bool) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = process
        .tracks
        .iter()
        .map(|track| Row {
            label: track.name.clone(),
            stage: stage_of(track),
            spans: track.spans.iter().collect(),
        })
        .collect();
    rows.sort_by_key(|row| (row.stage, number_aware(&row.label)));
    if !folded {
        return rows;
    }
    Stage::ALL
        .into_iter()
        .filter_map(|stage| {
            let of_stage: Vec<&Row<'_>> = rows.iter().filter(|row| row.stage == stage).collect();
            let mut spans: Vec<&Span> =
                of_stage.iter().flat_map(|row| row.spans.iter().copied()).collect();
            spans.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
            let label = format!("{}, {} tracks", stage.name(), of_stage.len());
            (!spans.is_empty()).then_some(Row { label, stage, spans })
        })
        .collect()
}

/// The stage of most of a track's spans is that of its first one.
fn stage_of(track: &Track) -> Stage {
    track.spans.first().map_or(Stage::Other, |span| Stage::of(&span.name, &track.name))
}

/// "slot 2" before "slot 10": the text without its last number, and the number.
fn number_aware(label: &str) -> (String, u64, String) {
    let text = label.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = label[text.len()..].parse().unwrap_or(0);
    (text.to_string(), number, label.to_string())
}

/// Time in pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub start_us: f64,
    pub px_per_us: f64,
}

impl Scale {
    pub fn px(&self, us: f64) -> f64 {
        (us - self.start_us) * self.px_per_us
    }
}

/// One span, or several that are too narrow to be drawn each.
#[derive(Debug)]
pub(super) struct Bar<'a> {
    pub first: &'a Span,
    /// Spans that it stands for.
    pub spans: usize,
    pub bytes: u64,
    /// Time in them.
    pub busy_us: f64,
    pub start_us: f64,
    pub end_us: f64,
    narrow: bool,
}

/// The bars of a row. Those of spans narrower than `narrow_px` that lie closer to each other than
/// that become one, and a span that another one covers is counted with it: so there are at most two
/// bars for each `narrow_px`, and none overlap.
pub(super) fn bars<'a>(spans: &[&'a Span], scale: Scale, narrow_px: f64) -> Vec<Bar<'a>> {
    let narrow_us = narrow_px / scale.px_per_us;
    let mut bars: Vec<Bar<'a>> = Vec::new();
    for &span in spans {
        let visible_from_us =
            bars.last().map_or(span.start_us, |bar| bar.end_us.max(span.start_us));
        let visible_us = span.end_us - visible_from_us;
        let narrow = visible_us < narrow_us;
        if let Some(bar) = bars.last_mut() {
            let covered = visible_us <= 0.0 && span.start_us < bar.end_us;
            let close = visible_from_us - bar.end_us < narrow_us;
            if covered || (narrow && bar.narrow && close) {
                bar.spans += 1;
                bar.bytes += span.bytes;
                bar.busy_us += visible_us.max(0.0);
                bar.end_us = bar.end_us.max(span.end_us);
                continue;
            }
        }
        bars.push(Bar {
            first: span,
            spans: 1,
            bytes: span.bytes,
            busy_us: visible_us.max(0.0),
            start_us: visible_from_us,
            end_us: span.end_us.max(visible_from_us),
            narrow,
        });
    }
    bars
}

/// What a stage of a process did.
#[derive(Debug, PartialEq)]
pub(super) struct Work {
    pub bytes: u64,
    /// Time with at least one span under way.
    pub busy_us: f64,
}

pub(super) fn work(rows: &[Row<'_>], stage: Stage) -> Work {
    let mut spans: Vec<&Span> = rows
        .iter()
        .filter(|row| row.stage == stage)
        .flat_map(|row| row.spans.iter().copied())
        .collect();
    spans.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
    let mut work = Work { bytes: 0, busy_us: 0.0 };
    let mut until_us = f64::NEG_INFINITY;
    for span in spans {
        work.bytes += span.bytes;
        work.busy_us += (span.end_us - span.start_us.max(until_us)).max(0.0);
        until_us = until_us.max(span.end_us);
    }
    work
}

/// How many slots were in use: the number from each time on. As the race counted them, or, if it
/// did not, as far as spans that name a slot tell; empty if there are none either.
pub(super) fn occupancy(process: &Process, rows: &[Row<'_>]) -> Vec<(f64, u64)> {
    if process.counts.is_empty() { occupancy_by_spans(rows) } else { counted(&process.counts) }
}

/// The sum over rings.
fn counted(counts: &[Count]) -> Vec<(f64, u64)> {
    let mut by_ring: BTreeMap<&str, u64> = BTreeMap::new();
    let mut steps: Vec<(f64, u64)> = Vec::new();
    for Count { counter, at_us, in_use } in counts {
        by_ring.insert(counter, *in_use);
        push_step(&mut steps, *at_us, by_ring.values().sum());
    }
    steps
}

fn push_step(steps: &mut Vec<(f64, u64)>, at_us: f64, count: u64) {
    match steps.last_mut() {
        Some(last) if last.0 == at_us => last.1 = count,
        _ => steps.push((at_us, count)),
    }
}

fn occupancy_by_spans(rows: &[Row<'_>]) -> Vec<(f64, u64)> {
    let mut changes: Vec<(f64, i64)> = Vec::new();
    for stays in stays_by_slot(rows) {
        for (start_us, end_us) in stays {
            changes.extend([(start_us, 1), (end_us, -1)]);
        }
    }
    // Where one ends and the next begins at once, the number does not rise in between.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut in_use = 0i64;
    let mut steps: Vec<(f64, u64)> = Vec::new();
    for (at_us, change) in changes {
        in_use += change;
        push_step(&mut steps, at_us, in_use.max(0) as u64);
    }
    steps
}

/// For each slot, when chunks were in it: from the begin of a chunk's first stage to the end of its
/// last one. A stage that comes again is another stay, also of a chunk of the same number (of the
/// next query).
fn stays_by_slot(rows: &[Row<'_>]) -> Vec<Vec<(f64, f64)>> {
    let mut by_slot: BTreeMap<u64, Vec<(Stage, &Span)>> = BTreeMap::new();
    for row in rows {
        for span in &row.spans {
            if let Some(slot) = span.slot {
                by_slot.entry(slot).or_default().push((row.stage, span));
            }
        }
    }
    by_slot
        .into_values()
        .map(|mut spans| {
            spans.sort_by(|a, b| a.1.start_us.total_cmp(&b.1.start_us).then(a.0.cmp(&b.0)));
            stays(&spans)
        })
        .collect()
}

fn stays(spans: &[(Stage, &Span)]) -> Vec<(f64, f64)> {
    let mut stays: Vec<(f64, f64)> = Vec::new();
    let mut last: Option<(Stage, Option<u64>)> = None;
    for (stage, span) in spans {
        let continues = last.is_some_and(|(before, chunk)| {
            chunk == span.chunk
                && before <= *stage
                && (before, *stage) != (Stage::Read, Stage::Read)
        });
        last = Some((*stage, span.chunk));
        match stays.last_mut() {
            Some(stay) if continues => stay.1 = stay.1.max(span.end_us),
            // Spans of one slot that overlap are still one slot.
            Some(stay) if stay.1 > span.start_us => stay.1 = stay.1.max(span.end_us),
            _ => stays.push((span.start_us, span.end_us)),
        }
    }
    stays
}
