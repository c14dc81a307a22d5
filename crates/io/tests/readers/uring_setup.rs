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
