//! A session's side.

use std::ffi::OsString;
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_format::heap::Block;
use headrace_runner::ErrorClass;

use crate::devices::Devices;
use crate::outbox::{Body, Outbox};
use crate::protocol::{
    self, Ask, Finished, Frame, Hello, ProtocolError, Reply, Run, WINDOW_BATCHES,
};
use crate::{SOCKET_NAME, check_peer};

/// How often one who waits looks whether that is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// How long the service may take to say who it is, as a rule: it has a thread for that alone.
pub const HELLO_PATIENCE: Duration = Duration::from_secs(5);

/// How long it may take to start.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How long a service that somebody else has started may take until it listens.
const LISTEN_PATIENCE: Duration = Duration::from_millis(500);

/// How often it is started: others may end it meanwhile.
const STARTS_MAX: usize = 3;

/// What is read at once.
const READ_BYTES: usize = 64 << 10;

/// Rows of a message with a child's rows.
const CHILD_ROWS: usize = 64 << 10;

/// Why a run has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the run itself failed by; `None`: there was no service, or it is gone.
    pub class: Option<ErrorClass>,
    /// In words.
    pub message: String,
}

impl Failure {
    fn lost(message: impl Into<String>) -> Self {
        Self { class: None, message: message.into() }
    }

    /// Whether another processor may have an answer: the failure is not one of the rows.
    pub fn is_of_the_place(&self) -> bool {
        use ErrorClass::{Cast, DivisionByZero, Overflow, Parameter};
        !matches!(self.class, Some(Overflow | DivisionByZero | Cast | Parameter))
    }
}

impl From<ProtocolError> for Failure {
    fn from(error: ProtocolError) -> Self {
        Self::lost(format!("the connection to the service is lost: {error}"))
    }
}

/// How the service is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, besides the data directory and `--detach`.
    pub arguments: Vec<OsString>,
}

/// A connection on which nothing was asked yet.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    /// The service.
    pub service: Hello,
}

/// Reads as long as that is wanted.
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

/// Whether the service is there.
enum Found {
    There(Connection),
    /// Nobody listens.
    Nobody(String),
}

impl Connection {
    /// Connects to the service of a data directory, which is the working directory as a rule: the
    /// address has room for 108 bytes. `patience`: how long the service may take to say who it is.
    ///
    /// # Errors
    /// It is not there, does not answer, or does not want this client.
    pub fn open(data: &Path, patience: Duration, token: &CancelToken) -> Result<Self, Failure> {
        match find(data, patience, token)? {
            Found::There(connection) => Ok(connection),
            Found::Nobody(why) => Err(Failure::lost(format!("the service does not run: {why}"))),
        }
    }

    /// Connects to the service, and starts it if it does not run.
    ///
    /// # Errors
    /// It cannot be started, or does not want this client.
    pub fn open_or_start(data: &Path, start: &Start, token: &CancelToken) -> Result<Self, Failure> {
        let mut failure = Failure::lost("it was not tried");
        for _ in 0..STARTS_MAX {
            if let Found::There(connection) = find(data, HELLO_PATIENCE, token)? {
                return Ok(connection);
            }
            match start_service(data, start, token) {
                Ok(()) => failure = Failure::lost("the service was started, and is gone"),
                // Killed before it was ready, perhaps.
                Err(cause) => {
                    failure = cause;
                    continue;
                }
            }
            let started = Instant::now();
            // Another session's may be on its way.
            while started.elapsed() < LISTEN_PATIENCE && !token.is_cancelled() {
                if let Found::There(connection) = find(data, HELLO_PATIENCE, token)? {
                    return Ok(connection);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Err(failure)
    }

    /// What GPUs there are.
    ///
    /// # Errors
    /// The service is gone.
    pub fn devices(self, token: &CancelToken) -> Result<Devices, Failure> {
        protocol::write(&mut &self.socket, &Ask::Devices, &[])?;
        let until = Some(Instant::now() + HELLO_PATIENCE);
        let mut reader = Wanted { socket: &self.socket, token, until };
        match protocol::read(&mut reader)? {
            Some(Frame { head: Reply::Devices(devices), .. }) => Ok(devices),
            other => Err(surprised(other)),
        }
    }
}

fn surprised(frame: Option<Frame<Reply>>) -> Failure {
    match frame {
        None => Failure::lost("the service ended"),
        Some(Frame { head: Reply::Refused(why), .. }) => Failure::lost(why),
        Some(Frame { head, .. }) => Failure::lost(format!("the service said {head:?}")),
    }
}

fn find(data: &Path, patience: Duration, token: &CancelToken) -> Result<Found, Failure> {
    let lost = |cause: io::Error| Failure::lost(format!("the service cannot be asked: {cause}"));
    let socket = match UnixStream::connect(data.join(SOCKET_NAME)) {
        Ok(socket) => socket,
        Err(cause) => {
            return match cause.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    Ok(Found::Nobody(cause.to_string()))
                }
                _ => Err(lost(cause)),
            };
        }
    };
    check_peer(&socket).map_err(lost)?;
    let asked = protocol::write(&mut &socket, &Ask::Hello(Hello::own()), &[]);
    let until = Some(Instant::now() + patience);
    let mut reader = Wanted { socket: &socket, token, until };
    let heard = asked.and_then(|()| protocol::read(&mut reader));
    match heard {
        Ok(Some(Frame { head: Reply::Hello(service), .. })) => {
            service.check().map_err(Failure::lost)?;
            Ok(Found::There(Connection { socket, service }))
        }
        // It ended while this one was in its queue.
        Ok(None) => Ok(Found::Nobody("it just ended".into())),
        Err(ProtocolError::Io(cause)) if is_gone(&cause) => Ok(Found::Nobody(cause.to_string())),
        Err(error) => Err(error.into()),
        Ok(other) => Err(surprised(other)),
    }
}

fn is_gone(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Starts the service, and waits until it listens.
fn start_service(data: &Path, start: &Start, token: &CancelToken) -> Result<(), Failure> {
    let place = start.program.display();
    let mut command = Command::new(&start.program);
    command.args(&start.arguments).arg("--data").arg(data).arg("--detach");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn();
    let mut child =
        child.map_err(|cause| Failure::lost(format!("{place} cannot be started: {cause}")))?;
    let waited = wait(&mut child, token);
    if waited.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    match waited {
        Ok(true) => Ok(()),
        Ok(false) => {
            let mut text = String::new();
            // It has ended, and so has what it said.
            let said =
                child.stderr.take().map(|stderr| stderr.take(4096).read_to_string(&mut text));
            let text = said.and_then(Result::ok).map_or("", |_| text.trim());
            Err(Failure::lost(format!("{place} did not start: {text}")))
        }
        Err(cause) => Err(Failure::lost(format!("{place} did not start: {cause}"))),
    }
}

/// Whether the process that was started ended with success.
fn wait(child: &mut Child, token: &CancelToken) -> Result<bool, String> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) => {}
            Err(cause) => return Err(cause.to_string()),
        }
        if token.is_cancelled() {
            return Err("nobody wants it any more".into());
        }
        if started.elapsed() > START_PATIENCE {
            return Err(format!("it is not ready after {START_PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Blocks of one question: far more than a chunk has.
const BLOCKS_ASKED_MAX: u32 = 1 << 24;

/// Whoever owns the heaps' blocks. Each call is answered at once.
pub trait Owner: Sync {
    /// Which of so many consecutive blocks from `first` on are still what they were when they were listed.
    fn hold(&self, first: Block, blocks: usize) -> Vec<bool>;

    /// This block must be read by the owner.
    fn reroute(&self, block: Block, why: String);

    /// So many more of the listed blocks are done.
    fn done(&self, blocks: u32);
}

/// The way of the owner's rows to the service. What is given before there is a connection waits.
#[derive(Debug, Default)]
pub struct RowSender {
    outbox: Outbox<Ask>,
    /// Batches that were given and not taken by the run.
    waiting: Mutex<usize>,
    taken: Condvar,
}

impl RowSender {
    fn waiting(&self) -> MutexGuard<'_, usize> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a batch over; gives it back if there is no room for it within so long. Where nobody
    /// wants it any more it is dropped, since the run is over then, which is told elsewhere.
    ///
    /// # Errors
    /// The batch.
    pub fn offer(&self, batch: RecordBatch, wait: Duration) -> Result<(), RecordBatch> {
        let is_full =
            |waiting: &mut usize| *waiting >= WINDOW_BATCHES && !self.outbox.is_abandoned();
        let waited = self.taken.wait_timeout_while(self.waiting(), wait, is_full);
        let (mut waiting, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(batch);
        }
        *waiting += 1;
        drop(waiting);
        self.outbox.push_bulk(Ask::Rows, Body::Rows(batch));
        Ok(())
    }

    /// There are no more.
    pub fn finish(&self) {
        self.outbox.push_bulk(Ask::EndOfRows, Body::NONE);
    }

    fn was_taken(&self, batches: usize) {
        let mut waiting = self.waiting();
        *waiting = waiting.saturating_sub(batches);
        drop(waiting);
        self.taken.notify_all();
    }

    fn abandon(&self) {
        self.outbox.abandon();
        // Whoever looked before is waiting by now.
        drop(self.waiting());
        self.taken.notify_all();
    }
}

/// Has a program run, on the calling thread and one that writes. Batches of the answer go to `emit`, which
/// says whether more are wanted.
///
/// # Errors
/// [`Failure`]: what was emitted is not the answer.
pub fn run(
    connection: Connection,
    run: Run,
    children: &[Vec<RecordBatch>],
    rows: &RowSender,
    owner: &dyn Owner,
    token: &CancelToken,
    emit: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<Finished, Failure> {
    let socket = &connection.socket;
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().name("headrace-rows".into());
        let written = writer.spawn_scoped(scope, || {
            ask(socket, run, children)?;
            rows.outbox.write_to(socket)
        });
        let written =
            written.map_err(|cause| Failure::lost(format!("no thread can be started: {cause}")))?;
        let talk = Talk { rows, owner, emit };
        let reader = Wanted { socket, token, until: None };
        let over = Over { rows, socket };
        let heard = talk.read_all(&mut BufReader::with_capacity(READ_BYTES, reader));
        drop(over);
        match (heard, written.join()) {
            // What could not be written is the cause of what was not heard.
            (Err(failure), Ok(Err(cause))) if failure.class.is_none() => match cause {
                ProtocolError::Io(_) => Err(failure),
                cause => Err(cause.into()),
            },
            (heard, _) => heard,
        }
    })
}

/// Ends the writer when the reader ends, by a panic of the owner too: it may wait for messages, or for a
/// service that does not read any more.
struct Over<'a> {
    rows: &'a RowSender,
    socket: &'a UnixStream,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.rows.abandon();
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// What comes before rows.
fn ask(
    mut socket: &UnixStream,
    mut run: Run,
    children: &[Vec<RecordBatch>],
) -> Result<(), ProtocolError> {
    let parts: Vec<Vec<RecordBatch>> = children.iter().map(|child| parts(child)).collect();
    run.children = parts.iter().map(Vec::len).collect();
    run.ranges = run.heaps.iter().map(|heap| heap.direct.len()).collect();
    let direct = run.heaps.iter_mut().flat_map(|heap| std::mem::take(&mut heap.direct));
    let ranges = protocol::encode_ranges(&direct.collect::<Vec<_>>());
    protocol::write(&mut socket, &Ask::Run(Box::new(run)), &ranges)?;
    for (number, parts) in parts.iter().enumerate() {
        for part in parts {
            protocol::write(&mut socket, &Ask::Child(number), &protocol::encode_batch(part)?)?;
        }
    }
    socket.flush()?;
    Ok(())
}

/// A child's rows in pieces that a message may have.
fn parts(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    let pieces = |batch: &RecordBatch| -> Vec<RecordBatch> {
        let firsts = (0..batch.num_rows().max(1)).step_by(CHILD_ROWS);
        let rows = batch.num_rows();
        firsts.map(|first| batch.slice(first, CHILD_ROWS.min(rows - first))).collect()
    };
    batches.iter().flat_map(pieces).collect()
}

struct Talk<'a> {
    rows: &'a RowSender,
    owner: &'a dyn Owner,
    emit: &'a mut dyn FnMut(RecordBatch) -> bool,
}

impl Talk<'_> {
    fn read_all(self, reader: &mut impl Read) -> Result<Finished, Failure> {
        loop {
            let Some(Frame { head, body }) = protocol::read(reader)? else {
                return Err(Failure::lost("the service ended"));
            };
            match head {
                Reply::Holds { question, first, blocks } => {
                    if blocks > BLOCKS_ASKED_MAX {
                        return Err(Failure::lost(format!("a question about {blocks} blocks")));
                    }
                    let holds = self.owner.hold(first, blocks as usize);
                    let body = Body::Bytes(holds.into_iter().map(u8::from).collect());
                    self.rows.outbox.push(Ask::Held { question }, body);
                }
                Reply::Reroute { block, why } => self.owner.reroute(block, why),
                Reply::Done(blocks) => self.owner.done(blocks),
                Reply::Taken(batches) => self.rows.was_taken(batches),
                Reply::Batch => {
                    if !(self.emit)(protocol::decode_batch(body)?) {
                        return Err(Failure::lost("nobody wants more of the answer"));
                    }
                }
                Reply::Finished(finished) => return Ok(*finished),
                Reply::Failed { class, message } => {
                    return Err(Failure { class: Some(class), message });
                }
                other => return Err(surprised(Some(Frame { head: other, body: Vec::new() }))),
            }
        }
    }
}

/// A start that failed, remembered for a while: the next one would fail, too, and take its time.
#[derive(Debug)]
pub struct Failed(Option<(Instant, Failure)>);

impl Failed {
    /// None.
    pub const NONE: Self = Self(None);

    /// How long a failure is remembered.
    pub const MEMORY: Duration = Duration::from_secs(10);

    /// The failure, if it was not long ago.
    pub fn recent(&self) -> Option<&Failure> {
        self.0.as_ref().filter(|(at, _)| at.elapsed() < Self::MEMORY).map(|(_, failure)| failure)
    }

    /// Takes note of one.
    pub fn note(&mut self, failure: Failure) {
        self.0 = Some((Instant::now(), failure));
    }
}
