//! Rows larger than memory: partitioned into temporary files, then each bucket sorted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take;
use headrace_io::{MemoryUse, Reservation};
use headrace_spill::{Block, Blocks, Part, Partitions, SpillFolder};

use super::columns::{failed, with_columns};
use super::leaf::{Leaf, compact};
use super::source::{Source, batch_bytes};
use super::splitters::Splitters;
use super::work::Work;
use crate::Result;

/// Rows of one bucket, in input order.
#[derive(Debug)]
struct Bucket {
    blocks: Blocks,
    /// Whether they all have one key.
    is_single: bool,
}

impl Bucket {
    /// Memory for sorting: the rows, their keys, and the sorted rows.
    fn needs_bytes(&self, work: &Work<'_>) -> u64 {
        let blocks = self.blocks.list();
        let read = blocks.iter().map(Block::file_bytes).max().unwrap_or(0);
        let keys: u64 = blocks.iter().map(Block::keys_bytes).sum();
        2 * self.rows_bytes() + keys + read + Leaf::needs_bytes(work, self.blocks.rows())
    }

    /// Of its rows alone.
    fn rows_bytes(&self) -> u64 {
        let of = |block: &Block| block.memory_bytes().max(block.file_bytes());
        self.blocks.list().iter().map(of).sum()
    }
}

/// Rows in temporary files, by bucket.
#[derive(Debug)]
pub(super) struct Divided {
    splitters: Splitters,
    partitions: Partitions,
}

impl Divided {
    /// Empty, for about `bytes` bytes of rows like those of a source.
    pub fn like(
        work: &Work<'_>,
        source: &Source<'_>,
        bytes: u64,
        folder: &Arc<SpillFolder>,
    ) -> Result<Divided> {
        let buckets = work.sizes.buckets(bytes);
        let sample = source.sample(work, 64 * buckets)?;
        let splitters = Splitters::of_sample(sample, buckets);
        let (schema, folder) = (work.columns.plain.clone(), Some(Arc::clone(folder)));
        let memory = &work.turns.memory;
        let count = splitters.buckets();
        let partitions = Partitions::new(count, schema, folder, memory, MemoryUse::Operators);
        Ok(Divided { splitters, partitions })
    }

    /// All rows of a source.
    pub fn all(work: &Work<'_>, source: &Source<'_>, folder: &Arc<SpillFolder>) -> Result<Divided> {
        let bytes = (0..source.units()).map(|unit| source.needs_bytes(unit)).sum();
        let mut divided = Divided::like(work, source, bytes, folder)?;
        divided.add(work, source)?;
        Ok(divided)
    }

    /// Rows that follow the present ones.
    pub fn add(&mut self, work: &Work<'_>, source: &Source<'_>) -> Result<()> {
        let Divided { splitters, partitions } = self;
        work.turns.run(
            source.units(),
            |unit| source.needs_bytes(unit) + work.sizes.granule_needs_bytes,
            |unit, reserved| {
                let batch = source.read(work, unit)?;
                let held_bytes = source.needs_bytes(unit);
                let divider = Divider { work, splitters, partitions };
                let blocks = divider.divide(&batch, reserved, held_bytes)?;
                drop(batch);
                source.release(work, unit);
                Ok(blocks)
            },
            |blocks, mut reserved| {
                let bytes = blocks.iter().map(|(_, block)| block.file_bytes()).sum();
                work.temporary_bytes.fetch_add(bytes, Ordering::Relaxed);
                for (bucket, block) in blocks {
                    partitions.add(bucket, block, &mut reserved)?;
                }
                Ok(())
            },
        )
    }

    /// The non-empty buckets in key order, with the memory of their lists.
    fn buckets(self) -> Vec<(Bucket, Option<Reservation>)> {
        let Divided { splitters, partitions } = self;
        let bucket = |(number, part): (usize, Part)| {
            let (blocks, memory) = part.into_blocks();
            (Bucket { blocks, is_single: splitters.is_single(number) }, memory)
        };
        let buckets = partitions.into_parts().into_iter().enumerate().map(bucket);
        buckets.filter(|(bucket, _)| !bucket.blocks.is_empty()).collect()
    }
}

/// Sorts rows that were partitioned.
pub(super) fn sort(
    work: &Work<'_>,
    divided: Divided,
    folder: &Arc<SpillFolder>,
    mut write: impl FnMut(Vec<RecordBatch>) -> Result<()> + Send,
) -> Result<()> {
    let mut buckets = divided.buckets();
    let memory = &work.turns.memory;
    let has_room = |bucket: &Bucket| {
        // Lists of blocks take some of what there was.
        let left_bytes = (memory.limit_bytes() - memory.uses().total_bytes()) / 8 * 7;
        bucket.needs_bytes(work) <= work.sizes.leaf_bytes_max.min(left_bytes)
    };
    let (mut leaves, mut held) = (Vec::new(), Vec::new());
    // The next one is the last of the stack.
    buckets.reverse();
    while let Some((bucket, memory)) = buckets.pop() {
        if bucket.is_single {
            // Rows of one key are in order already.
            let pieces = bucket.blocks.pieces(work.sizes.leaf_bytes_max / 4);
            leaves.extend(pieces.into_iter().map(|blocks| Bucket { blocks, is_single: true }));
            held.push(memory);
        } else if has_room(&bucket) {
            leaves.push(bucket);
            held.push(memory);
        } else {
            let source = Source::spilled(&bucket.blocks, work.sizes.unit_bytes);
            let again = work.staged("divide again", || Divided::all(work, &source, folder))?;
            buckets.extend(again.buckets().into_iter().rev());
        }
    }
    work.staged("sort and write", || {
        work.turns.run(
            leaves.len(),
            |leaf| leaves[leaf].needs_bytes(work),
            |leaf, reserved| sorted(work, &leaves[leaf], reserved),
            |batches, _| write(batches),
        )
    })
}

/// The rows of a bucket, in order.
fn sorted(
    work: &Work<'_>,
    bucket: &Bucket,
    reserved: &mut Reservation,
) -> Result<Vec<RecordBatch>> {
    let (mut batches, mut keys) = (Vec::new(), Vec::new());
    for batch in bucket.blocks.batches() {
        work.turns.check()?;
        batches.push(batch?);
    }
    if bucket.is_single {
        return batches.iter().map(|batch| work.columns.whole(batch)).collect();
    }
    for batch in &batches {
        keys.push(work.maker.keys(&work.maker.arrays(batch)?)?);
    }
    let mut leaf = Leaf::with_capacity(batches.iter().map(RecordBatch::num_rows).sum());
    for (batch, keys) in batches.iter().zip(&keys) {
        leaf.add(batch, keys, 0..batch.num_rows() as u32);
    }
    leaf.sort();
    let held_bytes = bucket.needs_bytes(work) - bucket.rows_bytes();
    leaf.gather(work, reserved, held_bytes)
}

/// Spills rows of a unit by bucket.
struct Divider<'a> {
    work: &'a Work<'a>,
    splitters: &'a Splitters,
    partitions: &'a Partitions,
}

impl Divider<'_> {
    /// The blocks of all rows, with their bucket numbers.
    fn divide(
        &self,
        batch: &RecordBatch,
        reserved: &mut Reservation,
        held_bytes: u64,
    ) -> Result<Vec<(usize, Block)>> {
        let work = self.work;
        let bytes = batch_bytes(batch);
        let row_bytes = bytes.div_ceil(batch.num_rows().max(1) as u64).max(1);
        let granule_rows = (work.sizes.granule_bytes / row_bytes).max(1) as usize;
        let mut blocks = Vec::new();
        let mut start = 0;
        while start < batch.num_rows() {
            work.turns.check()?;
            let mut rows = granule_rows.min(batch.num_rows() - start);
            let (granule, arrays) = loop {
                let granule = batch.slice(start, rows);
                let arrays = work.maker.arrays(&granule)?;
                // Long texts: fewer rows at a time.
                if rows == 1 || work.maker.bytes_max(&arrays) <= work.sizes.granule_needs_bytes / 2
                {
                    break (granule, arrays);
                }
                rows /= 2;
            };
            let needs_bytes = held_bytes + work.maker.bytes_max(&arrays);
            if needs_bytes > reserved.bytes() {
                reserved.resize(needs_bytes)?;
            }
            let keys = work.maker.keys(&arrays)?;
            drop(arrays);
            let (order, starts) = self.splitters.divide(&keys);
            let order = UInt32Array::from(order);
            for bucket in 0..self.splitters.buckets() {
                let mut range = starts[bucket] as usize..starts[bucket + 1] as usize;
                while !range.is_empty() {
                    let rows = range.len().min(granule_rows.div_ceil(4));
                    let rows = order.slice(range.start, rows);
                    range.start += rows.len();
                    let keys_bytes = rows.values().iter().map(|row| keys.row_bytes(*row as usize));
                    let keys_bytes = keys_bytes.sum();
                    blocks.push((bucket, self.spill(&granule, &rows, keys_bytes)?));
                }
            }
            start += rows;
        }
        Ok(blocks)
    }

    fn spill(&self, granule: &RecordBatch, rows: &UInt32Array, keys_bytes: u64) -> Result<Block> {
        let gather = |column: &ArrayRef| {
            let column = take(column, rows, None).map_err(failed("gathering rows"))?;
            Ok(compact(&column))
        };
        let columns = granule.columns().iter().map(gather).collect::<Result<Vec<_>>>()?;
        let block = with_columns(&self.work.columns.plain, columns, rows.len())?;
        Ok(self.partitions.put_aside(block, keys_bytes)?)
    }
}
