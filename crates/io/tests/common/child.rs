//! Tests in a process of their own: limits of a process concern all of its threads for good.

// No test program needs all of it.
#![allow(dead_code)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "HEADRACE_TEST_CHILD";
const TIME_MAX: Duration = Duration::from_secs(60);

/// Runs `body` in a process of its own: the test binary once more, with only the test `name` (as
/// `--list` shows it), which is to be the one that calls this.
pub fn in_child(name: &str, body: impl FnOnce()) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads", "1"])
        .env(CHILD, name)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > TIME_MAX {
            child.kill().unwrap();
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{told}\n{errors}", output.status);
    // A name that no test has would pass without a single assertion.
    assert!(told.contains("1 passed"), "{name} did not run in the child:\n{told}");
}

/// Root reads and writes what permissions forbid.
pub const CAP_DAC_OVERRIDE: u32 = 1;
pub const CAP_DAC_READ_SEARCH: u32 = 2;
/// Root locks memory beyond its limit.
pub const CAP_IPC_LOCK: u32 = 14;

/// Takes a capability away from this thread and from those that it starts.
pub fn drop_capability(number: u32) {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Set {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut sets = [Set { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 takes a header and two sets, which live across the calls.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, &mut header, sets.as_mut_ptr()), 0);
        let (word, bit) = (number as usize / 32, 1u32 << (number % 32));
        sets[word].effective &= !bit;
        sets[word].permitted &= !bit;
        assert_eq!(libc::syscall(libc::SYS_capset, &mut header, sets.as_ptr()), 0);
    }
}

/// Sets a limit of this process (the soft one, which counts), and says what it was.
pub fn limit(resource: libc::__rlimit_resource_t, value: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls; the first fills in `limit`.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, value);
        assert_eq!(libc::setrlimit(resource, &limit), 0);
        before
    }
}

/// Makes io_uring fail with `errno` in this thread and in those that it starts, as the seccomp
/// profiles of container runtimes do.
pub fn forbid_io_uring(errno: i32) {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
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
