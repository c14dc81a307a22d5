//! Where values lie along x, and how the ticks read.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use headrace_io::binary_bytes;

/// Ticks that fit side by side.
const TICKS_MAX: usize = 12;

/// An axis of bytes, each power of two as far from the next: values are mapped to positions, which
/// the drawing library spreads evenly.
pub(super) struct Axis {
    /// Positions of both ends.
    pub range: Range<f64>,
}

impl Axis {
    /// An axis for these values, which are above 0.
    pub fn new(values: &[f64]) -> Axis {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let (low, high) = (least.log2(), most.log2());
        // Room beside the outermost points, also if there is only one.
        let margin = ((high - low) * 0.04).max(0.25);
        Axis { range: low - margin..high + margin }
    }

    /// Where a value lies.
    pub fn position(&self, value: f64) -> f64 {
        value.log2()
    }

    /// The positions, for the drawing library.
    pub fn positions(&self) -> Positions {
        Positions::from(self.range.clone())
    }

    /// How the tick at a position reads.
    pub fn label(&self, position: f64) -> String {
        binary_bytes(position.exp2().round() as u64)
    }
}

/// Evenly spread positions, with ticks at whole ones only.
pub(super) struct Positions(Range<f64>);

impl From<Range<f64>> for Positions {
    fn from(range: Range<f64>) -> Positions {
        Positions(range)
    }
}

impl Ranged for Positions {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first_px, last_px): (i32, i32)) -> i32 {
        let share = (value - self.0.start) / (self.0.end - self.0.start);
        first_px + (f64::from(last_px - first_px) * share).round() as i32
    }

    /// Every whole position, or every so many of them.
    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        let (first, last) = (self.0.start.ceil() as i64, self.0.end.floor() as i64);
        let count = (last - first + 1).max(0) as usize;
        let step = count.div_ceil(TICKS_MAX).max(1);
        (first..=last).step_by(step).map(|tick| tick as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64]) -> Vec<String> {
        let axis = Axis::new(values);
        axis.positions().key_points(TICKS_MAX).iter().map(|tick| axis.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_the_numbers_that_one_expects() {
        let mib = f64::from(1 << 20);
        assert_eq!(labels(&[mib / 2.0, 4.0 * mib]), ["512 KiB", "1 MiB", "2 MiB", "4 MiB"]);
        let wide = labels(&[4096.0, 1e12]);
        assert!(wide.len() <= TICKS_MAX && wide[..2] == ["2 KiB", "16 KiB"], "{wide:?}");
    }
}
