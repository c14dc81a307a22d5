//! Payload columns that are only passed on: from the build to the rows or groups of the answer.
//!
//! Nothing compares their values. So a processor may number texts as it likes, one number for each row, instead of sorting the
//! texts to find equal ones. As a group's key a column is passed on where the build's own keys are keys of the group too: if they
//! are unique, they tell the groups apart, and the column adds nothing. Only texts are told: nothing else is numbered.

use crate::aggregate::AggregateOutput;
use crate::expr::{Expr, NamedExpr, Register};
use crate::pipeline::{Pipeline, Probe, Sink, Step};
use crate::program::Program;
use crate::types::DataType;

/// Columns beyond these are not told.
const COLUMNS_MAX: usize = 64;

/// Of the texts in the payload of a build those that are only passed on, a bit for each column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PassedOn {
    /// Whatever the keys are.
    pub always: u64,
    /// If no two rows of the build have the same keys.
    pub of_unique_keys: u64,
}

impl PassedOn {
    fn leave_out(&mut self, column: u64) {
        self.always &= !column;
        self.of_unique_keys &= !column;
    }

    /// Whether a column is only passed on.
    pub fn holds(&self, column: usize, keys_are_unique: bool) -> bool {
        let bits = if keys_are_unique { self.always | self.of_unique_keys } else { self.always };
        column < COLUMNS_MAX && bits >> column & 1 != 0
    }
}

impl Program {
    /// What becomes of the payload of the build that a stage makes.
    pub fn passed_on(&self, build: usize) -> PassedOn {
        let Some((_, payload)) = self.stage(build).and_then(Pipeline::build_columns) else {
            return PassedOn::default();
        };
        let is_text = |column: &NamedExpr| column.expr.data_type() == DataType::Utf8;
        let texts = payload.iter().map(is_text).take(COLUMNS_MAX);
        let texts =
            texts.enumerate().fold(0, |bits, (at, is_text)| bits | u64::from(is_text) << at);
        let mut passed_on = PassedOn { always: texts, of_unique_keys: texts };
        for stage in self.all().filter(|stage| stage.probes().any(|probe| probe.build == build)) {
            let is_answer = std::ptr::eq(stage, &self.answer);
            let mut first: Register = stage.source.columns.len();
            for step in &stage.steps {
                if let Step::Probe(probe) = step
                    && probe.build == build
                {
                    for (place, &column) in probe.payload.iter().enumerate() {
                        let bit = 1u64.checked_shl(column as u32).unwrap_or(0);
                        match stage.use_of(first + place, probe) {
                            Some(Use::PutOut) if is_answer => {}
                            Some(Use::Key) if is_answer => passed_on.always &= !bit,
                            _ => passed_on.leave_out(bit),
                        }
                    }
                }
                first += step.registers();
            }
        }
        passed_on
    }
}

/// What becomes of a register that nothing is computed of.
enum Use {
    /// It is put out, if anything.
    PutOut,
    /// It is one of a group's keys, beside those of the probe that it comes from.
    Key,
}

impl Pipeline {
    /// The use of a register of a probe's payload.
    fn use_of(&self, register: Register, probe: &Probe) -> Option<Use> {
        let is_bare = |expr: &Expr| expr.as_register() == Some(register);
        let mut uses = 0;
        for expr in self.clone().exprs_mut() {
            expr.visit(&mut |e| uses += usize::from(is_bare(e)));
        }
        if uses == 0 {
            return Some(Use::PutOut);
        }
        let (named, put_out): (&[NamedExpr], Use) = match &self.sink {
            Sink::Rows { columns, .. } => (columns, Use::PutOut),
            Sink::Sorted { columns, order, .. } => {
                let mut by = order.iter().filter_map(|key| columns.get(key.column));
                let is_compared = by.any(|column| is_bare(&column.expr));
                (!is_compared).then_some((columns.as_slice(), Use::PutOut))?
            }
            Sink::Aggregate { keys, sets, output, .. } => {
                let is_first_by = match output {
                    AggregateOutput::First(first) => first
                        .by
                        .iter()
                        .filter_map(|key| keys.get(key.column))
                        .any(|key| is_bare(&key.expr)),
                    AggregateOutput::Final
                    | AggregateOutput::Partial
                    | AggregateOutput::OfNone(_) => false,
                };
                let is_beside_keys = sets.is_empty() && self.groups_by_keys_of(probe);
                (is_beside_keys && !is_first_by).then_some((keys.as_slice(), Use::Key))?
            }
            // Texts are put out before they are sorted.
            Sink::Windows(windows) => (&windows.columns, Use::PutOut),
            Sink::Build { .. } | Sink::Partition { .. } => return None,
        };
        let bare = named.iter().filter(|column| is_bare(&column.expr)).count();
        (bare == uses).then_some(put_out)
    }

    /// Whether all keys of a probe are keys of the groups.
    fn groups_by_keys_of(&self, probe: &Probe) -> bool {
        let Sink::Aggregate { keys, .. } = &self.sink else { return false };
        probe.keys.iter().all(|key| keys.iter().any(|of_group| of_group.expr == *key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::aggregate::FirstGroups;
    use crate::order::OrderKey;
    use crate::pipeline::{Input, ProbeKind, Source};
    use crate::types::Field;

    fn column(index: usize) -> NamedExpr {
        let name = format!("c{index}");
        let expr = Expr::Register {
            index,
            data_type: DataType::Utf8,
            nullable: false,
            name: name.clone(),
        };
        NamedExpr { name, expr }
    }

    fn stage(table: usize, steps: Vec<Step>, sink: Sink) -> Pipeline {
        let field = |i: usize| Field::new(format!("c{i}"), DataType::Utf8, false);
        let (columns, ordinals) = ((0..3).map(field).collect(), (0..3).collect());
        let source = Source { input: Input::Table(table), table: "t".into(), columns, ordinals };
        Pipeline { source, steps, sink }
    }

    /// What is told of the two payload columns, registers 3 and 4, of a build that is probed by register 0.
    fn told(more: Vec<Step>, sink: Sink) -> PassedOn {
        let build = Sink::Build { keys: vec![column(0)], payload: vec![column(1), column(2)] };
        let probe = Probe {
            kind: ProbeKind::Inner,
            payload: vec![0, 1],
            ..Probe::semi(0, vec![column(0).expr])
        };
        let steps = [vec![Step::Probe(probe)], more].concat();
        let program = Program::new(vec![stage(0, vec![], build)], stage(1, steps, sink));
        program.validate().unwrap();
        program.passed_on(0)
    }

    fn bits(always: u64, of_unique_keys: u64) -> PassedOn {
        PassedOn { always, of_unique_keys }
    }

    #[test]
    fn columns_that_are_put_out_are_passed_on_and_those_that_are_compared_are_not() {
        let rows = |columns| Sink::Rows { columns, limit: None };
        assert_eq!(told(vec![], rows(vec![column(3), column(4)])), bits(3, 3));
        assert_eq!(told(vec![], rows(vec![column(4)])), bits(3, 3));
        let filter = Step::Filter(Expr::IsNull(Box::new(column(3).expr)));
        assert_eq!(told(vec![filter], rows(vec![column(3), column(4)])), bits(2, 2));
        let by = |column| vec![OrderKey { column, descending: false, nulls_first: false }];
        let sorted =
            |order| Sink::Sorted { columns: vec![column(3), column(4)], order, limit: None };
        assert_eq!(told(vec![], sorted(by(1))), bits(1, 1));
    }

    #[test]
    fn a_mark_is_a_register_beside_the_payload_of_its_probe() {
        let build = |table| {
            let sink = Sink::Build { keys: vec![column(0)], payload: vec![column(1), column(2)] };
            stage(table, vec![], sink)
        };
        let probe = |build, kind, payload| {
            Step::Probe(Probe { kind, payload, ..Probe::semi(build, vec![column(0).expr]) })
        };
        // Registers 3 and 4 are a text and a mark, 5 and 6 the texts of the second build.
        let steps =
            vec![probe(0, ProbeKind::Mark, vec![0]), probe(1, ProbeKind::Inner, vec![0, 1])];
        let order = vec![OrderKey { column: 1, descending: false, nulls_first: false }];
        let sink = Sink::Sorted { columns: vec![column(5), column(6)], order, limit: Some(3) };
        let program = Program::new(vec![build(0), build(1)], stage(2, steps, sink));
        program.validate().unwrap();
        assert_eq!(program.passed_on(1), bits(1, 1));
    }

    #[test]
    fn keys_of_groups_are_passed_on_beside_the_keys_of_their_build() {
        let groups = |keys| Sink::aggregate(keys, vec![]);
        assert_eq!(told(vec![], groups(vec![column(0), column(3), column(4)])), bits(0, 3));
        // The first key is another than the build's.
        assert_eq!(told(vec![], groups(vec![column(1), column(3)])), bits(2, 2));
        let first = |column| {
            let by = vec![OrderKey { column, descending: false, nulls_first: false }];
            let first = FirstGroups { by, groups: 3, with_ties: false };
            let (keys, output) =
                (vec![self::column(0), self::column(3)], AggregateOutput::First(first));
            Sink::Aggregate { keys, sets: vec![], calls: vec![], output }
        };
        assert_eq!(told(vec![], first(0)), bits(2, 3));
        assert_eq!(told(vec![], first(1)), bits(2, 2));
        let sets = vec![vec![0, 1], vec![1]];
        let keys = vec![column(0), column(3)];
        let sink = Sink::Aggregate { keys, sets, calls: vec![], output: AggregateOutput::Final };
        assert_eq!(told(vec![], sink), bits(2, 2));
    }
}
