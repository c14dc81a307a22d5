//! Flushed groups by partition, in memory as long as there is room, then in a spill.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::ExecError;
use crate::memory::Reservation;
use crate::partial::spill::{Spill, SpillBlock, SpillPlace};

/// Flushed groups of one level. Threads may push at the same time.
#[derive(Debug)]
pub struct Runs {
    level: u32,
    schema: SchemaRef,
    partitions: Vec<Mutex<Partition>>,
    /// What lies in memory, and the index of what does not.
    memory: Mutex<Reservation>,
    /// Most bytes of batches in memory.
    memory_bytes_max: u64,
    place: SpillPlace,
    spill: OnceLock<Box<dyn Spill>>,
    opening: Mutex<()>,
}

/// What was flushed of one partition.
#[derive(Debug, Default)]
struct Partition {
    batches: Vec<RecordBatch>,
    blocks: Vec<SpillBlock>,
}

impl Runs {
    /// Nothing yet.
    pub fn new(
        level: u32,
        fan_out: usize,
        schema: SchemaRef,
        memory: Reservation,
        memory_bytes_max: u64,
        place: SpillPlace,
    ) -> Self {
        Self {
            level,
            schema,
            partitions: (0..fan_out).map(|_| Mutex::default()).collect(),
            memory: Mutex::new(memory),
            memory_bytes_max,
            place,
            spill: OnceLock::new(),
            opening: Mutex::new(()),
        }
    }

    /// How deep its partitions lie.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Number of partitions.
    pub fn fan_out(&self) -> usize {
        self.partitions.len()
    }

    /// Takes in groups of a partition.
    ///
    /// # Errors
    /// There is neither memory nor another place for them.
    pub fn push(&self, partition: usize, batch: RecordBatch) -> Result<(), ExecError> {
        if self.hold(batch.get_array_memory_size() as u64)? {
            lock(&self.partitions[partition]).batches.push(batch);
            return Ok(());
        }
        let block = self.spill()?.write(&batch).map_err(ExecError::Spill)?;
        self.place.report.spilled(block, batch.num_rows());
        self.note_block()?;
        lock(&self.partitions[partition]).blocks.push(block);
        Ok(())
    }

    /// Reserves memory for a batch; answers whether there is any. Without another place there
    /// must be.
    fn hold(&self, bytes: u64) -> Result<bool, ExecError> {
        let mut memory = lock(&self.memory);
        let wanted = memory.bytes() + bytes;
        let what = "groups that are being merged";
        match &self.place.store {
            None => memory.try_resize(wanted, what).map(|()| true),
            Some(_) if wanted > self.memory_bytes_max => Ok(false),
            Some(_) => Ok(memory.try_resize(wanted, what).is_ok()),
        }
    }

    /// The index of a spill takes memory too.
    fn note_block(&self) -> Result<(), ExecError> {
        let mut memory = lock(&self.memory);
        let wanted = memory.bytes() + size_of::<SpillBlock>() as u64;
        memory.try_resize(wanted, "the index of spilled groups")
    }

    fn spill(&self) -> Result<&dyn Spill, ExecError> {
        let _guard = lock(&self.opening);
        if let (None, Some(store)) = (self.spill.get(), &self.place.store) {
            let opened = store.open(&self.schema).map_err(ExecError::Spill)?;
            // The guard keeps others from opening one too.
            let _ = self.spill.set(opened);
        }
        self.opened()
    }

    fn opened(&self) -> Result<&dyn Spill, ExecError> {
        let spill = self.spill.get().map(|spill| &**spill);
        spill.ok_or_else(|| ExecError::Internal("groups were spilled nowhere".into()))
    }

    /// Hands over what was flushed of a partition, batch by batch.
    pub fn drain(
        &self,
        partition: usize,
        mut each: impl FnMut(&RecordBatch) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        let Partition { batches, blocks } = std::mem::take(&mut *lock(&self.partitions[partition]));
        for batch in batches {
            each(&batch)?;
            self.release(batch.get_array_memory_size() as u64)?;
        }
        for block in blocks {
            each(&self.opened()?.read(block).map_err(ExecError::Spill)?)?;
            self.release(size_of::<SpillBlock>() as u64)?;
        }
        Ok(())
    }

    fn release(&self, bytes: u64) -> Result<(), ExecError> {
        let mut memory = lock(&self.memory);
        let left = memory.bytes() - bytes;
        memory.try_resize(left, "groups")
    }
}

/// A panic while a partition was held left it whole: batches are pushed and taken, no more.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
