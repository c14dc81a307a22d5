//! Tests that run in a child process with fewer rights than this one.
//!
//! A test calls itself: the child is the same test binary, asked for the same test, with a mark
//! in its environment.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

const MARK: &str = "HEADRACE_TEST_RESTRICTED";

/// What is taken from the child.
#[derive(Debug, Clone, Copy, Default)]
pub struct Restriction {
    /// io_uring_setup fails with EPERM by a seccomp filter, as in containers.
    pub forbid_io_uring: bool,
    /// Limit of locked memory, which then also binds root.
    pub memlock_bytes: Option<u64>,
    /// Root may not read what permissions forbid, either.
    pub obey_permissions: bool,
}

const CAP_DAC_OVERRIDE: u64 = 1;
const CAP_DAC_READ_SEARCH: u64 = 2;
const CAP_IPC_LOCK: u64 = 14;

/// In the parent: runs the test `name` (its full path, as the test harness prints it) in a
/// restricted child and panics with its output unless it passed. In the child: runs `body`.
pub fn in_restricted_child(name: &str, restriction: Restriction, body: impl FnOnce()) {
    if std::env::var(MARK).is_ok_and(|mark| mark == name) {
        return body();
    }
    let output = spawn(name, restriction).expect("the child starts");
    let text = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // Without the count, a name that no test has would pass.
    assert!(output.status.success() && text.contains("1 passed"), "{name}: {text}");
}

fn spawn(name: &str, restriction: Restriction) -> io::Result<Output> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", name, "--nocapture", "--include-ignored"]).env(MARK, name);
    // SAFETY: between fork and exec only system calls are made, on data on the stack.
    unsafe { command.pre_exec(move || restrict(restriction)) };
    command.output()
}

fn restrict(restriction: Restriction) -> io::Result<()> {
    if let Some(bytes) = restriction.memlock_bytes {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: a plain call with a live structure.
        check(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) })?;
        drop_capability(CAP_IPC_LOCK);
    }
    if restriction.obey_permissions {
        drop_capability(CAP_DAC_OVERRIDE);
        drop_capability(CAP_DAC_READ_SEARCH);
    }
    if restriction.forbid_io_uring {
        forbid_io_uring()?;
    }
    Ok(())
}

/// The program that is executed next starts without it. Who is not root has none to lose.
fn drop_capability(capability: u64) {
    // SAFETY: a plain call with numbers.
    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
}

fn forbid_io_uring() -> io::Result<()> {
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        // The number of the system call is the first word of seccomp_data.
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: plain calls; the filter and its program live across them.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter))
    }
}

fn check(rc: libc::c_int) -> io::Result<()> {
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
