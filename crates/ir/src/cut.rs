//! A pipeline as two: what comes before a probe, and the probe with all that follows.
//!
//! ```text
//! source -> steps before | probe -> steps after -> sink
//!        └─── head ─────►│ rows: the probe's keys, and the registers that are read behind it
//!                        └──────────────── tail ──────────────────────►
//! ```
//!
//! Between the two, rows may be divided by the probe's keys, and the build with them: a row meets
//! no other rows of the build than those of its own part.

use std::collections::HashMap;

use crate::expr::{Expr, Register};
use crate::pipeline::{
    BuildPlan, BuildSource, NamedExpr, Pipeline, Probe, Sink, Source, SourceKind, Step,
};
use crate::types::Field;
use crate::validate::{IrError, fail};

/// A pipeline in two.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Ends in rows: the keys of the probe come first.
    pub head: Pipeline,
    /// Begins with the probe, over the rows of the head.
    pub tail: Pipeline,
}

impl Pipeline {
    /// Cuts a pipeline before the probe that is its step number `step`. The tail's one source is its
    /// table number 0.
    ///
    /// # Errors
    /// There is no such probe; the pipeline is not valid.
    pub fn cut(&self, builds: &[BuildPlan], step: usize) -> Result<Cut, IrError> {
        let Some(Step::Probe(probe)) = self.steps.get(step) else {
            return fail("pipeline", format!("step {step} is no probe"));
        };
        let registers = self.registers(builds)?;
        let appended = self.steps[..step].iter().map(Step::registers).sum::<usize>();
        let at_hand = self.source.columns.len() + appended;
        let key = |(number, expr): (usize, &Expr)| NamedExpr {
            name: format!("key {number}"),
            expr: expr.clone(),
        };
        let mut columns: Vec<NamedExpr> = probe.keys.iter().enumerate().map(key).collect();
        let mut places: HashMap<Register, Register> = HashMap::new();
        for (place, key) in probe.keys.iter().enumerate() {
            if let Expr::Register { index, .. } = key {
                places.entry(*index).or_insert(place);
            }
        }
        for register in self.read_behind(step).into_iter().filter(|&r| r < at_hand) {
            if places.contains_key(&register) {
                continue;
            }
            places.insert(register, columns.len());
            let Field { name, data_type, nullable } = registers[register].clone();
            let expr = Expr::Register { index: register, data_type, nullable, name };
            columns.push(NamedExpr { name: format!("register {register}"), expr });
        }
        let fields = columns.iter().map(|column| {
            Field::new(&column.name, column.expr.data_type(), column.expr.nullable())
        });
        let source = Source {
            kind: SourceKind::Batches,
            table_id: 0,
            table: self.source.table.clone(),
            columns: fields.collect(),
            ordinals: (0..columns.len()).collect(),
        };
        let place = |register: Register| match register < at_hand {
            true => places.get(&register).copied().unwrap_or(register),
            false => columns.len() + register - at_hand,
        };
        let keys = (0..probe.keys.len()).map(|key| source.register(key)).collect();
        let mut steps = self.steps[step..].to_vec();
        steps[0] = Step::Probe(Probe { keys, ..probe.clone() });
        let mut tail = Pipeline { source, steps, sink: self.sink.clone() };
        let own_keys = probe.keys.len();
        // The keys of the first probe are places already.
        for expr in tail.exprs_mut().into_iter().skip(own_keys) {
            expr.replace(&mut |e| match e {
                Expr::Register { index, data_type, nullable, name } => Some(Expr::Register {
                    index: place(*index),
                    data_type: data_type.clone(),
                    nullable: *nullable,
                    name: name.clone(),
                }),
                _ => None,
            });
        }
        let sink = Sink::Rows { columns, limit: None };
        let head =
            Pipeline { source: self.source.clone(), steps: self.steps[..step].to_vec(), sink };
        tail.registers(builds)?;
        head.registers(builds)?;
        Ok(Cut { head, tail })
    }

    /// The registers that a probe's residual, all steps behind it and the sink read, in order, each
    /// once.
    fn read_behind(&self, step: usize) -> Vec<Register> {
        let mut behind = Self {
            source: self.source.clone(),
            steps: self.steps[step..].to_vec(),
            sink: self.sink.clone(),
        };
        if let Some(Step::Probe(probe)) = behind.steps.first_mut() {
            probe.keys.clear();
        }
        let mut read: Vec<Register> =
            behind.exprs_mut().into_iter().flat_map(|expr| expr.registers()).collect();
        read.sort_unstable();
        read.dedup();
        read
    }
}

impl Step {
    /// How many registers it appends.
    fn registers(&self) -> usize {
        match self {
            Self::Filter(_) => 0,
            Self::Compute(_) => 1,
            Self::Probe(probe) => {
                probe.payload.len() + usize::from(probe.kind == crate::ProbeKind::Mark)
            }
        }
    }
}

impl BuildPlan {
    /// The rows that it is made of: keys, then payload, instead of the build. `None` where no
    /// pipeline makes it.
    pub fn rows(&self) -> Option<Pipeline> {
        let BuildSource::Pipeline(pipeline) = &self.source else { return None };
        let Sink::Build { keys, payload } = &pipeline.sink else { return None };
        let columns = keys.iter().chain(payload).cloned().collect();
        let (source, steps) = (pipeline.source.clone(), pipeline.steps.clone());
        Some(Pipeline { source, steps, sink: Sink::Rows { columns, limit: None } })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::aggregate::{AggregateCall, AggregateFunction};
    use crate::expr::CompareOp;
    use crate::pipeline::{ProbeKind, Program};
    use crate::types::DataType;

    fn field(name: &str) -> Field {
        Field::new(name, DataType::Int64, true)
    }

    fn register(index: Register) -> Expr {
        Expr::Register {
            index,
            data_type: DataType::Int64,
            nullable: true,
            name: format!("r{index}"),
        }
    }

    fn build(name: &str) -> BuildPlan {
        BuildPlan {
            name: name.into(),
            source: BuildSource::Values(vec![]),
            keys: vec![field("k")],
            payload: vec![field("p"), field("q")],
        }
    }

    fn probe(build: usize, key: Expr, residual: Option<Expr>) -> Step {
        let (kind, payload) = (ProbeKind::Left, vec![0, 1]);
        Step::Probe(Probe { kind, residual, payload, ..Probe::semi(build, vec![key]) })
    }

    /// t(a, b, c) with registers 3, 4 of the first probe, 5 computed, 6, 7 of the second.
    fn pipeline() -> Pipeline {
        let source = Source {
            kind: SourceKind::Table,
            table_id: 3,
            table: "t".into(),
            columns: vec![field("a"), field("b"), field("c")],
            ordinals: vec![0, 1, 2],
        };
        let sum = Expr::arithmetic(crate::ArithmeticOp::Add, register(3), register(1));
        let residual = Expr::compare(CompareOp::Lt, register(7), register(5));
        let steps = vec![
            probe(0, register(0), None),
            Step::Compute(NamedExpr { name: "s".into(), expr: sum }),
            probe(1, register(1), Some(residual)),
            Step::Filter(Expr::compare(CompareOp::Ne, register(6), register(4))),
        ];
        let key = NamedExpr { name: "b".into(), expr: register(1) };
        let function = AggregateFunction::Count;
        let call = AggregateCall::new("n", function, Some(register(6)), DataType::Int64);
        Pipeline { source, steps, sink: Sink::aggregate(vec![key], vec![call]) }
    }

    #[test]
    fn rows_between_the_parts_are_what_the_tail_reads() {
        let builds = [build("d"), build("e")];
        let Cut { head, tail } = pipeline().cut(&builds, 2).unwrap();
        assert_eq!(
            Program::sink_line(&head.sink),
            "rows key 0 = r1, register 4 = q, register 5 = s"
        );
        assert_eq!(head.steps, pipeline().steps[..2]);
        assert_eq!(tail.source.columns.len(), 3);
        // b is the key; 4 and 5 are columns 1 and 2; the probe's payload follows.
        let Step::Probe(probe) = &tail.steps[0] else { panic!() };
        assert_eq!(probe.keys[0].registers(), [0]);
        assert_eq!(probe.residual.as_ref().unwrap().registers(), [2, 4]);
        let Step::Filter(filter) = &tail.steps[1] else { panic!() };
        assert_eq!(filter.registers(), [1, 3]);
        let Sink::Aggregate { keys, calls, .. } = &tail.sink else { panic!() };
        assert_eq!(keys[0].expr.registers(), [0]);
        assert_eq!(calls[0].argument.as_ref().unwrap().registers(), [3]);
    }

    #[test]
    fn only_probes_cut() {
        let builds = [build("d"), build("e")];
        for step in [1, 3, 4] {
            assert!(pipeline().cut(&builds, step).is_err());
        }
        let Cut { head, tail } = pipeline().cut(&builds, 0).unwrap();
        assert!(head.steps.is_empty());
        assert_eq!(tail.steps.len(), 4);
    }
}
