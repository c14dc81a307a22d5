//! The process that owns a machine's GPUs for many others, and their protocol.
//!
//! A PostgreSQL cluster has one process per session, and a CUDA context in each of them would cost
//! hundreds of megabytes and a second of start-up. So one process per cluster and user has the contexts,
//! the kernels, the caches and the memory, and sessions hand their runs to it:
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
//! - [`protocol`]: frames and messages; every length is bounded, and every violation is an error of one
//!   session.
//! - [`outbox`]: the outgoing messages of one side, and the one thread that writes them.
//! - [`client`]: the session's side: finds or starts the service, hands over a run, serves it.
//! - [`server`] and its sessions: the service's side, and its life from lock file to end.
//! - [`devices`]: the GPUs as users see them.
//!
//! # Why nothing can lock up
//!
//! Each side of a connection has one thread that only reads and one that only writes. A reader waits for
//! nothing but bytes: it puts what it reads into memory, which is bounded, because rows come only on credit
//! ([`protocol::WINDOW_BATCHES`] that the run has not taken), because each worker has at most one open
//! question, and because a client bounds the answer that it keeps. So everything that either side writes is
//! eventually read, and every wait for a message ends. Questions and their answers overtake rows in the
//! outbox, because rows may wait for a run that waits for an answer.
//!
//! # How it ends
//!
//! A client that no longer wants an answer closes the connection, and the kernel does so for a dead
//! client. The service's reader notices at once and cancels the run. If the service dies, clients notice
//! in the same way and run the program themselves. A function that a user wrote in CUDA and that faults, or never ends, is
//! such an end: the service begins anew (`functions`).
//!
//! # Who may talk to it
//!
//! The socket lies in the data directory with mode 0600, and both sides ask the kernel whether the
//! other process belongs to the same user. Such a user can read the files anyway. So functions in CUDA, whose code can do whatever the
//! service can, are that user's, or nobody's ([`options::CudaFunctions`]). A server of many users asks as one of them, and says itself
//! which of its users may make functions.
//!
//! # What this crate must never know
//!
//! SQL, PostgreSQL's processes and memory, pgrx, DataFusion, tokio.

#![warn(missing_docs)]

pub mod client;
pub mod devices;
pub mod options;
pub mod outbox;
pub mod place;
pub mod protocol;
pub mod server;

mod call;
mod functions;
mod kept;
mod owner;
mod process;
mod queue;
mod run;
mod session;
mod shared;
mod tables;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The socket, in the data directory. All processes connect from there by this name alone, because
/// an address has room for 108 bytes.
pub const SOCKET_NAME: &str = "headrace-service.sock";

/// The lock of the running service, with its process number as content.
pub const LOCK_NAME: &str = "headrace-service.lock";

/// The default log file.
pub const LOG_NAME: &str = "headrace-service.log";

/// The user that this process runs as.
fn own_user() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// The process at the other end, which must belong to this user.
fn check_peer(socket: &UnixStream) -> io::Result<u32> {
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
    let own = own_user();
    match peer.uid == own {
        true => Ok(u32::try_from(peer.pid).unwrap_or(0)),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the process at the other end is one of user {}, not {own}", peer.uid),
        )),
    }
}
