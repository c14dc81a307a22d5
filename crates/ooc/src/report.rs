//! What an operator did.

use headrace_flow::RaceReport;
use headrace_io::decimal_bytes;
use serde::Serialize;

/// One race of an operator.
#[derive(Debug, Clone, Serialize)]
pub struct Pass {
    /// What it was for.
    pub name: &'static str,
    /// What happened in it.
    pub race: RaceReport,
}

/// What ran where, and what it took.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The processor, in words: "2 threads", "NVIDIA H200".
    pub ran_on: String,
    /// Why not on a GPU, if it did not.
    pub why_not_cuda: Option<String>,
    /// Bytes of the input files that the answer depends on.
    pub input_bytes: u64,
    /// Bytes of the output files.
    pub output_bytes: u64,
    /// From the call to the return.
    pub wall_ns: u64,
    /// Of this the planning before the first race.
    pub plan_ns: u64,
    /// The races, in their order.
    pub passes: Vec<Pass>,
    /// The limit of host memory.
    pub host_limit_bytes: u64,
    /// The most of it that was reserved at a time.
    pub host_peak_bytes: u64,
    /// The limit of device memory; 0 without a device.
    pub device_limit_bytes: u64,
    /// The most of it that was in use at a time.
    pub device_peak_bytes: u64,
    /// Bytes of temporary files that were written.
    pub temporary_bytes: u64,
    /// Whatever else a user should know.
    pub notes: Vec<String>,
}

impl Report {
    /// Bytes of input, or of output where there is none, a nanosecond: GB/s of the whole call.
    pub fn gb_per_s(&self) -> f64 {
        self.moved_bytes() as f64 / self.wall_ns.max(1) as f64
    }

    fn moved_bytes(&self) -> u64 {
        if self.input_bytes > 0 { self.input_bytes } else { self.output_bytes }
    }

    /// What a person reads after the answer, line by line.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} in {:.3} s, {:.2} GB/s, on {}",
            decimal_bytes(self.moved_bytes()),
            self.wall_ns as f64 / 1e9,
            self.gb_per_s(),
            self.ran_on,
        )];
        lines.extend(self.why_not_cuda.iter().map(|why| format!("not on a GPU: {why}")));
        for Pass { name, race } in &self.passes {
            let limit = race.bottleneck().map(|limit| format!(", {limit}")).unwrap_or_default();
            // What has no input has output.
            let bytes = race.bytes_by_path.total().max(race.written_bytes);
            let rate = bytes as f64 / race.wall_ns.max(1) as f64;
            let seconds = race.wall_ns as f64 / 1e9;
            lines.push(format!("{name}: {seconds:.3} s, {rate:.2} GB/s{limit}"));
        }
        lines.push(self.memory_line());
        lines.extend(self.notes.iter().cloned());
        lines
    }

    fn memory_line(&self) -> String {
        let of = |peak, limit| format!("{} of {}", decimal_bytes(peak), decimal_bytes(limit));
        let mut line = format!("memory: {}", of(self.host_peak_bytes, self.host_limit_bytes));
        if self.device_limit_bytes > 0 {
            line += &format!(", device {}", of(self.device_peak_bytes, self.device_limit_bytes));
        }
        if self.temporary_bytes > 0 {
            line += &format!(", temporary files {}", decimal_bytes(self.temporary_bytes));
        }
        line
    }
}
