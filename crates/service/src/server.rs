//! The service's main loop: waits for sessions and for its end.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headrace_flow::CancelToken;
use headrace_runner::Devices;

use crate::options::{CudaFunctions, Options};
use crate::process::{self, Ends, Ready, say};
use crate::session;
use crate::shared::{Present, Shared};
use crate::{LOCK_NAME, LOG_NAME, SOCKET_NAME};

/// Runs the service until it ends. The calling process must be single-threaded.
///
/// # Errors
/// Why it cannot start. Another running service is not an error.
pub fn run(options: &Options) -> Result<(), String> {
    process::close_inherited();
    let mut ready = match options.detach {
        true => process::detach().map_err(|cause| format!("no process of its own: {cause}"))?,
        false => Ready::nobody(),
    };
    let outcome = started(options, &mut ready);
    if let Err(cause) = &outcome {
        ready.tell(Err(cause));
    }
    outcome
}

fn started(options: &Options, ready: &mut Ready) -> Result<(), String> {
    let data = &options.data;
    let place = |cause: io::Error| format!("data directory {}: {cause}", data.display());
    std::env::set_current_dir(data).map_err(place)?;
    let log = match &options.log {
        None => options.detach.then(|| Path::new(LOG_NAME)),
        Some(file) if file.as_os_str() == "stderr" => None,
        Some(file) => Some(file.as_path()),
    };
    process::redirect(log).map_err(|cause| format!("the log cannot be opened: {cause}"))?;
    let locked = process::lock(Path::new(LOCK_NAME));
    let Some(_lock) = locked.map_err(|cause| format!("{LOCK_NAME}: {cause}"))? else {
        ready.tell(Ok(()));
        return Ok(());
    };
    let postmaster = options.postmaster.or_else(postmaster);
    let ends =
        Ends::new(postmaster).map_err(|cause| format!("cannot watch for its end: {cause}"))?;
    let listener = listen().map_err(|cause| format!("{SOCKET_NAME}: {cause}"))?;
    let shared = Arc::new(Shared::new(options));
    ready.tell(Ok(()));
    if options.open_devices {
        open_all(&shared);
    }
    say(&format!(
        "started, processor {}, {} runs at a time, functions in CUDA of {}",
        options.processor,
        options.limits.runs,
        match options.limits.cuda_functions {
            CudaFunctions::Owner => "its owner",
            CudaFunctions::Off => "nobody",
        }
    ));
    let why = serve(&listener, &shared, &ends, options);
    // Nobody finds it any more; whoever was about to ask is told by a lost connection.
    let _ = std::fs::remove_file(SOCKET_NAME);
    drop(listener);
    shared.end();
    match why {
        Ok(why) => {
            say(&format!("ends: {why}"));
            Ok(())
        }
        Err(cause) => Err(format!("cannot wait for sessions: {cause}")),
    }
}

/// On a thread of its own; whoever comes first opens them otherwise.
fn open_all(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    let open = move || match shared.runner.cuda(&Devices::All) {
        Ok(device) => {
            say(&format!("{} is open", device.device().info().name));
            shared.kept.bring_again((&shared.runner, &shared.tables), &CancelToken::new());
        }
        Err(why) => say(&format!("no GPU: {why}")),
    };
    if let Err(cause) = std::thread::Builder::new().name("open".into()).spawn(open) {
        say(&format!("no thread to open the GPUs: {cause}"));
    }
}

/// The process that a running cluster names.
fn postmaster() -> Option<i32> {
    let text = std::fs::read_to_string("postmaster.pid").ok()?;
    let number = text.lines().next()?.trim().parse().ok()?;
    // SAFETY: looks whether there is such a process, and does nothing to it.
    (number > 0 && unsafe { libc::kill(number, 0) } == 0).then_some(number)
}

fn listen() -> io::Result<UnixListener> {
    match std::fs::remove_file(SOCKET_NAME) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    // SAFETY: no other thread makes files yet.
    let before = unsafe { libc::umask(0o177) };
    let listener = UnixListener::bind(SOCKET_NAME);
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts sessions until the service must end, and returns the reason.
fn serve(
    listener: &UnixListener,
    shared: &Arc<Shared>,
    ends: &Ends,
    options: &Options,
) -> io::Result<&'static str> {
    let idle_exit = Duration::from_secs(options.idle_exit.into());
    loop {
        let left = match shared.idle() {
            Some(idle) if !idle_exit.is_zero() => Some(idle_exit.saturating_sub(idle)),
            // Looks again when a session may have ended.
            _ => Some(Duration::from_secs(1)),
        };
        if left == Some(Duration::ZERO) {
            return Ok("nobody needs it");
        }
        let mut waits = vec![&ends.signals as &dyn AsRawFd, listener];
        waits.extend(ends.postmaster.as_ref().map(|file| file as &dyn AsRawFd));
        let ready = wait(&waits, left.unwrap_or_default())?;
        if ready[0] {
            return Ok("it was told to");
        }
        if ready.get(2) == Some(&true) {
            return Ok("the server ended");
        }
        if ready[1] {
            accept(listener, shared);
        }
    }
}

/// Which of these files are ready, within this time.
fn wait(files: &[&dyn AsRawFd], most: Duration) -> io::Result<Vec<bool>> {
    let poll = |file: &&dyn AsRawFd| libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls: Vec<libc::pollfd> = files.iter().map(poll).collect();
    // Rounded up, so that it is not asked again and again within the last millisecond.
    let most = i32::try_from(most.as_millis() + 1).unwrap_or(i32::MAX);
    // SAFETY: as many structs as told, of open files.
    let code = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, most) };
    if code < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(polls.iter().map(|poll| code > 0 && poll.revents != 0).collect())
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    let socket = match listener.accept() {
        Ok((socket, _)) => socket,
        Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return,
        Err(cause) => {
            // Out of files, say: those who wait are not lost.
            say(&format!("a session cannot be taken: {cause}"));
            return std::thread::sleep(Duration::from_millis(50));
        }
    };
    let present = shared.enter();
    let talk = move || {
        if let Err(cause) = begin(&socket, &present) {
            say(&format!("session {}: {cause}", present.number));
        }
    };
    if let Err(cause) = std::thread::Builder::new().name("session".into()).spawn(talk) {
        say(&format!("no thread for a session: {cause}"));
    }
}

fn begin(socket: &UnixStream, present: &Present) -> Result<(), crate::protocol::ProtocolError> {
    socket.set_nonblocking(false)?;
    crate::check_peer(socket)?;
    session::serve(socket, &present.shared, &present.token)
}
