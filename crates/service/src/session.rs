//! One client, from its first message to its last.

use std::io::{BufReader, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_format::batches::{BatchSender, batch_channel};
use headrace_runner::{ErrorClass, check_function};

use crate::call::{self, Shape};
use crate::devices;
use crate::outbox::Outbox;
use crate::owner::RemoteOwner;
use crate::protocol::{
    self, Ask, Frame, Heaps, Hello, ProtocolError, Reply, Run, Tables, WINDOW_BATCHES,
};
use crate::run::{self, Asked, Credited, answer};
use crate::shared::Shared;

/// How long a client may take to send its request.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may take to read. A slower one is stopped, and holds another's turn.
const READ_PATIENCE: Duration = Duration::from_secs(60);

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

fn unexpected<T>(what: &str) -> Result<T, ProtocolError> {
    Err(ProtocolError::Unexpected(what.into()))
}

fn failed(class: ErrorClass, message: String) -> Reply {
    Reply::Failed { class, message, overflow: None }
}

/// Serves a client until it or the run is over.
pub fn serve(
    socket: &UnixStream,
    shared: &Shared,
    token: &CancelToken,
) -> Result<(), ProtocolError> {
    socket.set_read_timeout(Some(HELLO_PATIENCE))?;
    socket.set_write_timeout(Some(READ_PATIENCE))?;
    let (mut reader, mut writer) = (BufReader::with_capacity(READ_BYTES, socket), socket);
    let Some(Frame { head: Ask::Hello(hello), .. }) = protocol::read(&mut reader)? else {
        return unexpected("a client that does not say who it is");
    };
    if let Err(why) = hello.check() {
        return protocol::write(&mut writer, &Reply::Refused(why), &[]);
    }
    protocol::write(&mut writer, &Reply::Hello(Hello::own()), &[])?;
    match protocol::read(&mut reader)? {
        None => Ok(()),
        Some(Frame { head: Ask::Devices, .. }) => {
            protocol::write(&mut writer, &Reply::Devices(devices::look()), &[])
        }
        Some(Frame { head: Ask::Status, .. }) => {
            protocol::write(&mut writer, &Reply::Status(Box::new(shared.status())), &[])
        }
        Some(Frame { head: Ask::Place(place), .. }) => {
            protocol::write(&mut writer, &Reply::Placed(run::place(&place, shared)), &[])
        }
        Some(Frame { head: Ask::CheckFunction(function), .. }) => {
            let checked = check_function(&function).map_err(|why| why.to_string());
            protocol::write(&mut writer, &Reply::Checked(checked), &[])
        }
        Some(Frame { head: Ask::Keep(files), .. }) => {
            // Its reader may go meanwhile; what is kept then is kept.
            let kept = shared.kept.keep(files, (&shared.runner, &shared.tables), token);
            let reply = match kept {
                Ok(()) => Reply::Tables(shared.kept.list()),
                Err(error) => failed(error.class(), error.to_string()),
            };
            protocol::write(&mut writer, &reply, &[])
        }
        Some(Frame { head: Ask::Release(name), .. }) => {
            let reply = match shared.kept.release(&name) {
                true => Reply::Tables(shared.kept.list()),
                false => {
                    failed(ErrorClass::Unsupported, format!("no table {name} is kept on a GPU"))
                }
            };
            protocol::write(&mut writer, &reply, &[])
        }
        Some(Frame { head: Ask::Map { table, columns }, .. }) => {
            match shared.kept.map(&table, &columns) {
                Ok((mapped, _lease)) => {
                    protocol::write(&mut writer, &Reply::Mapped(mapped), &[])?;
                    // The client says no more: the connection ends when it is done, or dead.
                    socket.set_read_timeout(None)?;
                    match protocol::read::<Ask>(&mut reader)? {
                        None => Ok(()),
                        Some(_) => unexpected("a client that has mapped a table, and wants more"),
                    }
                }
                Err(why) => {
                    protocol::write(&mut writer, &failed(ErrorClass::Unsupported, why), &[])
                }
            }
        }
        Some(Frame { head: Ask::Run(run), body }) => {
            match taken(*run, &body, &mut reader, shared) {
                Ok(asked) => serve_run(socket, reader, token, |owner, rows, _, outbox| {
                    answer(asked, owner, rows, shared, token, outbox)
                }),
                Err(ProtocolError::Io(cause)) => Err(cause.into()),
                Err(cause) => {
                    let reply = failed(ErrorClass::Internal, cause.to_string());
                    protocol::write(&mut writer, &reply, &[])?;
                    Err(cause)
                }
            }
        }
        Some(Frame { head: Ask::Call(asked), .. }) => {
            serve_run(socket, reader, token, |_, rows, shape, outbox| {
                call::answer(&asked, rows, shape, shared, token, outbox)
            })
        }
        Some(_) => unexpected("a client that wants nothing"),
    }
}

/// A run with everything before its first block.
fn taken(
    mut run: Run,
    ranges: &[u8],
    reader: &mut impl Read,
    shared: &Shared,
) -> Result<Asked, ProtocolError> {
    if let Tables::Heaps(heaps) = &mut run.tables {
        give_ranges(heaps, ranges)?;
    }
    let bytes_max = shared.runner.memory().limit_bytes as usize / 2;
    let batches = read_batches(&run.batches, bytes_max, reader)?;
    Ok(Asked { run, batches })
}

/// Gives each heap its listed ranges.
fn give_ranges(heaps: &mut Heaps, ranges: &[u8]) -> Result<(), ProtocolError> {
    let mut ranges = protocol::decode_ranges(ranges)?.into_iter();
    let Heaps { heaps, ranges: counts, .. } = heaps;
    if counts.len() != heaps.len() || counts.iter().sum::<usize>() != ranges.len() {
        return unexpected("other ranges of blocks than were announced");
    }
    for (heap, count) in heaps.iter_mut().zip(counts) {
        heap.direct = ranges.by_ref().take(*count).collect();
    }
    Ok(())
}

/// Batches of tables, of each as many as announced.
fn read_batches(
    announced: &[usize],
    bytes_max: usize,
    reader: &mut impl Read,
) -> Result<Vec<Vec<RecordBatch>>, ProtocolError> {
    let mut batches: Vec<Vec<RecordBatch>> = vec![Vec::new(); announced.len()];
    let mut bytes = 0;
    for _ in 0..announced.iter().sum::<usize>() {
        let Some(Frame { head: Ask::Batch(number), body }) = protocol::read(reader)? else {
            return unexpected("fewer batches than were announced");
        };
        bytes += body.len();
        if bytes > bytes_max {
            return unexpected("the batches take more than half of the service's memory");
        }
        let of = batches.get_mut(number);
        let of = of.ok_or_else(|| ProtocolError::Unexpected(format!("batches {number}")))?;
        of.push(protocol::decode_batch(body)?);
    }
    match batches.iter().map(Vec::len).eq(announced.iter().copied()) {
        true => Ok(batches),
        false => unexpected("other batches than were announced"),
    }
}

/// Runs, while one thread reads and another writes.
fn serve_run(
    socket: &UnixStream,
    mut reader: impl Read,
    token: &CancelToken,
    answer: impl FnOnce(Arc<RemoteOwner>, Credited, &Shape, &Outbox<Reply>) -> Reply + Send,
) -> Result<(), ProtocolError> {
    socket.set_read_timeout(None)?;
    let outbox = Arc::new(Outbox::default());
    let owner = Arc::new(RemoteOwner::new(Arc::clone(&outbox), token.clone()));
    let (sender, receiver) = batch_channel(WINDOW_BATCHES);
    let waiting = Arc::new(AtomicUsize::new(0));
    let rows = Credited { receiver, waiting: Arc::clone(&waiting), outbox: Arc::clone(&outbox) };
    let shape = Shape::default();
    let incoming =
        Incoming { owner: &owner, waiting: &waiting, sender: Some(sender), shape: &shape };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // What cannot be written was lost with its reader, who is seen to be gone below.
            let _ = outbox.write_to(socket);
            let _ = socket.shutdown(Shutdown::Both);
        });
        scope.spawn(|| {
            let last = LastWord { outbox: &outbox, said: None };
            let owner = Arc::clone(&owner);
            last.say(answer(owner, rows, &shape, &outbox));
        });
        let _over = Over { token, outbox: &outbox, socket };
        incoming.read_all(&mut reader)
    })
}

/// Ends the run and its writer when the reader ends, also by a panic.
struct Over<'a> {
    token: &'a CancelToken,
    outbox: &'a Outbox<Reply>,
    socket: &'a UnixStream,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.token.cancel();
        self.outbox.abandon();
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Reports how a run ended, also by a panic.
struct LastWord<'a> {
    outbox: &'a Outbox<Reply>,
    said: Option<Reply>,
}

impl LastWord<'_> {
    fn say(mut self, reply: Reply) {
        self.said = Some(reply);
    }
}

impl Drop for LastWord<'_> {
    fn drop(&mut self) {
        let panicked = || Reply::Failed {
            class: ErrorClass::Internal,
            message: "the run ended by a panic, which the service's log has".into(),
            overflow: None,
        };
        self.outbox.push_last(self.said.take().unwrap_or_else(panicked));
    }
}

/// A client's messages during its run.
struct Incoming<'a> {
    owner: &'a RemoteOwner,
    waiting: &'a AtomicUsize,
    sender: Option<BatchSender>,
    shape: &'a Shape,
}

impl Incoming<'_> {
    /// Reads until the client, or this side, closes the connection. Never waits for the run: see the
    /// crate.
    fn read_all(mut self, reader: &mut impl Read) -> Result<(), ProtocolError> {
        while let Some(Frame { head, body }) = protocol::read(reader)? {
            match (head, &self.sender) {
                (Ask::Held { question }, _) => {
                    self.owner.answer(question, body).map_err(ProtocolError::Unexpected)?;
                }
                (Ask::Rows, Some(sender)) => {
                    if self.waiting.fetch_add(1, Ordering::AcqRel) >= WINDOW_BATCHES {
                        return unexpected("more rows than there was credit for");
                    }
                    // If nobody wants them, the run is over, and says so.
                    let _ = sender.send(protocol::decode_batch(body)?);
                }
                (Ask::Launch(shape), Some(_)) => {
                    *self.shape.lock().unwrap_or_else(PoisonError::into_inner) = Some(shape);
                    if let Some(sender) = self.sender.take() {
                        sender.finish();
                    }
                }
                (Ask::EndOfRows, Some(_)) => {
                    if let Some(sender) = self.sender.take() {
                        sender.finish();
                    }
                }
                (other, _) => return unexpected(&format!("{other:?} within a run")),
            }
        }
        Ok(())
    }
}
