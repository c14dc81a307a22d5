//! Whether io_uring is available, tried step by step.

use std::io;

use io_uring::{IoUring, opcode};
use serde::Serialize;

use super::limits::{Limit, limits};
use super::root::{Fact, SysRoot, fact};
use super::seccomp::{SeccompMode, seccomp};
use crate::ring::{registrable, vectors};
use crate::{AlignedBuffer, EXTENT_ALIGN_BYTES, Window};

const REGISTER: &str = "io_uring_register";

/// The outcome of trying io_uring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UringProbe {
    /// The setting `kernel.io_uring_disabled`: 0 enables it for everybody, 1 disables it for processes without
    /// privilege or the group `kernel.io_uring_group`, 2 for everybody. Missing before Linux 6.6.
    #[serde(serialize_with = "fact")]
    pub disabled_sysctl: Fact<u32>,
    /// Whether a ring could be created (io_uring_setup).
    #[serde(serialize_with = "step")]
    pub setup: Result<(), UringRefusal>,
    /// Whether a no-op completed (io_uring_enter). `None` if there was no ring to try it on.
    #[serde(serialize_with = "optional_step")]
    pub enter: Option<Result<(), UringRefusal>>,
    /// Bytes that were to be registered.
    pub register_bytes: usize,
    /// Whether memory could be registered (io_uring_register). `None` if there was no ring to try
    /// it on.
    #[serde(serialize_with = "optional_step")]
    pub register: Option<Result<(), UringRefusal>>,
}

/// A step that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{call}: {text}")]
pub struct UringRefusal {
    /// The system call.
    pub call: &'static str,
    /// The errno; `None` if the kernel did not refuse.
    pub errno: Option<i32>,
    /// The error in words.
    pub text: String,
    /// What would help here.
    pub remedy: String,
}

fn step<S: serde::Serializer>(
    step: &Result<(), UringRefusal>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match step {
        Ok(()) => serializer.serialize_str("ok"),
        Err(refusal) => refusal.serialize(serializer),
    }
}

fn optional_step<S: serde::Serializer>(
    tried: &Option<Result<(), UringRefusal>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match tried {
        Some(result) => step(result, serializer),
        None => serializer.serialize_none(),
    }
}

/// Creates a small ring, sends a no-op through it, and registers `register_bytes` of memory (at
/// least one page), as an engine with that much buffer memory would.
pub fn uring_probe(root: &SysRoot, register_bytes: usize) -> UringProbe {
    const ENTRIES: u32 = 8;
    let register_bytes = whole_blocks(register_bytes);
    let circumstances = Circumstances::of(root);
    let refusal = |call| move |cause: io::Error| (call, cause);
    let ring = IoUring::builder().dontfork().build(ENTRIES).map_err(refusal("io_uring_setup"));
    let told = |(call, cause): (&'static str, io::Error)| circumstances.refusal(call, &cause);
    let (setup, enter, register) = match ring {
        Err(refused) => (Err(told(refused)), None, None),
        Ok(mut ring) => {
            let enter = try_nothing(&mut ring).map_err(refusal("io_uring_enter"));
            let register = try_register(&ring, register_bytes);
            let register = register.map_err(refusal(REGISTER));
            (Ok(()), Some(enter.map_err(told)), Some(register.map_err(told)))
        }
    };
    let disabled_sysctl = circumstances.disabled_sysctl;
    UringProbe { disabled_sysctl, setup, enter, register_bytes, register }
}

/// Rounded up, or down where there is nothing above.
fn whole_blocks(bytes: usize) -> usize {
    let up = bytes.max(1).checked_next_multiple_of(EXTENT_ALIGN_BYTES);
    up.unwrap_or(usize::MAX / EXTENT_ALIGN_BYTES * EXTENT_ALIGN_BYTES)
}

fn try_nothing(ring: &mut IoUring) -> io::Result<()> {
    let nothing = opcode::Nop::new().build();
    // SAFETY: the operation refers to no memory.
    unsafe { ring.submission().push(&nothing) }
        .map_err(|_| io::Error::other("a new ring has no room"))?;
    while let Err(cause) = ring.submit_and_wait(1) {
        // A signal ends the wait; what was submitted before it is not submitted again.
        if cause.kind() != io::ErrorKind::Interrupted {
            return Err(cause);
        }
    }
    match ring.completion().next() {
        Some(entry) if entry.result() >= 0 => Ok(()),
        Some(entry) => Err(io::Error::from_raw_os_error(-entry.result())),
        None => Err(io::Error::other("the operation never came back")),
    }
}

fn try_register(ring: &IoUring, bytes: usize) -> io::Result<()> {
    let memory = AlignedBuffer::allocate(bytes).map_err(|error| match error {
        crate::IoError::Memory { cause, .. } => cause,
        other => io::Error::other(other.to_string()),
    })?;
    let parts = vectors(&registrable(&[Window::new(memory.as_ptr(), bytes)]));
    // SAFETY: the memory is mapped, and stays so until it is unregistered or, where that fails,
    // until the kernel, which holds its own references to the pages, closes the ring; nothing
    // is read into it.
    unsafe { ring.submitter().register_buffers(&parts) }?;
    ring.submitter().unregister_buffers()
}

/// The explanation of a refusal.
struct Circumstances {
    disabled_sysctl: Fact<u32>,
    is_filtered: bool,
    memlock: Option<Limit>,
}

impl Circumstances {
    fn of(root: &SysRoot) -> Self {
        let limits = limits(root);
        Circumstances {
            disabled_sysctl: root.parsed("/proc/sys/kernel/io_uring_disabled"),
            is_filtered: seccomp(root).is_ok_and(|found| found.mode != SeccompMode::Disabled),
            memlock: limits.memlock_bytes.ok(),
        }
    }

    fn refusal(&self, call: &'static str, cause: &io::Error) -> UringRefusal {
        let errno = cause.raw_os_error();
        // Without registered memory a ring still works; without a ring there is only the other way.
        let until_then = match call {
            REGISTER => "until then each read maps its memory anew",
            _ => "until then reads go through threads",
        };
        let remedy = format!("{}; {until_then}", self.remedy(errno));
        UringRefusal { call, errno, text: cause.to_string(), remedy }
    }

    fn remedy(&self, errno: Option<i32>) -> String {
        match errno {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => match self.disabled_sysctl {
                Ok(setting @ 1..) if errno != Some(libc::ENOSYS) => {
                    format!(
                        "kernel.io_uring_disabled is {setting}: sysctl kernel.io_uring_disabled=0"
                    )
                }
                _ if self.is_filtered => {
                    "a seccomp filter is on this process: allow io_uring_setup, \
                     io_uring_enter and io_uring_register in the container's profile (docker run \
                     --security-opt seccomp=PROFILE.json)"
                        .to_string()
                }
                _ if errno == Some(libc::ENOSYS) => {
                    "this kernel has no io_uring: Linux 5.6 or later is needed".to_string()
                }
                _ => "a security module forbids it: see the kernel's audit log".to_string(),
            },
            Some(libc::ENOMEM) => match self.memlock {
                Some(Limit::At(bytes)) => {
                    format!("only {bytes} bytes of memory may be locked: ulimit -l unlimited")
                }
                _ => "there is too little memory: use fewer or smaller slots".to_string(),
            },
            Some(libc::EMFILE | libc::ENFILE) => {
                "raise the limit of open files: ulimit -n".to_string()
            }
            _ => "no remedy is known".to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    #[test]
    fn this_machine_answers() {
        let probe = uring_probe(&SysRoot::host(), 1);
        assert_eq!(probe.register_bytes, EXTENT_ALIGN_BYTES);
        let json = serde_json::to_value(&probe).unwrap();
        match &probe.setup {
            Ok(()) => {
                assert!(probe.enter.is_some() && probe.register.is_some());
                assert_eq!(json["setup"], "ok");
            }
            Err(refusal) => {
                assert!(probe.enter.is_none());
                assert!(!refusal.text.is_empty() && !refusal.remedy.is_empty());
                assert_eq!(json["setup"]["call"], "io_uring_setup");
            }
        }
    }

    #[test]
    fn more_than_there_is_memory_is_a_refusal() {
        let probe = uring_probe(&SysRoot::host(), usize::MAX);
        assert_eq!(probe.register_bytes, usize::MAX - 4095);
        if probe.setup.is_ok() {
            assert_eq!(probe.register.unwrap().unwrap_err().errno, Some(libc::ENOMEM));
        }
    }

    fn remedy(sysctl: Option<&str>, seccomp: &str, errno: i32) -> String {
        let tree = Tree::new();
        tree.file("/proc/thread-self/status", format!("Seccomp:\t{seccomp}\n"));
        tree.file("/proc/self/limits", "Max locked memory  65536  65536  bytes\n");
        if let Some(setting) = sysctl {
            tree.file("/proc/sys/kernel/io_uring_disabled", setting);
        }
        let cause = io::Error::from_raw_os_error(errno);
        let refusal = Circumstances::of(&tree.root()).refusal("io_uring_setup", &cause);
        assert_eq!(refusal.errno, Some(errno));
        refusal.remedy
    }

    #[test]
    fn the_remedy_fits_the_circumstances() {
        assert!(
            remedy(Some("2\n"), "2", libc::EPERM).contains("sysctl kernel.io_uring_disabled=0")
        );
        assert!(remedy(Some("0\n"), "2", libc::EPERM).contains("seccomp"));
        assert!(remedy(None, "2", libc::ENOSYS).contains("seccomp"));
        assert!(remedy(None, "0", libc::ENOSYS).contains("Linux 5.6"));
        assert!(remedy(None, "0", libc::EACCES).contains("security module"));
        assert!(remedy(None, "0", libc::ENOMEM).contains("65536 bytes"));
        assert!(remedy(None, "0", libc::EMFILE).contains("ulimit -n"));
    }
}
