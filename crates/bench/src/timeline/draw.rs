//! The SVG of a timeline.

use std::fmt::Write as _;

use super::rows::{Bar, Row, Scale, bars, occupancy, rows, work};
use super::{Process, Stage, Timeline};
use crate::plot::xml::escape;

const WIDTH_PX: f64 = 1480.0;
const LEFT_PX: f64 = 180.0;
const RIGHT_PX: f64 = 270.0;
const PLOT_PX: f64 = WIDTH_PX - LEFT_PX - RIGHT_PX;
const TOP_PX: f64 = 46.0;
const AXIS_PX: f64 = 34.0;
const HEADER_PX: f64 = 24.0;
const ROW_PX: f64 = 18.0;
const SLOTS_PX: f64 = 46.0;

/// With more tracks than this, those of a stage share a row.
const ROWS_MAX: usize = 200;
/// Processes that are drawn; a note tells how many were not.
const PROCESSES_MAX: usize = 24;
/// Bars that are drawn; below it, bars are as narrow as a pixel.
const BARS_MAX: usize = 12_000;
const TICKS: f64 = 10.0;
const LABEL_LETTERS_MAX: usize = 26;

/// A process, laid out.
struct Group<'a> {
    process: &'a Process,
    rows: Vec<Row<'a>>,
    slots: Vec<(f64, u64)>,
}

impl Group<'_> {
    fn height_px(&self) -> f64 {
        let slots = if self.slots.is_empty() { 0.0 } else { SLOTS_PX };
        HEADER_PX + self.rows.len() as f64 * ROW_PX + slots
    }

    /// First start and last end.
    fn span_us(&self) -> (f64, f64) {
        let spans = || self.rows.iter().flat_map(|row| row.spans.iter());
        let start_us = spans().map(|span| span.start_us).fold(f64::INFINITY, f64::min);
        let end_us = spans().map(|span| span.end_us).fold(f64::NEG_INFINITY, f64::max);
        (start_us, end_us)
    }
}

pub(super) fn svg(timeline: &Timeline) -> String {
    let drawn = &timeline.processes[..timeline.processes.len().min(PROCESSES_MAX)];
    let tracks: usize = drawn.iter().map(|process| process.tracks.len()).sum();
    let groups: Vec<Group<'_>> = drawn
        .iter()
        .map(|process| {
            let rows = rows(process, tracks > ROWS_MAX);
            Group { slots: occupancy(process, &rows), process, rows }
        })
        .collect();
    let height_px = TOP_PX + groups.iter().map(Group::height_px).sum::<f64>() + AXIS_PX;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH_PX}\" height=\"{height_px}\" \
         viewBox=\"0 0 {WIDTH_PX} {height_px}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect x=\"0\" y=\"0\" width=\"{WIDTH_PX}\" height=\"{height_px}\" fill=\"#FFFFFF\"/>\n"
    );
    draw_legend(&mut svg, timeline);
    if groups.is_empty() {
        text(&mut svg, (LEFT_PX, TOP_PX + 14.0), "start", "#222222", "nothing was recorded");
    } else {
        draw_groups(&mut svg, &groups, height_px);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_groups(svg: &mut String, groups: &[Group<'_>], height_px: f64) {
    let spans: Vec<(f64, f64)> = groups.iter().map(Group::span_us).collect();
    let start_us = spans.iter().map(|span| span.0).fold(f64::INFINITY, f64::min);
    let end_us = spans.iter().map(|span| span.1).fold(f64::NEG_INFINITY, f64::max);
    // A single moment still needs a width.
    let length_us = (end_us - start_us).max(1.0);
    let scale = Scale { start_us, px_per_us: PLOT_PX / length_us };
    draw_axis(svg, length_us / 1e3, height_px);
    let narrow_px = narrow_px(groups, scale);
    let mut y = TOP_PX;
    for (group, span_us) in groups.iter().zip(spans) {
        draw_group(svg, group, span_us, scale, narrow_px, y);
        y += group.height_px();
    }
}

/// The least width of a bar, so that the picture stays within [`BARS_MAX`].
fn narrow_px(groups: &[Group<'_>], scale: Scale) -> f64 {
    let count = |narrow_px: f64| -> usize {
        let rows = groups.iter().flat_map(|group| &group.rows);
        rows.map(|row| bars(&row.spans, scale, narrow_px).len()).sum()
    };
    let mut narrow_px = 1.0;
    while narrow_px < PLOT_PX && count(narrow_px) > BARS_MAX {
        narrow_px *= 2.0;
    }
    narrow_px
}

fn draw_legend(svg: &mut String, timeline: &Timeline) {
    let mut x = LEFT_PX;
    for stage in Stage::ALL {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"12\" width=\"14\" height=\"12\" fill=\"{}\"/>",
            stage.colour()
        );
        text(svg, (x + 19.0, 22.0), "start", "#222222", stage.name());
        x += 40.0 + 7.0 * stage.name().len() as f64;
    }
    let mut notes = Vec::new();
    let left_out = timeline.processes.len().saturating_sub(PROCESSES_MAX);
    for (count, what) in [
        (timeline.dropped, "spans were not recorded: the recorder was full"),
        (timeline.ignored, "events of other kinds are not drawn"),
        (left_out as u64, "more processes are not drawn"),
    ] {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    }
    if !notes.is_empty() {
        text(svg, (x, 22.0), "start", "#B00000", &notes.join("; "));
    }
}

/// Ticks at 1, 2 or 5 times a power of ten, in milliseconds.
fn draw_axis(svg: &mut String, length_ms: f64, height_px: f64) {
    let step_ms = tick_step(length_ms / TICKS);
    let decimals = (-step_ms.log10().floor()).max(0.0) as usize;
    let bottom = height_px - AXIS_PX;
    let mut index = 0;
    loop {
        let at_ms = f64::from(index) * step_ms;
        if at_ms > length_ms {
            break;
        }
        let x = LEFT_PX + at_ms / length_ms * PLOT_PX;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.2}\" y1=\"{TOP_PX}\" x2=\"{x:.2}\" y2=\"{:.2}\" stroke=\"#E4E4E4\"/>",
            bottom + 4.0
        );
        text(svg, (x, bottom + 17.0), "middle", "#222222", &format!("{at_ms:.decimals$}"));
        index += 1;
    }
    text(svg, (LEFT_PX + PLOT_PX + 14.0, bottom + 17.0), "start", "#222222", "ms");
}

fn tick_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|n| n * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

fn draw_group(
    svg: &mut String,
    group: &Group<'_>,
    (start_us, end_us): (f64, f64),
    scale: Scale,
    narrow_px: f64,
    top: f64,
) {
    let heading = format!("{}, {:.2} ms", group.process.name, (end_us - start_us) / 1e3);
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"{:.1}\" fill=\"#222222\" font-weight=\"bold\">{}</text>",
        top + 16.0,
        escape(&heading)
    );
    let mut y = top + HEADER_PX;
    let mut stage_before = None;
    for row in &group.rows {
        let label = shorten(&row.label);
        text(svg, (LEFT_PX - 8.0, y + 13.0), "end", "#222222", &label);
        for bar in bars(&row.spans, scale, narrow_px) {
            draw_bar(svg, &bar, row.stage, scale, y);
        }
        if stage_before.replace(row.stage) != Some(row.stage) {
            let summary = work_text(&group.rows, row.stage, end_us - start_us);
            text(svg, (LEFT_PX + PLOT_PX + 10.0, y + 13.0), "start", "#222222", &summary);
        }
        y += ROW_PX;
    }
    if !group.slots.is_empty() {
        draw_slots(svg, &group.slots, scale, y);
    }
}

/// "52.31 GB/s, busy 95%": bytes per second of busy time.
fn work_text(rows: &[Row<'_>], stage: Stage, length_us: f64) -> String {
    let work = work(rows, stage);
    let share = if length_us > 0.0 { work.busy_us / length_us * 100.0 } else { 100.0 };
    if work.bytes == 0 || work.busy_us == 0.0 {
        return format!("{}: busy {share:.0}%", stage.name());
    }
    let gb_per_s = work.bytes as f64 / work.busy_us / 1e3;
    format!("{}: {gb_per_s:.2} GB/s, busy {share:.0}%", stage.name())
}

fn draw_bar(svg: &mut String, bar: &Bar<'_>, stage: Stage, scale: Scale, y: f64) {
    let x = LEFT_PX + scale.px(bar.start_us);
    let width = (scale.px(bar.end_us) - scale.px(bar.start_us)).max(0.5);
    let length_us = bar.end_us - bar.start_us;
    // Narrow spans with gaps between them are paler than one without.
    let filled = if length_us > 0.0 { (bar.busy_us / length_us).clamp(0.35, 1.0) } else { 1.0 };
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.2}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"{:.1}\" fill=\"{}\" \
         fill-opacity=\"{filled:.2}\"><title>{}</title></rect>",
        y + 2.0,
        ROW_PX - 4.0,
        stage.colour(),
        escape(&bar_text(bar, scale)),
    );
}

fn bar_text(bar: &Bar<'_>, scale: Scale) -> String {
    let at_ms = |us: f64| (us - scale.start_us) / 1e3;
    let span = bar.first;
    let mut words = match bar.spans {
        1 => vec![span.name.clone()],
        n => vec![format!("{n} spans, the first: {}", span.name)],
    };
    if bar.spans == 1 {
        words.extend(span.chunk.map(|chunk| format!("chunk {chunk}")));
        words.extend(span.slot.map(|slot| format!("slot {slot}")));
    }
    if bar.bytes > 0 {
        words.push(format!("{} bytes", bar.bytes));
    }
    let (start_us, end_us) = match bar.spans {
        // Also where another span hides its beginning.
        1 => (span.start_us, span.end_us),
        _ => (bar.start_us, bar.end_us),
    };
    words.push(format!("{:.3} ms from {:.3} ms", (end_us - start_us) / 1e3, at_ms(start_us)));
    let busy_us = if bar.spans == 1 { end_us - start_us } else { bar.busy_us };
    if bar.bytes > 0 && busy_us > 0.0 {
        words.push(format!("{:.2} GB/s", bar.bytes as f64 / busy_us / 1e3));
    }
    words.join(", ")
}

/// The step line. Of a column of pixels with several changes the mean is drawn.
fn draw_slots(svg: &mut String, steps: &[(f64, u64)], scale: Scale, top: f64) {
    let most = steps.iter().map(|step| step.1).max().unwrap_or(0).max(1);
    let base = top + SLOTS_PX - 6.0;
    let y_of = |count: f64| base - count / most as f64 * (SLOTS_PX - 14.0);
    let mut path = format!("M{LEFT_PX:.1} {base:.1}");
    let mut count_before = 0;
    for column in steps.chunk_by(|a, b| scale.px(a.0).floor() == scale.px(b.0).floor()) {
        let x = scale.px(column[0].0);
        let last = column[column.len() - 1].1;
        if let [only] = column {
            let _ = write!(path, "H{:.1}V{:.1}", LEFT_PX + x, y_of(only.1 as f64));
        } else {
            let (left, right) = (x.floor(), x.floor() + 1.0);
            let mean = column_mean(column, count_before, scale, left);
            let (x, right, y) = (LEFT_PX + left, LEFT_PX + right, y_of(mean));
            let _ = write!(path, "H{x:.1}V{y:.1}H{right:.1}V{:.1}", y_of(last as f64));
        }
        count_before = last;
    }
    let _ =
        writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"#222222\" stroke-width=\"1\"/>");
    text(svg, (LEFT_PX - 8.0, base), "end", "#222222", "slots in use");
    let most_text = format!("at most {most} slots");
    text(svg, (LEFT_PX + PLOT_PX + 10.0, base), "start", "#222222", &most_text);
}

/// The mean over the column of one pixel that begins at `left`.
fn column_mean(steps: &[(f64, u64)], count_before: u64, scale: Scale, left: f64) -> f64 {
    let mut area = 0.0;
    let (mut from, mut count) = (left, count_before);
    for (at_us, next) in steps {
        let at = scale.px(*at_us);
        area += (at - from) * count as f64;
        (from, count) = (at, *next);
    }
    area + (left + 1.0 - from) * count as f64
}

fn shorten(label: &str) -> String {
    if label.chars().count() <= LABEL_LETTERS_MAX {
        return label.to_string();
    }
    label.chars().take(LABEL_LETTERS_MAX - 1).chain(['…']).collect()
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, colour: &str, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}</text>",
        escape(text)
    );
}
