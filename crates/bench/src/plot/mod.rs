//! Curves of a sweep, as SVG: one line for each combination that was tried, ceilings dashed; and
//! bars that are stacked of parts.
//!
//! ```text
//!  SweepPoint (series, x, y) ──► series in order of appearance ──► line + markers, colour and shape
//!  CeilingLine (name, y)     ──► dashed lines across               legend: to the right, never above data
//!  MarkLine (name, x)        ──► dashed lines from top to bottom
//!  Bar (name, parts, mark)   ──► a row of rectangles, with a stroke at the mark
//! ```
//!
//! White background in every viewer; colours that colour-blind readers tell apart (Okabe and Ito's
//! palette without yellow), and a marker and a dash pattern besides, so that no line is told by its
//! colour alone. The same points give the same bytes.

mod axis;
mod bars;
mod draw;
pub(crate) mod xml;

pub use bars::{Bar, BarPlot, bars_svg};

use serde::Serialize;

/// Series that a picture can show and a reader can tell apart.
pub const SERIES_MAX: usize = 56;

/// A measured point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepPoint {
    /// The line it belongs to, such as "uring, pinned, 4 threads".
    pub series: String,
    /// Where, in the unit of the [`XAxis`].
    pub x: f64,
    /// How much.
    pub y: f64,
}

/// A ceiling, drawn across the picture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CeilingLine {
    /// Such as "H2D, GPU 0".
    pub name: String,
    /// In the unit of the points.
    pub y: f64,
}

/// A limit, drawn from top to bottom where it lies among the points, and named in any case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MarkLine {
    /// Such as "device memory".
    pub name: String,
    /// Where, in the unit of the [`XAxis`].
    pub x: f64,
}

/// What lies along x.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum XAxis {
    /// Bytes, above 0; each power of two as far from the next.
    #[default]
    Bytes,
    /// Percent, from 0.
    Percent,
}

/// What is to be drawn.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SweepPlot {
    /// Above the picture.
    pub title: String,
    /// Below it, such as "chunk size".
    pub x_label: String,
    /// Beside it, such as "GB/s (10^9 bytes)".
    pub y_label: String,
    /// The points, in any order; two of one series at one x are joined by a vertical stroke.
    pub points: Vec<SweepPoint>,
    /// The ceilings.
    pub ceilings: Vec<CeilingLine>,
    /// What lies along x.
    pub x_axis: XAxis,
    /// The limits.
    pub marks: Vec<MarkLine>,
}

/// Why there is no picture.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlotError {
    /// There is nothing to draw.
    #[error("there is no point to draw")]
    Empty,
    /// A point that has no place.
    #[error(
        "series '{series}': the point ({x}, {y}) has no place in the picture\nhint: x must be above 0, y not below 0"
    )]
    Point {
        /// Its series.
        series: String,
        /// Its x.
        x: f64,
        /// Its y.
        y: f64,
    },
    /// Nobody could tell them apart.
    #[error(
        "{series} series are more than the {SERIES_MAX} that one picture can show\nhint: fix one of the dimensions of the sweep"
    )]
    TooMany {
        /// How many there are.
        series: usize,
    },
    /// The drawing library failed.
    #[error("cannot draw: {0}")]
    Drawing(String),
}

/// The picture of a sweep.
///
/// # Errors
/// [`PlotError`]: no points, a point that is no number, too many series.
pub fn sweep_svg(plot: &SweepPlot) -> Result<String, PlotError> {
    if plot.points.is_empty() {
        return Err(PlotError::Empty);
    }
    let placed = |value: f64, least: f64| value.is_finite() && value >= least;
    let x_least = match plot.x_axis {
        XAxis::Bytes => f64::MIN_POSITIVE,
        XAxis::Percent => 0.0,
    };
    let ceilings = plot.ceilings.iter().map(|line| (&line.name, 1.0, line.y));
    let marks = plot.marks.iter().map(|line| (&line.name, line.x, 0.0));
    let points = plot.points.iter().map(|point| (&point.series, point.x, point.y));
    for (series, x, y) in points.chain(ceilings).chain(marks) {
        if !(placed(x, x_least) && placed(y, 0.0)) {
            return Err(PlotError::Point { series: series.clone(), x, y });
        }
    }
    let series = series_of(&plot.points);
    if series.len() > SERIES_MAX {
        return Err(PlotError::TooMany { series: series.len() });
    }
    draw::draw(plot, &series)
}

/// A line: its name and its points, ordered by x.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

fn series_of(points: &[SweepPoint]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for SweepPoint { series: name, x, y } in points {
        match series.iter_mut().find(|known| known.name == *name) {
            Some(known) => known.points.push((*x, *y)),
            None => series.push(Series { name: name.clone(), points: vec![(*x, *y)] }),
        }
    }
    for Series { points, .. } in &mut series {
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    }
    series
}

#[cfg(test)]
mod tests;
