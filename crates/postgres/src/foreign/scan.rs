//! The scan: record batches of the files as tuples.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{Array, ArrayRef, RecordBatch};
use headrace_format::arrow::{ArrowTable, StoredBatch};
use headrace_runner::RunReport;
use pgrx::pg_sys::{
    self, Datum, ExplainState, ForeignScan, ForeignScanState, List, TupleTableSlot,
};

use super::failure::or_fail;
use super::files::{self, Found};
use super::plan::ScanPlan;
use super::pushed::Batches;
use super::table::{self, Column, ForeignTable, Origin};
use super::{partitions, types};
use crate::datum::datum;
use crate::executor::values;
use crate::explain::{files_read, show, show_float, show_number, steps};
use crate::nodes::WhyNot;

/// Rows that are made the server's types at a time.
const SLICE_ROWS: usize = 8192;

/// What a node keeps.
struct Own {
    plan: ScanPlan,
    /// Conditions that folders decide.
    clauses: *mut List,
    /// Values of what is known at execution only.
    parameters: *mut List,
    reader: Option<Reader>,
    ran: Ran,
    /// What the last pipeline did, if one brings the rows.
    report: Option<RunReport>,
    /// Why it did not.
    why_not: Option<String>,
}

/// What the scans of a node did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ran {
    files: u64,
    skipped_files: u64,
    batches: u64,
    ruled_out_batches: u64,
    bytes: u64,
    wall: Duration,
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn begin(node: *mut ForeignScanState, flags: i32) {
    if flags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 != 0 {
        return;
    }
    let scan = (*node).ss.ps.plan.cast::<ForeignScan>();
    let (plan, clauses) = or_fail(ScanPlan::of_list((*scan).fdw_private));
    let parameters = pg_sys::ExecInitExprList((*scan).fdw_exprs, &raw mut (*node).ss.ps);
    let own = Own {
        plan,
        clauses,
        parameters,
        reader: None,
        ran: Ran::default(),
        report: None,
        why_not: None,
    };
    let mut memory = pgrx::PgMemoryContexts::For((*(*node).ss.ps.state).es_query_cxt);
    (*node).fdw_state = memory.leak_and_drop_on_delete(own).cast();
}

unsafe fn own<'a>(node: *mut ForeignScanState) -> Option<&'a mut Own> {
    (*node).fdw_state.cast::<Own>().as_mut()
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn next_tuple(node: *mut ForeignScanState) -> *mut TupleTableSlot {
    let slot = (*node).ss.ss_ScanTupleSlot;
    pg_sys::ExecClearTuple(slot);
    let Some(own) = own(node) else { return slot };
    if own.reader.is_none() {
        own.reader = Some(or_fail(reader(node, own)));
    }
    let Own { reader: Some(reader), ran, .. } = own else { return slot };
    if or_fail(reader.store_next(slot, ran)) {
        pg_sys::ExecStoreVirtualTuple(slot);
    }
    slot
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn rescan(node: *mut ForeignScanState) {
    let Some(own) = own(node) else { return };
    match &mut own.reader {
        // The same files, all through a query.
        Some(reader) if (*node).ss.ps.chgParam.is_null() => reader.rewind(),
        reader => *reader = None,
    }
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn end(node: *mut ForeignScanState) {
    if let Some(own) = own(node) {
        own.reader = None;
    }
}

/// The files as they are now.
unsafe fn reader(node: *mut ForeignScanState, own: &mut Own) -> Result<Reader, WhyNot> {
    let relation = (*node).ss.ss_currentRelation;
    let table = ForeignTable::of((*relation).rd_id)?;
    let (estate, context) = ((*node).ss.ps.state, (*node).ss.ps.ps_ExprContext);
    let all = table.find()?;
    let files = all.len();
    // It outlives the row at hand.
    let before = pg_sys::MemoryContextSwitchTo((*estate).es_query_cxt);
    let found = partitions::wanted(estate, context, &table, all, own.clauses)?;
    let mut reader = Reader::new(&table, &found, &own.plan.wanted)?;
    if let (Some(arrow), Some(pushed)) = (&reader.arrow, &own.plan.pushed) {
        let (fields, types) = (&pushed.program.parameters, &pushed.parameters);
        // A value that pipelines do not have rules nothing out.
        match values(context, fields, types, own.parameters) {
            Ok(values) if pushed.gathers => match pushed.rows(&table, arrow, &found, values) {
                Ok((report, batches)) => {
                    own.report = Some(report);
                    reader.gathered = Some(batches);
                }
                Err(WhyNot(reason)) => {
                    pgrx::debug1!("Headrace fell back: {reason}");
                    own.why_not = Some(reason);
                }
            },
            Ok(values) => reader.only = pushed.batches(&table, arrow, &found, &values)?,
            Err(WhyNot(reason)) => own.why_not = Some(reason),
        }
    }
    own.ran.ruled_out_batches += reader.only.as_ref().map_or(0, |only| only.ruled_out);
    pg_sys::MemoryContextSwitchTo(before);
    own.ran.files += reader.files() as u64;
    own.ran.skipped_files += (files - reader.files()) as u64;
    Ok(reader)
}

/// Gives the rows of files, one by one.
pub struct Reader {
    /// `None`: no files.
    pub arrow: Option<Arc<ArrowTable>>,
    columns: Vec<(Column, Origin)>,
    /// What a pipeline brought, which is all then.
    gathered: Option<Vec<RecordBatch>>,
    /// `None`: all record batches are read.
    pub only: Option<Batches>,
    /// By file: what its folders say of the columns of folders.
    folders: Vec<Vec<Option<Datum>>>,
    file: usize,
    batch: usize,
    /// The record batch at hand, and how many of its rows were sliced.
    whole: Option<(StoredBatch, usize)>,
    /// By column of files, in order: the rows at hand.
    slice: Vec<ArrayRef>,
    rows: usize,
    row: usize,
}

impl Reader {
    pub unsafe fn new(
        table: &ForeignTable,
        found: &[Found],
        wanted: &[i16],
    ) -> Result<Self, WhyNot> {
        let arrow = table::open(found)?;
        let mut columns = Vec::new();
        let mut folders = Vec::new();
        if let Some(arrow) = &arrow {
            for number in wanted {
                let Ok(column) = table.column(*number) else { continue };
                columns.push((column.clone(), table.origin(column, arrow, found)?));
            }
            let of_folders = || columns.iter().filter(|(_, origin)| *origin == Origin::Folder);
            for file in files::in_order(arrow, found) {
                let values = of_folders().map(|(column, _)| {
                    let text = file.and_then(|file| file.value(&column.name)).flatten();
                    partitions::value(column, text)
                });
                folders.push(values.collect());
            }
        }
        Ok(Self {
            arrow,
            columns,
            gathered: None,
            only: None,
            folders,
            file: 0,
            batch: 0,
            whole: None,
            slice: Vec::new(),
            rows: 0,
            row: 0,
        })
    }

    /// From the first row on again.
    fn rewind(&mut self) {
        (self.file, self.batch, self.whole) = (0, 0, None);
        (self.rows, self.row) = (0, 0);
    }

    /// Leaves rows out.
    pub fn skip(&mut self, rows: usize, ran: &mut Ran) -> Result<(), WhyNot> {
        self.row += rows;
        while self.row > self.rows {
            let beyond = self.row - self.rows;
            if !self.next_slice(ran)? {
                return Ok(());
            }
            self.row = beyond;
        }
        Ok(())
    }

    fn files(&self) -> usize {
        self.folders.len()
    }

    /// Puts the next row into a slot's values; `false` after the last.
    pub unsafe fn store_next(
        &mut self,
        slot: *mut TupleTableSlot,
        ran: &mut Ran,
    ) -> Result<bool, WhyNot> {
        while self.row >= self.rows {
            let started = Instant::now();
            let more = self.next_slice(ran)?;
            ran.wall += started.elapsed();
            if !more {
                return Ok(false);
            }
        }
        let (values, nulls) = ((*slot).tts_values, (*slot).tts_isnull);
        for index in 0..(*(*slot).tts_tupleDescriptor).natts as usize {
            *nulls.add(index) = true;
            *values.add(index) = Datum::from(0);
        }
        let mut arrays = self.slice.iter();
        let mut folders = self.folders[self.file].iter();
        for (column, origin) in &self.columns {
            let value = match origin {
                Origin::Folder => folders.next().copied().flatten(),
                Origin::File { .. } => match arrays.next() {
                    Some(array) => datum(array, self.row, column.type_oid)
                        .map_err(|WhyNot(cause)| self.misfit(column, &cause))?,
                    None => None,
                },
            };
            let index = column.number as usize - 1;
            *nulls.add(index) = value.is_none();
            *values.add(index) = value.unwrap_or(Datum::from(0));
        }
        self.row += 1;
        Ok(true)
    }

    fn misfit(&self, column: &Column, cause: &str) -> WhyNot {
        let file = self.arrow.as_ref().and_then(|arrow| arrow.files().get(self.file));
        let path = file.map(|file| file.path().display().to_string()).unwrap_or_default();
        WhyNot(format!("{path}: column \"{}\": {cause}", column.name))
    }

    /// Takes the next rows; `false` after the last.
    fn next_slice(&mut self, ran: &mut Ran) -> Result<bool, WhyNot> {
        if let Some(gathered) = &self.gathered {
            let Some(batch) = gathered.get(self.batch) else { return Ok(false) };
            self.batch += 1;
            (self.rows, self.row) = (batch.num_rows(), 0);
            self.slice = batch.columns().to_vec();
            return Ok(true);
        }
        let Some(arrow) = self.arrow.clone() else { return Ok(false) };
        let failed = |error: headrace_format::FormatError| WhyNot(error.to_string());
        let (batch, first) = loop {
            match self.whole.take() {
                Some((batch, sliced)) if sliced < batch.rows() => break (batch, sliced),
                _ => {}
            }
            let Some(file) = arrow.files().get(self.file) else { return Ok(false) };
            if self.batch >= file.batches() {
                if self.file + 1 == arrow.files().len() {
                    return Ok(false);
                }
                (self.file, self.batch) = (self.file + 1, 0);
                continue;
            }
            if self.only.as_ref().is_some_and(|o| !o.kept.contains(&(self.file, self.batch))) {
                self.batch += 1;
                continue;
            }
            let ordinals = self.columns.iter().filter_map(|(_, origin)| match origin {
                Origin::File { ordinal, .. } => Some(*ordinal),
                Origin::Folder => None,
            });
            let ordinals: Vec<usize> = ordinals.collect();
            let batch = arrow.stored_batch(self.file, self.batch, Some(&ordinals));
            let batch = batch.map_err(failed)?;
            ran.batches += 1;
            self.batch += 1;
            self.whole = Some((batch, 0));
        };
        let rows = SLICE_ROWS.min(batch.rows() - first);
        let slice = arrow.read_rows(&batch, first..first + rows).map_err(failed)?;
        let of_files = self.columns.iter().filter_map(|(column, origin)| match origin {
            Origin::File { read_as, .. } => Some((column, read_as)),
            Origin::Folder => None,
        });
        let converted = of_files.zip(slice.columns()).map(|((column, read_as), array)| {
            let converted = types::converted(array, read_as);
            converted.map_err(|WhyNot(cause)| self.misfit(column, &cause))
        });
        self.slice = converted.collect::<Result<_, _>>()?;
        // What was copied is what the file has.
        arrow.files()[self.file].check_unchanged().map_err(failed)?;
        ran.bytes +=
            self.slice.iter().map(|array| array.get_array_memory_size() as u64).sum::<u64>();
        (self.rows, self.row) = (rows, 0);
        self.whole = Some((batch, first + rows));
        Ok(true)
    }
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn explain(node: *mut ForeignScanState, es: *mut ExplainState) {
    let scan = (*node).ss.ps.plan.cast::<ForeignScan>();
    let (plan, _) = or_fail(ScanPlan::of_list((*scan).fdw_private));
    if let Some(pushed) = plan.pushed.filter(|pushed| pushed.gathers) {
        steps(&pushed.program, es);
    }
    let Some(Own { ran, report, why_not, .. }) = own(node) else { return };
    if !(*es).analyze {
        return;
    }
    files_read(ran.files, ran.skipped_files, es);
    if let Some(report) = report {
        return pipeline(report, es);
    }
    if let Some(reason) = why_not {
        show(es, c"Why Not", reason);
    }
    show_number(es, c"Record Batches", None, ran.batches);
    if ran.ruled_out_batches > 0 {
        show_number(es, c"Record Batches Ruled Out", None, ran.ruled_out_batches);
    }
    if (*es).timing && !ran.wall.is_zero() {
        show_number(es, c"Bytes", None, ran.bytes);
        let speed = ran.bytes as f64 / ran.wall.as_secs_f64() / 1e9;
        show_float(es, c"Read", c"GB/s", speed, 2);
    }
}

/// What the last pipeline did.
unsafe fn pipeline(report: &RunReport, es: *mut ExplainState) {
    show(es, c"Processor", &report.streamed.processor);
    show_number(es, c"Rows In", None, report.streamed.rows_in);
    if report.streamed.pruned_batches > 0 {
        show_number(es, c"Record Batches Ruled Out", None, report.streamed.pruned_batches);
    }
    let bytes = report.streamed.race.bytes_by_path.total();
    show_number(es, c"Bytes", None, bytes);
    if (*es).timing && report.streamed.race.wall_ns > 0 {
        show_float(es, c"Read", c"GB/s", bytes as f64 / report.streamed.race.wall_ns as f64, 2);
    }
}
