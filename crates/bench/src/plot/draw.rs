//! The drawing itself.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Axis, tick_text};
use super::xml::printable;
use super::{CeilingLine, MarkLine, PlotError, Series, SweepPlot};

/// Okabe and Ito's colours, without the yellow that is pale on white.
pub(super) const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x22, 0x22, 0x22),
];
const CEILING_COLOUR: RGBColor = RGBColor(0x66, 0x66, 0x66);
pub(super) const MESH_COLOUR: RGBColor = RGBColor(0xE4, 0xE4, 0xE4);

pub(super) const PLOT_WIDTH_PX: u32 = 860;
const HEIGHT_MIN_PX: u32 = 540;
const TITLE_HEIGHT_PX: u32 = 44;
pub(super) const LEGEND_ROW_PX: i32 = 20;
pub(super) const LEGEND_SAMPLE_PX: i32 = 34;
/// About what a letter takes at the size of labels.
pub(super) const LETTER_PX: u32 = 7;
const LABEL_LETTERS_MAX: usize = 64;
/// The library divides sizes by 1.24: this becomes 12.9 pixels.
pub(super) const LABEL_SIZE: i32 = 16;
const TITLE_SIZE: i32 = 22;
const MARKER_PX: i32 = 4;
const DASH_PX: i32 = 6;
/// A limit this many times above or below all points is not in the picture.
const MARK_DISTANCE_MAX: f64 = 4.0;
/// Dashes and gaps of ceilings, which all have one colour.
const CEILING_DASHES_PX: [(i32, i32); 4] = [(9, 5), (2, 4), (16, 6), (5, 9)];

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) fn failed(error: impl std::fmt::Display) -> PlotError {
    PlotError::Drawing(error.to_string())
}

/// How a series is told from others.
#[derive(Clone, Copy)]
struct Look {
    colour: RGBColor,
    marker: usize,
    dashed: bool,
}

impl Look {
    fn of(index: usize) -> Look {
        let round = index / COLOURS.len();
        // The marker changes with the colour and with the round: no two series share both.
        Look {
            colour: COLOURS[index % COLOURS.len()],
            marker: (index + round) % 4,
            dashed: round % 2 == 1,
        }
    }
}

pub(super) fn draw(plot: &SweepPlot, series: &[Series]) -> Result<String, PlotError> {
    let ceilings = sorted_ceilings(&plot.ceilings);
    let marks = plot.marks.iter().map(|mark| mark_label(plot, mark));
    let labels: Vec<String> = series
        .iter()
        .map(|series| label(&series.name))
        .chain(ceilings.iter().map(|line| label(&format!("{}: {:.2}", line.name, line.y))))
        .chain(marks)
        .collect();
    picture(&plot.title, HEIGHT_MIN_PX, &labels, |left, right| {
        draw_chart(left, plot, series, &ceilings)?;
        draw_legend(right, series.len(), &labels)
    })
}

/// A title, what `draw` draws below it on the left, and the legend of these labels on the right.
pub(super) fn picture(
    title: &str,
    height_min: u32,
    labels: &[String],
    draw: impl FnOnce(&Area<'_>, &Area<'_>) -> Result<(), PlotError>,
) -> Result<String, PlotError> {
    let letters = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) as u32;
    let legend_width = letters * LETTER_PX + LEGEND_SAMPLE_PX as u32 + 30;
    let rows_height = labels.len() as u32 * LEGEND_ROW_PX as u32 + TITLE_HEIGHT_PX + 40;
    let height = height_min.max(rows_height);

    let mut svg = String::new();
    {
        let backend = SVGBackend::with_string(&mut svg, (PLOT_WIDTH_PX + legend_width, height));
        let root = backend.into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let style = ("sans-serif", TITLE_SIZE).into_font().color(&BLACK);
        let title = printable(title);
        root.draw_text(&title, &style, (20, 12)).map_err(failed)?;
        let (_, below) = root.split_vertically(TITLE_HEIGHT_PX);
        let (left, right) = below.split_horizontally(PLOT_WIDTH_PX);
        draw(&left, &right)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// A limit that is far from all points is named, but would press them into a corner.
fn is_near(plot: &SweepPlot, mark: &MarkLine) -> bool {
    let xs = || plot.points.iter().map(|point| point.x);
    let (least, most) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    (least / MARK_DISTANCE_MAX..=most * MARK_DISTANCE_MAX).contains(&mark.x)
}

fn mark_label(plot: &SweepPlot, mark: &MarkLine) -> String {
    let beyond = if is_near(plot, mark) { "" } else { ", not in the picture" };
    label(&format!("{}: {}{beyond}", mark.name, tick_text(plot.x_axis, mark.x)))
}

fn sorted_ceilings(ceilings: &[CeilingLine]) -> Vec<CeilingLine> {
    let mut sorted = ceilings.to_vec();
    sorted.sort_by(|a, b| b.y.total_cmp(&a.y).then_with(|| a.name.cmp(&b.name)));
    sorted
}

pub(super) fn label(name: &str) -> String {
    let name = printable(name);
    if name.chars().count() <= LABEL_LETTERS_MAX {
        return name;
    }
    let kept: String = name.chars().take(LABEL_LETTERS_MAX - 1).collect();
    format!("{kept}…")
}

fn draw_chart(
    area: &Area<'_>,
    plot: &SweepPlot,
    series: &[Series],
    ceilings: &[CeilingLine],
) -> Result<(), PlotError> {
    let marks: Vec<&MarkLine> = plot.marks.iter().filter(|mark| is_near(plot, mark)).collect();
    let xs = plot.points.iter().map(|point| point.x);
    let values: Vec<f64> = xs.chain(marks.iter().map(|mark| mark.x)).collect();
    let points = plot.points.iter().map(|point| point.y);
    let most = points.chain(ceilings.iter().map(|line| line.y)).fold(0.0, f64::max);
    let y_end = if most > 0.0 { most * 1.06 } else { 1.0 };

    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(20)
        .x_label_area_size(48)
        .y_label_area_size(70)
        .build_cartesian_2d(Axis::new(plot.x_axis, &values), 0.0..y_end)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_desc(printable(&plot.x_label))
        .y_desc(printable(&plot.y_label))
        .x_label_formatter(&|x| tick_text(plot.x_axis, *x))
        .y_label_formatter(&|y| y_text(*y, y_end))
        .max_light_lines(0)
        .bold_line_style(MESH_COLOUR)
        .label_style(("sans-serif", LABEL_SIZE))
        .axis_desc_style(("sans-serif", LABEL_SIZE))
        .draw()
        .map_err(failed)?;
    for (index, line) in ceilings.iter().enumerate() {
        let (dash, gap) = ceiling_dash(index);
        let x_range = chart.x_range();
        let ends = [(x_range.start, line.y), (x_range.end, line.y)];
        let style = CEILING_COLOUR.stroke_width(1);
        chart.draw_series(DashedLineSeries::new(ends, dash, gap, style)).map_err(failed)?;
    }
    for mark in marks {
        // Where its place in the legend has it: behind the ceilings.
        let place = plot.marks.iter().position(|other| other == mark).unwrap_or(0);
        let (dash, gap) = ceiling_dash(ceilings.len() + place);
        let ends = [(mark.x, 0.0), (mark.x, y_end)];
        let style = CEILING_COLOUR.stroke_width(1);
        chart.draw_series(DashedLineSeries::new(ends, dash, gap, style)).map_err(failed)?;
    }
    for (index, series) in series.iter().enumerate() {
        let look = Look::of(index);
        let points = &series.points;
        let style = look.colour.stroke_width(2);
        if look.dashed {
            let line = DashedLineSeries::new(points.clone(), DASH_PX, DASH_PX, style);
            chart.draw_series(line).map_err(failed)?;
        } else {
            chart.draw_series(LineSeries::new(points.clone(), style)).map_err(failed)?;
        }
        let markers = points.iter().map(|point| marker(look, *point));
        chart.draw_series(markers).map_err(failed)?;
    }
    Ok(())
}

fn ceiling_dash(index: usize) -> (i32, i32) {
    CEILING_DASHES_PX[index % CEILING_DASHES_PX.len()]
}

pub(super) fn y_text(y: f64, end: f64) -> String {
    match end {
        end if end < 1.0 => format!("{y:.2}"),
        end if end < 10.0 => format!("{y:.1}"),
        _ => format!("{y:.0}"),
    }
}

fn marker<DB: DrawingBackend>(look: Look, at: (f64, f64)) -> DynElement<'static, DB, (f64, f64)> {
    let filled = look.colour.filled();
    match look.marker {
        0 => Circle::new(at, MARKER_PX, filled).into_dyn(),
        1 => TriangleMarker::new(at, MARKER_PX + 1, filled).into_dyn(),
        2 => Cross::new(at, MARKER_PX, look.colour.stroke_width(2)).into_dyn(),
        _ => Circle::new(at, MARKER_PX, look.colour.stroke_width(2)).into_dyn(),
    }
}

/// Series first, ceilings after them, limits last.
fn draw_legend(area: &Area<'_>, series: usize, labels: &[String]) -> Result<(), PlotError> {
    let text = ("sans-serif", LABEL_SIZE)
        .into_font()
        .color(&BLACK)
        .pos(Pos::new(HPos::Left, VPos::Center));
    for (index, label) in labels.iter().enumerate() {
        let y = 16 + index as i32 * LEGEND_ROW_PX;
        let (start, end) = ((6, y), (6 + LEGEND_SAMPLE_PX, y));
        if index < series {
            draw_sample(area, Look::of(index), start, end)?;
        } else {
            let style = CEILING_COLOUR.stroke_width(1);
            let (dash, gap) = ceiling_dash(index - series);
            area.draw(&DashedPathElement::new([start, end], dash, gap, style)).map_err(failed)?;
        }
        area.draw_text(label, &text, (end.0 + 8, y)).map_err(failed)?;
    }
    Ok(())
}

fn draw_sample(
    area: &Area<'_>,
    look: Look,
    start: (i32, i32),
    end: (i32, i32),
) -> Result<(), PlotError> {
    let style = look.colour.stroke_width(2);
    if look.dashed {
        let path = DashedPathElement::new([start, end], DASH_PX, DASH_PX, style);
        area.draw(&path).map_err(failed)?;
    } else {
        area.draw(&PathElement::new([start, end], style)).map_err(failed)?;
    }
    let middle = ((start.0 + end.0) / 2, start.1);
    let filled = look.colour.filled();
    match look.marker {
        0 => area.draw(&Circle::new(middle, MARKER_PX, filled)),
        1 => area.draw(&TriangleMarker::new(middle, MARKER_PX + 1, filled)),
        2 => area.draw(&Cross::new(middle, MARKER_PX, style)),
        _ => area.draw(&Circle::new(middle, MARKER_PX, style)),
    }
    .map_err(failed)
}
