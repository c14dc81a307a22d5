//! Conditions on a foreign table's rows in the words of a pipeline. By them record batches are ruled out
//! before they are read; of large tables a pipeline brings the rows that meet them. PostgreSQL looks at
//! every condition once more, so that they cost time at worst and never an answer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use headrace_format::arrow::{ArrowTable, ir_type as pipeline_type};
use headrace_format::{ChunkOptions, ColumnBound, Feed};
use headrace_ir::{Expr, Field, Input, NamedExpr, Pipeline, Program, Scalar, Sink, Source, Step};
use headrace_runner::{RunReport, StreamTable, bounds};
use pgrx::pg_sys::{self, Node, PlannerInfo, RelOptInfo};
use serde::{Deserialize, Serialize};

use super::files::Found;
use super::partitions;
use super::streamed::Streamed;
use super::table::{Column, ForeignTable, Origin};
use crate::nodes::{WhyNot, why_not};
use crate::planner::vars;
use crate::translate::{Columns, Translator, ir_type};
use crate::{executor, settings};

/// What a scan knows of its rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pushed {
    /// Filters of rows, and what they read of the files.
    pub program: Program,
    /// Its columns in register order, by their numbers.
    attributes: Vec<i16>,
    /// Types of the program's parameters, which are the node's expressions.
    pub parameters: Vec<u32>,
    /// Whether the program brings the rows, instead of telling which record batches are read.
    pub gathers: bool,
}

/// Record batches that are read.
pub struct Batches {
    /// By file and number.
    pub kept: HashSet<(usize, usize)>,
    pub ruled_out: u64,
}

/// Whether threads find the rows sooner than the backend does, and memory has room for them all: few of
/// many rows, and all of those are wanted.
unsafe fn is_worth_it(root: *mut PlannerInfo, relation: *mut RelOptInfo) -> bool {
    let relation = &*relation;
    let bytes = relation.rows * f64::from((*relation.reltarget).width + 16);
    let fits = bytes < f64::from(settings::MEMORY_LIMIT_KIB.get()) * 1024.0 / 8.0;
    let is_large = relation.pages >= settings::MIN_TABLE_BLOCKS.get() as u32;
    let few = settings::FORCE.get() || relation.rows <= relation.tuples / 4.0;
    settings::ENABLED.get() && fits && is_large && few && (*root).tuple_fraction == 0.0
}

impl Pushed {
    /// The conditions that can be said so and cannot fail, and the parameters' expressions.
    pub unsafe fn of(
        root: *mut PlannerInfo,
        relation: *mut RelOptInfo,
        files: &Streamed,
        wanted: &[Column],
    ) -> (Self, Vec<*mut Node>) {
        let of_rows = partitions::plain(relation).filter(|clause| !files.clauses.contains(clause));
        let clauses: Vec<*mut Node> = of_rows.collect();
        let mut read = HashMap::new();
        clauses.iter().for_each(|clause| vars(*clause, &mut read));
        let (mut scope, mut attributes, mut columns) = (HashMap::new(), Vec::new(), Vec::new());
        let of_filters = read.remove(&(*relation).relid).unwrap_or_default();
        let of_filters = of_filters.iter().map(|v| (v.varattno, v.vartype, v.vartypmod));
        let of_rows = wanted.iter().map(|column| (column.number, column.type_oid, column.typmod));
        for (number, oid, typmod) in of_filters.chain(of_rows) {
            let key = ((*relation).relid, number);
            let (Ok(of_file), Ok(declared)) = (files.column(number), ir_type(oid, typmod)) else {
                continue;
            };
            if scope.contains_key(&key) {
                continue;
            }
            let (index, name) = (columns.len(), files.name_of(number));
            let field = Field::new(name.clone(), of_file.clone(), true);
            let register = Expr::Register { index, data_type: of_file, nullable: true, name };
            let value = match field.data_type == declared {
                true => register,
                false => register.cast(declared),
            };
            scope.insert(key, value);
            columns.push(field);
            attributes.push(number);
        }
        let of_rows = wanted.iter().map(|column| {
            let expr = scope.get(&((*relation).relid, column.number)).cloned()?;
            Some(NamedExpr { name: column.name.clone(), expr })
        });
        let of_rows: Option<Vec<NamedExpr>> = of_rows.collect();
        let (mut translator, mut steps) =
            (Translator::new(root, Columns { scope, ..Columns::default() }), Vec::new());
        for clause in clauses {
            let known = translator.parameters.len();
            match translator.expr(clause) {
                Ok(filter) if !filter.can_fail() => steps.push(Step::Filter(filter)),
                _ => {
                    translator.parameters.truncate(known);
                    translator.fields.truncate(known);
                }
            }
        }
        // Where columns are in the files is seen at execution.
        let source = Source::of_stage(Input::Table(0), files.name(), columns);
        let gathers = of_rows.is_some() && !steps.is_empty() && is_worth_it(root, relation);
        let sink = Sink::Rows { columns: of_rows.unwrap_or_default(), limit: None };
        let pipeline = Pipeline { source, steps, sink };
        let Translator { parameters, fields, .. } = translator;
        let types = parameters.iter().map(|node| pg_sys::exprType(*node).to_u32()).collect();
        let program = Program { parameters: fields, ..Program::new(Vec::new(), pipeline) };
        let gathers = gathers && program.validate().is_ok();
        (Self { program, attributes, parameters: types, gathers }, parameters)
    }

    /// Whether it says anything.
    pub fn is_empty(&self) -> bool {
        self.program.answer.steps.is_empty()
    }

    /// The rows that meet the conditions.
    ///
    /// # Errors
    /// A pipeline cannot finish, or the files are not what they were when this was planned.
    pub unsafe fn rows(
        &self,
        table: &ForeignTable,
        arrow: &Arc<ArrowTable>,
        found: &[Found],
        values: Vec<Scalar>,
    ) -> Result<(RunReport, Vec<RecordBatch>), WhyNot> {
        let mut program = self.program.clone();
        program.answer.source.ordinals.clear();
        for number in &self.attributes {
            match table.origin(table.column(*number)?, arrow, found)? {
                Origin::File { ordinal, .. } => program.answer.source.ordinals.push(ordinal),
                Origin::Folder => return why_not("a column that came to be names of folders"),
            }
        }
        let stream = StreamTable::new(&table.name, Arc::clone(arrow) as _);
        executor::rows(program, values, stream)
    }

    /// The record batches in which a row may meet the conditions; `None`: any.
    pub unsafe fn batches(
        &self,
        table: &ForeignTable,
        arrow: &ArrowTable,
        found: &[Found],
        values: &[Scalar],
    ) -> Result<Option<Batches>, WhyNot> {
        let program = self.program.with_values(values);
        let program = program.map_err(|error| WhyNot(error.to_string()))?;
        let mut conditions = Vec::new();
        for (register, interval) in bounds(&program.answer, &[]) {
            let column = table.column(self.attributes[register])?;
            let Origin::File { ordinal, .. } = table.origin(column, arrow, found)? else {
                continue;
            };
            // Numbers that bound one type mean nothing in another.
            let planned = &program.answer.source.columns[register].data_type;
            let of_file = pipeline_type(arrow.schema().field(ordinal).data_type());
            if of_file.as_ref() == Some(planned) {
                conditions.push(ColumnBound {
                    column: ordinal,
                    min: interval.min,
                    max: interval.max,
                });
            }
        }
        if conditions.is_empty() {
            return Ok(None);
        }
        let failed = |error: headrace_format::FormatError| WhyNot(error.to_string());
        let mut feed = arrow.feed(&[], &conditions, ChunkOptions::default()).map_err(failed)?;
        let mut kept = HashSet::new();
        for chunk in &mut feed {
            let segments = chunk.map_err(failed)?.segments;
            kept.extend(segments.iter().map(|s| (s.file as usize, s.batch as usize)));
        }
        Ok(Some(Batches { kept, ruled_out: feed.totals().pruned_batches }))
    }
}
