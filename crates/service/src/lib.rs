//! The process that owns a machine's GPUs for many others, and what they say to each other.
//!
//! A PostgreSQL cluster has a process a session, and a CUDA context in each of them would cost hundreds of
//! megabytes and a second of start-up. So one process a cluster and user has the contexts, the kernels,
//! the caches and the memory, and sessions hand it their runs:
//!
//! ```text
//! session (client)                                     service (server, session)
//!   program, values, child rows, description of a heap ──Run──►  queue, first come first served
//!                                                                  │ its turn
//!   does this block hold? ◄─────────────Holds────────────────  runner over format::heap,
//!   ───────────────────────────────────Held─────────────────►  reading the files by itself
//!   read this block yourself ◄──────Reroute, Done────────────      │
//!   ───────────────────────Rows (as many as there is credit)►      │
//!   the answer ◄──────────────Batch, then Finished or Failed──────┘
//! ```
//!
//! - [`protocol`]: frames and messages; every length bounded, whatever is wrong an error of one session.
//! - [`outbox`]: what one side has to say, and the one thread that writes it.
//! - [`client`]: a session's side: finds the service or starts it, hands over a run, serves it.
//! - [`server`] and its sessions: the service's side; its life from lock file to end is there too.
//! - [`devices`]: the GPUs as users ask for them.
//!
//! # Why nothing can lock up
//!
//! Each side of a connection has one thread that only reads and one that only writes. A reader never
//! waits for anything but bytes: what it reads goes into memory, which is bounded, because rows come only
//! on credit ([`protocol::WINDOW_BATCHES`] that the run has not taken), because each worker has one question
//! open, and because a client bounds the answer that it keeps. So what either side writes is always
//! read, and every wait for a message ends. Questions and their answers overtake rows in the
//! outbox, since rows may wait for a run that waits for an answer.
//!
//! # How it ends
//!
//! A client that does not want an answer any more closes the connection; so does the kernel for one that
//! died. The service's reader sees that at once and cancels the run. If the service dies, clients see the
//! same, and run the program themselves.
//!
//! # Who may talk to it
//!
//! The socket lies in the data directory and has mode 0600; both sides ask the kernel whether the
//! other one is a process of the same user. Whoever can do that can read the files anyway.
//!
//! # What this crate must never know
//!
//! SQL, PostgreSQL's processes and memory, pgrx, DataFusion, tokio.

#![warn(missing_docs)]

pub mod client;
pub mod devices;
pub mod options;
pub mod outbox;
pub mod protocol;
pub mod server;

mod owner;
mod process;
mod queue;
mod run;
mod session;
mod shared;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The socket, in the data directory. Everybody connects from there by this name alone, since an
/// address has room for 108 bytes.
pub const SOCKET_NAME: &str = "headrace-service.sock";

/// The lock of the service that is there; its process number stands in it.
pub const LOCK_NAME: &str = "headrace-service.lock";

/// Where its messages go by default.
pub const LOG_NAME: &str = "headrace-service.log";

/// Whether the process at the other end is one of this user.
fn check_peer(socket: &UnixStream) -> io::Result<()> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the socket is open, and the option's value is such a struct, of which the size is told.
    let code = unsafe {
        let value = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, &mut bytes)
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: cannot fail.
    let own = unsafe { libc::geteuid() };
    match peer.uid == own {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the process at the other end is one of user {}, not {own}", peer.uid),
        )),
    }
}
