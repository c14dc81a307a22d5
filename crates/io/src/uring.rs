//! The options of an io_uring, and the reasons why it is unavailable.

use std::io;

/// How a [`UringEngine`](crate::UringEngine), or a [`UringWriter`](crate::write::UringWriter), is
/// set up.
#[derive(Debug, Clone)]
pub struct UringOptions {
    /// Transfers in the kernel at once, 1 to 4096.
    pub depth: u32,
    /// Longest single transfer; rounded up to a multiple of
    /// [`EXTENT_ALIGN_BYTES`](crate::EXTENT_ALIGN_BYTES), at most 1 GiB.
    pub segment_bytes: usize,
    /// Set-up fails as if the kernel had refused: for tests of the fallback.
    pub inject: Option<SetupFault>,
}

impl Default for UringOptions {
    fn default() -> Self {
        UringOptions { depth: 64, segment_bytes: 1 << 20, inject: None }
    }
}

/// A refusal of the kernel, to be injected; the number is the errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupFault {
    /// Creating the ring fails.
    Setup(i32),
    /// Registering the buffers fails.
    Register(i32),
}

/// Why io_uring is unavailable here. Not an error of a file: the caller uses a
/// [`PreadPool`](crate::PreadPool) and shows the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("io_uring cannot be used: {reason}; {remedy}")]
pub struct UringUnavailable {
    /// The errno, if the kernel refused.
    pub errno: Option<i32>,
    /// What failed.
    pub reason: String,
    /// What would help.
    pub remedy: &'static str,
}

impl UringUnavailable {
    pub(crate) fn from_os(what: &str, cause: &io::Error) -> Self {
        let errno = cause.raw_os_error();
        let remedy = match errno {
            Some(libc::EPERM | libc::EACCES) => {
                "allow it in the seccomp profile of the container and in kernel.io_uring_disabled"
            }
            Some(libc::ENOSYS) => {
                "it needs Linux 5.6 or later, and a seccomp profile that allows it"
            }
            Some(libc::ENOMEM) => "raise the limit of locked memory (ulimit -l)",
            Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
            _ => "use a pool of threads",
        };
        UringUnavailable { errno, reason: format!("{what} failed: {cause}"), remedy }
    }
}
