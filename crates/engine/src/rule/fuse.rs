//! Programs of one: a pipeline whose rows another pipeline reads becomes a stage of it.
//!
//! ```text
//! PipelineExec: joins, groups                      one PipelineExec:
//!   Projection, Filter (HAVING)           ───►       stage 0: groups of a table
//!     PipelineExec: groups of a table                last stage: stage 0 ─► filter ─► joins, groups
//! ```
//!
//! The projections and filters between the two become steps. The inner pipeline stays a plan of its own, whose rows are
//! batches, if its plan's columns are computed from its output (a mean beside DISTINCT), or if a node between
//! the two cannot be a step.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use headrace_ir::{
    CompareOp, DataType, Expr, Field, Input, NamedExpr, Program, Scalar, Source, Step,
};
use headrace_pipeline::WhyNot;

use super::flatten::flatten;
use super::graph::{Graph, Leaf};
use super::program::{Numbering, Planned, filters_in_order};
use super::translate::InputColumn;
use crate::exec::{Output, PipelineExec};

/// A plan whose child plans have become stages of its program where they are pipelines.
pub fn fused(planned: Planned) -> Planned {
    let mut fusing = Fusing::new(planned);
    let mut child = 0;
    while child < fusing.children.len() {
        // The child plans of a fused pipeline are appended and get their turn.
        fusing.fuse(child);
        child += 1;
    }
    fusing.finish()
}

/// A plan whose batches are numbered by child plan, without the tables before them.
struct Fusing {
    planned: Planned,
    /// `None`: a stage by now.
    children: Vec<Option<Arc<dyn ExecutionPlan>>>,
}

/// A pipeline and what stands between it and the one that reads it.
struct Inner {
    planned: Arc<Planned>,
    /// The one leaf that it is.
    leaf: Leaf,
    /// The columns of the plan above it.
    columns: Vec<InputColumn>,
}

impl Fusing {
    fn new(mut planned: Planned) -> Self {
        let children = std::mem::take(&mut planned.children);
        renumber(&mut planned.program, &|input| match input {
            Input::Batches(number) => Input::Batches(number - planned.tables.len()),
            other => other,
        });
        Self { planned, children: children.into_iter().map(Some).collect() }
    }

    fn fuse(&mut self, child: usize) {
        let Some(inner) = self.children[child].as_ref().and_then(inner) else { return };
        let read = Input::Batches(child);
        let at = self.planned.program.all().position(|stage| stage.source.input == read);
        let Some(at) = at else { return };
        let tables = self.planned.tables.len();
        let Ok(fused) = self.program_with(at, &inner) else {
            self.planned.tables.truncate(tables);
            return;
        };
        let Planned { children, subqueries, .. } = &*inner.planned;
        self.children.extend(children.iter().cloned().map(Some));
        self.planned.subqueries.extend(subqueries.iter().cloned());
        self.children[child] = None;
        self.planned.program = fused;
    }

    /// The program with an inner one's stages before a stage, which reads the last of them.
    fn program_with(&mut self, at: usize, inner: &Inner) -> Result<Program, WhyNot> {
        let (tables, children) = (&inner.planned.tables, self.children.len());
        let numbers: Vec<_> = tables.iter().map(|table| self.planned.number_of(table)).collect();
        let mut other = inner.planned.program.clone();
        renumber(&mut other, &|input| match input {
            Input::Table(number) => Input::Table(numbers[number]),
            Input::Batches(number) => Input::Batches(number - tables.len() + children),
            other => other,
        });
        let mut program = self.planned.program.clone();
        let stage = program.splice(at, other);
        let missing = || WhyNot::new("a stage that is not there");
        let consumer = program.stage(stage + 1).ok_or_else(missing)?.clone();
        let output = program.stages[stage].sink.output().ok_or_else(missing)?;
        let source = &consumer.source;
        let columns = source.ordinals.iter().map(|&column| inner.columns[column].clone());
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let filters = filters_in_order(&inner.leaf.filters);
        let mut registers: Vec<_> =
            filters.iter().copied().chain(&columns).flat_map(Expr::registers).collect();
        registers.sort_unstable();
        registers.dedup();
        if registers.is_empty() {
            // How many rows there are is known by a column.
            registers.push(inner.leaf.first);
        }
        let (mut numbering, mut fields, mut ordinals) = (Numbering::default(), vec![], vec![]);
        for register in registers {
            let planned = inner.leaf.columns[register - inner.leaf.first].clone()?;
            let (ordinal, ids) = match inner.output(register - inner.leaf.first)? {
                Output::GroupingId { set, ids } => (set, ids),
                Output::Column(ordinal) => (ordinal, vec![]),
                _ => return Err(WhyNot::new("a column that is made of several")),
            };
            let made = output.get(ordinal).ok_or_else(missing)?;
            if ids.is_empty() && made.data_type != planned.data_type {
                return Err(WhyNot::new(format!("{} is cast", planned.name)));
            }
            let nullable = made.nullable || (planned.nullable && ids.is_empty());
            let field = Field::new(planned.name, made.data_type.clone(), nullable);
            numbering.append_as(register, &field, |set| match ids.is_empty() {
                true => set,
                false => grouping_id(&set, &ids, &planned.data_type),
            });
            fields.push(field);
            ordinals.push(ordinal);
        }
        let filters = filters.into_iter().map(|it| numbering.apply(it));
        let filters = filters.collect::<Result<Vec<_>, _>>()?;
        let named = |(column, field): (&Expr, &Field)| {
            Ok(NamedExpr { name: field.name.clone(), expr: numbering.apply(column)? })
        };
        let columns = columns.iter().zip(&source.columns).map(named);
        let columns = columns.collect::<Result<_, WhyNot>>()?;
        let table = program.stages[stage].source.table.clone();
        let source = Source { input: Input::Stage(stage), table, columns: fields, ordinals };
        let (registers, filters) = (source.columns.len(), filters.into_iter().map(Step::Filter));
        if let Some(stage) = program.all_mut().nth(stage + 1) {
            *stage = consumer.over((source, filters.collect()), registers, columns);
        }
        let mut numbered = program.clone();
        behind_tables(&mut numbered, self.planned.tables.len(), &|child| child);
        numbered.validate().map_err(|error| WhyNot::new(error.to_string()))?;
        Ok(program)
    }

    fn finish(self) -> Planned {
        let Self { mut planned, children } = self;
        let left = |child: usize| children[..child].iter().flatten().count();
        behind_tables(&mut planned.program, planned.tables.len(), &left);
        planned.children = children.into_iter().flatten().collect();
        planned.program = planned.program.with_shared_groups().with_windows_as_read();
        planned.program = planned.program.with_first_of_partitions();
        planned
    }
}

fn renumber(program: &mut Program, number: &dyn Fn(Input) -> Input) {
    for source in program.sources_mut() {
        source.input = number(source.input.clone());
    }
}

/// Numbers the batches of child plans behind the tables.
fn behind_tables(program: &mut Program, tables: usize, number: &dyn Fn(usize) -> usize) {
    renumber(program, &|input| match input {
        Input::Batches(child) => Input::Batches(tables + number(child)),
        other => other,
    });
}

/// A child plan as a pipeline below steps, if it is one.
fn inner(plan: &Arc<dyn ExecutionPlan>) -> Option<Inner> {
    let mut graph = Graph::new(0);
    let columns = flatten(plan, &mut graph).ok()?;
    // Values of subqueries between the two are parameters that the inner program does not have.
    if !graph.subqueries.parameters().ok()?.is_empty() {
        return None;
    }
    let leaf = match graph.leaves.as_slice() {
        [leaf] if graph.conjuncts.is_empty() && leaf.mark.is_none() => leaf.clone(),
        _ => return None,
    };
    let pipeline = leaf.plan.downcast_ref::<PipelineExec>()?;
    let planned = Arc::clone(pipeline.planned());
    Some(Inner { planned, leaf, columns })
}

impl Inner {
    /// What a column of its plan is, of the pipeline's output columns.
    fn output(&self, column: usize) -> Result<Output, WhyNot> {
        match self.planned.outputs.get(column) {
            None if self.planned.outputs.is_empty() => Ok(Output::Column(column)),
            Some(output) => Ok(output.clone()),
            None => Err(WhyNot::new("a column that is not there")),
        }
    }
}

/// What the planner calls a grouping set, of its number.
fn grouping_id(set: &Expr, ids: &[i64], data_type: &DataType) -> Expr {
    let id = |id: &i64| Expr::Literal(Scalar::int(data_type.clone(), (*id).into()));
    let is_set = |number: usize| {
        let number = Scalar::int(set.data_type(), number as i128);
        Expr::compare(CompareOp::Eq, set.clone(), Expr::Literal(number))
    };
    let (last, others) = ids.split_last().unwrap_or((&0, &[]));
    if others.is_empty() {
        return id(last);
    }
    let branches = others.iter().enumerate().map(|(number, it)| (is_set(number), id(it)));
    Expr::Case {
        branches: branches.collect(),
        otherwise: Some(Box::new(id(last))),
        data_type: data_type.clone(),
    }
}
