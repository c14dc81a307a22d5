//! A foreign table as what the grouping node streams.

use std::sync::Arc;

use headrace_format::arrow::{ArrowTable, ir_type as pipeline_type};
use headrace_ir::{DataType, Program};
use headrace_ir::{Expr, Scalar, Step, Value};
use headrace_runner::StreamTable;
use pgrx::pg_sys::{self, EState, ExprContext, List, Node, Oid, RelOptInfo};

use super::files::{self, Found};
use super::options::Options;
use super::table::{self, Column, ForeignTable, Origin};
use super::{partitions, plan};
use crate::nodes::{WhyNot, why_not};
use crate::translate::ir_type;

/// Whether a relation is a foreign table of this wrapper.
pub unsafe fn is_ours(relation: *mut RelOptInfo) -> bool {
    (*relation).fdwroutine.as_ref().is_some_and(is_own)
}

fn is_own(routine: &pg_sys::FdwRoutine) -> bool {
    let own: pg_sys::GetForeignRelSize_function = Some(plan::rel_size);
    let address = |function: pg_sys::GetForeignRelSize_function| function.map(|f| f as usize);
    address(routine.GetForeignRelSize) == address(own)
}

/// Whether it is one of our foreign tables, and a GPU keeps it, as the catalog said before this command.
pub unsafe fn is_on_gpu(relation: Oid) -> bool {
    if pg_sys::get_rel_relkind(relation) as u8 != pg_sys::RELKIND_FOREIGN_TABLE {
        return false;
    }
    let server = pg_sys::GetForeignServer(pg_sys::GetForeignServerIdByRelId(relation));
    let handler = (*pg_sys::GetForeignDataWrapper((*server).fdwid)).fdwhandler;
    // One without a handler is an error to those who ask for its functions.
    if handler == Oid::INVALID {
        return false;
    }
    is_own(&*pg_sys::GetFdwRoutine(handler))
        && Options::of(relation).is_ok_and(|options| options.is_on_gpu)
}

/// A foreign table as the planner sees it.
pub struct Streamed {
    table: ForeignTable,
    arrow: Arc<ArrowTable>,
    found: Vec<Found>,
    /// Conditions that the names of folders decide.
    pub clauses: Vec<*mut Node>,
}

impl Streamed {
    /// `None`: the table has no files yet.
    pub unsafe fn of(relation: *mut RelOptInfo, table: Oid) -> Result<Option<Self>, WhyNot> {
        let table = ForeignTable::of(table)?;
        let found = table.find()?;
        let Some(arrow) = table::open(&found)? else { return Ok(None) };
        let clauses = partitions::clauses(relation, &table.of_folders(&arrow, &found));
        Ok(Some(Self { table, arrow, found, clauses }))
    }

    pub fn name(&self) -> &str {
        &self.table.name
    }

    /// A column's name.
    pub fn name_of(&self, number: i16) -> String {
        self.table.column(number).map(|column| column.name.clone()).unwrap_or_default()
    }

    /// Columns by their numbers, those left out that are dropped.
    pub fn columns(&self, numbers: &[i16]) -> Vec<Column> {
        let known = numbers.iter().filter_map(|number| self.table.column(*number).ok());
        known.cloned().collect()
    }

    /// The type of a column as pipelines read it: as it is declared, or a narrower integer.
    ///
    /// # Errors
    /// They do not.
    pub unsafe fn column(&self, number: i16) -> Result<DataType, WhyNot> {
        let column = self.table.column(number)?;
        let refused = |reason: &str| why_not(format!("column {}: {reason}", column.name));
        let ordinal = match self.table.origin(column, &self.arrow, &self.found)? {
            Origin::Folder => return refused("its values are names of folders"),
            Origin::File { ordinal, .. } => ordinal,
        };
        if let Err(reason) = self.arrow.column_support(ordinal) {
            return refused(&reason);
        }
        let declared = ir_type(column.type_oid, column.typmod)?;
        match pipeline_type(self.arrow.schema().field(ordinal).data_type()) {
            Some(of_file) if of_file == declared || !of_file.cast_can_fail(&declared) => {
                Ok(of_file)
            }
            Some(DataType::FixedBinary(_)) => {
                refused("pipelines read uuids of heaps, not of files")
            }
            _ => refused("its values are of another unit or width in the files"),
        }
    }
}

/// What a run reads.
pub struct Opened {
    pub table: StreamTable,
    /// How the GPU service knows it.
    pub name: String,
    /// Whether a GPU keeps it.
    pub is_on_gpu: bool,
    pub program: Program,
    /// The size of the files that are read.
    pub bytes: u64,
    pub files: u64,
    /// Files that their folders ruled out.
    pub ruled_out_files: u64,
}

/// The files as they are now, for a program over columns of these numbers.
///
/// # Errors
/// Whatever is wrong with them: the server's own plan then says so, or answers.
pub unsafe fn opened(
    relation: Oid,
    wanted: &[i16],
    clauses: *mut List,
    mut program: Program,
    estate: *mut EState,
    context: *mut ExprContext,
) -> Result<Opened, WhyNot> {
    let table = ForeignTable::of(relation)?;
    let mut all = table.find()?;
    if all.is_empty() {
        return why_not("the table has no files any more");
    }
    let files = all.len();
    let mut found = partitions::wanted(estate, context, &table, all.clone(), clauses)?;
    let read = found.len();
    if found.is_empty() {
        // Columns are known from a file; no row of it is wanted.
        found.push(all.swap_remove(0));
        let never = Scalar::new(DataType::Bool, Value::Bool(false));
        program.answer.steps.insert(0, Step::Filter(Expr::Literal(never)));
    }
    let arrow = files::open(&found)?;
    let mut ordinals = Vec::new();
    for number in wanted {
        match table.origin(table.column(*number)?, &arrow, &found)? {
            Origin::File { ordinal, .. } => ordinals.push(ordinal),
            Origin::Folder => return why_not("a column that came to be names of folders"),
        }
    }
    program.answer.source.ordinals = ordinals;
    Ok(Opened {
        table: StreamTable::new(&program.answer.source.table, arrow),
        name: table::service_name(relation)?,
        is_on_gpu: table.options.is_on_gpu,
        program,
        bytes: found.iter().map(plan::size_of_file).sum(),
        files: read as u64,
        ruled_out_files: (files - read) as u64,
    })
}
