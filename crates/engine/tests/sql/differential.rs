//! Random queries: pipelines answer what the planner's own operators answer, and it is the
//! processor under test that runs them.

use std::cell::Cell;

use datafusion::arrow::util::pretty::pretty_format_batches;
use headrace_engine::{Session, SessionOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::{ran, tables};

/// Conditions over `fact f LEFT/INNER JOIN dim d`. None of them can fail.
fn condition() -> impl Strategy<Value = String> {
    let integer = prop_oneof![
        Just("f.f_id"),
        Just("f.f_dim"),
        Just("f.f_day"),
        Just("f.f_value"),
        Just("d.d_rank"),
        Just("d.d_area"),
    ];
    let operator = prop_oneof![Just("="), Just("<>"), Just("<"), Just("<="), Just(">"), Just(">=")];
    let compare = (integer.clone(), operator.clone(), -5i32..300)
        .prop_map(|(column, op, value)| format!("{column} {op} {value}"));
    let columns = (integer.clone(), operator, integer.clone())
        .prop_map(|(left, op, right)| format!("{left} {op} {right}"));
    let text = prop_oneof![
        Just("f.f_color = 'red'"),
        Just("f.f_color > 'blue'"),
        Just("f.f_color LIKE '%e%'"),
        Just("d.d_name IN ('ant', 'dog')"),
        Just("d.d_name NOT LIKE '_e%'"),
        Just("d.d_name BETWEEN 'b' AND 'd'"),
        Just("f.f_color < d.d_name"),
    ]
    .prop_map(str::to_string);
    let null = (integer, any::<bool>())
        .prop_map(|(column, not)| format!("{column} IS {}NULL", if not { "NOT " } else { "" }));
    let leaf = prop_oneof![4 => compare, 1 => columns, 3 => text, 1 => null];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} AND {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} OR {b})")),
            inner.clone().prop_map(|a| format!("(NOT {a})")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| format!("(CASE WHEN {a} THEN {b} ELSE {c} END)")),
        ]
    })
}

fn query() -> impl Strategy<Value = String> {
    let keys = proptest::sample::subsequence(
        vec!["f.f_color", "d.d_name", "d.d_rank", "f.f_dim", "f.f_day % 4", "f.f_value > 100"],
        0..3,
    );
    let calls = proptest::sample::subsequence(
        vec![
            "count(*)",
            "count(f.f_value)",
            "sum(f.f_value)",
            "sum(f.f_value * d.d_rank)",
            "min(f.f_value)",
            "max(d.d_name)",
            "min(f.f_color)",
            "avg(f.f_id)",
            "count(*) FILTER (WHERE d.d_rank > 1)",
            "sum(CASE WHEN f.f_color = 'red' THEN f.f_id ELSE 0 END)",
        ],
        1..5,
    );
    let join = prop_oneof![Just("JOIN"), Just("LEFT JOIN")];
    let on = prop_oneof![
        3 => Just("f.f_dim = d.d_id"),
        1 => Just("f.f_dim = d.d_id AND f.f_day > d.d_rank * 40"),
        1 => Just("f.f_day = d.d_id + 100 AND f.f_dim = d.d_area"),
    ];
    (keys, calls, join, on, condition()).prop_map(|(keys, calls, join, on, condition)| {
        let outputs: Vec<_> = keys.iter().chain(&calls).copied().collect();
        let group =
            if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) };
        let outputs = outputs.join(", ");
        format!("SELECT {outputs} FROM fact f {join} dim d ON {on} WHERE {condition}{group}")
    })
}

/// Rows of an answer, sorted, and how many pipelines the wanted processor ran.
async fn answer(session: &Session, sql: &str) -> Result<(Vec<String>, usize), String> {
    let query = session.sql(sql).await.map_err(|error| error.to_string())?;
    let (batches, report) = query.collect().await.map_err(|error| error.to_string())?;
    let ran = ran::on_wanted(&session.settings(), &report)?;
    // Without the header: no batch at all is as good as an empty one.
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let rows = text.lines().filter(|line| line.starts_with('|')).skip(1);
    let mut lines: Vec<_> = rows.map(str::to_string).collect();
    lines.sort();
    Ok((lines, ran))
}

/// `refused_max`: queries of all that the processor may leave to the planner.
fn compare_answers(processor: &str, cases: u32, refused_max: u32) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let session = Session::new(SessionOptions::default()).unwrap();
    runtime.block_on(tables::register(&session, folder.path()));
    let set = |name: &str, value: &str| {
        let sql = format!("SET headrace.{name} = '{value}'");
        runtime.block_on(answer(&session, &sql)).unwrap();
    };
    let (refused, ran) = (Cell::new(0), Cell::new(0));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&query(), |sql| {
            set("fallback", "allow");
            set("processor", "off");
            let (expected, _) = runtime.block_on(answer(&session, &sql)).unwrap();
            set("processor", processor);
            set("fallback", "forbid");
            match runtime.block_on(answer(&session, &sql)) {
                Err(error) if error.contains("headrace.fallback") => {
                    println!("refused: {error}\n{sql}");
                    refused.set(refused.get() + 1);
                }
                found => {
                    let (found, pipelines) = found.map_err(TestCaseError::fail)?;
                    prop_assert_eq!(found, expected, "{}", sql);
                    ran.set(ran.get() + u32::from(pipelines > 0));
                }
            }
            Ok(())
        })
        .unwrap();
    // What is neither has a condition that is never true: nothing is scanned.
    let (refused, ran) = (refused.get(), ran.get());
    assert!(refused <= refused_max, "{processor} refused {refused} of {cases} queries");
    assert!(ran + refused >= cases * 9 / 10, "{processor} ran {ran} of {cases} queries");
}

#[test]
fn random_queries_on_the_cpu() {
    compare_answers("cpu", 150, 0);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_random_queries() {
    compare_answers("cuda", 150, 30);
}
