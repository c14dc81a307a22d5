//! Flushed groups by partition, in memory as long as there is room, then in a spill.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::ExecError;
use crate::memory::Reservation;
use crate::partial::hash::partition;
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

/// Group numbers in order of their partitions, of which a level has `fan_out`, and where each partition ends.
pub fn by_partition(
    (level, fan_out): (u32, usize),
    groups: usize,
    portion: usize,
    hash: impl Fn(Range<usize>, &mut Vec<u64>) -> Result<(), ExecError>,
) -> Result<(Vec<u32>, Vec<usize>), ExecError> {
    let mut partitions = Vec::with_capacity(groups);
    let mut hashes = Vec::new();
    for start in (0..groups).step_by(portion) {
        hash(start..groups.min(start + portion), &mut hashes)?;
        partitions.extend(hashes.iter().map(|&h| partition(h, level, fan_out) as u8));
    }
    let mut ends = vec![0usize; fan_out];
    partitions.iter().for_each(|&partition| ends[usize::from(partition)] += 1);
    let mut next = vec![0usize; fan_out];
    for partition in 1..fan_out {
        next[partition] = next[partition - 1] + ends[partition - 1];
    }
    let mut order = vec![0u32; groups];
    for (group, &partition) in partitions.iter().enumerate() {
        let at = &mut next[usize::from(partition)];
        order[*at] = group as u32;
        *at += 1;
    }
    Ok((order, next))
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

    /// Number of partitions.
    pub fn fan_out(&self) -> usize {
        self.partitions.len()
    }

    /// Takes in `groups` groups, each into its partition, in batches of at most `portion`. `hash`
    /// tells the hashes of the keys of a range of them, `encode` makes a batch of some.
    ///
    /// # Errors
    /// There is neither memory nor another place for them.
    pub fn take_in(
        &self,
        groups: usize,
        portion: usize,
        hash: impl Fn(Range<usize>, &mut Vec<u64>) -> Result<(), ExecError>,
        encode: impl Fn(&[u32]) -> Result<RecordBatch, ExecError>,
    ) -> Result<(), ExecError> {
        let (order, ends) = by_partition((self.level, self.fan_out()), groups, portion, hash)?;
        let mut start = 0;
        for (partition, end) in ends.into_iter().enumerate() {
            for some in order[start..end].chunks(portion) {
                self.push(partition, encode(some)?)?;
            }
            start = end;
        }
        Ok(())
    }

    /// Takes in groups of a partition.
    fn push(&self, partition: usize, batch: RecordBatch) -> Result<(), ExecError> {
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
