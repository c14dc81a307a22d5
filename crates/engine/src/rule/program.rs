//! From a [`Graph`] and a sink to a [`Program`].
//!
//! The leaf with the most bytes is streamed, unless it has one row: a table, or the rows of a child plan. Every other leaf becomes a build, probed in an order
//! that means what the plan means (see [`super::order`]); the processor sorts steps by selectivity
//! when it binds the program.
//!
//! A leaf that no pipeline can express (a grouping, a union, a file of another format) still streams: the
//! partitions of its plan run at the same time, and their batches are the chunks of the next pipeline.
//! `format::BatchTable` asks for them and never waits.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use headrace_ir::{
    AggregateCall, AggregateOutput, Expr, Field, Input, NamedExpr, OrderKey, Pipeline, Probe,
    ProbeKind, Program, Register, Sink, Source, Step, Windows,
};
use headrace_pipeline::WhyNot;
use headrace_runner::StreamTable;

use super::builds::Builds;
use super::expr_util::map_registers;
use super::graph::{Graph, Leaf, LeafTable, mark_field, register};
use super::order::{self, PlannedProbe, PlannedStep};
use super::reduce::reduce_groups;
use super::sizes::leaf_bytes;
use crate::exec::Output;

/// What a pipeline does with its rows.
#[derive(Clone, Debug)]
pub enum SinkSpec {
    /// Grouped aggregation over graph registers.
    Aggregate {
        /// Group keys.
        keys: Vec<NamedExpr>,
        /// Grouping sets, as [`Sink::Aggregate`] has them.
        sets: Vec<Vec<usize>>,
        /// Aggregates.
        calls: Vec<AggregateCall>,
        /// The plan's columns, of the sink's.
        outputs: Vec<Output>,
    },
    /// The rows.
    Rows {
        /// Output columns over graph registers.
        columns: Vec<NamedExpr>,
    },
    /// The first rows of an order.
    First {
        /// Output columns over graph registers.
        columns: Vec<NamedExpr>,
        /// What they are ordered by.
        order: Vec<OrderKey>,
        /// How many.
        rows: u64,
    },
    /// The rows with window functions beside them.
    Windows {
        /// Over graph registers.
        windows: Windows,
        /// The plan's columns, of the sink's.
        outputs: Vec<Output>,
    },
}

/// A program with the tables and plans that feed it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The program.
    pub program: Program,
    /// Its tables, by the number in [`Input::Table`], each once.
    pub tables: Vec<Arc<StreamTable>>,
    /// Plans whose rows are tables too: the numbers behind those of `tables`.
    pub children: Vec<Arc<dyn ExecutionPlan>>,
    /// The plan's columns, of the program's; none: they are the same.
    pub outputs: Vec<Output>,
    /// What gives each of the program's parameters its value, once the plan is run.
    pub subqueries: Vec<Arc<dyn PhysicalExpr>>,
}

impl Planned {
    /// The number of a table, which is one of the program's from now on.
    pub(super) fn number_of(&mut self, table: &Arc<StreamTable>) -> usize {
        number_of(&mut self.tables, table)
    }

    /// The table that a source reads; `None` where rows come from elsewhere.
    pub fn table(&self, source: &Source) -> Option<&Arc<StreamTable>> {
        self.tables.get(source.input.table()?)
    }

    /// The table that the last stage streams, or a stage that its rows come from.
    pub fn streamed_table(&self) -> Option<&Arc<StreamTable>> {
        let origins = self.program.origins(self.program.stages.len());
        self.table(&self.program.stage(*origins.last()?)?.source)
    }
}

/// The number of a table among others, once it is one of them.
fn number_of(tables: &mut Vec<Arc<StreamTable>>, table: &Arc<StreamTable>) -> usize {
    let known = tables.iter().position(|t| Arc::ptr_eq(t, table));
    known.unwrap_or_else(|| {
        tables.push(Arc::clone(table));
        tables.len() - 1
    })
}

/// What feeds a program, as it is gathered.
#[derive(Default)]
pub(super) struct Feeds {
    tables: Vec<Arc<StreamTable>>,
    children: Vec<Arc<dyn ExecutionPlan>>,
}

impl Feeds {
    /// The source over the columns of a leaf that are needed, whose registers are appended to the
    /// numbering. That of a child plan has the number of the plan, until the tables are counted.
    pub fn source(
        &mut self,
        leaf: &Leaf,
        needed: &BTreeSet<Register>,
        numbering: &mut Numbering,
    ) -> Result<Source, WhyNot> {
        if let Some(table) = leaf.table() {
            return table_source(leaf, table, needed, numbering, self);
        }
        let (plan, registers) = child_plan(leaf, needed)?;
        let input = Input::Batches(self.children.len());
        let source = child_source(leaf, input, &registers, numbering)?;
        self.children.push(plan);
        Ok(source)
    }

    /// The number of a table.
    fn number(&mut self, table: &Arc<StreamTable>) -> usize {
        number_of(&mut self.tables, table)
    }
}

fn why<T>(reason: impl Into<String>) -> Result<T, WhyNot> {
    Err(WhyNot::new(reason))
}

/// Builds the program. What tells a build which of its rows can be wanted may take `reducer_bytes_max`.
pub fn assemble(
    mut graph: Graph,
    sink: SinkSpec,
    reducer_bytes_max: u64,
) -> Result<Planned, WhyNot> {
    reduce_groups(&mut graph, reducer_bytes_max);
    let (stream, graph, steps) = ordered(graph, &sink)?;
    let mut assembly = Assembly { graph, sink, stream, reducer_bytes_max, steps };
    assembly.reuse_keys()?;
    assembly.finish()
}

/// The graph in the order of its steps, from the leaf that had best be streamed. Of what is paired with all rows
/// another leaf may be the only one from which all others are reached.
fn ordered(graph: Graph, sink: &SinkSpec) -> Result<(Stream, Graph, Vec<PlannedStep>), WhyNot> {
    let mut streams = streams(&graph, sink).into_iter();
    let Some(best) = streams.next() else { return why("no table to stream") };
    let has_paired = graph.leaves.iter().any(|leaf| leaf.paired.is_some());
    let others = if has_paired { Some((graph.clone(), streams)) } else { None };
    let why_not = match order::ordered(graph, best.leaf) {
        Ok((graph, steps)) => return Ok((best, graph, steps)),
        Err(why_not) => why_not,
    };
    let (graph, others) = others.ok_or_else(|| why_not.clone())?;
    let of = |stream: Stream| {
        let (graph, steps) = order::ordered(graph.clone(), stream.leaf).ok()?;
        Some((stream, graph, steps))
    };
    others.into_iter().find_map(of).ok_or(why_not)
}

struct Assembly {
    graph: Graph,
    sink: SinkSpec,
    stream: Stream,
    reducer_bytes_max: u64,
    steps: Vec<PlannedStep>,
}

impl SinkSpec {
    fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Self::Rows { columns }
            | Self::First { columns, .. }
            | Self::Windows { windows: Windows { columns, .. }, .. } => {
                columns.iter_mut().map(|c| &mut c.expr).collect()
            }
            Self::Aggregate { keys, calls, .. } => keys
                .iter_mut()
                .map(|k| &mut k.expr)
                .chain(calls.iter_mut().flat_map(|c| c.argument.iter_mut().chain(&mut c.filter)))
                .collect(),
        }
    }

    fn exprs(&self) -> Vec<&Expr> {
        match self {
            Self::Rows { columns }
            | Self::First { columns, .. }
            | Self::Windows { windows: Windows { columns, .. }, .. } => {
                columns.iter().map(|c| &c.expr).collect()
            }
            Self::Aggregate { keys, calls, .. } => keys
                .iter()
                .map(|k| &k.expr)
                .chain(calls.iter().flat_map(|c| c.argument.iter().chain(&c.filter)))
                .collect(),
        }
    }
}

fn used_registers(graph: &Graph, sink: &SinkSpec) -> BTreeSet<Register> {
    let of_sides = graph
        .side_joins
        .iter()
        .flat_map(|h| h.keys.iter().flat_map(|(a, b)| [a, b]).chain(&h.residual));
    let edges = graph.edges.iter().flat_map(|e| [&e.left, &e.right]);
    let filters = graph.leaves.iter().flat_map(|l| &l.filters);
    let all = sink.exprs().into_iter().chain(of_sides).chain(edges).chain(filters);
    all.chain(graph.conjuncts.iter().map(|c| &c.expr)).flat_map(Expr::registers).collect()
}

/// What is streamed.
pub(super) struct Stream {
    pub leaf: usize,
    /// Leaves that hang from it though they are larger.
    pub smaller_than: Vec<usize>,
}

/// A condition on a paired leaf is taken to leave one row of so many: a query that pairs many rows with many would not end.
const PAIRED_LEFT: u64 = 64;

/// The leaves that may be streamed: the one with the most bytes first, a table if it has one; of one row only behind others.
fn streams(graph: &Graph, sink: &SinkSpec) -> Vec<Stream> {
    let used = used_registers(graph, sink);
    let left = |leaf: &Leaf| match leaf.paired {
        Some(_) if !leaf.filters.is_empty() || leaf.filtered.is_some() => PAIRED_LEFT,
        _ => 1,
    };
    let size = |leaf: &Leaf| leaf_bytes(leaf, &used) / left(leaf);
    let sizes: Vec<_> = graph.leaves.iter().map(size).collect();
    let rows = |leaf: &Leaf| leaf.table_rows().unwrap_or(0);
    let candidates = graph.leaves.iter().enumerate().filter(|(_, leaf)| !leaf.is_side);
    let mut candidates: Vec<_> = candidates.collect();
    // The last one of equals first.
    candidates.reverse();
    let is_one_row = |leaf: &Leaf| leaf.paired.is_some_and(|it| it.is_one_row);
    candidates.sort_by_key(|(i, leaf)| Reverse((!is_one_row(leaf), sizes[*i], rows(leaf))));
    let stream = |(leaf, _): (usize, &Leaf)| {
        let smaller_than = (0..sizes.len()).filter(|&other| sizes[other] > sizes[leaf]).collect();
        Stream { leaf, smaller_than }
    };
    candidates.into_iter().map(stream).collect()
}

impl Assembly {
    /// Where an inner join makes a build's key equal to a register at hand, that register is
    /// read in place of the key, which then need not be payload.
    fn reuse_keys(&mut self) -> Result<(), WhyNot> {
        for i in 0..self.steps.len() {
            let PlannedStep::Probe(probe) = &self.steps[i] else { continue };
            if probe.kind != ProbeKind::Inner || probe.null_equal {
                continue;
            }
            for (at_hand, key) in probe.keys.clone() {
                // Equal floats may still differ in their sign.
                let same = !at_hand.data_type().is_float();
                if let (Expr::Register { .. }, Expr::Register { index: key, .. }) = (&at_hand, &key)
                    && same
                {
                    self.replace_downstream(i, *key, &at_hand)?;
                }
            }
        }
        Ok(())
    }

    fn replace_downstream(&mut self, step: usize, key: Register, by: &Expr) -> Result<(), WhyNot> {
        let later = self.steps[step + 1..].iter_mut().flat_map(PlannedStep::probe_exprs_mut);
        for expr in self.sink.exprs_mut().into_iter().chain(later) {
            *expr = map_registers(expr, &mut |index| {
                let unchanged = || self.graph.field(index).map(|f| register(index, &f));
                if index == key { Ok(by.clone()) } else { unchanged() }
            })?;
        }
        Ok(())
    }

    /// Registers that the streamed pipeline reads, wherever they come from.
    fn stream_registers(&self) -> BTreeSet<Register> {
        let steps = self.steps.iter().flat_map(PlannedStep::exprs);
        let filters = &self.graph.leaves[self.stream.leaf].filters;
        let all = self.sink.exprs().into_iter().chain(steps).chain(filters);
        all.flat_map(Expr::registers).collect()
    }

    fn finish(self) -> Result<Planned, WhyNot> {
        let needed = self.stream_registers();
        let mut numbering = Numbering::default();
        let mut feeds = Feeds::default();
        let stream = &self.graph.leaves[self.stream.leaf];
        let source = feeds.source(stream, &needed, &mut numbering)?;
        let mut steps = filter_steps(&stream.filters, &numbering)?;
        let (graph, stream) = (&self.graph, &self.stream);
        let mut builds =
            Builds::new(graph, &self.steps, stream, &needed, self.reducer_bytes_max, feeds);
        for step in &self.steps {
            steps.push(match step {
                PlannedStep::Filter(condition) => Step::Filter(numbering.apply(condition)?),
                PlannedStep::Probe(probe) => {
                    let (build, payload) = (builds.of(probe)?, builds.payload(probe));
                    let leaf = &graph.leaves[probe.leaf];
                    probe_step(build, probe, &payload, leaf, &mut numbering)?
                }
            });
        }
        let sink = finish_sink(&self.sink, &numbering)?;
        let (builds, Feeds { tables, children }) = builds.finish();
        let mut program = Program::new(builds, Pipeline { source, steps, sink });
        for source in program.sources_mut() {
            if let Input::Batches(number) = &mut source.input {
                *number += tables.len();
            }
        }
        program.parameters = self.graph.subqueries.parameters()?;
        let subqueries = self.graph.subqueries.into_exprs();
        program.validate().map_err(|e| WhyNot::new(e.to_string()))?;
        // Distinct calls may stand beside some that they cannot stand beside.
        program.without_distinct().map_err(|e| WhyNot::new(e.to_string()))?;
        let outputs = match self.sink {
            SinkSpec::Aggregate { outputs, .. } | SinkSpec::Windows { outputs, .. } => outputs,
            SinkSpec::Rows { .. } | SinkSpec::First { .. } => Vec::new(),
        };
        Ok(Planned { program, tables, children, outputs, subqueries })
    }
}

/// From graph registers to pipeline registers.
#[derive(Default)]
pub(super) struct Numbering {
    map: HashMap<Register, Expr>,
    next: Register,
}

impl Numbering {
    pub fn append(&mut self, graph_register: Register, field: &Field) {
        self.append_as(graph_register, field, |register| register);
    }

    /// A register of which what is made stands for that of the graph.
    pub fn append_as(
        &mut self,
        graph_register: Register,
        field: &Field,
        made: impl FnOnce(Expr) -> Expr,
    ) {
        self.map.insert(graph_register, made(register(self.next, field)));
        self.next += 1;
    }

    /// A column that is no register of the graph: it only tells how many rows there are.
    fn append_unread(&mut self) {
        self.next += 1;
    }

    pub fn apply(&self, expr: &Expr) -> Result<Expr, WhyNot> {
        map_registers(expr, &mut |index| match self.map.get(&index) {
            Some(found) => Ok(found.clone()),
            None => why(format!("register {index} is read before it is there")),
        })
    }
}

/// The source over the needed columns of a scan; registers are appended to the numbering. A
/// pipeline that reads nothing at all still has to know how many rows there are: it gets the
/// narrowest column.
fn table_source(
    leaf: &Leaf,
    LeafTable { table, projection }: &LeafTable,
    needed: &BTreeSet<Register>,
    numbering: &mut Numbering,
    feeds: &mut Feeds,
) -> Result<Source, WhyNot> {
    let mut registers: Vec<_> = needed.iter().copied().filter(|&r| leaf.owns(r)).collect();
    if registers.is_empty() {
        let readable = (0..leaf.columns.len()).filter(|&c| leaf.columns[c].is_ok());
        let narrowest = readable.min_by_key(|&c| table.columns_bytes([&projection[c]]));
        registers.extend(narrowest.map(|c| leaf.first + c));
    }
    let mut columns = Vec::with_capacity(registers.len());
    let mut ordinals = Vec::with_capacity(registers.len());
    for register in registers {
        let field = leaf.columns[register - leaf.first].clone()?;
        numbering.append(register, &field);
        ordinals.push(projection[register - leaf.first]);
        columns.push(field);
    }
    if columns.is_empty() {
        let (ordinal, field) = any_column(table)?;
        numbering.append_unread();
        ordinals.push(ordinal);
        columns.push(field);
    }
    let input = Input::Table(feeds.number(table));
    Ok(Source { input, table: table.name().to_string(), columns, ordinals })
}

/// A child plan with the columns that are needed of it, and their registers.
fn child_plan(
    leaf: &Leaf,
    needed: &BTreeSet<Register>,
) -> Result<(Arc<dyn ExecutionPlan>, Vec<Register>), WhyNot> {
    let mut registers: Vec<Register> = needed.iter().copied().filter(|&r| leaf.owns(r)).collect();
    if registers.is_empty() {
        // How many rows there are is known by a column.
        let readable = (0..leaf.columns.len()).find(|&column| leaf.columns[column].is_ok());
        registers.extend(readable.map(|column| leaf.first + column));
    }
    if registers.is_empty() {
        return why(format!("{} has no column that a pipeline can read", leaf.name()));
    }
    Ok((projected(leaf, &registers)?, registers))
}

/// The source over a child plan.
fn child_source(
    leaf: &Leaf,
    input: Input,
    registers: &[Register],
    numbering: &mut Numbering,
) -> Result<Source, WhyNot> {
    let mut columns = Vec::with_capacity(registers.len());
    for &register in registers {
        let field = leaf.columns[register - leaf.first].clone()?;
        numbering.append(register, &field);
        columns.push(field);
    }
    Ok(Source::of_stage(input, &leaf.name(), columns))
}

/// Any one column, for pipelines over a scan that was projected to none.
fn any_column(table: &StreamTable) -> Result<(usize, Field), WhyNot> {
    let columns = super::flatten::fields_of(table.source().schema());
    let readable = columns.into_iter().enumerate().filter_map(|(i, field)| {
        table.source().column_support(i).is_ok().then_some(())?;
        Some((i, field.ok()?))
    });
    let narrowest = readable.min_by_key(|(i, _)| table.columns_bytes([i]));
    narrowest.ok_or_else(|| {
        WhyNot::new(format!("table {} has no column that a pipeline can read", table.name()))
    })
}

/// Filters as steps.
pub(super) fn filter_steps(filters: &[Expr], numbering: &Numbering) -> Result<Vec<Step>, WhyNot> {
    let filters = filters_in_order(filters).into_iter();
    filters.map(|filter| numbering.apply(filter).map(Step::Filter)).collect()
}

/// Filters, those that cannot fail first.
pub(super) fn filters_in_order(filters: &[Expr]) -> Vec<&Expr> {
    let (safe, failing): (Vec<_>, Vec<_>) = filters.iter().partition(|f| !f.can_fail());
    safe.into_iter().chain(failing).collect()
}

fn probe_step(
    build: usize,
    probe: &PlannedProbe,
    payload: &[Register],
    leaf: &Leaf,
    numbering: &mut Numbering,
) -> Result<Step, WhyNot> {
    let keys =
        probe.keys.iter().map(|(kept, _)| numbering.apply(kept)).collect::<Result<_, _>>()?;
    for &register in payload {
        let mut field = leaf.columns[register - leaf.first].clone()?;
        field.nullable |= probe.kind == ProbeKind::Left;
        numbering.append(register, &field);
    }
    if let Some(mark) = leaf.mark {
        numbering.append(mark, &mark_field());
    }
    Ok(Step::Probe(Probe {
        build,
        keys,
        kind: probe.kind,
        null_equal: probe.null_equal,
        residual: probe.residual.as_ref().map(|r| numbering.apply(r)).transpose()?,
        payload: (0..payload.len()).collect(),
        is_optional: false,
    }))
}

/// A leaf's plan, projected to some of its registers.
fn projected(leaf: &Leaf, registers: &[Register]) -> Result<Arc<dyn ExecutionPlan>, WhyNot> {
    let schema = leaf.plan.schema();
    let exprs = registers.iter().enumerate().map(|(position, r)| {
        let index = r - leaf.first;
        let name = schema.field(index).name();
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, index));
        ProjectionExpr { expr: column, alias: format!("{name}_{position}") }
    });
    let projection = ProjectionExec::try_new(exprs.collect::<Vec<_>>(), Arc::clone(&leaf.plan));
    match projection {
        Ok(projection) => Ok(Arc::new(projection)),
        Err(error) => why(error.to_string()),
    }
}

fn finish_sink(sink: &SinkSpec, numbering: &Numbering) -> Result<Sink, WhyNot> {
    let all = |columns: &[NamedExpr]| {
        columns
            .iter()
            .map(|c| Ok(NamedExpr { name: c.name.clone(), expr: numbering.apply(&c.expr)? }))
            .collect::<Result<Vec<_>, WhyNot>>()
    };
    Ok(match sink {
        SinkSpec::Rows { columns } => Sink::Rows { columns: all(columns)?, limit: None },
        SinkSpec::First { columns, order, rows } => {
            Sink::Sorted { columns: all(columns)?, order: order.clone(), limit: Some(*rows) }
        }
        SinkSpec::Windows { windows, .. } => {
            let columns = all(&windows.columns)?;
            Sink::Windows(Windows { columns, ..windows.clone() })
        }
        SinkSpec::Aggregate { keys, sets, calls, .. } => {
            let calls: Vec<AggregateCall> = calls
                .iter()
                .map(|call| {
                    let apply =
                        |e: &Option<Expr>| e.as_ref().map(|e| numbering.apply(e)).transpose();
                    let (argument, filter) = (apply(&call.argument)?, apply(&call.filter)?);
                    Ok(AggregateCall { argument, filter, ..call.clone() })
                })
                .collect::<Result<_, WhyNot>>()?;
            let output = AggregateOutput::of_sets(sets, &calls);
            Sink::Aggregate { keys: all(keys)?, sets: sets.clone(), calls, output }
        }
    })
}
