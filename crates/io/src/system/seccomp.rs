//! Whether system calls of this thread are filtered.

use serde::Serialize;

use super::root::{Fact, SysRoot, Unknown, UnknownCause};

/// Of the asking thread: filters and capabilities belong to threads.
pub(super) const STATUS: &str = "/proc/thread-self/status";

/// How system calls are filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeccompMode {
    /// Not at all.
    Disabled,
    /// Only read, write and exit are allowed.
    Strict,
    /// By programs; which calls they refuse can only be found by trying.
    Filter,
}

/// Filters of system calls on the thread that asked, and on those that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Seccomp {
    /// How they are filtered.
    pub mode: SeccompMode,
    /// How many filters there are; `None` before Linux 5.9.
    pub filters: Option<u32>,
    /// Whether it can gain no privileges any more; `None` before Linux 4.10.
    pub no_new_privs: Option<bool>,
}

/// The filters on this thread.
///
/// # Errors
/// [`Unknown`] if its status cannot be read, or the kernel has no seccomp.
pub fn seccomp(root: &SysRoot) -> Fact<Seccomp> {
    let status = root.text(STATUS)?;
    let mode = match number(&status, "Seccomp") {
        Some(0) => SeccompMode::Disabled,
        Some(1) => SeccompMode::Strict,
        Some(2) => SeccompMode::Filter,
        Some(other) => return Err(Unknown::malformed(STATUS, &format!("Seccomp: {other}"))),
        None => {
            let cause =
                UnknownCause::NotPublished("the kernel says nothing of seccomp".to_string());
            return Err(Unknown::new(STATUS, cause));
        }
    };
    Ok(Seccomp {
        mode,
        filters: number(&status, "Seccomp_filters"),
        no_new_privs: number(&status, "NoNewPrivs").map(|value| value != 0),
    })
}

/// The value of a line `Name:\tvalue` of a status file.
pub(super) fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn number(status: &str, name: &str) -> Option<u32> {
    status_field(status, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    #[test]
    fn a_container_and_a_plain_process() {
        let tree = Tree::new();
        tree.file(STATUS, "Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n");
        let filters = Some(3);
        let filtered = Seccomp { mode: SeccompMode::Filter, filters, no_new_privs: Some(true) };
        assert_eq!(seccomp(&tree.root()).unwrap(), filtered);
        tree.file(STATUS, "Name:\tx\nSeccomp:\t0\n");
        let plain = Seccomp { mode: SeccompMode::Disabled, filters: None, no_new_privs: None };
        assert_eq!(seccomp(&tree.root()).unwrap(), plain);
    }

    #[test]
    fn a_kernel_without_it() {
        let tree = Tree::new();
        assert!(seccomp(&tree.root()).unwrap_err().is_missing());
        tree.file(STATUS, "Name:\tSeccomp:\n");
        assert!(!seccomp(&tree.root()).unwrap_err().is_missing());
        tree.file(STATUS, "Seccomp:\t7\n");
        assert!(seccomp(&tree.root()).is_err());
    }
}
