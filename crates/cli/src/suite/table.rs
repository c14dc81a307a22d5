//! Measurements as a readable table.

use headrace_bench::aligned;

use crate::suite::measure::Measurement;

const HEADER: [&str; 10] = [
    "query", "processor", "pipelines", "rows", "first ms", "hot ms", "kernel ms", "GB/s", "= off",
    "bottleneck",
];

/// Aligned lines, header first. Numbers align right, words left.
pub fn render(measurements: &[Measurement]) -> String {
    let mut rows = vec![HEADER.map(str::to_string)];
    rows.extend(measurements.iter().map(cells));
    let lines = aligned(&rows, |_, column| matches!(column, 3..=7));
    lines.into_iter().map(|line| line + "\n").collect()
}

fn cells(m: &Measurement) -> [String; 10] {
    let equal = match m.equal_to_off {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "-",
    };
    let hot = if m.hot_ms.is_empty() { "-".into() } else { format!("{:.1}", m.best_ms()) };
    [
        format!("Q{}", m.query),
        m.processor.clone(),
        m.pipelines.into(),
        m.rows.to_string(),
        format!("{:.1}", m.cold_ms),
        hot,
        m.kernel_ms.map_or("-".into(), |ms| format!("{ms:.2}")),
        format!("{:.2}", m.gb_per_s()),
        equal.into(),
        m.bottleneck.clone(),
    ]
}

/// The last line: the sum, the number of pipelines, and the number of equal answers.
pub fn totals(measurements: &[Measurement]) -> String {
    let total: f64 = measurements.iter().map(Measurement::best_ms).sum();
    let checked = measurements.iter().filter(|m| m.equal_to_off.is_some()).count();
    let equal = measurements.iter().filter(|m| m.equal_to_off == Some(true)).count();
    let count = measurements.len();
    let share = |share| measurements.iter().filter(|m| m.pipelines == share).count();
    let (all, part) = (share("all"), share("part"));
    let mut text = format!("{count} queries in {total:.1} ms, {all} of {count} as pipelines");
    if part > 0 {
        text += &format!(", {part} in part");
    }
    if checked > 0 {
        text += &format!(", {equal} of {checked} answers equal to the planner's own plan");
    }
    text
}
