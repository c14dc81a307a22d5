//! Functions of texts against ones that take them apart into characters.

use headrace_ir::function::{Function, TrimSide};
use headrace_ir::{CompareOp, DataType, Expr, Scalar, Sink, Step, Value};
use proptest::prelude::*;

use crate::functions::{apply, apply_to, column, literal};
use crate::random::Random;
use crate::support::*;

const PIECES: [&str; 12] = ["", "a", "B", "ab", " ", "  ", "ba", "é", "ß", "€", "\u{1f600}", "aBa"];

fn random_text(random: &mut Random, pieces: usize) -> String {
    (0..random.below(pieces)).map(|_| *random.pick(&PIECES)).collect()
}

fn random_number(random: &mut Random) -> i32 {
    let edge = *random.pick(&[i32::MIN, i32::MIN + 1, -1, 0, 1, i32::MAX - 1, i32::MAX]);
    if random.chance(20) { edge } else { random.below(14) as i32 - 6 }
}

/// What a function of a text, two other texts and two numbers is; none where it fails.
fn wanted(function: Function, texts: [&str; 3], numbers: [i64; 2], count: bool) -> Option<Value> {
    let characters: Vec<char> = texts[0].chars().collect();
    let length = characters.len() as i64;
    let between = |from: i64, to: i64| {
        let inside = (0..length).filter(|&i| from <= i && i < to);
        Value::Utf8(inside.map(|i| characters[i as usize]).collect())
    };
    let set: Vec<char> = texts[1].chars().collect();
    let outside = || (0..length).filter(|&i| !set.contains(&characters[i as usize]));
    Some(match function {
        Function::Lower => Value::Utf8(texts[0].to_ascii_lowercase()),
        Function::Upper => Value::Utf8(texts[0].to_ascii_uppercase()),
        Function::UnicodeLower => Value::Utf8(texts[0].to_lowercase()),
        Function::UnicodeUpper => Value::Utf8(texts[0].to_uppercase()),
        Function::Ascii if texts[0].bytes().any(|byte| byte > 127) => return None,
        Function::Ascii => between(0, length),
        Function::Substring if !count => between(numbers[0] - 1, length),
        Function::Substring if numbers[1] < 0 => return None,
        Function::Substring => between(numbers[0] - 1, numbers[0] - 1 + numbers[1]),
        Function::Left if numbers[0] < 0 => between(0, length + numbers[0]),
        Function::Left => between(0, numbers[0]),
        Function::Right if numbers[0] == i64::from(i32::MIN) => return None,
        Function::Right if numbers[0] < 0 => between(-numbers[0], length),
        Function::Right => between(length - numbers[0], length),
        Function::Trim(side) => {
            let first = if side == TrimSide::End { Some(0) } else { outside().next() };
            let last =
                if side == TrimSide::Start { Some(length - 1) } else { outside().next_back() };
            between(first.unwrap_or(length), last.map_or(0, |last| last + 1))
        }
        Function::Replace => {
            let (mut rest, mut made) = (texts[0], String::new());
            while !rest.is_empty() {
                if !texts[1].is_empty() && rest.starts_with(texts[1]) {
                    made += texts[2];
                    rest = &rest[texts[1].len()..];
                } else {
                    let next = rest.chars().next().unwrap();
                    made.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
            Value::Utf8(made)
        }
        Function::Position => {
            let at = (0..=length).find(|&i| {
                let rest: String = characters[i as usize..].iter().collect();
                rest.starts_with(texts[1])
            });
            Value::Int(at.map_or(0, |at| i128::from(at) + 1))
        }
        Function::StartsWith => Value::Bool(texts[0].strip_prefix(texts[1]).is_some()),
        Function::Reverse => Value::Utf8(characters.iter().rev().collect()),
        Function::Concat => Value::Utf8(texts.concat()),
        other => panic!("{other:?}"),
    })
}

/// The function, and how many texts and numbers it takes.
const FUNCTIONS: [(Function, usize, usize); 18] = [
    (Function::Lower, 1, 0),
    (Function::Upper, 1, 0),
    (Function::UnicodeLower, 1, 0),
    (Function::UnicodeUpper, 1, 0),
    (Function::Ascii, 1, 0),
    (Function::Substring, 1, 1),
    (Function::Substring, 1, 2),
    (Function::Left, 1, 1),
    (Function::Right, 1, 1),
    (Function::Trim(TrimSide::Start), 2, 0),
    (Function::Trim(TrimSide::End), 2, 0),
    (Function::Trim(TrimSide::Both), 2, 0),
    (Function::Replace, 3, 0),
    (Function::Position, 2, 0),
    (Function::StartsWith, 2, 0),
    (Function::Reverse, 1, 0),
    (Function::Concat, 2, 0),
    (Function::Concat, 3, 0),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn texts_are_those_of_their_characters(seed: u64) {
        let mut random = Random(seed);
        let rows = *random.pick(&[1, 7, 40]);
        let (function, texts, numbers) = *random.pick(&FUNCTIONS);
        let data: Vec<([String; 3], [i32; 2])> = (0..rows)
            .map(|_| {
                let text = random_text(&mut random, 8);
                let others = [random_text(&mut random, 3), random_text(&mut random, 3)];
                let [second, third] = others;
                ([text, second, third], [random_number(&mut random), random_number(&mut random)])
            })
            .collect();
        let mut table = Table::new("t", rows);
        for i in 0..3 {
            let values: Vec<&str> = data.iter().map(|(texts, _)| texts[i].as_str()).collect();
            table = table.text(["s", "t", "u"][i], &values);
        }
        for i in 0..2 {
            let values: Vec<i32> = data.iter().map(|(_, numbers)| numbers[i]).collect();
            table = table.int32(["i", "j"][i], &values);
        }
        // Some arguments are constants: those of the first row.
        let constants: Vec<bool> = (0..5).map(|_| random.chance(30)).collect();
        let mut arguments = Vec::new();
        for i in 0..texts {
            let constant = Expr::Literal(Scalar::utf8(data[0].0[i].clone()));
            arguments.push(if constants[i] { constant } else { table.col(["s", "t", "u"][i]) });
        }
        for i in 0..numbers {
            let constant = literal(DataType::Int32, Value::Int(data[0].1[i].into()));
            arguments.push(if constants[3 + i] { constant } else { table.col(["i", "j"][i]) });
        }
        let call = apply_to(function, arguments);
        let shown = call.to_string();
        let expected: Option<Vec<String>> = data.iter().map(|(row_texts, row_numbers)| {
            let text = |i: usize| if constants[i] { data[0].0[i].as_str() } else { &row_texts[i] };
            let number = |i: usize| i64::from(if constants[3 + i] { data[0].1[i] } else { row_numbers[i] });
            let given = [text(0), if texts > 1 { text(1) } else { "" }, if texts > 2 { text(2) } else { "" }];
            let value = wanted(function, given, [number(0), number(1)], numbers > 1)?;
            Some(crate::reference::show(&value, &call.data_type()))
        }).collect();
        match (column(&table, call), expected) {
            (Ok(found), Some(expected)) => {
                let found: Vec<String> = (0..rows).map(|row| cell(&found, row)).collect();
                prop_assert_eq!(found, expected, "{}", shown);
            }
            (Err(error), None) => prop_assert!(error.contains("cannot convert"), "{}", error),
            (found, expected) => prop_assert!(false, "{}: {:?}, wanted {:?}", shown, found, expected),
        }
    }
}

#[test]
fn made_texts_are_filtered_by_and_grouped_by() {
    let names = ["Ann", "ANN", "bob", "Bob ", "ann"];
    let table = Table::new("t", 5).text("name", &names).int32("i", &[1, 2, 3, 4, 5]);
    let blank = Expr::Literal(Scalar::utf8(" "));
    let trim = Function::Trim(TrimSide::End);
    let trimmed = apply_to(trim, vec![apply(Function::Lower, table.col("name")), blank]);
    let doubled = apply_to(Function::Concat, vec![trimmed.clone(), trimmed.clone()]);
    let filter = compare(CompareOp::Ne, trimmed, text("x"));
    let count = call(headrace_ir::AggregateFunction::Count, None, DataType::Int64);
    let longest = call(
        headrace_ir::AggregateFunction::Max,
        Some(apply(Function::Upper, doubled.clone())),
        DataType::Utf8,
    );
    let sink = Sink::aggregate(vec![named("key", doubled)], vec![count, longest]);
    let mut found = rows(&run(&table, vec![Step::Filter(filter)], sink, &[]).unwrap());
    found.sort();
    assert_eq!(found, ["annann|3|ANNANN", "bobbob|2|BOBBOB"]);
}

#[test]
fn what_fails_for_a_row_that_is_gone_or_null_does_not_fail() {
    let table = Table::new("t", 2).text("name", &["abc", "größe"]).int32("i", &[1, 2]);
    let checked = apply(Function::Ascii, table.col("name"));
    assert!(column(&table, checked.clone()).unwrap_err().contains("cannot convert"));
    let sink = || Sink::Rows { columns: vec![named("y", checked.clone())], limit: None };
    let first = compare(CompareOp::Eq, table.col("i"), literal(DataType::Int32, Value::Int(1)));
    let found = run(&table, vec![Step::Filter(first)], sink(), &[]).unwrap();
    assert_eq!(rows(&found), ["abc"]);
    let null = Expr::Literal(Scalar::null(DataType::Int32));
    let cut = apply_to(Function::Left, vec![checked, null]);
    assert_eq!(
        column(&table.clone(), cut).unwrap_err(),
        "cannot convert a value in ascii_only(name)"
    );
}

#[test]
fn functions_of_dictionary_texts_are_looked_up() {
    use headrace_pipeline::bound::{BoundKind, BoundStep};
    let table = crate::partial::coded(&["Ann", "Bob", "größe"], &[2, 0, 1, 0]);
    let small = apply(Function::Lower, table.col("name"));
    let filter = Step::Filter(compare(CompareOp::Eq, small.clone(), text("ann")));
    let sink = Sink::Rows { columns: vec![named("y", small)], limit: None };
    let lowered = bound(&table, vec![filter.clone()], sink.clone(), &[]);
    let BoundStep::Filter { expr, .. } = &lowered.steps[0] else { panic!("no filter") };
    assert!(matches!(expr.kind, BoundKind::Lookup { .. }));
    assert_eq!(rows(&run(&table, vec![filter], sink, &[]).unwrap()), ["ann", "ann"]);
}

#[test]
fn texts_that_are_made_are_paid_for() {
    let table = Table::new("t", 3).text("s", &["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; 3]);
    let mut much = table.col("s");
    for _ in 0..4 {
        let letter = Expr::Literal(Scalar::utf8("a"));
        much = apply_to(Function::Replace, vec![much, letter, table.col("s")]);
    }
    let length = apply(Function::OctetLength, much);
    let sink = || Sink::Rows { columns: vec![named("y", length.clone())], limit: None };
    let with = |memory_limit_bytes| {
        let options = RunOptions { memory_limit_bytes, ..RunOptions::default() };
        run_with(&table, vec![], sink(), &[], options).map(|_| ()).map_err(|e| e.to_string())
    };
    // Three texts of 32^5 bytes.
    assert_eq!(with(1 << 30), Ok(()));
    let error = with(80_000_000).unwrap_err();
    assert!(error.contains("texts of a batch"), "{error}");
}
