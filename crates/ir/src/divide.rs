//! Joins whose build does not fit memory, as stages.
//!
//! ```text
//! stage b: rows of the build ─────────────► partition ─┐
//! stage s: source ─► steps before the probe ► partition ─┤
//! stage t: partitions of s ─► probe b (the same partition) ─► steps after ─► sink
//! ```
//!
//! Both sides are divided by the join's keys, so a row meets no other rows of the build than those of its
//! own partition: stage t is a join for each pair of partitions, with a build that fits.

use std::collections::HashMap;

use crate::expr::{Expr, NamedExpr, Register};
use crate::pipeline::{Input, Pipeline, Probe, ProbeKind, Sink, Source, Step};
use crate::program::Program;
use crate::types::Field;
use crate::validate::{IrError, fail};

impl Program {
    /// The stage that a build may be divided for: the one that probes it, if what the probe means of a
    /// row is decided by the build's rows of equal keys. Other probes of the build can be left out.
    pub fn divides_for(&self, build: usize) -> Option<usize> {
        let must_probe = |stage: &Pipeline| {
            let probes = stage.probes().filter(|probe| probe.build == build && !probe.is_optional);
            probes.map(|probe| probe.kind).collect::<Vec<_>>()
        };
        let mut probing = self.all().enumerate().map(|(number, stage)| (number, must_probe(stage)));
        let (number, kinds) = probing.by_ref().find(|(_, kinds)| !kinds.is_empty())?;
        let is_alone = probing.all(|(_, kinds)| kinds.is_empty());
        use ProbeKind::{Anti, Inner, Left, Semi};
        let may = matches!(kinds.as_slice(), [Inner | Left | Semi | Anti]);
        let is_build = matches!(self.stage(number)?.sink, Sink::Build { .. });
        (is_alone && may && !is_build).then_some(number)
    }

    /// The program with a build's join by partitions: the build's stage and what comes before the probe
    /// end in partitions.
    ///
    /// # Errors
    /// The build cannot be divided; the program is not valid.
    pub fn with_divided(&self, build: usize) -> Result<Self, IrError> {
        let what = || format!("stage {build}");
        let Some(number) = self.divides_for(build) else {
            return fail(&what(), "its rows cannot be divided by keys");
        };
        let mut program = self.clone();
        let stages = &self.stages;
        let probing = self.stage(number).ok_or_else(|| missing(&what()))?;
        let Cut { head, tail } = probing.cut(stages, build, number)?;
        let divided = program.stage_mut(build).ok_or_else(|| missing(&what()))?;
        let Sink::Build { keys, payload } = divided.sink.clone() else {
            return fail(&what(), "it makes no build");
        };
        divided.sink = Sink::Partition { keys, payload };
        // The head takes the place of the probing stage: only stages behind it are renumbered.
        program.insert(number, head);
        *program.stage_mut(number + 1).ok_or_else(|| missing(&what()))? = tail;
        Ok(program)
    }
}

fn missing(place: &str) -> IrError {
    IrError { place: place.to_string(), cause: "it is not there".into() }
}

/// A pipeline as two: what comes before a probe, and the probe with all that follows.
struct Cut {
    /// Ends in partitions by the keys of the probe, with the registers that are read behind it.
    head: Pipeline,
    /// Begins with the probe, over the partitions of the head.
    tail: Pipeline,
}

impl Pipeline {
    /// Cuts a pipeline before the probe of a build. `number` is the stage that the head will be.
    fn cut(&self, stages: &[Pipeline], build: usize, number: usize) -> Result<Cut, IrError> {
        let is_cut =
            |step: &Step| matches!(step, Step::Probe(p) if p.build == build && !p.is_optional);
        let step = self.steps.iter().position(is_cut);
        let Some((step, Step::Probe(probe))) = step.map(|step| (step, &self.steps[step])) else {
            return fail("pipeline", format!("no probe of stage {build}"));
        };
        let registers = self.registers(stages)?;
        let appended = self.steps[..step].iter().map(Step::registers).sum::<usize>();
        let at_hand = self.source.columns.len() + appended;
        let key = |(number, expr): (usize, &Expr)| NamedExpr {
            name: format!("key {number}"),
            expr: expr.clone(),
        };
        let keys: Vec<NamedExpr> = probe.keys.iter().enumerate().map(key).collect();
        let mut payload: Vec<NamedExpr> = Vec::new();
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
            places.insert(register, keys.len() + payload.len());
            let Field { name, data_type, nullable } = registers[register].clone();
            let expr = Expr::Register { index: register, data_type, nullable, name };
            payload.push(NamedExpr { name: format!("register {register}"), expr });
        }
        let columns: Vec<Field> = keys.iter().chain(&payload).map(NamedExpr::field).collect();
        let between = columns.len();
        let source = Source::of_stage(Input::Partitions(number), &self.source.table, columns);
        let place = |register: Register| match register < at_hand {
            true => places.get(&register).copied().unwrap_or(register),
            false => between + register - at_hand,
        };
        let at_hand_keys = (0..keys.len()).map(|key| source.register(key)).collect();
        let mut steps = self.steps[step..].to_vec();
        steps[0] = Step::Probe(Probe { keys: at_hand_keys, ..probe.clone() });
        let mut tail = Self { source, steps, sink: self.sink.clone() };
        // The keys of the first probe are places already.
        for expr in tail.exprs_mut().into_iter().skip(keys.len()) {
            expr.replace(&mut |e| match e {
                Expr::Register { index, .. } => Some(e.moved_to(place(*index))),
                _ => None,
            });
        }
        let sink = Sink::Partition { keys, payload };
        let (source, steps) = (self.source.clone(), self.steps[..step].to_vec());
        let head = Self { source, steps, sink };
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
    pub(crate) fn registers(&self) -> usize {
        match self {
            Self::Filter(_) => 0,
            Self::Compute(_) => 1,
            Self::Probe(probe) => probe.payload.len() + usize::from(probe.kind == ProbeKind::Mark),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::aggregate::{AggregateCall, AggregateFunction};
    use crate::expr::CompareOp;
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

    fn build(name: &str) -> Pipeline {
        let columns = ["k", "p", "q"].map(field).to_vec();
        let source = Source::of_stage(Input::Table(1), name, columns);
        let mut keys = source.all_columns();
        let payload = keys.split_off(1);
        Pipeline { source, steps: vec![], sink: Sink::Build { keys, payload } }
    }

    fn probe(build: usize, key: Expr, residual: Option<Expr>) -> Step {
        let (kind, payload) = (ProbeKind::Left, vec![0, 1]);
        Step::Probe(Probe { kind, residual, payload, ..Probe::semi(build, vec![key]) })
    }

    /// t(a, b, c) with registers 3, 4 of the first probe, 5 computed, 6, 7 of the second.
    fn program() -> Program {
        let source = Source::of_stage(Input::Table(3), "t", ["a", "b", "c"].map(field).to_vec());
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
        let answer = Pipeline { source, steps, sink: Sink::aggregate(vec![key], vec![call]) };
        Program::new(vec![build("d"), build("e")], answer)
    }

    #[test]
    fn rows_between_the_parts_are_what_the_tail_reads() {
        let divided = program().with_divided(1).unwrap();
        divided.validate().unwrap();
        let [d, e, head] = &divided.stages[..] else { panic!() };
        assert!(matches!(d.sink, Sink::Build { .. }));
        assert_eq!(Program::sink_line(&e.sink), "partition by k with p, q");
        assert_eq!(
            Program::sink_line(&head.sink),
            "partition by key 0 = r1 with register 4 = q, register 5 = s"
        );
        assert_eq!(head.steps, program().answer.steps[..2]);
        let tail = &divided.answer;
        assert_eq!(tail.source.input, Input::Partitions(2));
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
    fn two_builds_divide_in_any_order() {
        for builds in [[0, 1], [1, 0]] {
            let divided = builds.iter().fold(program(), |p, &b| p.with_divided(b).unwrap());
            divided.validate().unwrap();
            let inputs: Vec<_> = divided.sources().map(|source| source.input.clone()).collect();
            assert_eq!(inputs[3..], [Input::Partitions(2), Input::Partitions(3)]);
            assert_eq!(divided.answer.steps.len(), 2);
        }
    }

    #[test]
    fn only_a_build_that_one_stage_must_probe_is_divided() {
        let mut twice = program();
        twice.answer.steps.push(probe(0, register(2), None));
        assert!(twice.with_divided(0).is_err());
        let mut mark = program();
        let Step::Probe(probe) = &mut mark.answer.steps[0] else { panic!() };
        probe.kind = ProbeKind::NullAwareAnti;
        assert_eq!(mark.divides_for(0), None);
        let mut reduced = program();
        let key = reduced.stages[0].source.register(0);
        let semi = Probe { is_optional: true, ..Probe::semi(0, vec![key]) };
        reduced.stages[1].steps.push(Step::Probe(semi));
        assert_eq!(reduced.divides_for(0), Some(2));
    }
}
