//! Telling a service to end.

use std::path::Path;
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;

use super::{Connection, Failure, HELLO_PATIENCE};

/// How long it may take: runs that are under way are cancelled.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Ends the service of a folder, and returns its process number when it is gone.
///
/// # Errors
/// None runs there, or it does not end.
pub fn stop(folder: &Path) -> Result<u32, Failure> {
    let token = CancelToken::new();
    let pid = Connection::open(folder, HELLO_PATIENCE, &token)?.pid;
    let number = i32::try_from(pid).unwrap_or_default();
    // SAFETY: a signal to the process that the kernel named as the other end of the connection.
    if number <= 0 || unsafe { libc::kill(number, libc::SIGTERM) } != 0 {
        let cause = std::io::Error::last_os_error();
        return Err(Failure::lost(format!("process {pid} cannot be told to end: {cause}")));
    }
    let began = Instant::now();
    // SAFETY: looks whether it is there.
    while unsafe { libc::kill(number, 0) } == 0 {
        if began.elapsed() > END_PATIENCE {
            return Err(Failure::lost(format!("process {pid} was told to end, and did not yet")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(pid)
}
