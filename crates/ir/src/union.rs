//! Groups of the rows of several stages, made of the groups of each; builds and first rows likewise.
//!
//! ```text
//! stage 0: sales of stores ─► rows            stage 0: sales of stores ─► joins ─► parts of groups
//! stage 1: sales of the web ─► rows     ───►  stage 1: sales of the web ─► joins ─► parts of groups
//! stage 2: stages 0 and 1 ─► joins ─► groups  stage 2: stages 0 and 1 ─► groups
//! ```
//!
//! No row is passed on: each member of the union becomes one pipeline from its table to groups, and the last stage reads
//! groups alone. First rows of an order are those of the members' first rows; of a build the members make the rows.

use std::borrow::Cow;

use crate::parts::Parts;
use crate::pipeline::{Input, Pipeline, Sink, Source};
use crate::program::Program;
use crate::types::Field;
use crate::validate::IrError;

impl Program {
    /// Whether the parts of a union's groups probe one build.
    pub fn has_builds_of_parts(&self) -> bool {
        let of_members = (0..self.stages.len()).filter(|stage| self.is_member(*stage));
        let mut builds: Vec<usize> =
            of_members.flat_map(|stage| self.stages[stage].probes()).map(|it| it.build).collect();
        builds.sort_unstable();
        builds.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// The same program with parts in place of the rows of a union, where what a stage makes of these can be made of parts.
    ///
    /// # Errors
    /// The program is not valid.
    pub fn with_parts_of_unions(&self) -> Result<Cow<'_, Self>, IrError> {
        let mut program = Cow::Borrowed(self);
        let mut number = 0;
        while let Some(stage) = program.stage(number) {
            let is_answer = number == program.stages.len();
            // Rows of the answer are put out as they come.
            let made = match &stage.sink {
                Sink::Rows { .. } if is_answer => None,
                _ => program.parts_of(stage)?,
            };
            if let Some((made, whole)) = made {
                let (program, parts) = (program.to_mut(), made.len());
                for (at, part) in made.into_iter().enumerate() {
                    program.insert(number + at, part);
                }
                number += parts;
                if let Some(stage) = program.stage_mut(number) {
                    *stage = whole;
                    stage.source.input = Input::Union((number - parts..number).collect());
                }
            }
            number += 1;
        }
        Ok(match program {
            Cow::Owned(program) => Cow::Owned(program.without_unread()),
            unchanged => unchanged,
        })
    }

    /// The parts of what a stage makes of a union, and the stage over them.
    fn parts_of(&self, stage: &Pipeline) -> Result<Option<(Vec<Pipeline>, Pipeline)>, IrError> {
        let (Input::Union(members), Some(parts)) = (&stage.source.input, Parts::of(stage)) else {
            return Ok(None);
        };
        // A run whose builds turn out not to fit memory begins anew in one: rows that come once must not be gone then.
        if stage.probes().next().is_some() && self.reads_batches() {
            return Ok(None);
        }
        let part = parts.part(stage);
        let made = members.iter().map(|&member| self.over_rows_of(part.clone(), member));
        // Another member than a stage of rows is read as it is.
        let Some(made) = made.collect::<Result<Option<Vec<_>>, _>>()? else { return Ok(None) };
        let columns = columns_of(&made);
        let whole = Source::of_stage(stage.source.input.clone(), &stage.source.table, columns);
        let whole = parts.whole(whole);
        Ok(Some((made, whole)))
    }

    /// A pipeline over what a stage of rows reads, in place of its rows; `None`: it is none, or some rows are left out.
    fn over_rows_of(&self, pipeline: Pipeline, number: usize) -> Result<Option<Pipeline>, IrError> {
        let Some(of) = self.stage(number) else { return Ok(None) };
        let Sink::Rows { columns, limit: None } = &of.sink else { return Ok(None) };
        let column = |&ordinal: &usize| columns.get(ordinal).cloned();
        let Some(columns) = pipeline.source.ordinals.iter().map(column).collect() else {
            return Ok(None);
        };
        let registers = of.registers(&self.stages)?.len();
        Ok(Some(pipeline.over((of.source.clone(), of.steps.clone()), registers, columns)))
    }

    /// The same program without stages of rows that one other stage reads: this reads what they read. A stage whose rows
    /// become a build stays if it probes builds itself, because these can then be divided.
    ///
    /// # Errors
    /// The program is not valid.
    pub(crate) fn without_stages_of_rows(&self) -> Result<Cow<'_, Self>, IrError> {
        let mut program = Cow::Borrowed(self);
        for number in 0..=self.stages.len() {
            while let Some(stage) = program.stage(number)
                && let Input::Stage(read) = stage.source.input
                && !program.is_shared(read)
                && !program.makes_build_of_probes(stage, read)
                && let Some(over) = program.over_rows_of(stage.clone(), read)?
            {
                if let Some(stage) = program.to_mut().stage_mut(number) {
                    *stage = over;
                }
            }
        }
        Ok(match program {
            Cow::Owned(program) => Cow::Owned(program.without_unread()),
            unchanged => unchanged,
        })
    }

    /// Whether a stage makes a build of rows of another that probes some.
    fn makes_build_of_probes(&self, stage: &Pipeline, read: usize) -> bool {
        let has_probes = self.stage(read).is_some_and(|read| read.probes().next().is_some());
        matches!(stage.sink, Sink::Build { .. }) && has_probes
    }
}

/// The columns that all stages put out, NULL where one of them may be.
pub fn columns_of<'p>(stages: impl IntoIterator<Item = &'p Pipeline>) -> Vec<Field> {
    let mut common: Option<Vec<Field>> = None;
    for output in stages.into_iter().filter_map(|stage| stage.sink.output()) {
        match &mut common {
            None => common = Some(output),
            Some(common) => {
                for (field, other) in common.iter_mut().zip(output) {
                    field.nullable |= other.nullable;
                }
            }
        }
    }
    common.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        AggregateCall, AggregateFunction, ArithmeticOp, CompareOp, DataType, Expr, NamedExpr,
        OrderKey, Probe, ProbeKind, Scalar, Step,
    };

    fn field(name: &str, nullable: bool) -> Field {
        Field::new(name, DataType::Int64, nullable)
    }

    fn table(number: usize, nullable: bool) -> Source {
        let columns = ["a", "b"].map(|name| field(name, nullable)).to_vec();
        Source::of_stage(Input::Table(number), &format!("t{number}"), columns)
    }

    fn rows(source: &Source, steps: Vec<Step>, columns: [Expr; 2]) -> Pipeline {
        let named = |(name, expr): (&str, Expr)| NamedExpr { name: name.into(), expr };
        let columns = ["a", "b"].into_iter().zip(columns).map(named).collect();
        Pipeline { source: source.clone(), steps, sink: Sink::Rows { columns, limit: None } }
    }

    fn above(value: Expr, least: i64) -> Step {
        let least = Expr::Literal(Scalar::int(DataType::Int64, least.into()));
        Step::Filter(Expr::compare(CompareOp::Gt, value, least))
    }

    /// Calls by `a` of the rows of two tables, of which the second's are computed.
    fn program(calls: &[(AggregateFunction, bool)]) -> Program {
        let (first, second) = (table(0, false), table(1, true));
        let sum = Expr::arithmetic(ArithmeticOp::Add, second.register(0), second.register(1));
        let members = vec![
            rows(&first, vec![above(first.register(1), 5)], [first.register(1), first.register(0)]),
            rows(&second, vec![], [sum, second.register(0)]),
        ];
        let columns = ["a", "b"].map(|name| field(name, true)).to_vec();
        let union = Source::of_stage(Input::Union(vec![0, 1]), "both", columns);
        let call = |&(function, distinct): &(AggregateFunction, bool)| {
            let argument = Some(union.register(1));
            let call = AggregateCall::new("x", function, argument, DataType::Int64);
            AggregateCall { distinct, ..call }
        };
        let keys = vec![NamedExpr { name: "k".into(), expr: union.register(0) }];
        let sink = Sink::aggregate(keys, calls.iter().map(call).collect());
        let steps = vec![above(union.register(1), 7)];
        Program::new(members, Pipeline { source: union, steps, sink })
    }

    /// Each stage of a lowered program in a line.
    fn lines(program: &Program) -> Vec<String> {
        program.validate().unwrap();
        let lowered = program.lowered().unwrap();
        let line = |stage: &Pipeline| {
            let steps = stage.steps.iter().map(|step| lowered.step_line(step) + "; ");
            let steps: String = steps.collect();
            format!("{:?}: {steps}{}", stage.source.input, Program::sink_line(&stage.sink))
        };
        lowered.all().map(line).collect()
    }

    #[test]
    fn groups_of_a_union_are_made_of_those_of_its_members() {
        use AggregateFunction::{Count, Max, Sum};
        let program = program(&[(Sum, false), (Count, false), (Max, true)]);
        assert_eq!(
            lines(&program),
            [
                "Table(0): filter b > 5; filter a > 7; aggregate sum(a), count(a), max(a) by k = b",
                "Table(1): compute a = a + b; filter a > 7; aggregate sum(a), count(a), max(a) by k = a",
                "Union([0, 1]): aggregate sum(part 0), sum(part 1), max(part 2) by k",
            ]
        );
        let lowered = program.lowered().unwrap();
        lowered.validate().unwrap();
        // One member's values may be NULL.
        let columns = &lowered.answer.source.columns;
        assert!(columns[0].nullable && columns[1].data_type != DataType::Int64);
    }

    #[test]
    fn distinct_values_of_a_union_are_grouped_first() {
        use AggregateFunction::{Avg, Count};
        let program_of = |calls: &[_]| lines(&program(calls));
        assert_eq!(
            program_of(&[(Count, true)]),
            [
                "Table(0): filter b > 5; filter a > 7; aggregate by k = b, distinct 0 = a",
                "Table(1): compute a = a + b; filter a > 7; aggregate by k = a, distinct 0 = a",
                "Union([0, 1]): aggregate by k, distinct 0",
                "Stage(2): aggregate count(distinct 0) by k",
            ]
        );
        // There are no means of means.
        let means = program_of(&[(Avg, false)]);
        assert_eq!(means[2], "Union([0, 1]): filter b > 7; aggregate avg(b) by k = a");
        assert!(!program(&[(Avg, false)]).answer.has_parts());
    }

    #[test]
    fn rows_that_one_stage_reads_of_another_are_no_stage() {
        let mut program = program(&[(AggregateFunction::Sum, false)]);
        let first = program.stages[0].clone();
        let output = Source::of_stage(Input::Stage(0), "rows", first.sink.output().unwrap());
        let over = rows(&output, vec![], [output.register(1), output.register(0)]);
        program.insert(1, over);
        program.answer.source.input = Input::Union(vec![1, 2]);
        assert_eq!(
            lines(&program)[0],
            "Table(0): filter b > 5; filter b > 7; aggregate sum(b) by k = a"
        );
        assert_eq!(lines(&program).len(), 3);
        // A stage that others read, too, is no member.
        program.answer.source.input = Input::Union(vec![0, 1]);
        assert!(program.validate().unwrap_err().to_string().contains("stage 0 of a union"));
    }

    #[test]
    fn builds_and_first_rows_of_a_union_are_made_of_its_members() {
        let mut program = program(&[]);
        let columns = program.answer.source.all_columns();
        let order = vec![OrderKey { column: 1, descending: true, nulls_first: false }];
        program.answer.sink = Sink::Sorted { columns: columns.clone(), order, limit: Some(3) };
        let first = lines(&program);
        assert!(first[1].starts_with("Table(1): compute a = a + b; filter a > 7;"), "{first:?}");
        assert!(first[2].starts_with("Union([0, 1]): "), "{first:?}");
        let (keys, payload) = (columns[1..].to_vec(), columns[..1].to_vec());
        let build = Pipeline { sink: Sink::Build { keys, payload }, ..program.answer.clone() };
        let source = table(0, false);
        let probe = Probe { payload: vec![0], ..Probe::semi(2, vec![source.register(0)]) };
        let probe = Step::Probe(Probe { kind: ProbeKind::Inner, ..probe });
        program.answer = rows(&source, vec![probe], [0, 1].map(|it| source.register(it)));
        program.stages.push(build);
        assert_eq!(
            lines(&program)[..3],
            [
                "Table(0): filter b > 5; filter a > 7; rows b = a, a = b",
                "Table(1): compute a = a + b; filter a > 7; rows b = a, a",
                "Union([0, 1]): build on b payload a",
            ]
        );
    }

    #[test]
    fn members_of_a_union_have_equal_columns_and_one_reader() {
        let mut twice = program(&[(AggregateFunction::Sum, false)]);
        twice.answer.source.input = Input::Union(vec![0, 0]);
        assert!(twice.validate().unwrap_err().to_string().contains("read by others, or twice"));
        let mut other = program(&[(AggregateFunction::Sum, false)]);
        let Sink::Rows { columns, .. } = &mut other.stages[1].sink else { panic!() };
        columns[1].expr = Expr::Literal(Scalar::int(DataType::Int32, 1));
        assert!(other.validate().unwrap_err().to_string().contains("is no column 1 of stage 1"));
    }
}
