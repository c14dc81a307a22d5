//! Where values lie along x, and how the ticks read.

use std::ops::Range;

use headrace_io::binary_bytes;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::XAxis;

/// Ticks that fit side by side.
const TICKS_MAX: usize = 12;

/// An axis of bytes, each power of two as far from the next, or of percent.
pub(super) struct Axis {
    kind: XAxis,
    /// Both ends, as powers of two or in percent.
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis for these values, which have a place on it.
    pub fn new(kind: XAxis, values: &[f64]) -> Axis {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let (low, high, margin_min) = match kind {
            XAxis::Bytes => (least.log2(), most.log2(), 0.25),
            XAxis::Percent => (least, most, 2.0),
        };
        // Room beside the outermost points, also if there is only one.
        let margin = ((high - low) * 0.04).max(margin_min);
        Axis { kind, low: low - margin, high: high + margin }
    }

    fn place(&self, value: f64) -> f64 {
        match self.kind {
            XAxis::Bytes => value.log2(),
            XAxis::Percent => value,
        }
    }
}

/// How a tick reads.
pub(super) fn tick_text(kind: XAxis, value: f64) -> String {
    match kind {
        XAxis::Bytes => binary_bytes(value.round() as u64),
        XAxis::Percent => format!("{value:.0}%"),
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first_px, last_px): (i32, i32)) -> i32 {
        let share = (self.place(*value) - self.low) / (self.high - self.low);
        first_px + (f64::from(last_px - first_px) * share).round() as i32
    }

    /// Every power of two, or every ten percent, or every so many of them.
    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        let unit = match self.kind {
            XAxis::Bytes => 1.0,
            XAxis::Percent => 10.0,
        };
        let (first, last) = ((self.low / unit).ceil() as i64, (self.high / unit).floor() as i64);
        let count = (last - first + 1).max(0) as usize;
        let step = count.div_ceil(TICKS_MAX).max(1);
        let value = |tick: i64| match self.kind {
            XAxis::Bytes => (tick as f64).exp2(),
            XAxis::Percent => tick as f64 * unit,
        };
        (first..=last).step_by(step).map(value).collect()
    }

    fn range(&self) -> Range<f64> {
        match self.kind {
            XAxis::Bytes => self.low.exp2()..self.high.exp2(),
            XAxis::Percent => self.low..self.high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(kind: XAxis, values: &[f64]) -> Vec<String> {
        let ticks = Axis::new(kind, values).key_points(TICKS_MAX);
        ticks.into_iter().map(|value| tick_text(kind, value)).collect()
    }

    #[test]
    fn ticks_are_the_numbers_that_one_expects() {
        let mib = f64::from(1 << 20);
        let bytes = labels(XAxis::Bytes, &[mib / 2.0, 4.0 * mib]);
        assert_eq!(bytes, ["512 KiB", "1 MiB", "2 MiB", "4 MiB"]);
        let wide = labels(XAxis::Bytes, &[4096.0, 1e12]);
        assert!(wide.len() <= TICKS_MAX && wide[..2] == ["2 KiB", "16 KiB"], "{wide:?}");
        let percent = labels(XAxis::Percent, &[0.0, 100.0]);
        assert_eq!((percent.len(), &*percent[0], &*percent[10]), (11, "0%", "100%"));
        assert_eq!(labels(XAxis::Percent, &[50.0]), ["50%"]);
    }
}
