//! Rows in input order, a unit at a time: batches of a table, held batches, or spilled blocks.

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use headrace_format::arrow::ArrowTable;
use headrace_io::MemoryUse;
use headrace_io::random::drawn_at;
use headrace_spill::{Block, Blocks};

use super::columns::{codes, failed};
use super::keys::shown_bytes;
use super::splitters::Sampled;
use super::turns::SLACK_SHARE;
use super::work::Work;
use crate::Result;

/// Maximum of sampled units.
const SAMPLED_UNITS: usize = 64;

/// Consecutive batches of a table that are read as one.
#[derive(Debug, Default)]
pub(super) struct Unit {
    /// File and batch.
    batches: Vec<(u32, u32)>,
    /// Maximum over all of them.
    pub bytes: u64,
    pub rows: u64,
}

impl Unit {
    /// Memory for reading: batches that are joined exist twice.
    pub fn needs_bytes(&self) -> u64 {
        if self.batches.len() > 1 { 2 * self.bytes } else { self.bytes }
    }
}

/// All non-empty batches of a table, in units of up to `unit_bytes` or of one batch.
pub(super) fn units(table: &ArrowTable, unit_bytes: u64) -> Result<Vec<Unit>> {
    let mut units: Vec<Unit> = Vec::new();
    for (file, source) in table.files().iter().enumerate() {
        for batch in (0..source.batches()).filter(|batch| source.batch_rows(*batch) > 0) {
            let bytes = table.batch_bytes_max(file, batch)?;
            if units.last().is_none_or(|last| last.bytes + bytes > unit_bytes) {
                units.push(Unit::default());
            }
            if let Some(last) = units.last_mut() {
                last.batches.push((file as u32, batch as u32));
                last.bytes += bytes;
                last.rows += source.batch_rows(batch);
            }
        }
    }
    Ok(units)
}

/// The source of units.
#[derive(Debug)]
pub(super) enum Source<'a> {
    Table(&'a ArrowTable, &'a [Unit]),
    /// Batches in memory, reserved by their owner, in sort form.
    Held(&'a [RecordBatch]),
    Spilled(&'a Blocks, Vec<&'a [Block]>),
}

impl<'a> Source<'a> {
    /// Consecutive blocks, in units of up to `unit_bytes` or of one block.
    pub fn spilled(blocks: &'a Blocks, unit_bytes: u64) -> Self {
        let mut bytes = 0;
        let fits = |_: &Block, next: &Block| {
            bytes += next.needs_bytes();
            let fits = bytes <= unit_bytes;
            bytes = if fits { bytes } else { 0 };
            fits
        };
        Source::Spilled(blocks, blocks.list().chunk_by(fits).collect())
    }

    pub fn units(&self) -> usize {
        match self {
            Source::Table(_, units) => units.len(),
            Source::Held(batches) => batches.len(),
            Source::Spilled(_, units) => units.len(),
        }
    }

    /// Memory for reading.
    pub fn needs_bytes(&self, unit: usize) -> u64 {
        match self {
            Source::Table(_, units) => units[unit].needs_bytes(),
            Source::Held(_) => 0,
            Source::Spilled(_, units) => {
                2 * units[unit].iter().map(Block::needs_bytes).sum::<u64>()
            }
        }
    }

    /// The part of it that stays in use while the rows do.
    pub fn holds_bytes(&self, unit: usize) -> u64 {
        match self {
            Source::Table(_, units) => units[unit].bytes,
            _ => self.needs_bytes(unit),
        }
    }

    /// Rows of a unit.
    pub fn rows(&self, unit: usize) -> u64 {
        match self {
            Source::Table(_, units) => units[unit].rows,
            Source::Held(batches) => batches[unit].num_rows() as u64,
            Source::Spilled(_, units) => units[unit].iter().map(Block::rows).sum(),
        }
    }

    /// Bytes of a unit's rows.
    pub fn bytes(&self, unit: usize) -> u64 {
        match self {
            Source::Table(_, units) => units[unit].bytes,
            Source::Held(batches) => batch_bytes(&batches[unit]),
            Source::Spilled(_, units) => units[unit].iter().map(Block::memory_bytes).sum(),
        }
    }

    /// The rows of a unit in sort form.
    pub fn read(&self, work: &Work<'_>, unit: usize) -> Result<RecordBatch> {
        let mut batches: Vec<RecordBatch> = match self {
            Source::Table(table, units) => {
                let read = |(file, batch): &(u32, u32)| {
                    let batch = table.read_batch(*file as usize, *batch as usize, None)?;
                    work.columns.plain(&batch)
                };
                units[unit].batches.iter().map(read).collect::<Result<_>>()?
            }
            Source::Held(batches) => return Ok(batches[unit].clone()),
            Source::Spilled(blocks, units) => {
                let read = |block: &Block| Ok(blocks.read(block)?);
                units[unit].iter().map(read).collect::<Result<_>>()?
            }
        };
        match batches.len() {
            1 => Ok(batches.remove(0)),
            _ => concat_batches(&work.columns.plain, &batches).map_err(failed("joining batches")),
        }
    }

    /// Releases pages of the files that a unit was read from.
    pub fn release(&self, work: &Work<'_>, unit: usize) {
        let Source::Table(table, units) = self else { return };
        if work.releases_mapped {
            let files = units[unit].batches.chunk_by(|a, b| a.0 == b.0);
            files.for_each(|of_file| table.files()[of_file[0].0 as usize].release_mapped());
        }
    }

    /// The key columns of a part of a unit.
    fn read_keys(&self, work: &Work<'_>, unit: usize, number: u64) -> Result<Vec<ArrayRef>> {
        let Source::Table(table, units) = self else {
            let batch = self.read(work, unit)?;
            return Ok(work.maker.columns.iter().map(|i| batch.column(*i).clone()).collect());
        };
        let batches = &units[unit].batches;
        let (file, batch) = batches[number as usize % batches.len()];
        let columns = Some(&*work.maker.columns);
        let batch = table.read_batch(file as usize, batch as usize, columns)?;
        Ok(batch.columns().iter().map(codes).collect())
    }

    /// About `count` keys sampled from all units; fewer if they would take too much memory.
    pub fn sample(&self, work: &Work<'_>, count: usize) -> Result<Vec<Sampled>> {
        let units = self.units().min(SAMPLED_UNITS);
        let chosen = |n: usize| {
            let part = n * self.units() / units..(n + 1) * self.units() / units;
            part.start + drawn_at(0, n as u64) as usize % part.len()
        };
        let of_unit = count.div_ceil(units.max(1));
        let bytes_max = work.turns.memory.limit_bytes() / SLACK_SHARE / 2;
        let mut held = work.turns.memory.reserve_nothing(MemoryUse::Operators);
        let mut sample = Vec::new();
        work.turns.run(
            units,
            |n| self.needs_bytes(chosen(n)) + work.sizes.granule_needs_bytes,
            |n, _| {
                let columns = self.read_keys(work, chosen(n), drawn_at(0, n as u64))?;
                let rows = columns.first().map_or(0, |column| column.len());
                let mut step = rows.div_ceil(of_unit).max(1);
                let arrays = loop {
                    let arrays = picked(work, &columns, rows, step)?;
                    // Long texts: fewer of them.
                    let needs_bytes = 2 * work.maker.bytes_max(&arrays);
                    if step >= rows || needs_bytes <= work.sizes.granule_needs_bytes {
                        break arrays;
                    }
                    step *= 2;
                };
                let keys = work.maker.keys(&arrays)?;
                let keys =
                    (0..keys.prefixes.len()).map(|row| (keys.prefixes[row], keys.row(row).into()));
                Ok(keys.collect())
            },
            |keys: Vec<Sampled>, _| {
                for key in keys {
                    let bytes = held.bytes() + (size_of::<Sampled>() + key.1.len()) as u64;
                    if sample.is_empty() || bytes <= bytes_max {
                        held.resize(bytes)?;
                        sample.push(key);
                    }
                }
                Ok(())
            },
        )?;
        Ok(sample)
    }
}

/// Bytes of a batch's values.
pub(super) fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(shown_bytes).sum()
}

/// A random row out of every `step`, because rows of a batch are often ordered. Of key columns in sort form.
fn picked(
    work: &Work<'_>,
    columns: &[ArrayRef],
    rows: usize,
    step: usize,
) -> Result<Vec<ArrayRef>> {
    let pick = |start: usize| start + drawn_at(0, start as u64) as usize % step.min(rows - start);
    let picks = UInt32Array::from_iter_values((0..rows).step_by(step).map(|at| pick(at) as u32));
    let take = |column| take(column, &picks, None).map_err(failed("sampling rows"));
    work.maker.resolved(columns.iter().map(|c| take(&**c)).collect::<Result<_>>()?)
}
