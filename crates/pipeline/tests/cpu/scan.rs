//! The first steps over a segment's bytes: every tier of instructions, any batch, NULLs and
//! addresses, against a row-at-a-time rendering of the same steps.

use std::sync::Arc;

use headrace_columns::simd::Tier;
use headrace_ir::{CompareOp, DataType, Encoding, Expr, Probe, ProbeKind, Scalar, Sink, Step};
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildTable, SourceColumn};

use crate::random::Random;
use crate::support::*;

/// Rows of a test: several words of bits, and a rest.
const ROWS: usize = 1000;

struct Column {
    values: Vec<Option<i32>>,
    misaligned: bool,
}

/// Keys and values of a dimension; a key is there if its value is.
struct Dimension {
    base: i32,
    values: Vec<Option<i32>>,
    build: Arc<BuildTable>,
}

struct Case {
    table: Table,
    columns: Vec<Column>,
    dimensions: Vec<Dimension>,
}

fn int_column(name: &str, column: &Column, table: &mut Table) {
    let nullable = column.values.contains(&None);
    // What lies under a NULL may be anything: here, often something that passes.
    let under_null = column.values.iter().flatten().next().copied().unwrap_or(7);
    let values = column.values.iter().flat_map(|v| v.unwrap_or(under_null).to_le_bytes());
    let mut test_column = TestColumn {
        encoding: Some(Encoding::Plain),
        values: values.collect(),
        info: SourceColumn { may_have_nulls: nullable, ..SourceColumn::default() },
        ..TestColumn::default()
    };
    if nullable {
        test_column.validity = Some(pack_bits(column.values.iter().map(Option::is_some)));
    }
    if column.misaligned {
        test_column.skip = 1;
        test_column.values.insert(0, 0xaa);
    }
    table.push(name, DataType::Int32, nullable, test_column);
}

fn dimension(random: &mut Random) -> Dimension {
    let base = *random.pick(&[1, -70, 19_920_101, i32::MIN, i32::MAX - 299]);
    let kept_percent = *random.pick(&[2, 30, 100]);
    let spread = *random.pick(&[1, 200, 40_000, 9_000_000, 900_000_000]);
    let values: Vec<Option<i32>> = (0..300)
        .map(|_| {
            random.chance(kept_percent).then(|| random.below(2 * spread) as i32 - spread as i32)
        })
        .collect();
    let there = || values.iter().enumerate().filter_map(|(i, v)| Some((base + i as i32, (*v)?)));
    let (keys, payload): (Vec<i32>, Vec<i32>) = there().unzip();
    let table = Table::new("dimension", keys.len()).int32("key", &keys).int32("value", &payload);
    let build = build(&table, vec![], &["key"], &["value"]);
    Dimension { base, values, build }
}

fn case(random: &mut Random) -> Case {
    let dimensions: Vec<Dimension> = (0..2).map(|_| dimension(random)).collect();
    let ids = Column { values: (0..ROWS as i32).map(Some).collect(), misaligned: false };
    let mut columns = vec![ids];
    for i in 0..4 {
        let nulls = *random.pick(&[0, 0, 20, 90]);
        let base = if i < 2 { 0 } else { dimensions[i - 2].base };
        let width = if i < 2 { 50 } else { *random.pick(&[300, 320]) };
        let mut value = || {
            let value = base.wrapping_add(random.below(width) as i32);
            (!random.chance(nulls)).then_some(value)
        };
        let values = (0..ROWS).map(|_| value()).collect();
        columns.push(Column { values, misaligned: random.chance(10) });
    }
    let mut table = Table::new("lines", ROWS);
    for (i, column) in columns.iter().enumerate() {
        int_column(&format!("c{i}"), column, &mut table);
    }
    Case { table, columns, dimensions }
}

/// A step, and the rows that it keeps with what it appends.
type Rendered = Box<dyn Fn(&Case, usize) -> Option<Option<i32>>>;

fn comparison(random: &mut Random, case: &Case) -> (Step, Rendered) {
    let ops =
        [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];
    let op = *random.pick(&ops);
    let column = 1 + random.below(2);
    let constant = match random.below(10) {
        0 => i32::MIN,
        1 => i32::MAX,
        _ => random.below(50) as i32,
    };
    let swapped = random.chance(40);
    let register = case.table.col(&format!("c{column}"));
    let literal = Expr::Literal(Scalar::int(DataType::Int32, constant.into()));
    let (left, right) = if swapped { (literal, register) } else { (register, literal) };
    let step = Step::Filter(compare(op, left, right));
    let rendered = move |case: &Case, row: usize| {
        let value = case.columns[column].values[row]?;
        let (l, r) = if swapped { (constant, value) } else { (value, constant) };
        let holds = match op {
            CompareOp::Eq => l == r,
            CompareOp::Ne => l != r,
            CompareOp::Lt => l < r,
            CompareOp::Le => l <= r,
            CompareOp::Gt => l > r,
            CompareOp::Ge => l >= r,
        };
        holds.then_some(None)
    };
    (step, Box::new(rendered))
}

fn lookup(random: &mut Random, case: &Case, which: usize) -> (Step, Rendered) {
    let kinds = [ProbeKind::Inner, ProbeKind::Inner, ProbeKind::Semi, ProbeKind::Anti];
    let kind = *random.pick(&kinds);
    let step = Step::Probe(Probe {
        build: which,
        keys: vec![case.table.col(&format!("c{}", 3 + which))],
        kind,
        null_equal: false,
        residual: None,
        payload: if kind == ProbeKind::Inner { vec![0] } else { vec![] },
        is_optional: false,
    });
    let rendered = move |case: &Case, row: usize| {
        let dimension = &case.dimensions[which];
        let value = case.columns[3 + which].values[row].and_then(|key| {
            let entry = usize::try_from(i64::from(key) - i64::from(dimension.base)).ok()?;
            dimension.values.get(entry).copied().flatten()
        });
        match kind {
            ProbeKind::Inner => value.map(Some),
            ProbeKind::Semi => value.map(|_| None),
            _ => value.is_none().then_some(None),
        }
    };
    (step, Box::new(rendered))
}

/// Rows as text in the order in which they came.
fn in_order(output: Output) -> Vec<String> {
    let Output::Batches(batches) = output else { panic!("a build") };
    rows_in_order(&batches)
}

fn check(seed: u64) {
    let mut random = Random(seed);
    let case = case(&mut random);
    let mut steps = Vec::new();
    let mut rendered = Vec::new();
    let mut columns = vec![named("id", case.table.col("c0"))];
    let mut probes_left = vec![0, 1];
    let mut next_register = case.columns.len();
    for _ in 0..1 + random.below(5) {
        let (step, render) = match random.chance(50) && !probes_left.is_empty() {
            true => lookup(&mut random, &case, probes_left.remove(0)),
            false => comparison(&mut random, &case),
        };
        if let Step::Probe(Probe { kind: ProbeKind::Inner, .. }) = step {
            let payload = reg(next_register, DataType::Int32, false, "value");
            columns.push(named(&format!("p{next_register}"), payload));
            next_register += 1;
        }
        steps.push(step);
        rendered.push(render);
    }
    let expected: Vec<String> = (0..ROWS)
        .filter_map(|row| {
            let mut cells = vec![row.to_string()];
            for step in &rendered {
                cells.extend(step(&case, row)?.map(|value| value.to_string()));
            }
            Some(cells.join("|"))
        })
        .collect();
    let builds: Vec<_> = case.dimensions.iter().map(|d| Arc::clone(&d.build)).collect();
    for tier in Tier::all() {
        let batch_rows = *random.pick(&[1, 3, 63, 64, 65, 77, 500, 4096]);
        let sink = Sink::Rows { columns: columns.clone(), limit: None };
        let options = RunOptions { tier, batch_rows, ..RunOptions::default() };
        let found = run_with(&case.table, steps.clone(), sink, &builds, options).unwrap();
        assert_eq!(in_order(found), expected, "seed {seed}, {tier:?}, batches of {batch_rows}");
    }
}

#[test]
fn every_tier_keeps_the_rows_that_the_steps_keep() {
    (0..400).for_each(check);
}

#[test]
fn a_limit_is_kept() {
    let ids: Vec<i32> = (0..ROWS as i32).collect();
    let table = Table::new("t", ROWS).int32("id", &ids);
    for tier in Tier::all() {
        let sink = Sink::Rows { columns: vec![named("id", table.col("id"))], limit: Some(5) };
        let steps = vec![Step::Filter(compare(CompareOp::Ge, table.col("id"), int(100)))];
        let options = RunOptions { tier, batch_rows: 77, ..RunOptions::default() };
        let found = in_order(run_with(&table, steps, sink, &[], options).unwrap());
        assert_eq!(found, ["100", "101", "102", "103", "104"], "{tier:?}");
    }
}

/// What fails for a row that an earlier condition removed is not evaluated for it.
#[test]
fn what_can_fail_sees_only_the_rows_that_are_left() {
    let divisors: Vec<i32> = (0..ROWS as i32).map(|i| i % 7).collect();
    let table = Table::new("t", ROWS).int32("d", &divisors);
    let quotient = arithmetic(headrace_ir::ArithmeticOp::Divide, int(42), table.col("d"));
    for tier in Tier::all() {
        for (from, fails) in [(1, false), (0, true)] {
            let steps = vec![Step::Filter(compare(CompareOp::Ge, table.col("d"), int(from)))];
            let columns = vec![named("q", quotient.clone())];
            let options = RunOptions { tier, ..RunOptions::default() };
            let sink = Sink::Rows { columns, limit: None };
            let outcome = run_with(&table, steps, sink, &[], options);
            assert_eq!(outcome.is_err(), fails, "{tier:?} from {from}");
        }
    }
}
