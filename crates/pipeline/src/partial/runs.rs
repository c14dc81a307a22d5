//! Flushed groups by partition.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use headrace_columns::hash::{in_order, partition};
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use headrace_spill::{LISTED_BYTES, Partitions};

use crate::ExecError;
use crate::partial::spill::SpillPlace;

/// Flushed groups of one level. Threads may push at the same time.
#[derive(Debug)]
pub struct Runs {
    level: u32,
    partitions: Partitions,
    place: SpillPlace,
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
    Ok(in_order(partitions.iter().map(|&partition| usize::from(partition)), fan_out))
}

impl Runs {
    /// Nothing yet: `held_bytes_max` of it are kept in memory.
    pub fn new(
        (level, fan_out): (u32, usize),
        schema: SchemaRef,
        memory: &Arc<MemoryBudget>,
        held_bytes_max: u64,
        place: SpillPlace,
    ) -> Self {
        let folder = place.folder.clone();
        let partitions = Partitions::new(fan_out, schema, folder, memory, MemoryUse::Pipelines);
        Self { level, partitions: partitions.holding(held_bytes_max), place }
    }

    /// Number of partitions.
    pub fn fan_out(&self) -> usize {
        self.partitions.count()
    }

    /// What the lists take of so many groups in batches of at most `portion`.
    pub fn listed_bytes(&self, groups: usize, portion: usize) -> u64 {
        (self.fan_out() + groups / portion) as u64 * LISTED_BYTES
    }

    /// Takes in `groups` groups, each into its partition, in batches of at most `portion`. `hash`
    /// tells the hashes of the keys of a range of them, `encode` makes a batch of some. `spare` pays for
    /// their lists as far as it goes.
    ///
    /// # Errors
    /// There is neither memory nor another place for them.
    pub fn take_in(
        &self,
        groups: usize,
        portion: usize,
        hash: impl Fn(Range<usize>, &mut Vec<u64>) -> Result<(), ExecError>,
        encode: impl Fn(&[u32]) -> Result<RecordBatch, ExecError>,
        spare: &mut Reservation,
    ) -> Result<(), ExecError> {
        let (order, ends) = by_partition((self.level, self.fan_out()), groups, portion, hash)?;
        let mut start = 0;
        for (partition, end) in ends.into_iter().enumerate() {
            for some in order[start..end].chunks(portion) {
                let file_bytes = self.partitions.push(partition, encode(some)?, spare)?;
                if file_bytes > 0 {
                    self.place.report.spilled(file_bytes);
                }
            }
            start = end;
        }
        Ok(())
    }

    /// Hands over what was flushed of a partition, batch by batch.
    pub fn drain(
        &self,
        partition: usize,
        each: impl FnMut(&RecordBatch) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        self.partitions.take(partition).drain(each)
    }
}
