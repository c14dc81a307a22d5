//! The doctor's output: findings, and the exit code they add up to.

use serde::Serialize;

/// Severity of a finding, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Unknown; the reason is in [`Finding::found`]. Neither good nor bad.
    Unknown,
    /// It works, but could be faster.
    Slow,
    /// It does not work.
    Broken,
}

headrace_io::named!(
    Level, Ok => "ok", Unknown => "unknown", Slow => "slow", Broken => "broken",
);

/// An examined subject and its meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its severity.
    pub level: Level,
    /// The subject: a path, a device, a limit.
    pub subject: String,
    /// The fact.
    pub found: String,
    /// Why it matters; empty if it is as it should be.
    pub why: String,
    /// The remedy, a command if there is one; empty if nothing helps or is needed.
    pub remedy: String,
}

impl Finding {
    /// As it should be.
    pub fn ok(subject: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding {
            level: Level::Ok,
            subject: subject.into(),
            found: found.into(),
            why: String::new(),
            remedy: String::new(),
        }
    }

    /// Unknown, for `reason`.
    pub fn unknown(subject: impl Into<String>, reason: impl Into<String>) -> Finding {
        Finding { level: Level::Unknown, ..Finding::ok(subject, reason) }
    }

    /// Works, but could be faster.
    pub fn slow(
        subject: impl Into<String>,
        found: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            level: Level::Slow,
            why: why.into(),
            remedy: remedy.into(),
            ..Finding::ok(subject, found)
        }
    }

    /// Does not work.
    pub fn broken(
        subject: impl Into<String>,
        found: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Broken, ..Finding::slow(subject, found, why, remedy) }
    }
}

/// How many findings there are of each level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// [`Level::Broken`].
    pub broken: usize,
    /// [`Level::Slow`].
    pub slow: usize,
    /// [`Level::Unknown`].
    pub unknown: usize,
    /// [`Level::Ok`].
    pub ok: usize,
}

impl Counts {
    /// Counts findings.
    pub fn of(findings: &[Finding]) -> Counts {
        let mut counts = Counts::default();
        for finding in findings {
            match finding.level {
                Level::Broken => counts.broken += 1,
                Level::Slow => counts.slow += 1,
                Level::Unknown => counts.unknown += 1,
                Level::Ok => counts.ok += 1,
            }
        }
        counts
    }

    /// 0 all well, 1 works but slower than it could, 2 broken. Unknown findings do not count: they
    /// are shown, but may not be faults.
    pub fn exit_code(&self) -> i32 {
        match (self.broken, self.slow) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        }
    }

    /// The last line of the report: "1 problem, 2 things that could be faster".
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        if self.broken > 0 {
            parts.push(plural(self.broken, "problem", "problems"));
        }
        if self.slow > 0 {
            parts.push(plural(
                self.slow, "thing that could be faster", "things that could be faster",
            ));
        }
        if parts.is_empty() {
            parts.push("all well".to_string());
        }
        if self.unknown > 0 {
            parts.push(format!("{} could not be found out", self.unknown));
        }
        parts.join(", ")
    }
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Worst first; findings of one level keep their order.
pub(crate) fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(broken: usize, slow: usize, unknown: usize, ok: usize) -> Vec<Finding> {
        let mut all = vec![Finding::ok("a", "fine"); ok];
        all.extend(vec![Finding::unknown("b", "not readable"); unknown]);
        all.extend(vec![Finding::slow("c", "x4", "half", "another slot"); slow]);
        all.extend(vec![Finding::broken("d", "gone", "no data", "mount it"); broken]);
        all
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst() {
        let code = |broken, slow, unknown, ok| {
            Counts::of(&findings(broken, slow, unknown, ok)).exit_code()
        };
        assert_eq!(code(0, 0, 0, 0), 0);
        assert_eq!(code(0, 0, 3, 9), 0);
        assert_eq!(code(0, 1, 0, 9), 1);
        assert_eq!(code(1, 0, 0, 9), 2);
        assert_eq!(code(2, 5, 1, 9), 2);
    }

    #[test]
    fn the_summary_counts_and_knows_one_from_many() {
        let text =
            |broken, slow, unknown| Counts::of(&findings(broken, slow, unknown, 4)).summary();
        assert_eq!(text(1, 2, 0), "1 problem, 2 things that could be faster");
        assert_eq!(text(0, 1, 0), "1 thing that could be faster");
        assert_eq!(text(3, 0, 1), "3 problems, 1 could not be found out");
        assert_eq!(text(0, 0, 0), "all well");
    }

    #[test]
    fn the_worst_comes_first_and_equals_keep_their_order() {
        let mut all = findings(1, 2, 1, 2);
        all[0].subject = "first".to_string();
        sort(&mut all);
        let levels: Vec<&str> = all.iter().map(|f| f.level.name()).collect();
        assert_eq!(levels, ["broken", "slow", "slow", "unknown", "ok", "ok"]);
        assert_eq!(all[4].subject, "first");
    }
}
