//! io_uring that is forbidden, short of memory or half available: a reason, not a failure.

use std::sync::Arc;

use headrace_io::{SetupFault, UringEngine, UringOptions, UringUnavailable, Window};

use crate::support::{Bench, Kind, TestFile};

fn start(inject: Option<SetupFault>) -> Result<UringEngine, UringUnavailable> {
    let options = UringOptions { inject, ..UringOptions::default() };
    // SAFETY: nothing is registered.
    unsafe { UringEngine::start(&options, &[], Arc::new(|_| ())) }
}

#[test]
fn refusals_of_the_kernel_are_told_with_a_remedy() {
    for (errno, word) in [
        (libc::EPERM, "seccomp"),
        (libc::ENOSYS, "Linux"),
        (libc::ENOMEM, "ulimit -l"),
        (libc::EMFILE, "ulimit -n"),
    ] {
        let Err(refusal) = start(Some(SetupFault::Setup(errno))) else {
            panic!("errno {errno} was ignored");
        };
        assert_eq!(refusal.errno, Some(errno));
        assert!(refusal.to_string().contains(word), "{refusal}");
    }
}

#[test]
fn a_refused_registration_leaves_a_working_engine_with_a_reason() {
    let file = TestFile::new(50_000);
    let mut bench = Bench::new(Kind::UringUnregistered(headrace_io::ReadMode::Direct), 1 << 20);
    let (sender, completions) = crossbeam_channel::unbounded();
    let options = UringOptions {
        inject: Some(SetupFault::Register(libc::ENOMEM)),
        ..UringOptions::default()
    };
    let window = Window::new(bench.memory.as_ptr(), bench.memory.len());
    // SAFETY: `bench` drops its engine before its memory.
    let engine = unsafe {
        UringEngine::start(&options, &[window], Arc::new(move |c| sender.send(c).unwrap()))
    }
    .unwrap();
    assert!(engine.registered().unwrap_err().contains("ulimit -l"));
    bench.engine = Box::new(engine);
    bench.completions = completions;
    assert!(bench.engine.describe().contains("unregistered"));
    let (got, _) = bench.read(file.open(), 5, 40_000).unwrap();
    assert!(got == file.content[5..40_005]);
}

/// The real thing: a seccomp filter of this thread, as container runtimes install it.
#[test]
fn a_real_seccomp_filter_is_detected() {
    std::thread::spawn(|| {
        forbid_io_uring_in_this_thread();
        let Err(refusal) = start(None) else {
            panic!("the ring was made in spite of the filter");
        };
        assert_eq!(refusal.errno, Some(libc::EPERM));
        assert!(refusal.to_string().contains("seccomp"), "{refusal}");
    })
    .join()
    .unwrap();
    // Other threads are not concerned.
    start(None).unwrap();
}

fn forbid_io_uring_in_this_thread() {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: both calls concern this thread only; the program lives across the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let rc = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter);
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    }
}
