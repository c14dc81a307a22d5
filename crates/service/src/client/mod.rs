//! The session's side.

mod connection;
mod run;
mod start;
mod stop;

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;
use headrace_runner::ErrorClass;

use crate::protocol::{Frame, ProtocolError, Reply};

pub use connection::{Connection, HELLO_PATIENCE, Lease};
pub use run::{Owner, RowSender, call, run, run_files};
pub use start::{Failed, Start};
pub use stop::stop;

/// How often a waiting thread checks whether the answer is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Why a run has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The failure of the run itself; `None`: there was no service, or it is gone.
    pub class: Option<ErrorClass>,
    /// In words.
    pub message: String,
    /// The type and the place of a value that did not fit.
    pub overflow: Option<(String, String)>,
    /// Whether no service runs there at all.
    pub is_absence: bool,
}

impl Failure {
    /// There is no service, or it is gone.
    pub fn lost(message: impl Into<String>) -> Self {
        Self { class: None, message: message.into(), overflow: None, is_absence: false }
    }

    /// Whether another processor may succeed: the failure does not lie in the rows.
    pub fn is_of_the_place(&self) -> bool {
        use ErrorClass::{Cast, DivisionByZero, Function, Overflow, Parameter};
        !matches!(self.class, Some(Overflow | DivisionByZero | Cast | Parameter | Function))
    }
}

impl From<ProtocolError> for Failure {
    fn from(error: ProtocolError) -> Self {
        Self::lost(format!("the connection to the service is lost: {error}"))
    }
}

/// Reads while the answer is wanted.
struct Wanted<'a> {
    socket: &'a UnixStream,
    token: &'a CancelToken,
    until: Option<Instant>,
}

impl Read for Wanted<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.token.is_cancelled() {
                // Not `Interrupted`, after which others would try again.
                return Err(io::Error::other("nobody wants the answer any more"));
            }
            if self.until.is_some_and(|until| until < Instant::now()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (fd, events) = (self.socket.as_raw_fd(), libc::POLLIN);
            let mut poll = libc::pollfd { fd, events, revents: 0 };
            // SAFETY: one struct, of an open file.
            if unsafe { libc::poll(&mut poll, 1, LOOK_INTERVAL.as_millis() as i32) } > 0 {
                return self.socket.read(bytes);
            }
        }
    }
}

/// An unexpected reply.
fn surprised(frame: Option<Frame<Reply>>) -> Failure {
    match frame {
        None => Failure::lost("the service ended"),
        Some(Frame { head: Reply::Refused(why), .. }) => Failure::lost(why),
        Some(Frame { head: Reply::Failed { class, message, overflow }, .. }) => {
            Failure { class: Some(class), overflow, ..Failure::lost(message) }
        }
        Some(Frame { head, .. }) => Failure::lost(format!("the service said {head:?}")),
    }
}
