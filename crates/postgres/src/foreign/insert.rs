//! Rows that INSERT, COPY and partitions' routing add: a new Arrow file in the table's folder, which others see from the commit on.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, Schema};
use headrace_format::arrow::{ArrowWriter, WriterOptions};
use headrace_io::write::hidden::Hidden;
use pgrx::pg_sys::{
    self, EState, Index, List, ModifyTable, ModifyTableState, Oid, PlannerInfo, Relation,
    ResultRelInfo, TupleTableSlot,
};

use super::failure::or_fail;
use super::table::{self, ForeignTable, Origin};
use super::{options, pending, types};
use crate::datum::Rows;
use crate::nodes::{WhyNot, why_not};

/// Rows that are gathered before they go to the file.
const ROWS_MAX: usize = 8192;
const ROWS_BYTES_MAX: usize = 4 << 20;

/// Of long texts a record batch has fewer rows than usual.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// What a file may be opened as: by the server's own user, as all of its files.
const MODE: u32 = 0o600;

/// A statement's new rows.
struct Insert {
    table: String,
    folder: PathBuf,
    columns: Vec<Target>,
    /// Columns of the file.
    schema: Arc<Schema>,
    /// As they come.
    rows: Rows,
    /// Begun with the first rows.
    file: Option<NewFile>,
}

/// A declared column.
struct Target {
    /// Its place in a tuple.
    place: usize,
    name: String,
    type_oid: Oid,
    /// The type of Arrow that its values are first.
    comes_as: DataType,
}

struct NewFile {
    writer: ArrowWriter<BufWriter<File>>,
    hidden: Hidden,
    target: PathBuf,
    /// Bytes of rows that the writer still holds, roughly.
    held_bytes: usize,
}

/// What may be done with a table's rows: INSERT.
#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn events(_relation: Relation) -> i32 {
    1 << pg_sys::CmdType::CMD_INSERT as i32
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn plan(
    _root: *mut PlannerInfo,
    plan: *mut ModifyTable,
    _relation: Index,
    _subplan: i32,
) -> *mut List {
    if (*plan).onConflictAction != pg_sys::OnConflictAction::ONCONFLICT_NONE {
        or_fail::<()>(why_not("ON CONFLICT asks for a key, and Arrow files have none"));
    }
    std::ptr::null_mut()
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn begin_modify(
    state: *mut ModifyTableState,
    result: *mut ResultRelInfo,
    _private: *mut List,
    _subplan: i32,
    flags: i32,
) {
    if flags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 == 0 {
        start(state, result);
    }
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn begin(state: *mut ModifyTableState, result: *mut ResultRelInfo) {
    start(state, result);
}

unsafe fn start(state: *mut ModifyTableState, result: *mut ResultRelInfo) {
    let insert = or_fail(Insert::new((*result).ri_RelationDesc));
    let mut memory = pgrx::PgMemoryContexts::For((*(*state).ps.state).es_query_cxt);
    (*result).ri_FdwState = memory.leak_and_drop_on_delete(insert).cast();
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn insert(
    estate: *mut EState,
    result: *mut ResultRelInfo,
    slot: *mut TupleTableSlot,
    _plan_slot: *mut TupleTableSlot,
) -> *mut TupleTableSlot {
    // The server leaves it to whoever has the rows.
    if !(*(*(*result).ri_RelationDesc).rd_att).constr.is_null() {
        pg_sys::ExecConstraints(result, slot, estate);
    }
    if let Some(insert) = (*result).ri_FdwState.cast::<Insert>().as_mut() {
        or_fail(insert.take(slot));
    }
    slot
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn end(_estate: *mut EState, result: *mut ResultRelInfo) {
    if let Some(insert) = (*result).ri_FdwState.cast::<Insert>().as_mut() {
        or_fail(insert.end());
    }
}

impl Insert {
    unsafe fn new(relation: Relation) -> Result<Self, WhyNot> {
        let table = ForeignTable::of((*relation).rd_id)?;
        options::check_rights_to_write(
            table.owner,
            &format!("own foreign table \"{}\", whose files INSERT writes", table.name),
        );
        let folder = folder(&table)?;
        let (fields, targets) = columns(&table)?;
        let as_they_come =
            targets.iter().map(|target| Field::new(&target.name, target.comes_as.clone(), true));
        let rows = Rows::new(&Schema::new(as_they_come.collect::<Vec<_>>()))?;
        Ok(Self {
            folder,
            columns: targets,
            schema: Arc::new(Schema::new(fields)),
            rows,
            file: None,
            table: table.name,
        })
    }

    unsafe fn take(&mut self, slot: *mut TupleTableSlot) -> Result<(), WhyNot> {
        pg_sys::slot_getallattrs(slot);
        for (number, column) in self.columns.iter().enumerate() {
            let is_null = *(*slot).tts_isnull.add(column.place);
            let value = (!is_null).then(|| *(*slot).tts_values.add(column.place));
            let pushed = self.rows.push(number, value, column.type_oid);
            pushed.map_err(|WhyNot(cause)| {
                let Self { table, .. } = self;
                WhyNot(format!("foreign table \"{table}\": column \"{}\": {cause}", column.name))
            })?;
        }
        self.rows.end_row();
        if self.rows.len() >= ROWS_MAX || self.rows.bytes() >= ROWS_BYTES_MAX {
            self.pass_on()?;
        }
        Ok(())
    }

    /// Hands the gathered rows to the file.
    unsafe fn pass_on(&mut self) -> Result<(), WhyNot> {
        if self.rows.len() == 0 {
            return Ok(());
        }
        let batch = self.rows.finish()?;
        let batch = as_in_the_file(&batch, &self.schema)?;
        if self.file.is_none() {
            self.file = Some(NewFile::begin(&self.folder, &self.schema)?);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write(&batch))
    }

    /// All rows are there: the file is whole, and waits for the commit.
    unsafe fn end(&mut self) -> Result<(), WhyNot> {
        self.pass_on()?;
        self.file.take().map_or(Ok(()), |file| file.end())
    }
}

/// The one folder where files can be added.
fn folder(table: &ForeignTable) -> Result<PathBuf, WhyNot> {
    let refused =
        |cause: String| why_not(format!("foreign table \"{}\" takes no rows: {cause}", table.name));
    match &table.options.paths[..] {
        [path] if path.is_dir() => Ok(path.clone()),
        [path] if path.is_file() => {
            refused(format!("{} is a file; a folder takes rows as new files", path.display()))
        }
        [path] => refused(format!("there is no folder {}", path.display())),
        _ => refused("its option \"path\" names several files or folders".into()),
    }
}

/// Fields of a new file, which has the columns of the files that are there, and what each is as it comes.
unsafe fn columns(table: &ForeignTable) -> Result<(Vec<Field>, Vec<Target>), WhyNot> {
    let found = table.find()?;
    let refused =
        |cause: String| WhyNot(format!("foreign table \"{}\" takes no rows: {cause}", table.name));
    let there = table::open(&found)?;
    let (mut fields, mut targets) = (Vec::new(), Vec::new());
    for column in &table.columns {
        let read_as = types::read_as(column.type_oid, column.typmod)
            .map_err(|WhyNot(cause)| refused(format!("column \"{}\": {cause}", column.name)))?;
        let of_file = match &there {
            None => Field::new(&column.name, read_as.clone(), true),
            Some(arrow) => match table.origin(column, arrow, &found)? {
                Origin::File { ordinal, .. } => arrow.schema().field(ordinal).clone(),
                Origin::Folder => {
                    return Err(refused(format!(
                        "names of folders are the values of column \"{}\"; a foreign table of one of them takes rows",
                        column.name
                    )));
                }
            },
        };
        fields.push(of_file.with_nullable(true));
        let place = usize::try_from(column.number - 1).unwrap_or(0);
        let (name, type_oid) = (column.name.clone(), column.type_oid);
        targets.push(Target { place, name, type_oid, comes_as: read_as });
    }
    if let Some(arrow) = &there {
        let is_declared = |name: &str| table.columns.iter().any(|column| column.name == name);
        let other = arrow.schema().fields().iter().find(|field| !is_declared(field.name()));
        if let Some(other) = other {
            return Err(refused(format!(
                "its files have a column \"{}\", which it does not declare",
                other.name()
            )));
        }
    }
    Ok((fields, targets))
}

/// Rows with the types of the file.
fn as_in_the_file(batch: &RecordBatch, schema: &Arc<Schema>) -> Result<RecordBatch, WhyNot> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let column = |(array, field): (&ArrayRef, &Arc<Field>)| {
        let cast = cast_with_options(array, field.data_type(), &options);
        cast.map_err(|cause| WhyNot(format!("column \"{}\": {cause}", field.name())))
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(column);
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows);
    batch.map_err(|error| WhyNot(error.to_string()))
}

impl NewFile {
    unsafe fn begin(folder: &Path, schema: &Schema) -> Result<Self, WhyNot> {
        let failed = |cause| WhyNot(format!("{}: cannot write there: {cause}", folder.display()));
        let (file, hidden) = Hidden::file(folder, MODE).map_err(failed)?;
        let target = folder.join(name());
        let file = BufWriter::with_capacity(64 << 10, file);
        let writer = ArrowWriter::over(file, &target, schema, WriterOptions::default());
        let writer = writer.map_err(|error| WhyNot(error.to_string()))?;
        Ok(Self { writer, hidden, target, held_bytes: 0 })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), WhyNot> {
        let failed = |error: headrace_format::FormatError| WhyNot(error.to_string());
        self.writer.write(batch).map_err(failed)?;
        self.held_bytes += batch.get_array_memory_size();
        if self.held_bytes >= BATCH_BYTES_MAX {
            self.writer.end_batch().map_err(failed)?;
            self.held_bytes = 0;
        }
        Ok(())
    }

    unsafe fn end(self) -> Result<(), WhyNot> {
        let Self { writer, hidden, target, .. } = self;
        let (file, _) = writer.end().map_err(|error| WhyNot(error.to_string()))?;
        let failed = |cause| WhyNot(format!("{}: {cause}", target.display()));
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)?;
        pending::at_commit(hidden, file, target);
        Ok(())
    }
}

/// A file's name: in the order of transactions, and no other's.
unsafe fn name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let began_us = pg_sys::GetCurrentTransactionStartTimestamp();
    format!("rows-{began_us:018}-{}-{number}.arrow", std::process::id())
}
