//! Lowers a pipeline for the table and the builds at hand. Everything that both processors
//! must agree on is decided here: how values are held, what ranges prove, which predicates
//! become lookups by dictionary code, how groups are numbered, in which order steps run.

mod aggregate;
mod expr;
mod lookup;
mod order;
mod probe;
mod proof;
mod range;
mod regex;
mod selectivity;

use std::sync::Arc;

use headrace_columns::repr::Repr;
use headrace_ir::{DataType, Field, NamedExpr, Pipeline, Sink, Step, ValueRange};

use crate::WhyNot;
use crate::bound::{Bound, BoundExpr, BoundSink, BoundStep, RegisterInfo};
use crate::build::BuildTable;
use crate::source::{SourceColumn, SourceInfo};

pub use order::{Lookups, is_near_on_gpu};
pub(crate) use range::type_range;
pub use regex::check_pattern;

/// Choices of whoever plans.
#[derive(Clone, Copy, Debug)]
pub struct BindOptions {
    /// Groups are numbered densely if at most so many are possible, else hashed.
    pub dense_groups_max: u64,
    /// What look-ups cost where the pipeline runs.
    pub lookups: Lookups,
}

impl Default for BindOptions {
    /// 64 Ki groups: the accumulators of a group or two still fit a core's L2.
    fn default() -> Self {
        Self { dense_groups_max: 64 * 1024, lookups: Lookups::Cpu }
    }
}

/// Lowers a valid pipeline (see [`headrace_ir::Program::validate`]); `builds` are those of its
/// program, in order.
pub fn bind(
    pipeline: &Pipeline,
    source: &SourceInfo,
    builds: &[Arc<BuildTable>],
    options: &BindOptions,
) -> Result<Bound, WhyNot> {
    if source.columns.len() != pipeline.source.columns.len() {
        return Err(WhyNot::new(format!(
            "table {} has {} columns, {} are described",
            pipeline.source.table,
            pipeline.source.columns.len(),
            source.columns.len()
        )));
    }
    let columns = pipeline.source.columns.iter().zip(&source.columns);
    let registers = columns.map(|(f, c)| source_register(f, c)).collect::<Result<Vec<_>, _>>()?;
    let mut binder = Binder::new(registers, u128::from(source.rows_max));
    let mut steps = Vec::new();
    for step in &pipeline.steps {
        binder.step(step, builds, &mut steps)?;
    }
    let sink = binder.sink(&pipeline.sink, options)?;
    let source_registers = source.columns.len();
    let (places, steps) =
        order::ordered(steps, &binder.registers, source_registers, options.lookups);
    Ok(Bound {
        table: pipeline.source.table.clone(),
        source_registers,
        steps,
        places,
        registers: binder.registers,
        sink,
        rows_max: source.rows_max,
        remaps: source.remaps.clone(),
    })
}

/// Lowers what is left of an aggregation when its partial states are all that comes in: `registers`
/// are those after the last step (see [`Pipeline::registers`]), none of which is ever read.
pub fn bind_merge(pipeline: &Pipeline, registers: &[Field]) -> Result<Bound, WhyNot> {
    let unknown = SourceColumn { dictionary: None, range: None, may_have_nulls: true };
    let registers =
        registers.iter().map(|f| source_register(f, &unknown)).collect::<Result<Vec<_>, _>>()?;
    let rows_max = u64::MAX;
    let binder = Binder::new(registers, u128::from(rows_max));
    let sink = binder
        .sink(&pipeline.sink, &BindOptions { dense_groups_max: 0, ..BindOptions::default() })?;
    Ok(Bound {
        table: pipeline.source.table.clone(),
        source_registers: 0,
        steps: Vec::new(),
        places: Vec::new(),
        registers: binder.registers,
        sink,
        rows_max,
        remaps: Vec::new(),
    })
}

fn no_repr(data_type: &DataType, name: &str) -> WhyNot {
    WhyNot::new(format!("columns of type {data_type} are not built yet ({name})"))
}

/// Bytes are not taken for this.
fn no_bytes(what: &str, expr: &BoundExpr) -> Result<(), WhyNot> {
    match expr.repr {
        Repr::Bytes(_) => {
            Err(WhyNot::new(format!("{what} {} are not built yet ({})", expr.data_type, expr.text)))
        }
        _ => Ok(()),
    }
}

/// Vectors have no order, and equal ones need not have equal bytes.
fn ordered(expr: &BoundExpr) -> Result<(), WhyNot> {
    match expr.data_type {
        DataType::FloatList { .. } => no_bytes("comparisons of", expr),
        _ => Ok(()),
    }
}

pub(crate) fn source_register(
    field: &Field,
    column: &SourceColumn,
) -> Result<RegisterInfo, WhyNot> {
    let plain = Repr::of(&field.data_type).ok_or_else(|| no_repr(&field.data_type, &field.name))?;
    let (repr, range) = match (&column.dictionary, plain) {
        (Some(dictionary), Repr::Str) => {
            let codes = arrow_array::Array::len(&dictionary.values) as i64;
            let range = ValueRange { min: 0, max: (codes - 1).max(0) };
            (Repr::Code(Arc::clone(dictionary)), Some(range))
        }
        (_, plain) => (plain, column.range.or_else(|| type_range(&field.data_type))),
    };
    Ok(RegisterInfo {
        name: field.name.clone(),
        data_type: field.data_type.clone(),
        repr,
        nullable: field.nullable && column.may_have_nulls,
        range,
    })
}

/// Registers as far as they are known.
pub(crate) struct Binder {
    registers: Vec<RegisterInfo>,
    /// For each register, bounds that do not rest on what files claim.
    proven: Vec<Option<ValueRange>>,
    /// Upper bound of rows that reach the sink.
    rows_max: u128,
}

impl Binder {
    /// Over the registers of a source.
    pub(crate) fn new(registers: Vec<RegisterInfo>, rows_max: u128) -> Self {
        let proven = registers
            .iter()
            .map(|info| match info.repr {
                // The dictionary is ours, and every code is checked against it.
                Repr::Code(_) => info.range,
                _ => type_range(&info.data_type),
            })
            .collect();
        Self { registers, proven, rows_max }
    }

    fn append(&mut self, info: RegisterInfo, proven: Option<ValueRange>) {
        self.registers.push(info);
        self.proven.push(proven);
    }

    fn step(
        &mut self,
        step: &Step,
        builds: &[Arc<BuildTable>],
        steps: &mut Vec<BoundStep>,
    ) -> Result<(), WhyNot> {
        match step {
            Step::Filter(condition) => {
                for conjunct in condition.clone().conjuncts() {
                    let expr = self.expr(&conjunct)?;
                    let selectivity = selectivity::of(&expr);
                    steps.push(BoundStep::Filter { expr, selectivity });
                }
            }
            Step::Compute(named) => {
                let expr = self.expr(&named.expr)?;
                let register = self.registers.len();
                let proven = proof::proven(&expr, &self.proven);
                self.append(register_of(&named.name, &expr), proven);
                steps.push(BoundStep::Compute { register, expr });
            }
            Step::Probe(ir_probe) => {
                let build = builds
                    .get(ir_probe.build)
                    .ok_or_else(|| WhyNot::new(format!("build {} is not there", ir_probe.build)))?;
                steps.push(BoundStep::Probe(self.probe(ir_probe, build)?));
            }
        }
        Ok(())
    }

    fn sink(&self, sink: &Sink, options: &BindOptions) -> Result<BoundSink, WhyNot> {
        match sink {
            Sink::Aggregate { sets, .. } if !sets.is_empty() => {
                Err(WhyNot::new("grouping sets that have not become a join"))
            }
            Sink::Aggregate { keys, calls, output, .. } => {
                self.aggregate(keys, calls, output.clone(), options)
            }
            Sink::Rows { columns, .. } if columns.is_empty() => {
                Err(WhyNot::new("rows without columns are not built yet"))
            }
            Sink::Rows { columns, limit } => {
                Ok(BoundSink::Rows { columns: self.outputs(columns)?, limit: *limit })
            }
            Sink::Sorted { columns, order, limit } => {
                let columns = self.outputs(columns)?;
                let keys = order.iter().filter_map(|key| columns.get(key.column));
                keys.into_iter().try_for_each(|(_, key)| ordered(key))?;
                Ok(BoundSink::Sorted { columns, order: order.clone(), limit: *limit })
            }
            // Whoever runs the stage sorts the rows.
            Sink::Windows(windows) => {
                let columns = self.outputs(&windows.columns)?;
                columns.iter().try_for_each(|(_, column)| no_bytes("windows over", column))?;
                Ok(BoundSink::Rows { columns, limit: None })
            }
            // Whoever runs the stage divides the rows.
            Sink::Partition { keys, payload } => {
                let columns = self.outputs(keys.iter().chain(payload))?;
                columns.iter().try_for_each(|(_, column)| no_bytes("joins of", column))?;
                Ok(BoundSink::Rows { columns, limit: None })
            }
            Sink::Build { keys, payload } => {
                let (keys, payload) = (self.outputs(keys)?, self.outputs(payload)?);
                keys.iter().try_for_each(|(_, key)| no_bytes("joins by", key))?;
                Ok(BoundSink::Build { keys, payload })
            }
        }
    }

    fn outputs<'e>(
        &self,
        columns: impl IntoIterator<Item = &'e NamedExpr>,
    ) -> Result<Vec<(Field, BoundExpr)>, WhyNot> {
        columns
            .into_iter()
            .map(|named| {
                let expr = self.expr(&named.expr)?;
                // What a planner declared nullable stays so: it is its schema.
                let nullable = expr.nullable || named.expr.nullable();
                let field = Field::new(named.name.clone(), expr.data_type.clone(), nullable);
                Ok((field, expr))
            })
            .collect()
    }
}

fn register_of(name: &str, expr: &BoundExpr) -> RegisterInfo {
    RegisterInfo {
        name: name.to_string(),
        data_type: expr.data_type.clone(),
        repr: expr.repr.clone(),
        nullable: expr.nullable,
        range: expr.range,
    }
}
