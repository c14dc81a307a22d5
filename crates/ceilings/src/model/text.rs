//! The prediction as text.

use std::fmt::{self, Write as _};

use super::Prediction;

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16} {:>10} {:>10} {:>12}  limit", "stage", "GB", "GB/s", "time")?;
        for stage in &self.stages {
            let mark = if stage.stage == self.bottleneck { "  <- bottleneck" } else { "" };
            writeln!(
                f,
                "{:<16} {:>10.2} {:>10.2} {:>12}  {}{mark}",
                stage.stage,
                stage.bytes / 1e9,
                stage.gb_per_s,
                time_text(stage.seconds),
                stage.limit,
            )?;
        }
        let mut parts = time_text(self.steady_s);
        for (what, seconds) in
            [("fill and drain", self.fill_and_drain_s), ("start-up", self.startup_s)]
        {
            if seconds > 0.0 {
                write!(parts, " + {} {what}", time_text(seconds))?;
            }
        }
        writeln!(f, "total {} = {parts}; {} chunks", time_text(self.total_s), self.chunks)?;
        writeln!(
            f,
            "{:.2} GB/s of table, {:.2} GB/s moved; bound by {}: twice of it would be {:.2}x faster",
            self.table_gb_per_s, self.wire_gb_per_s, self.bottleneck, self.speedup_if_doubled
        )?;
        if !self.not_modelled.is_empty() {
            let names: Vec<String> = self.not_modelled.iter().map(ToString::to_string).collect();
            writeln!(f, "no ceiling known, taken to cost nothing: {}", names.join(", "))?;
        }
        Ok(())
    }
}

/// "predicted 2.53 s, measured 2.83 s (+12%)".
pub fn beside_measured(predicted_s: f64, measured_s: f64) -> String {
    let mut text =
        format!("predicted {}, measured {}", time_text(predicted_s), time_text(measured_s));
    if predicted_s > 0.0 {
        // Writing to a string does not fail.
        let _ = write!(text, " ({:+.0}%)", (measured_s / predicted_s - 1.0) * 100.0);
    }
    text
}

/// Seconds in the unit that leaves few digits.
pub(super) fn time_text(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}
