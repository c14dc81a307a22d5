//! Where values lie along x, and how the ticks read.

use std::ops::Range;

use headrace_io::binary_bytes;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Ticks that fit side by side.
const TICKS_MAX: usize = 12;

/// An axis of bytes, each power of two as far from the next.
pub(super) struct Axis {
    /// Both ends, as powers of two.
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis for these values, which are above 0.
    pub fn new(values: &[f64]) -> Axis {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let (low, high) = (least.log2(), most.log2());
        // Room beside the outermost points, also if there is only one.
        let margin = ((high - low) * 0.04).max(0.25);
        Axis { low: low - margin, high: high + margin }
    }
}

/// How a tick reads.
pub(super) fn tick_text(value: f64) -> String {
    binary_bytes(value.round() as u64)
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first_px, last_px): (i32, i32)) -> i32 {
        let share = (value.log2() - self.low) / (self.high - self.low);
        first_px + (f64::from(last_px - first_px) * share).round() as i32
    }

    /// Every power of two, or every so many of them.
    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        let (first, last) = (self.low.ceil() as i64, self.high.floor() as i64);
        let count = (last - first + 1).max(0) as usize;
        let step = count.div_ceil(TICKS_MAX).max(1);
        (first..=last).step_by(step).map(|power| (power as f64).exp2()).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low.exp2()..self.high.exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64]) -> Vec<String> {
        Axis::new(values).key_points(TICKS_MAX).into_iter().map(tick_text).collect()
    }

    #[test]
    fn ticks_are_the_numbers_that_one_expects() {
        let mib = f64::from(1 << 20);
        assert_eq!(labels(&[mib / 2.0, 4.0 * mib]), ["512 KiB", "1 MiB", "2 MiB", "4 MiB"]);
        let wide = labels(&[4096.0, 1e12]);
        assert!(wide.len() <= TICKS_MAX && wide[..2] == ["2 KiB", "16 KiB"], "{wide:?}");
    }
}
