//! `ANALYZE` of a foreign table: rows of some of its record batches.

use std::collections::HashSet;

use pgrx::PgMemoryContexts;
use pgrx::pg_sys::{self, HeapTuple, Relation};

use super::failure::or_fail;
use super::plan;
use super::pushed::Batches;
use super::scan::{Ran, Reader};
use super::table::ForeignTable;
use crate::nodes::WhyNot;

/// Record batches that are looked at, at most.
const BATCHES_MAX: usize = 64;

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn analyze(
    relation: Relation,
    function: *mut pg_sys::AcquireSampleRowsFunc,
    pages: *mut pg_sys::BlockNumber,
) -> bool {
    let found = or_fail(ForeignTable::of((*relation).rd_id).and_then(|table| table.find()));
    *pages = plan::blocks(found.iter().map(plan::size_of_file).sum());
    *function = Some(sample);
    true
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn sample(
    relation: Relation,
    _level: i32,
    rows: *mut HeapTuple,
    wanted: i32,
    all_rows: *mut f64,
    dead_rows: *mut f64,
) -> i32 {
    let rows = std::slice::from_raw_parts_mut(rows, usize::try_from(wanted).unwrap_or(0));
    let (taken, all) = or_fail(take(relation, rows));
    (*all_rows, *dead_rows) = (all as f64, 0.0);
    taken as i32
}

/// The same numbers each time, by chance (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Fills a slice with rows, in their order; how many, and how many there are in all.
unsafe fn take(relation: Relation, rows: &mut [HeapTuple]) -> Result<(usize, u64), WhyNot> {
    let table = ForeignTable::of((*relation).rd_id)?;
    let numbers: Vec<i16> = table.columns.iter().map(|column| column.number).collect();
    let mut reader = Reader::new(&table, &table.find()?, &numbers)?;
    let Some(arrow) = reader.arrow.clone() else { return Ok((0, 0)) };
    let files = arrow.files().iter().enumerate();
    let places = files.flat_map(|(file, source)| (0..source.batches()).map(move |b| (file, b)));
    let step = places.clone().count().div_ceil(BATCHES_MAX).max(1);
    let kept: HashSet<(usize, usize)> = places.step_by(step).collect();
    let there: u64 = kept.iter().map(|&(file, batch)| arrow.files()[file].batch_rows(batch)).sum();
    reader.only = Some(Batches { kept, ruled_out: 0 });
    let step = (there as usize).div_ceil(rows.len().max(1)).max(1);
    let descriptor = (*relation).rd_att;
    let slot = pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual);
    // Values of a row, until it is a tuple.
    let mut memory = PgMemoryContexts::new("headrace sample");
    let (mut ran, mut taken, mut random) = (Ran::default(), 0, Random(1));
    // One of each `step` rows that follow each other: every so many would see only one of two that alternate.
    let mut place = random.below(step);
    reader.skip(place, &mut ran)?;
    while taken < rows.len() {
        pgrx::check_for_interrupts!();
        let more = memory.switch_to(|_| reader.store_next(slot, &mut ran))?;
        if !more {
            break;
        }
        rows[taken] = pg_sys::heap_form_tuple(descriptor, (*slot).tts_values, (*slot).tts_isnull);
        taken += 1;
        memory.reset();
        let next = random.below(step);
        reader.skip(step - 1 - place + next, &mut ran)?;
        place = next;
    }
    pg_sys::ExecDropSingleTupleTableSlot(slot);
    Ok((taken, arrow.rows()))
}
