//! Bars of parts, one below the other.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Serialize;

use super::PlotError;
use super::draw::{
    Area, COLOURS, LABEL_SIZE, LEGEND_ROW_PX, LEGEND_SAMPLE_PX, LETTER_PX, MESH_COLOUR, failed,
    label, picture, y_text,
};
use super::xml::printable;

/// Height of a bar, and of a bar with the room to the next one.
pub(super) const BAR_PX: i32 = 22;
const ROW_PX: i32 = 34;

/// Below the bars: ticks and what they mean.
const AXIS_PX: i32 = 52;
const TICKS: usize = 8;

/// A bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bar {
    /// Beside it.
    pub name: String,
    /// One for each part, in their order, not below 0.
    pub values: Vec<f64>,
    /// A value that is marked by a stroke.
    pub mark: Option<f64>,
}

/// Bars of parts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BarPlot {
    /// Above the picture.
    pub title: String,
    /// Below it, such as "seconds".
    pub x_label: String,
    /// What the strokes mean.
    pub mark_name: String,
    /// Names of the parts.
    pub parts: Vec<String>,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// The picture of bars.
///
/// # Errors
/// [`PlotError`]: no bars, values that are none or not as many as parts, more parts than colours.
pub fn bars_svg(plot: &BarPlot) -> Result<String, PlotError> {
    if plot.parts.len() > COLOURS.len() {
        return Err(PlotError::TooMany { series: plot.parts.len() });
    }
    if plot.bars.is_empty() {
        return Err(PlotError::Empty);
    }
    for bar in &plot.bars {
        let mut values = bar.values.iter().chain(&bar.mark);
        let odd = values.find(|value| !value.is_finite() || **value < 0.0).copied();
        if odd.is_some() || bar.values.len() != plot.parts.len() {
            let (series, x) = (bar.name.clone(), bar.values.len() as f64);
            return Err(PlotError::Point { series, x, y: odd.unwrap_or(f64::NAN) });
        }
    }
    let mut labels: Vec<String> = plot.parts.iter().map(|part| label(part)).collect();
    if plot.bars.iter().any(|bar| bar.mark.is_some()) {
        labels.push(label(&plot.mark_name));
    }
    let height = plot.bars.len() as i32 * ROW_PX + AXIS_PX + 60;
    picture(&plot.title, height as u32, &labels, |left, right| {
        draw_bars(left, plot)?;
        draw_legend(right, plot.parts.len(), &labels)
    })
}

/// Where values lie.
struct Scale {
    zero_px: i32,
    end_px: i32,
    end: f64,
}

impl Scale {
    fn of(plot: &BarPlot, width_px: i32) -> Scale {
        let letters = plot.bars.iter().map(|bar| label(&bar.name).chars().count()).max();
        let ends =
            plot.bars.iter().flat_map(|bar| [bar.values.iter().sum(), bar.mark.unwrap_or(0.0)]);
        let end: f64 = ends.fold(0.0, f64::max);
        Scale {
            zero_px: letters.unwrap_or(0) as i32 * LETTER_PX as i32 + 30,
            end_px: width_px - 24,
            end: if end > 0.0 { end * 1.04 } else { 1.0 },
        }
    }

    fn px(&self, value: f64) -> i32 {
        let share = value / self.end;
        self.zero_px + (f64::from(self.end_px - self.zero_px) * share).round() as i32
    }
}

fn text(h: HPos, v: VPos) -> TextStyle<'static> {
    ("sans-serif", LABEL_SIZE).into_font().color(&BLACK).pos(Pos::new(h, v))
}

fn draw_bars(area: &Area<'_>, plot: &BarPlot) -> Result<(), PlotError> {
    let scale = Scale::of(plot, area.dim_in_pixel().0 as i32);
    let bottom = plot.bars.len() as i32 * ROW_PX + 10;
    for tick in 0..=TICKS {
        let value = scale.end / 1.04 * tick as f64 / TICKS as f64;
        let x = scale.px(value);
        area.draw(&PathElement::new([(x, 4), (x, bottom)], MESH_COLOUR)).map_err(failed)?;
        let label = y_text(value, scale.end);
        area.draw_text(&label, &text(HPos::Center, VPos::Top), (x, bottom + 6)).map_err(failed)?;
    }
    let middle = (scale.zero_px + scale.end_px) / 2;
    let below = text(HPos::Center, VPos::Top);
    area.draw_text(&printable(&plot.x_label), &below, (middle, bottom + 28)).map_err(failed)?;
    for (row, bar) in plot.bars.iter().enumerate() {
        let top = row as i32 * ROW_PX + (ROW_PX - BAR_PX) / 2 + 6;
        let at = (scale.zero_px - 8, top + BAR_PX / 2);
        area.draw_text(&label(&bar.name), &text(HPos::Right, VPos::Center), at).map_err(failed)?;
        let mut before = 0.0;
        for (part, value) in bar.values.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            let corners = [(scale.px(before), top), (scale.px(before + value), top + BAR_PX)];
            area.draw(&Rectangle::new(corners, COLOURS[part].filled())).map_err(failed)?;
            before += value;
        }
        if let Some(mark) = bar.mark {
            let x = scale.px(mark);
            let stroke = [(x, top - 4), (x, top + BAR_PX + 4)];
            area.draw(&PathElement::new(stroke, BLACK.stroke_width(2))).map_err(failed)?;
        }
    }
    Ok(())
}

/// Parts first, the stroke after them.
fn draw_legend(area: &Area<'_>, parts: usize, labels: &[String]) -> Result<(), PlotError> {
    for (index, label) in labels.iter().enumerate() {
        let y = 16 + index as i32 * LEGEND_ROW_PX;
        if index < parts {
            let corners = [(6, y - 6), (6 + LEGEND_SAMPLE_PX, y + 6)];
            area.draw(&Rectangle::new(corners, COLOURS[index].filled())).map_err(failed)?;
        } else {
            let x = 6 + LEGEND_SAMPLE_PX / 2;
            let stroke = PathElement::new([(x, y - 8), (x, y + 8)], BLACK.stroke_width(2));
            area.draw(&stroke).map_err(failed)?;
        }
        let at = (14 + LEGEND_SAMPLE_PX, y);
        area.draw_text(label, &text(HPos::Left, VPos::Center), at).map_err(failed)?;
    }
    Ok(())
}
