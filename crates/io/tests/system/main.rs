//! Facts about a process that is limited, as containers limit them. Each in a process of its own.

#![allow(clippy::unwrap_used)]

#[path = "../common/child.rs"]
mod child;

use child::{CAP_IPC_LOCK, drop_capability, forbid_io_uring, in_child, limit};
use headrace_io::system::{Limit, SeccompMode, SysRoot, limits, seccomp, uring_probe};

fn forbidden(errno: i32) {
    let root = SysRoot::host();
    let filters = seccomp(&root).unwrap().filters;
    forbid_io_uring(errno);
    let found = seccomp(&root).unwrap();
    assert_eq!(found.mode, SeccompMode::Filter);
    assert_eq!(found.no_new_privs, Some(true));
    assert_eq!(found.filters, filters.map(|count| count + 1));
    let probe = uring_probe(&root, 1);
    let refusal = probe.setup.clone().unwrap_err();
    assert_eq!((refusal.call, refusal.errno), ("io_uring_setup", Some(errno)));
    assert!(refusal.remedy.contains("seccomp filter"), "{}", refusal.remedy);
    assert!(refusal.remedy.contains("through threads"), "{}", refusal.remedy);
    assert!(probe.enter.is_none() && probe.register.is_none());
}

#[test]
fn a_filter_that_denies_io_uring() {
    in_child("a_filter_that_denies_io_uring", || forbidden(libc::EPERM));
}

#[test]
fn a_filter_that_hides_io_uring() {
    in_child("a_filter_that_hides_io_uring", || forbidden(libc::ENOSYS));
}

#[test]
fn little_lockable_memory() {
    in_child("little_lockable_memory", || {
        const LOCKABLE_BYTES: u64 = 64 << 10;
        let root = SysRoot::host();
        limit(libc::RLIMIT_MEMLOCK, LOCKABLE_BYTES);
        drop_capability(CAP_IPC_LOCK);
        assert_eq!(limits(&root).memlock_bytes, Ok(Limit::At(LOCKABLE_BYTES)));
        let probe = uring_probe(&root, 4 << 20);
        // Kernels before 5.12 count the ring itself as locked memory.
        let refusal = match (&probe.setup, &probe.register) {
            (Err(refusal), _) => refusal,
            (Ok(()), Some(Err(refusal))) => refusal,
            other => panic!("4 MiB were registered: {other:?}"),
        };
        assert_eq!(refusal.errno, Some(libc::ENOMEM), "{refusal}");
        assert!(refusal.remedy.contains("65536 bytes"), "{}", refusal.remedy);
    });
}
