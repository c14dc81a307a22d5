//! The life of the process: detached from its starter, one at a time, until it is told to end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::exit;

/// A log larger than this at the start of the service is rotated once.
const LOG_BYTES_MAX: u64 = 1 << 20;

fn check(code: libc::c_int) -> io::Result<libc::c_int> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
}

/// Closes every inherited file except standard ones: a session's sockets and tables.
pub fn close_inherited() {
    // SAFETY: this process has opened nothing yet; whatever is open belongs to who started it.
    let code = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if code == 0 {
        return;
    }
    // A kernel before 5.9.
    let numbers = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = numbers.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: as above. The folder's own is closed already.
        unsafe { libc::close(number) };
    }
}

/// Tells the process that was started that the remaining one is ready.
pub struct Ready(Option<File>);

impl Ready {
    /// Nothing waits.
    pub fn nobody() -> Self {
        Self(None)
    }

    /// It is ready, or another one is; or it failed, with the reason.
    pub fn tell(&mut self, outcome: Result<(), &str>) {
        if let Some(mut pipe) = self.0.take() {
            // If nobody reads it, nobody cares.
            let _ = pipe.write_all(outcome.err().unwrap_or("ready").as_bytes());
        }
    }
}

/// Continues in a detached process: no parent that must wait for it, no terminal, no session. The
/// process that was started returns when the other is ready, and reports it by its exit code.
pub fn detach() -> io::Result<Ready> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two numbers.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both were just opened, and belong to nobody else.
    let [reads, writes] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    // SAFETY: the process has one thread as yet.
    match check(unsafe { libc::fork() })? {
        0 => drop(reads),
        child => {
            drop(writes);
            exit(wait_until_ready(reads, child));
        }
    }
    // SAFETY: no arguments; a child of a fork does not lead a group.
    check(unsafe { libc::setsid() })?;
    // SAFETY: still one thread. The parent ends without running anything of ours.
    if check(unsafe { libc::fork() })? > 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    Ok(Ready(Some(writes)))
}

fn wait_until_ready(mut reads: File, child: libc::pid_t) -> i32 {
    let mut text = String::new();
    let read = reads.read_to_string(&mut text);
    // SAFETY: our child, once; nobody else waits for it.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    match (read, text.as_str()) {
        (Ok(_), "ready") => 0,
        (Ok(_), "") | (Err(_), _) => {
            eprintln!("error: the service ended before it was ready");
            1
        }
        (Ok(_), cause) => {
            eprintln!("error: {cause}");
            1
        }
    }
}

/// Redirects standard input and output to nowhere, and errors to a file or to their present
/// destination.
pub fn redirect(log: Option<&Path>) -> io::Result<()> {
    let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    replace(&nowhere, 0)?;
    replace(&nowhere, 1)?;
    let Some(log) = log else { return Ok(()) };
    if std::fs::metadata(log).is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
        std::fs::rename(log, log.with_extension("log.old"))?;
    }
    replace(&OpenOptions::new().append(true).create(true).open(log)?, 2)
}

fn replace(file: &File, number: i32) -> io::Result<()> {
    // SAFETY: both are open; the standard numbers belong to the process.
    check(unsafe { libc::dup2(file.as_raw_fd(), number) }).map(drop)
}

/// The lock of a data directory; `None` if another service has it.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
    let mut file = options.open(path)?;
    // SAFETY: an open file.
    match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Some(file))
}

/// The events that end the service, as files that can be waited for.
pub struct Ends {
    /// SIGTERM or SIGINT.
    pub signals: OwnedFd,
    /// The process without which there is nothing to serve; `None`: there is none.
    pub postmaster: Option<OwnedFd>,
}

impl Ends {
    /// From now on no thread of the process receives these signals in any other way. Called before any
    /// thread is started.
    pub fn new(postmaster: Option<i32>) -> io::Result<Self> {
        // SAFETY: plain C sets of signals, filled before they are used.
        let signals = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            // Whoever started it may have blocked some.
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
            for signal in [libc::SIGTERM, libc::SIGINT] {
                libc::sigaddset(&mut set, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC)
        };
        Ok(Self { signals: owned(signals)?, postmaster: postmaster.map(process).transpose()? })
    }
}

fn process(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers alone.
    let code = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
    let file = owned(code as libc::c_int);
    file.map_err(|cause| io::Error::new(cause.kind(), format!("process {number}: {cause}")))
}

fn owned(code: libc::c_int) -> io::Result<OwnedFd> {
    let number = check(code)?;
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Logs a message with the time and the process.
pub fn say(text: &str) {
    let mut line = [0_u8; 32];
    // SAFETY: the structs are filled before they are read; the text has the length that strftime tells.
    let length = unsafe {
        let (now, mut utc) = (libc::time(std::ptr::null_mut()), std::mem::zeroed());
        libc::gmtime_r(&now, &mut utc);
        libc::strftime(line.as_mut_ptr().cast(), line.len(), c"%F %T UTC".as_ptr(), &utc)
    };
    let time = String::from_utf8_lossy(&line[..length]);
    eprintln!("{time} [{}] headrace: {text}", std::process::id());
}
