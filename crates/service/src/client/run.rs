//! A run: its inputs, and its messages.

use std::io::{BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_format::heap::Block;
use headrace_ir::TableLaunch;

use super::connection::Connection;
use super::{Failure, Wanted, surprised};
use crate::outbox::{Body, Outbox};
use crate::protocol::{
    self, Ask, Finished, Frame, ProtocolError, Reply, Run, TableCall, Tables, WINDOW_BATCHES,
};

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

/// Rows in a message of batches.
const BATCH_ROWS: usize = 64 << 10;

/// Maximum blocks in one question: far more than a chunk has.
const BLOCKS_ASKED_MAX: u32 = 1 << 24;

/// The owner of the heaps' blocks. Each call returns at once.
pub trait Owner: Sync {
    /// Which of these consecutive blocks from `first` on are unchanged since they were listed.
    fn hold(&self, first: Block, blocks: usize) -> Vec<bool>;

    /// The owner must read this block.
    fn reroute(&self, block: Block, why: String);

    /// This many more listed blocks are done.
    fn done(&self, blocks: u32);
}

/// For a run over files, which nobody asks about.
struct Nobody;

impl Owner for Nobody {
    fn hold(&self, _first: Block, blocks: usize) -> Vec<bool> {
        vec![false; blocks]
    }

    fn reroute(&self, _block: Block, _why: String) {}

    fn done(&self, _blocks: u32) {}
}

/// As [`run`], over files and batches.
///
/// # Errors
/// [`Failure`]: the emitted rows are not the answer.
pub fn run_files(
    connection: Connection,
    asked: Run,
    batches: &[RecordBatch],
    token: &CancelToken,
    emit: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<Finished, Failure> {
    run(connection, asked, batches, &RowSender::default(), &Nobody, token, emit)
}

/// The channel of the owner's rows to the service. Rows that are given before there is a connection
/// wait.
#[derive(Debug, Default)]
pub struct RowSender {
    outbox: Outbox<Ask>,
    /// Batches that were given and not yet taken by the run.
    waiting: Mutex<usize>,
    taken: Condvar,
}

impl RowSender {
    fn waiting(&self) -> MutexGuard<'_, usize> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over a batch; returns it if there is no room within this time. A batch that is no
    /// longer wanted is dropped, since the run is over then, which is reported elsewhere.
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

    /// There are no more rows of a table: a function is called with them.
    pub fn launch(&self, shape: TableLaunch) {
        self.outbox.push_bulk(Ask::Launch(shape), Body::NONE);
    }

    /// Whether rows are no longer taken: the run is over.
    pub fn is_abandoned(&self) -> bool {
        self.outbox.is_abandoned()
    }

    /// There are no more rows.
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

/// Runs a program with the calling thread and a writing one. Batches of the answer go to `emit`, which
/// says whether to continue.
///
/// # Errors
/// [`Failure`]: the emitted rows are not the answer.
pub fn run(
    connection: Connection,
    run: Run,
    batches: &[RecordBatch],
    rows: &RowSender,
    owner: &dyn Owner,
    token: &CancelToken,
    emit: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<Finished, Failure> {
    let first = |socket: &UnixStream| ask(socket, run, batches);
    talk(&connection, first, rows, owner, token, emit)
}

/// Calls a function of a table, with the calling thread and a writing one. Its rows come from `rows`, on a third. Batches of the
/// answer go to `emit`, which says whether to continue.
///
/// # Errors
/// [`Failure`]: the emitted rows are not the answer.
pub fn call(
    connection: Connection,
    asked: TableCall,
    rows: &RowSender,
    token: &CancelToken,
    emit: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<Finished, Failure> {
    let first =
        |mut socket: &UnixStream| protocol::write(&mut socket, &Ask::Call(Box::new(asked)), &[]);
    talk(&connection, first, rows, &Nobody, token, emit)
}

/// Says what comes first on a thread of its own, then what is given to it; hears the answer on this one.
fn talk(
    connection: &Connection,
    first: impl FnOnce(&UnixStream) -> Result<(), ProtocolError> + Send,
    rows: &RowSender,
    owner: &dyn Owner,
    token: &CancelToken,
    emit: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<Finished, Failure> {
    let socket = &connection.socket;
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().name("headrace-rows".into());
        let written = writer.spawn_scoped(scope, || {
            first(socket)?;
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

/// Ends the writer when the reader ends, also by a panic of the owner: the writer may wait for messages,
/// or for a service that no longer reads.
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

/// The messages before the rows.
fn ask(
    mut socket: &UnixStream,
    mut run: Run,
    batches: &[RecordBatch],
) -> Result<(), ProtocolError> {
    let parts: Vec<Vec<RecordBatch>> = batches.iter().map(parts).collect();
    run.batches = parts.iter().map(Vec::len).collect();
    let ranges = match &mut run.tables {
        Tables::Files(_) => Vec::new(),
        Tables::Heaps(heaps) => {
            heaps.ranges = heaps.heaps.iter().map(|heap| heap.direct.len()).collect();
            let direct = heaps.heaps.iter_mut().flat_map(|heap| std::mem::take(&mut heap.direct));
            protocol::encode_ranges(&direct.collect::<Vec<_>>())
        }
    };
    protocol::write(&mut socket, &Ask::Run(Box::new(run)), &ranges)?;
    for (number, parts) in parts.iter().enumerate() {
        for part in parts {
            protocol::write(&mut socket, &Ask::Batch(number), &protocol::encode_batch(part)?)?;
        }
    }
    socket.flush()?;
    Ok(())
}

/// A batch in pieces that fit a message.
fn parts(batch: &RecordBatch) -> Vec<RecordBatch> {
    let rows = batch.num_rows();
    let firsts = (0..rows.max(1)).step_by(BATCH_ROWS);
    firsts.map(|first| batch.slice(first, BATCH_ROWS.min(rows - first))).collect()
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
                Reply::Failed { class, message, overflow } => {
                    return Err(Failure { class: Some(class), overflow, ..Failure::lost(message) });
                }
                other => return Err(surprised(Some(Frame { head: other, body: Vec::new() }))),
            }
        }
    }
}
