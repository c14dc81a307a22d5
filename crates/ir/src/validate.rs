//! Structural checks: every processor may assume them.

use crate::aggregate::{
    AggregateCall, AggregateFunction, AggregateOutput, FirstGroups, GroupsOfNone,
};
use crate::cuda_function::CudaFunction;
use crate::expr::{ArithmeticOp, Expr};
use crate::order::OrderKey;
use crate::pipeline::{Input, Pipeline, Probe, ProbeKind, Sink, Source, Step};
use crate::program::{PROGRAM_VERSION, Program};
use crate::scalar::Scalar;
use crate::types::{DataType, Field};
use crate::windows::{FrameEnd, WindowFunction, Windows};

/// A program that does not mean anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid pipeline program: {place}: {cause}")]
pub struct IrError {
    /// Which part.
    pub place: String,
    /// What is wrong with it.
    pub cause: String,
}

type Result<T> = std::result::Result<T, IrError>;

pub(crate) fn fail<T>(place: &str, cause: impl Into<String>) -> Result<T> {
    Err(IrError { place: place.to_string(), cause: cause.into() })
}

impl Program {
    /// Checks version, registers, types, the order of the stages and payload indices of everything.
    pub fn validate(&self) -> Result<()> {
        if self.version != PROGRAM_VERSION {
            let cause = format!("version {}, this is {PROGRAM_VERSION}", self.version);
            return fail("program", cause);
        }
        for (number, stage) in self.all().enumerate() {
            let (before, place) = (&self.stages[..number], format!("stage {number}"));
            check_source(&stage.source, before, &place)?;
            stage.registers_checked(before, &self.parameters, &place)?;
            self.check_readers(stage)?;
        }
        if self.answer.build_columns().is_some() {
            return fail("the last stage", "it ends in a build or partitions");
        }
        Ok(())
    }

    /// Batches come once: only one source can have them, of several stages in a row too. What a stage puts out may have several
    /// readers otherwise.
    fn check_readers(&self, stage: &Pipeline) -> Result<()> {
        let are_batches = |&stage: &usize| {
            self.stage(stage).is_some_and(|it| matches!(it.source.input, Input::Batches(_)))
        };
        if let Input::Union(members) = &stage.source.input {
            let reads = |member| {
                let all = self.sources().flat_map(|source| source.input.stages());
                all.filter(|read| *read == member).count()
            };
            return match members.iter().find(|member| reads(*member) > 1) {
                Some(member) => fail(
                    &stage.source.table,
                    format!("stage {member} of a union is read by others, or twice"),
                ),
                None => Ok(()),
            };
        }
        let come_once = |read: usize| self.origins(read).iter().any(are_batches);
        let same = |input: &Input| match (input, &stage.source.input) {
            // Rows that come once are no table beside.
            (Input::Batches(read) | Input::Table(read), Input::Batches(other)) => read == other,
            (Input::Stage(read), Input::Stage(other)) => read == other && come_once(*read),
            (read, other) => read == other && !read.stages().is_empty(),
        };
        let readers = self.sources().filter(|source| same(&source.input)).count();
        if readers > 1 {
            let cause = format!("{readers} sources would read rows that come once");
            return fail(&stage.source.table, cause);
        }
        Ok(())
    }
}

fn check_source(source: &Source, before: &[Pipeline], place: &str) -> Result<()> {
    let (columns, ordinals) = (source.columns.len(), source.ordinals.len());
    if columns != ordinals {
        return fail(&source.table, format!("{columns} columns at {ordinals} positions"));
    }
    if let Input::Values(rows) = &source.input {
        rows.iter().try_for_each(|row| check_values(source, row, place))?;
    }
    source.input.stages().iter().try_for_each(|&read| check_read(source, read, before, place))
}

/// That a source can read a stage.
fn check_read(source: &Source, read: usize, before: &[Pipeline], place: &str) -> Result<()> {
    let Some(stage) = before.get(read) else {
        return fail(place, format!("it reads stage {read} of {} before it", before.len()));
    };
    let is_divided = matches!(stage.sink, Sink::Partition { .. });
    let are_partitions = matches!(source.input, Input::Partitions(_));
    if matches!(stage.sink, Sink::Build { .. }) || is_divided != are_partitions {
        return fail(place, format!("it cannot read what stage {read} ends in"));
    }
    let Some(output) = stage.sink.output() else {
        return fail(place, format!("it reads partial states of stage {read}"));
    };
    for (field, &ordinal) in source.columns.iter().zip(&source.ordinals) {
        let fits = output.get(ordinal).is_some_and(|column| {
            column.data_type == field.data_type && (field.nullable || !column.nullable)
        });
        if !fits {
            return fail(place, format!("{} is no column {ordinal} of stage {read}", field.name));
        }
    }
    Ok(())
}

fn check_values(source: &Source, row: &[Scalar], place: &str) -> Result<()> {
    let in_order = source.ordinals.iter().copied().eq(0..row.len());
    if row.len() != source.columns.len() || !in_order {
        return fail(place, "a row of constants of another number of columns");
    }
    for (value, field) in row.iter().zip(&source.columns) {
        let fits = value.data_type == field.data_type && value.is_of_its_type();
        if !fits || (value.is_null() && !field.nullable) {
            return fail(place, format!("{} cannot be {value}", field.name));
        }
    }
    Ok(())
}

impl Pipeline {
    /// All registers after the last step, given the stages that may be probed. The pipeline
    /// reads no parameters.
    pub fn registers(&self, stages: &[Self]) -> Result<Vec<Field>> {
        self.registers_checked(stages, &[], "pipeline")
    }

    fn registers_checked(
        &self,
        stages: &[Self],
        parameters: &[Field],
        place: &str,
    ) -> Result<Vec<Field>> {
        let mut scope = Scope { registers: self.source.columns.clone(), parameters, place };
        let of_partitions = matches!(self.source.input, Input::Partitions(_));
        if of_partitions && !matches!(self.steps.first(), Some(Step::Probe(_))) {
            return fail(place, "it reads partitions and probes none first");
        }
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                Step::Filter(expr) => scope.check_bool(expr)?,
                Step::Compute(named) => {
                    scope.check(&named.expr)?;
                    let (data_type, nullable) = (named.expr.data_type(), named.expr.nullable());
                    scope.registers.push(Field::new(named.name.clone(), data_type, nullable));
                }
                Step::Probe(probe) => {
                    let of_partition = of_partitions && number == 0;
                    scope.check_probe(probe, stages, of_partition)?;
                }
            }
        }
        scope.check_sink(&self.sink)?;
        Ok(scope.registers)
    }
}

/// What an expression may read.
struct Scope<'a> {
    registers: Vec<Field>,
    parameters: &'a [Field],
    place: &'a str,
}

impl Scope<'_> {
    fn check_probe(
        &mut self,
        probe: &Probe,
        stages: &[Pipeline],
        of_partition: bool,
    ) -> Result<()> {
        let (place, number) = (self.place, probe.build);
        let Some(build) = stages.get(number) else {
            return fail(place, format!("probe of stage {number} of {} before it", stages.len()));
        };
        let name = &build.source.table;
        let is_divided = matches!(build.sink, Sink::Partition { .. });
        let (Some((keys, payload)), true) = (build.build_columns(), is_divided == of_partition)
        else {
            return fail(place, format!("probe of stage {number}, which makes no such build"));
        };
        if probe.keys.len() != keys.len() {
            return fail(place, format!("probe of {name} has another number of keys"));
        }
        for (key, column) in probe.keys.iter().zip(keys) {
            self.check(key)?;
            let (is, wanted) = (key.data_type(), column.expr.data_type());
            if is != wanted {
                return fail(place, format!("key {key} is {is}, {} is {wanted}", column.name));
            }
        }
        let is_semi = probe.kind == ProbeKind::Semi && probe.payload.is_empty();
        if probe.is_optional && !is_semi {
            return fail(place, format!("a {} probe may not be left out", probe.kind));
        }
        let is_pair = probe.keys.len() != 1 || probe.residual.is_some();
        if probe.kind == ProbeKind::NullAwareAnti && is_pair {
            return fail(place, "a null-aware anti probe has one key and no residual");
        }
        let outer = probe.kind == ProbeKind::Left;
        for &index in &probe.payload {
            let Some(column) = payload.get(index) else {
                return fail(place, format!("payload {index} of build {name}"));
            };
            let mut field = column.field();
            field.nullable |= outer;
            self.registers.push(field);
        }
        if let Some(residual) = &probe.residual {
            self.check_bool(residual)?;
        }
        if probe.kind == ProbeKind::Mark {
            let name = format!("{name}_mark");
            self.registers.push(Field::new(name, DataType::Bool, false));
        }
        Ok(())
    }

    fn check_sink(&self, sink: &Sink) -> Result<()> {
        match sink {
            Sink::Aggregate { keys, sets, calls, output } => {
                let is_plain = sets.is_empty() && *output != AggregateOutput::Partial;
                if let AggregateOutput::First(FirstGroups { by, .. }) = output {
                    let columns = keys.len() + calls.len();
                    let outside = by.iter().find(|key| key.column >= columns);
                    if let Some(OrderKey { column, .. }) = outside {
                        let cause = format!("the first groups by column {column} of {columns}");
                        return fail(self.place, cause);
                    }
                    if !sets.is_empty() || by.is_empty() {
                        let cause =
                            format!("the first by {} columns of {} sets", by.len(), sets.len());
                        return fail(self.place, cause);
                    }
                }
                if let AggregateOutput::OfNone(GroupsOfNone { counts, .. }) = output
                    && let Some(call) = counts.iter().find(|call| **call >= calls.len())
                {
                    let cause = format!("call {call} of {} is 0 of no rows", calls.len());
                    return fail(self.place, cause);
                }
                if let Some(call) = calls.iter().find(|call| call.is_distinct() && !is_plain) {
                    let cause = format!("{call} of grouping sets, or as a partial state");
                    return fail(self.place, cause);
                }
                for set in sets {
                    let twice = |(at, key): (usize, &usize)| set[..at].contains(key);
                    let outside = set.iter().any(|&key| key >= keys.len());
                    if outside || set.iter().enumerate().any(twice) {
                        let cause = format!("grouping set {set:?} of {} keys", keys.len());
                        return fail(self.place, cause);
                    }
                }
                keys.iter().try_for_each(|k| self.check(&k.expr))?;
                calls.iter().try_for_each(|c| self.check_call(c))
            }
            Sink::Rows { columns, .. } => columns.iter().try_for_each(|c| self.check(&c.expr)),
            Sink::Sorted { columns, order, .. } => {
                if order.is_empty() || order.iter().any(|key| key.column >= columns.len()) {
                    let cause = format!("an order by {order:?} of {} columns", columns.len());
                    return fail(self.place, cause);
                }
                columns.iter().try_for_each(|c| self.check(&c.expr))
            }
            Sink::Windows(windows) => self.check_windows(windows),
            Sink::Build { keys, payload } | Sink::Partition { keys, payload } => {
                keys.iter().chain(payload).try_for_each(|c| self.check(&c.expr))
            }
        }
    }

    fn check_windows(&self, windows: &Windows) -> Result<()> {
        let Windows { columns, partition, order, calls, first } = windows;
        columns.iter().try_for_each(|c| self.check(&c.expr))?;
        if let Some(outside) = windows.read().find(|&column| column >= columns.len()) {
            let cause = format!("windows over column {outside} of {}", columns.len());
            return fail(self.place, cause);
        }
        if partition.is_empty() && order.is_empty() {
            return fail(self.place, "windows without partitions and without an order");
        }
        for call in calls {
            if let WindowFunction::Aggregate { call: of, .. } = &call.function {
                let register = |column: usize| columns[column].expr.clone();
                self.check_call(&of.over(&call.name, register))?;
            }
        }
        let looks_beyond = windows.looks_until() == FrameEnd::Partition;
        if first.is_some() && (order.is_empty() || looks_beyond) {
            return fail(self.place, "the first rows of partitions of which all rows are read");
        }
        Ok(())
    }

    fn check_call(&self, call: &AggregateCall) -> Result<()> {
        match (&call.argument, call.function) {
            (None, AggregateFunction::Count) => {}
            (None, _) => return fail(self.place, format!("{} without argument", call.name)),
            (Some(argument), function) => {
                self.check(argument)?;
                let data_type = argument.data_type();
                let fits = match function {
                    AggregateFunction::Sum | AggregateFunction::Avg => data_type.is_numeric(),
                    AggregateFunction::SquaredDeviations => {
                        data_type.is_float() && call.result == DataType::Float64
                    }
                    _ => true,
                };
                if !fits {
                    let cause = format!("{call} of {data_type} as {}", call.result);
                    return fail(self.place, cause);
                }
            }
        }
        call.filter.as_ref().map_or(Ok(()), |filter| self.check_bool(filter))
    }

    fn check_bool(&self, expr: &Expr) -> Result<()> {
        if expr.data_type() != DataType::Bool {
            let cause = format!("condition {expr} is {}, not bool", expr.data_type());
            return fail(self.place, cause);
        }
        self.check(expr)
    }

    fn check(&self, expr: &Expr) -> Result<()> {
        let mut first_error = None;
        expr.visit(&mut |e| {
            if first_error.is_none() {
                first_error = self.leaf_error(e).or_else(|| node_error(e));
            }
        });
        match first_error {
            Some(cause) => fail(self.place, cause),
            None => Ok(()),
        }
    }

    fn leaf_error(&self, expr: &Expr) -> Option<String> {
        let (what, fields, index, data_type, nullable) = match expr {
            Expr::Register { index, data_type, name, .. } => {
                (format!("register {index} ({name})"), &*self.registers, *index, data_type, None)
            }
            Expr::Parameter { index, data_type, nullable } => {
                (format!("parameter {expr}"), self.parameters, *index, data_type, Some(*nullable))
            }
            _ => return None,
        };
        let Some(field) = fields.get(index) else {
            return Some(format!("{what} of {}", fields.len()));
        };
        let what = if nullable.is_some() { format!("{what} ({})", field.name) } else { what };
        if field.data_type != *data_type {
            return Some(format!("{what} is {}, read as {data_type}", field.data_type));
        }
        (field.nullable && nullable == Some(false)).then(|| format!("{what} may be NULL"))
    }
}

fn node_error(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(scalar) if !scalar.is_of_its_type() => {
            Some(format!("{scalar} is no {}", scalar.data_type))
        }
        Expr::Arithmetic { op, left, right, data_type, .. } => {
            arithmetic_error(*op, &left.data_type(), &right.data_type(), data_type)
                .map(|cause| format!("{expr}: {cause}"))
        }
        Expr::Compare { left, right, .. } => {
            let (l, r) = (left.data_type(), right.data_type());
            (!same_or_both_decimal(&l, &r)).then(|| format!("{expr} compares {l} with {r}"))
        }
        Expr::InList { value, list, .. } => list
            .iter()
            .find(|s| s.data_type != value.data_type() || !s.is_of_its_type())
            .map(|s| format!("{expr}: {s} is {}", s.data_type)),
        Expr::And(operands) | Expr::Or(operands) => operands
            .iter()
            .find(|e| e.data_type() != DataType::Bool)
            .map(|e| format!("operand {e} is {}", e.data_type())),
        Expr::Not(value) if value.data_type() != DataType::Bool => {
            Some(format!("{expr}: operand is {}", value.data_type()))
        }
        Expr::Like { value, .. } if value.data_type() != DataType::Utf8 => {
            Some(format!("{expr}: operand is {}", value.data_type()))
        }
        Expr::Case { branches, otherwise, data_type } => branches
            .iter()
            .map(|(_, value)| value)
            .chain(otherwise.as_deref())
            .find(|value| value.data_type() != *data_type)
            .map(|value| format!("{expr}: branch {value} is {}", value.data_type())),
        Expr::Call { data_type, arguments, .. } => match expr.signature() {
            Some(signature) if signature.result == *data_type => None,
            Some(signature) => Some(format!("{expr} is {}, not {data_type}", signature.result)),
            None => {
                let types: Vec<_> = arguments.iter().map(|a| a.data_type().to_string()).collect();
                Some(format!("{expr} is of {}", types.join(", ")))
            }
        },
        Expr::Cuda { function, arguments, twin } => {
            cuda_error(function, arguments, twin.as_deref())
        }
        _ => None,
    }
}

/// Why a call of a user's function is none.
fn cuda_error(function: &CudaFunction, arguments: &[Expr], twin: Option<&Expr>) -> Option<String> {
    let given = arguments.iter().map(Expr::data_type);
    let wanted = function.parameters.iter().map(|(_, data_type)| data_type.clone());
    if !given.eq(wanted) {
        let types: Vec<_> = arguments.iter().map(|a| a.data_type().to_string()).collect();
        return Some(format!("{function} is called with ({})", types.join(", ")));
    }
    if let Some(twin) = twin.map(Expr::data_type).filter(|twin| *twin != function.result) {
        return Some(format!("{function} returns {}, its twin {twin}", function.result));
    }
    function.error().map(|cause| format!("{function}: {cause}"))
}

fn same_or_both_decimal(left: &DataType, right: &DataType) -> bool {
    let decimal = |t: &DataType| matches!(t, DataType::Decimal128 { .. });
    left == right || (decimal(left) && decimal(right))
}

fn arithmetic_error(
    op: ArithmeticOp,
    left: &DataType,
    right: &DataType,
    result: &DataType,
) -> Option<String> {
    use DataType::Decimal128;
    match (left, right, result) {
        (Decimal128 { scale: l, .. }, Decimal128 { scale: r, .. }, Decimal128 { scale, .. }) => {
            let wanted = match op {
                ArithmeticOp::Add | ArithmeticOp::Subtract | ArithmeticOp::Modulo => *l.max(r),
                ArithmeticOp::Multiply => l + r,
                ArithmeticOp::Divide => *scale,
            };
            (*scale != wanted).then(|| format!("scale {scale} of the result should be {wanted}"))
        }
        (l, r, result) if l == r && l == result && l.is_numeric() => None,
        (l, r, result) => Some(format!("{l} {op} {r} is no {result}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::expr::{CompareOp, NamedExpr, OnOverflow};
    use crate::function::{DatePart, Function};
    use crate::pipeline::Source;

    fn reg(index: usize, data_type: DataType) -> Expr {
        Expr::Register { index, data_type, nullable: false, name: format!("r{index}") }
    }

    fn program() -> Program {
        let year = Field::new("d_year", DataType::Int32, false);
        let key = Field::new("d_datekey", DataType::Int32, false);
        let filter = Expr::Compare {
            op: CompareOp::Eq,
            left: Box::new(reg(1, DataType::Int32)),
            right: Box::new(Expr::Literal(Scalar::int(DataType::Int32, 1993))),
        };
        let build = Pipeline {
            source: Source {
                input: Input::Table(1),
                table: "date".into(),
                columns: vec![key, year],
                ordinals: vec![0, 4],
            },
            steps: vec![Step::Filter(filter)],
            sink: Sink::Build {
                keys: vec![NamedExpr { name: "d_datekey".into(), expr: reg(0, DataType::Int32) }],
                payload: vec![NamedExpr { name: "d_year".into(), expr: reg(1, DataType::Int32) }],
            },
        };
        let revenue = Expr::Arithmetic {
            op: ArithmeticOp::Multiply,
            left: Box::new(reg(0, DataType::Int32)),
            right: Box::new(reg(0, DataType::Int32)),
            data_type: DataType::Int32,
            on_overflow: OnOverflow::Error,
        };
        Program::new(
            vec![build],
            Pipeline {
                source: Source {
                    input: Input::Table(0),
                    table: "lineorder".into(),
                    columns: vec![Field::new("lo_orderdate", DataType::Int32, false)],
                    ordinals: vec![5],
                },
                steps: vec![Step::Probe(Probe {
                    build: 0,
                    keys: vec![reg(0, DataType::Int32)],
                    kind: ProbeKind::Inner,
                    null_equal: false,
                    residual: None,
                    payload: vec![0],
                    is_optional: false,
                })],
                sink: Sink::aggregate(
                    vec![NamedExpr { name: "d_year".into(), expr: reg(1, DataType::Int32) }],
                    vec![AggregateCall {
                        name: "revenue".into(),
                        function: AggregateFunction::Sum,
                        argument: Some(revenue),
                        filter: None,
                        distinct: false,
                        result: DataType::Int64,
                        on_overflow: OnOverflow::Error,
                    }],
                ),
            },
        )
    }

    #[test]
    fn a_program_travels_as_text_and_says_its_version() {
        let program = program();
        let text = serde_json::to_string(&program).unwrap();
        assert_eq!(serde_json::from_str::<Program>(&text).unwrap(), program);
        let newer = Program { version: PROGRAM_VERSION + 1, ..program };
        assert!(newer.validate().unwrap_err().cause.contains("version"));
    }

    #[test]
    fn rows_are_ordered_by_columns_that_they_have() {
        let mut program = program();
        let columns = vec![NamedExpr { name: "day".into(), expr: reg(0, DataType::Int32) }];
        let key = |column| OrderKey { column, descending: true, nulls_first: false };
        for (order, is_valid) in
            [(vec![key(0)], true), (vec![key(0), key(1)], false), (vec![], false)]
        {
            program.answer.sink = Sink::Sorted { columns: columns.clone(), order, limit: Some(3) };
            let cause = program.validate().err().map(|error| error.cause);
            assert_eq!(cause.is_none(), is_valid);
            assert!(cause.is_none_or(|cause| cause.contains("an order by")));
        }
        program.answer.sink = Sink::Sorted { columns, order: vec![key(0)], limit: Some(3) };
        let line = Program::sink_line(&program.answer.sink);
        assert_eq!(line, "rows day = r0 by day desc nulls last limit 3");
    }

    #[test]
    fn first_groups_are_by_columns_that_groups_have() {
        let mut program = program();
        let by = |columns: &[usize]| {
            let key = |&column| OrderKey { column, descending: false, nulls_first: true };
            FirstGroups { by: columns.iter().map(key).collect(), groups: 3, with_ties: true }
        };
        for (columns, is_valid) in [(&[0][..], true), (&[0, 9], false), (&[], false)] {
            let Sink::Aggregate { output, .. } = &mut program.answer.sink else {
                panic!("no groups");
            };
            *output = AggregateOutput::First(by(columns));
            let cause = program.validate().err().map(|error| error.cause);
            assert_eq!(cause.is_none(), is_valid, "{columns:?}");
            assert!(cause.is_none_or(|cause| cause.contains("first")));
        }
        let known = |column: usize| (column < 2).then_some(column + 5);
        let first = by(&[1, 2, 0]).by_others(known).unwrap();
        assert_eq!((first.by.len(), first.by[0].column, first.with_ties), (1, 6, true));
        let whole = FirstGroups { with_ties: false, ..by(&[0, 1]) }.by_others(known).unwrap();
        assert_eq!((whole.by.len(), whole.with_ties), (2, false));
        assert_eq!(by(&[2, 1]).by_others(known), None);
    }

    #[test]
    fn a_source_says_where_each_column_lies() {
        let mut program = program();
        program.answer.source.ordinals.clear();
        assert!(program.validate().unwrap_err().cause.contains("positions"));
    }

    #[test]
    fn batches_that_come_once_have_one_reader() {
        let mut program = program();
        program.answer.source.input = Input::Batches(0);
        program.validate().unwrap();
        program.answer.source.input = Input::Batches(1);
        let error = program.validate().unwrap_err();
        assert!(error.cause.contains("2 sources would read"), "{error}");
    }

    #[test]
    fn a_star_join_is_valid_and_reads_like_sql() {
        let program = program();
        program.validate().unwrap();
        let registers = program.answer.registers(&program.stages).unwrap();
        assert_eq!(registers[1].name, "d_year");
        assert_eq!(
            program.step_line(&program.answer.steps[0]),
            "probe date inner on r0 = d_datekey -> d_year"
        );
        assert_eq!(
            Program::sink_line(&program.answer.sink),
            "aggregate sum(r0 * r0) by d_year = r1"
        );
    }

    #[test]
    fn a_register_that_does_not_exist_yet_is_refused() {
        let mut program = program();
        program
            .answer
            .steps
            .insert(0, Step::Filter(Expr::IsNull(Box::new(reg(1, DataType::Int32)))));
        let error = program.validate().unwrap_err();
        assert!(error.cause.contains("register 1"), "{error}");
    }

    #[test]
    fn mixed_types_are_refused() {
        let mut program = program();
        let mixed = Expr::Compare {
            op: CompareOp::Eq,
            left: Box::new(reg(0, DataType::Int32)),
            right: Box::new(Expr::Literal(Scalar::int(DataType::Int64, 1))),
        };
        program.answer.steps.push(Step::Filter(mixed));
        assert!(program.validate().is_err());
    }

    #[test]
    fn a_call_is_of_what_its_function_takes() {
        let call = |data_type| Expr::Call {
            function: Function::Abs,
            arguments: vec![reg(0, DataType::Int32)],
            data_type,
        };
        let of_text = Expr::Call {
            function: Function::DatePart(DatePart::Year),
            arguments: vec![Expr::Literal(Scalar::utf8("1993"))],
            data_type: DataType::Int32,
        };
        for (expr, cause) in [
            (call(DataType::Int64), Some("abs(r0) is int32, not int64")),
            (of_text, Some("date_part('year', '1993') is of utf8")),
            (call(DataType::Int32), None),
        ] {
            let mut program = program();
            let named = NamedExpr { name: "computed".into(), expr };
            program.answer.steps.insert(0, Step::Compute(named));
            // What comes after reads other registers now: only the call is looked at.
            program.answer.steps.truncate(1);
            program.answer.sink = Sink::aggregate(vec![], vec![]);
            let found = program.validate().err().map(|error| error.cause);
            assert_eq!(found.as_deref(), cause);
        }
    }

    #[test]
    fn squared_deviations_are_of_floats() {
        let float = reg(0, DataType::Int32).cast(DataType::Float64);
        for (argument, result, cause) in [
            (float.clone(), DataType::Float64, None),
            (float, DataType::Int64, Some("of float64 as int64")),
            (reg(0, DataType::Int32), DataType::Float64, Some("of int32 as float64")),
        ] {
            let mut program = program();
            let function = AggregateFunction::SquaredDeviations;
            let call = AggregateCall::new("s", function, Some(argument), result);
            program.answer.sink = Sink::aggregate(vec![], vec![call]);
            let found = program.validate().err().map(|error| error.cause);
            assert_eq!(found.is_none(), cause.is_none());
            assert!(found.is_none_or(|found| found.ends_with(cause.unwrap())));
            let text = serde_json::to_string(&program).unwrap();
            assert_eq!(serde_json::from_str::<Program>(&text).unwrap(), program);
        }
    }

    #[test]
    fn grouping_sets_are_of_keys_and_constants_of_their_columns() {
        let mut program = program();
        let Sink::Aggregate { sets, .. } = &mut program.answer.sink else { panic!() };
        *sets = vec![vec![0], vec![]];
        program.validate().unwrap();
        assert_eq!(
            Program::sink_line(&program.answer.sink),
            "aggregate sum(r0 * r0) by d_year = r1 in (d_year), ()"
        );
        let plain = program.without_grouping_sets().unwrap().into_owned();
        plain.validate().unwrap();
        assert_eq!(
            Program::sink_line(&plain.answer.sink),
            "aggregate sum(r0 * r0) by d_year = CASE WHEN by d_year THEN r1 END, grouping_set"
        );
        for wrong in [vec![1], vec![0, 0]] {
            let mut program = program.clone();
            let Sink::Aggregate { sets, .. } = &mut program.answer.sink else { panic!() };
            sets.push(wrong);
            assert!(program.validate().unwrap_err().cause.contains("grouping set"));
        }
        let values = |change: &dyn Fn(&mut Vec<Scalar>)| {
            let mut program = plain.clone();
            let Input::Values(rows) = &mut program.stages[1].source.input else { panic!() };
            change(&mut rows[1]);
            program.validate().unwrap_err().cause
        };
        assert!(values(&|row| row.truncate(2)).contains("another number of columns"));
        assert!(values(&|row| row[1] = Scalar::null(DataType::Int32)).contains("NULL"));
        assert!(values(&|row| row[2] = Scalar::int(DataType::Int32, 1)).contains("cannot be 1"));
    }

    #[test]
    fn a_build_cannot_probe_itself() {
        let mut program = program();
        program.stages[0].steps.push(Step::Probe(Probe::semi(0, vec![reg(0, DataType::Int32)])));
        assert!(program.validate().is_err());
    }

    #[test]
    fn programs_travel_as_json() {
        let program = program();
        let text = serde_json::to_string(&program).unwrap();
        assert_eq!(serde_json::from_str::<Program>(&text).unwrap(), program);
    }

    #[test]
    fn a_call_has_the_types_of_its_function() {
        let one = Expr::Literal(Scalar::int(DataType::Int32, 1));
        let long = Expr::Literal(Scalar::int(DataType::Int64, 2));
        let function = CudaFunction {
            name: "twice".into(),
            parameters: vec![("x".into(), DataType::Int32)],
            result: DataType::Int64,
            body: "return 2ll * x;".into(),
        };
        assert_eq!(cuda_error(&function, std::slice::from_ref(&one), Some(&long)), None);
        for (arguments, twin) in [
            (vec![], None),
            (vec![long.clone()], None),
            (vec![one.clone(), one.clone()], None),
            (vec![one.clone()], Some(&one)),
        ] {
            assert!(cuda_error(&function, &arguments, twin).is_some(), "{arguments:?} {twin:?}");
        }
    }
}
