//! Aggregates, in dense and in hashed groups.

use super::*;

fn partial(mut sink: Sink) -> Sink {
    if let Sink::Aggregate { output, .. } = &mut sink {
        *output = AggregateOutput::Partial;
    }
    sink
}

pub fn aggregates() -> Vec<Case> {
    use AggregateFunction::{Avg, Max, Min};
    let all = |e: Expr| {
        vec![
            call(AggregateFunction::Count, Some(e.clone())),
            call(Min, Some(e.clone())),
            call(Max, Some(e)),
        ]
    };
    let mut filtered = sum(div(reg("c"), cast(reg("a"), DataType::Int64, CastFailure::Error)));
    filtered.filter =
        Some(Expr::And(vec![cmp(CompareOp::Ne, reg("a"), i32s(0)), lt(reg("b"), i32s(50))]));
    let keep = |sink| (vec![Step::Filter(lt(reg("a"), i32s(20)))], sink);
    let named_case = |name, (steps, sink)| Case { name, steps, sink };
    vec![
        named_case(
            "no rows at all",
            (
                vec![Step::Filter(lt(reg("a"), i32s(-1000)))],
                aggregate(vec![], vec![count(), sum(reg("b")), call(Min, Some(reg("a")))]),
            ),
        ),
        named_case(
            "by text",
            keep(aggregate(
                vec![("f", reg("f"))],
                vec![count(), sum(reg("b")), call(Avg, Some(reg("e")))],
            )),
        ),
        named_case(
            "by three keys",
            keep(aggregate(
                vec![("g", reg("g")), ("t", reg("t")), ("f", reg("f"))],
                vec![count(), sum(reg("a"))],
            )),
        ),
        named_case(
            "by date and small integer",
            keep(aggregate(vec![("t", reg("t")), ("u", reg("u"))], vec![sum(reg("k"))])),
        ),
        named_case("partial states", {
            let calls =
                vec![count(), sum(reg("d")), call(Avg, Some(reg("e"))), call(Min, Some(reg("f")))];
            let (steps, sink) = keep(aggregate(vec![("t", reg("t")), ("f", reg("f"))], calls));
            (steps, partial(sink))
        }),
        named_case(
            "wide sums",
            keep(aggregate(vec![], vec![sum(reg("c")), sum(reg("d")), sum(reg("e")), count()])),
        ),
        named_case(
            "wide sums by key",
            keep(aggregate(
                vec![("h", reg("h"))],
                vec![sum(reg("d")), sum(reg("e")), sum(mul(reg("d"), reg("d"))), count()],
            )),
        ),
        named_case(
            "averages",
            keep(aggregate(
                vec![("t", reg("t"))],
                vec![
                    call(Avg, Some(reg("d"))),
                    call(Avg, Some(reg("e"))),
                    call(Avg, Some(cast(reg("b"), DataType::Float64, CastFailure::Error))),
                ],
            )),
        ),
        named_case(
            "extremes",
            keep(aggregate(vec![], {
                let mut calls = all(reg("a"));
                for name in ["b", "c", "e", "h", "u", "t", "x", "y"] {
                    calls.extend(all(reg(name)));
                }
                calls
            })),
        ),
        named_case(
            "extremes by key",
            keep(aggregate(vec![("t", reg("t"))], {
                let mut calls = all(reg("c"));
                for name in ["e", "x", "h"] {
                    calls.extend(all(reg(name)));
                }
                calls
            })),
        ),
        named_case(
            "extremes of decimals, truth and text",
            keep(aggregate(vec![], {
                let mut calls = all(reg("d"));
                calls.extend(["g", "f"].into_iter().flat_map(|name| all(reg(name))));
                calls.extend(all(mul(reg("d"), reg("d"))));
                calls
            })),
        ),
        named_case(
            "extremes of decimals, truth and text by key",
            keep(aggregate(vec![("t", reg("t"))], {
                let mut calls = all(reg("d"));
                calls.extend(["g", "f"].into_iter().flat_map(|name| all(reg(name))));
                calls
            })),
        ),
        named_case(
            "extremes of decimals by many keys",
            keep(aggregate(vec![("k", reg("k")), ("t", reg("t"))], all(reg("d")))),
        ),
        named_case(
            "filtered aggregate",
            keep(aggregate(vec![("t", reg("t"))], vec![filtered, count()])),
        ),
        named_case(
            "rows with limit",
            (
                vec![Step::Filter(lt(reg("a"), i32s(-1000)))],
                Sink::Rows { columns: vec![named("a", reg("a"))], limit: Some(10) },
            ),
        ),
    ]
}

/// Groups without known bounds, or too many of them to be numbered densely.
pub fn hashed_groups() -> Vec<Case> {
    use AggregateFunction::{Avg, Max, Min};
    use ProbeKind::{Inner, Left};
    let by = |keys: &[&'static str], calls| {
        aggregate(keys.iter().map(|&name| (name, reg(name))).collect(), calls)
    };
    let calls = || {
        vec![
            count(),
            sum(reg("a")),
            sum(reg("d")),
            call(Min, Some(reg("d"))),
            call(Max, Some(reg("c"))),
            call(Avg, Some(reg("e"))),
            call(Min, Some(reg("f"))),
        ]
    };
    let case_of = |name, steps, sink| Case { name, steps, sink };
    let flag = appended(1, DataType::Bool, false, "flag");
    let in_set = |key: &str| case(vec![(flag.clone(), reg(key))], None);
    let big = appended(3, DataType::Int64, true, "big");
    let year = |nullable| appended(0, DataType::Int32, nullable, "year");
    vec![
        case_of("hashed by a wide integer", vec![], by(&["c"], calls())),
        case_of("hashed by two words", vec![], by(&["x", "h", "u"], vec![sum(reg("k"))])),
        case_of("hashed by six words", vec![], by(&["x", "d", "g", "c", "n", "m", "f"], calls())),
        case_of("hashed by unsigned and truth", vec![], by(&["x", "g"], calls())),
        case_of("hashed by many small keys", vec![], by(&["k", "u", "t", "f"], calls())),
        case_of(
            "hashed by nothing that is left",
            vec![Step::Filter(lt(reg("a"), i32s(-1000)))],
            by(&["x"], calls()),
        ),
        case_of(
            "hashed by payload of several",
            vec![probe(SEVERAL, Left, vec![reg("b")], vec![0, 1, 2, 3, 4])],
            aggregate(vec![("big", big), ("year", year(true))], calls()),
        ),
        case_of(
            "hashed by several",
            vec![probe(SEVERAL, Inner, vec![reg("k")], vec![0])],
            aggregate(vec![("c", reg("c")), ("year", year(false))], calls()),
        ),
        // As grouping sets are joined with their constants.
        case_of(
            "every row with each of several constants",
            vec![probe(SEVERAL, Inner, vec![i32s(0)], vec![0, 4])],
            aggregate(vec![("f", in_set("f")), ("k", in_set("k")), ("year", year(false))], calls()),
        ),
        case_of(
            "every row with each of several constants, hashed",
            vec![probe(SEVERAL, Inner, vec![i32s(0)], vec![0, 4])],
            aggregate(vec![("c", in_set("c")), ("year", year(false))], calls()),
        ),
    ]
}

/// Results by key that the other cases lack.
pub fn results_by_key() -> Vec<Case> {
    use AggregateFunction::{Avg, Max, Min};
    let by_key =
        |name, calls| Case { name, steps: vec![], sink: aggregate(vec![("t", reg("t"))], calls) };
    let float = |name: &str, to| cast(add(reg(name), i32s(-20)), to, CastFailure::Error);
    let floats = |to: DataType| {
        let value = float("k", to);
        vec![
            call(Min, Some(value.clone())),
            call(Max, Some(value.clone())),
            AggregateCall { result: value.data_type(), ..call(Avg, Some(value.clone())) },
            AggregateCall { result: value.data_type(), ..sum(value) },
        ]
    };
    let truth = || lt(reg("k"), i32s(20));
    vec![
        by_key("floats by key", floats(DataType::Float64)),
        by_key("small floats by key", floats(DataType::Float32)),
        by_key("truth by key", vec![call(Min, Some(truth())), call(Max, Some(truth()))]),
        by_key("codes by key", vec![call(Min, Some(reg("f"))), call(Max, Some(reg("f")))]),
    ]
}

/// A total by key that does not fit its type.
pub fn total_beyond_its_type() -> Case {
    let large = int(DataType::Int64, 1 << 62);
    let sink = aggregate(vec![("t", reg("t"))], vec![sum(large)]);
    Case { name: "a total beyond its type", steps: vec![], sink }
}
