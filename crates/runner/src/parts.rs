//! Rows of one side of a join on their way to a build or to temporary files: kept in memory as long
//! as there is room, then divided by their keys.
//!
//! ```text
//! batches ─► waiting ─(enough wait)─► divided by key ─► a block a partition ─► temporary file
//! ```
//!
//! Whoever hands over the batch that makes enough of them divides all that wait, while the other
//! threads go on; blocks are large because all of a buffer goes into few partitions.

use std::sync::{Arc, OnceLock};

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use headrace_ir::Field;
use headrace_pipeline::ExecError;
use headrace_pipeline::partition::{Division, divide};
use headrace_spill::{Part, Partitions, SpillFolder, batch_bytes};
use parking_lot::Mutex;

use crate::error::RunError;

/// Partitions of a level: as many blocks are made of a buffer.
pub(crate) const FAN_OUT: usize = 64;

/// Bytes that are divided at once, unless there is too little memory: blocks of 256 KiB.
const BUFFER_BYTES_MAX: u64 = 16 << 20;
/// With less, blocks would be too small to be worth their writing.
const BUFFER_BYTES_MIN: u64 = 64 << 10;
/// A buffer, its rows in order of their partitions, and blocks of them.
const COPIES: u64 = 3;

/// How one side is divided.
#[derive(Clone, Debug)]
pub(crate) struct Dividing {
    /// The keys: the first columns.
    pub keys: Vec<Field>,
    /// Which division this is of what was divided before.
    pub level: u32,
    /// Threads that hand batches over.
    pub threads: usize,
    /// Bytes that are kept in memory before anything is divided.
    pub held_bytes_max: u64,
}

/// Rows that come in any order from any thread.
pub(crate) struct Divider<'a> {
    dividing: Dividing,
    budget: &'a Arc<MemoryBudget>,
    folder: &'a Arc<SpillFolder>,
    waiting: Mutex<Waiting>,
    /// Made when the columns are known.
    partitions: OnceLock<Partitions>,
    failed: OnceLock<RunError>,
    buffer_bytes: u64,
    _memory: Reservation,
}

struct Waiting {
    batches: Vec<RecordBatch>,
    bytes: u64,
    /// For what is kept.
    memory: Reservation,
    is_divided: bool,
}

/// The rows of one side.
pub(crate) enum Gathered {
    /// All of them, with the memory that they take.
    Held(Vec<RecordBatch>, Reservation),
    /// By partition.
    Divided(Vec<Part>),
}

impl<'a> Divider<'a> {
    /// Nothing yet. Buffers are of the budget, and take `buffers_bytes` of it, or what there is.
    ///
    /// # Errors
    /// The budget has no room for the smallest buffers.
    pub fn new(
        dividing: Dividing,
        budget: &'a Arc<MemoryBudget>,
        buffers_bytes: u64,
        folder: &'a Arc<SpillFolder>,
    ) -> Result<Self, RunError> {
        // One buffer is filled while every thread divides another.
        let buffers = COPIES * (dividing.threads as u64 + 1);
        let wanted = buffers_bytes / buffers;
        let mut buffer_bytes = wanted.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        let memory = loop {
            match budget.reserve(MemoryUse::Operators, buffer_bytes * buffers) {
                Ok(memory) => break memory,
                Err(_) if buffer_bytes > BUFFER_BYTES_MIN => buffer_bytes /= 2,
                Err(refused) => return Err(refused.into()),
            }
        };
        let waiting = Waiting {
            batches: Vec::new(),
            bytes: 0,
            memory: budget.reserve_nothing(MemoryUse::Operators),
            is_divided: dividing.held_bytes_max == 0,
        };
        Ok(Self {
            dividing,
            budget,
            folder,
            waiting: Mutex::new(waiting),
            partitions: OnceLock::new(),
            failed: OnceLock::new(),
            buffer_bytes,
            _memory: memory,
        })
    }

    /// Takes rows; `false` if something has failed, which [`finish`](Self::finish) tells.
    pub fn push(&self, batch: RecordBatch) -> bool {
        let done = self.take(batch);
        let _ = done.map_err(|error| self.failed.set(error));
        self.failed.get().is_none()
    }

    fn take(&self, batch: RecordBatch) -> Result<(), RunError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let bytes = batch_bytes(&batch);
        let mut waiting = self.waiting.lock();
        waiting.batches.push(batch);
        waiting.bytes += bytes;
        if !waiting.is_divided {
            let is_small = waiting.bytes <= self.dividing.held_bytes_max;
            let wanted = waiting.bytes;
            if is_small && waiting.memory.resize(wanted).is_ok() {
                return Ok(());
            }
            waiting.is_divided = true;
            // Nobody else divides before this is done: what was kept is more than a buffer.
            let batches = std::mem::take(&mut waiting.batches);
            waiting.bytes = 0;
            let mut kept = waiting.memory.split(u64::MAX);
            return self.divide(batches, &mut kept);
        }
        if waiting.bytes < self.buffer_bytes {
            return Ok(());
        }
        let batches = std::mem::take(&mut waiting.batches);
        waiting.bytes = 0;
        drop(waiting);
        self.divide(batches, &mut self.budget.reserve_nothing(MemoryUse::Operators))
    }

    /// Divides batches, a buffer of them at a time. `spare` pays for lists as far as it goes.
    fn divide(&self, batches: Vec<RecordBatch>, spare: &mut Reservation) -> Result<(), RunError> {
        let (mut some, mut bytes) = (Vec::new(), 0);
        for batch in batches {
            bytes += batch_bytes(&batch);
            some.push(batch);
            if bytes >= self.buffer_bytes {
                self.divide_at_once(&some, spare)?;
                (some, bytes) = (Vec::new(), 0);
            }
        }
        self.divide_at_once(&some, spare)
    }

    fn divide_at_once(
        &self,
        batches: &[RecordBatch],
        spare: &mut Reservation,
    ) -> Result<(), RunError> {
        let Some(first) = batches.first() else { return Ok(()) };
        let schema = first.schema();
        let all = concat_batches(&schema, batches).map_err(internal)?;
        let Dividing { keys, level, .. } = &self.dividing;
        let Division { rows, ends } = divide(&all, keys, *level, FAN_OUT)?;
        let ordered = take_record_batch(&all, &UInt32Array::from(rows)).map_err(internal)?;
        drop(all);
        let partitions = self.partitions.get_or_init(|| self.partitions_of(schema));
        let mut begin = 0;
        for (partition, end) in ends.into_iter().enumerate() {
            if end > begin {
                partitions.push(partition, ordered.slice(begin, end - begin), spare)?;
            }
            begin = end;
        }
        Ok(())
    }

    fn partitions_of(&self, schema: SchemaRef) -> Partitions {
        let folder = Some(Arc::clone(self.folder));
        Partitions::new(FAN_OUT, schema, folder, self.budget, MemoryUse::Operators)
    }

    /// What came of it.
    ///
    /// # Errors
    /// What failed on the way: memory, a temporary file.
    pub fn finish(mut self) -> Result<Gathered, RunError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let waiting = self.waiting.get_mut();
        let (batches, is_divided) = (std::mem::take(&mut waiting.batches), waiting.is_divided);
        if !is_divided {
            let Waiting { memory, .. } = self.waiting.into_inner();
            return Ok(Gathered::Held(batches, memory));
        }
        self.divide(batches, &mut self.budget.reserve_nothing(MemoryUse::Operators))?;
        // Of no rows there are partitions, too: those of the other side may have some.
        let partitions = match self.partitions.take() {
            Some(partitions) => partitions,
            None => self.partitions_of(Arc::new(Schema::empty())),
        };
        Ok(Gathered::Divided(partitions.into_parts()))
    }
}

/// Bytes of temporary files that all parts take.
pub(crate) fn file_bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.blocks().file_bytes()).sum()
}

fn internal(error: ArrowError) -> ExecError {
    ExecError::Internal(format!("dividing rows: {error}"))
}
