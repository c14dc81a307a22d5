//! The report of an operator.

use headrace_flow::RaceReport;
use headrace_io::decimal_bytes;
use serde::Serialize;

/// One race of an operator.
#[derive(Debug, Clone, Serialize)]
pub struct Pass {
    /// Its purpose.
    pub name: &'static str,
    /// Its report.
    pub race: RaceReport,
}

/// Where an operator ran, and its cost.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The processor, in words: "2 threads", "NVIDIA H200".
    pub ran_on: String,
    /// Why not on a GPU, if it did not run there.
    pub why_not_cuda: Option<String>,
    /// Bytes of the input files that the answer depends on.
    pub input_bytes: u64,
    /// Bytes of the output files.
    pub output_bytes: u64,
    /// From the call to the return.
    pub wall_ns: u64,
    /// Of this, the planning before the first race.
    pub plan_ns: u64,
    /// The races, in their order.
    pub passes: Vec<Pass>,
    /// The limit of host memory.
    pub host_limit_bytes: u64,
    /// Peak reservation.
    pub host_peak_bytes: u64,
    /// The limit of device memory; 0 without a device.
    pub device_limit_bytes: u64,
    /// Peak use.
    pub device_peak_bytes: u64,
    /// Bytes of temporary files that were written.
    pub temporary_bytes: u64,
    /// Other notes for the user.
    pub notes: Vec<String>,
}

impl Report {
    /// Bytes of input, or of output if there is none, per nanosecond: GB/s of the whole call.
    pub fn gb_per_s(&self) -> f64 {
        self.moved_bytes() as f64 / self.wall_ns.max(1) as f64
    }

    fn moved_bytes(&self) -> u64 {
        if self.input_bytes > 0 { self.input_bytes } else { self.output_bytes }
    }

    /// The human-readable lines after the answer.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} in {:.3} s, {:.2} GB/s, on {}",
            decimal_bytes(self.moved_bytes()),
            self.wall_ns as f64 / 1e9,
            self.gb_per_s(),
            self.ran_on,
        )];
        lines.extend(self.why_not_cuda.iter().map(|why| format!("not on a GPU: {why}")));
        let mut names: Vec<&str> = Vec::new();
        for pass in &self.passes {
            if !names.contains(&pass.name) {
                names.push(pass.name);
            }
        }
        lines.extend(names.into_iter().map(|name| self.passes_line(name)));
        lines.push(self.memory_line());
        lines.extend(self.notes.iter().cloned());
        lines
    }

    /// The races of a name: the bottleneck of one, or the longest of many.
    fn passes_line(&self, name: &str) -> String {
        let races = || self.passes.iter().filter(|pass| pass.name == name).map(|pass| &pass.race);
        // What has no input has output.
        let bytes_of = |race: &RaceReport| race.bytes_by_path.total().max(race.written_bytes);
        let (bytes, ns) =
            (races().map(bytes_of).sum::<u64>(), races().map(|race| race.wall_ns).sum::<u64>());
        let longest = races().max_by_key(|race| race.wall_ns).and_then(RaceReport::bottleneck);
        let (seconds, rate) = (ns as f64 / 1e9, bytes as f64 / ns.max(1) as f64);
        let mut line = format!("{name}: {seconds:.3} s, {rate:.2} GB/s");
        match races().count() {
            0 | 1 => {}
            races => line += &format!(" in {races} races; the longest"),
        }
        line += &longest.map(|limit| format!(", {limit}")).unwrap_or_default();
        line
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
