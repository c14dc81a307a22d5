//! Probes: stars, several matches, empty builds.

use super::*;

pub fn joins() -> Vec<Case> {
    use ProbeKind::{Anti, Inner, Left, Mark, NullAwareAnti, Semi};
    let year = |nullable| appended(0, DataType::Int32, nullable, "year");
    let brand = appended(1, DataType::Utf8, true, "brand");
    let everything = |nullable| {
        rows(vec![
            ("k", reg("k")),
            ("year", year(nullable)),
            ("brand", appended(1, DataType::Utf8, true, "brand")),
            ("price", appended(2, DataType::Float64, nullable, "price")),
            ("big", appended(3, DataType::Int64, true, "big")),
            ("flag", appended(4, DataType::Bool, nullable, "flag")),
        ])
    };
    let counts = || aggregate(vec![], vec![count(), sum(reg("k"))]);
    let one = |name, step, sink| Case { name, steps: vec![step], sink };
    let k = || vec![reg("k")];
    let payload = || vec![0, 1, 2, 3, 4];
    let residual = Step::Probe(Probe {
        build: DIRECT,
        keys: vec![reg("b")],
        kind: Inner,
        null_equal: false,
        residual: Some(lt(year(false), i32s(1995))),
        payload: vec![0],
        is_optional: false,
    });
    let pair = vec![
        reg("k"),
        mul(
            cast(
                arith(ArithmeticOp::Modulo, reg("k"), i32s(17), OnOverflow::Error),
                DataType::Int64,
                CastFailure::Error,
            ),
            int(DataType::Int64, 1_000_000_000_000),
        ),
    ];
    // Rows by whether they have a match, which stands behind so many payload columns.
    let mark = |payload| appended(payload, DataType::Bool, false, "mark");
    let marked = |payload| aggregate(vec![("mark", mark(payload))], vec![count(), sum(reg("k"))]);
    let of_pair = probe(WIDE_KEYS, Mark, pair.clone(), vec![]);
    let judged = Step::Probe(Probe {
        kind: Mark,
        residual: Some(lt(year(false), i32s(1995))),
        payload: vec![0],
        ..Probe::semi(DIRECT, vec![reg("b")])
    });
    vec![
        one("mark", probe(DIRECT, Mark, vec![reg("b")], vec![]), marked(0)),
        one("mark hashed", probe(HASHED, Mark, vec![far_key()], vec![]), marked(0)),
        one("mark of duplicates", probe(DUPLICATES, Mark, vec![reg("b")], vec![]), marked(0)),
        one("mark with a null key", probe(WITH_NULL_KEY, Mark, vec![reg("b")], vec![]), marked(0)),
        one("mark by two keys", of_pair, marked(0)),
        one("mark under a condition", judged.clone(), marked(1)),
        Case {
            name: "filter on a mark",
            steps: vec![
                Step::Filter(lt(reg("a"), i32s(30))),
                judged,
                Step::Filter(Expr::Or(vec![mark(1), lt(reg("a"), i32s(-40))])),
                probe(DIRECT, Semi, k(), vec![]),
            ],
            sink: rows(vec![("k", reg("k")), ("mark", mark(1))]),
        },
        one("inner direct", probe(DIRECT, Inner, k(), payload()), everything(false)),
        one("left direct", probe(DIRECT, Left, k(), payload()), everything(true)),
        one("inner hashed", probe(HASHED, Inner, vec![far_key()], payload()), everything(false)),
        one("left hashed", probe(HASHED, Left, vec![far_key()], payload()), everything(true)),
        one("semi", probe(DIRECT, Semi, vec![reg("b")], vec![]), counts()),
        one("anti", probe(DIRECT, Anti, vec![reg("b")], vec![]), counts()),
        one("anti hashed", probe(HASHED, Anti, vec![far_key()], vec![]), counts()),
        one("not in without nulls", probe(DIRECT, NullAwareAnti, vec![reg("b")], vec![]), counts()),
        one(
            "not in with a null",
            probe(WITH_NULL_KEY, NullAwareAnti, vec![reg("b")], vec![]),
            counts(),
        ),
        one("semi with a null key", probe(WITH_NULL_KEY, Semi, vec![reg("b")], vec![]), counts()),
        one("semi of duplicates", probe(DUPLICATES, Semi, vec![reg("b")], vec![]), counts()),
        one("anti of duplicates", probe(DUPLICATES, Anti, vec![reg("b")], vec![]), counts()),
        one(
            "two keys",
            probe(WIDE_KEYS, Inner, pair, vec![0]),
            aggregate(
                vec![("pair", appended(0, DataType::Int32, false, "pair"))],
                vec![count(), sum(reg("a"))],
            ),
        ),
        one(
            "residual",
            residual,
            aggregate(vec![("year", year(false))], vec![count(), sum(reg("b"))]),
        ),
        Case {
            name: "star",
            steps: vec![
                Step::Filter(lt(reg("a"), i32s(30))),
                probe(DIRECT, Inner, k(), vec![0, 1]),
                probe(WITH_NULL_KEY, Anti, vec![reg("b")], vec![]),
            ],
            sink: aggregate(
                vec![("year", year(false)), ("brand", brand.clone()), ("f", reg("f"))],
                vec![sum(reg("k")), count()],
            ),
        },
        Case {
            name: "filter on payload",
            steps: vec![
                probe(DIRECT, Inner, k(), vec![0, 1]),
                Step::Filter(Expr::Or(vec![
                    eq(brand.clone(), text("brand 3")),
                    is_null(brand.clone()),
                ])),
            ],
            sink: aggregate(vec![("brand", brand)], vec![sum(year(false)), count()]),
        },
    ]
}

/// Probes of the SEVERAL rows of a key, and conditions that decide what a match is.
pub fn several_matches() -> Vec<Case> {
    use AggregateFunction::{Max, Min};
    use ProbeKind::{Anti, Inner, Left, Mark, Semi};
    let year = |nullable| appended(0, DataType::Int32, nullable, "year");
    let brand = || appended(1, DataType::Utf8, true, "brand");
    let flag = |nullable| appended(4, DataType::Bool, nullable, "flag");
    let all = || vec![0, 1, 2, 3, 4];
    let everything = |nullable| {
        rows(vec![
            ("k", reg("k")),
            ("f", reg("f")),
            ("year", year(nullable)),
            ("brand", brand()),
            ("price", appended(2, DataType::Float64, nullable, "price")),
            ("big", appended(3, DataType::Int64, true, "big")),
            ("flag", flag(nullable)),
        ])
    };
    let judged = |build, kind, key: &str, nullable| {
        // Reads the row and its match; fails for no row that has one.
        let late = cmp(
            CompareOp::Gt,
            arith(ArithmeticOp::Subtract, year(nullable), i32s(1994), OnOverflow::Error),
            arith(ArithmeticOp::Modulo, reg("a"), i32s(4), OnOverflow::Error),
        );
        let residual = Some(Expr::Or(vec![late, is_null(brand())]));
        let keys = vec![reg(key)];
        Step::Probe(Probe { kind, residual, payload: all(), ..Probe::semi(build, keys) })
    };
    let counts = || {
        let smallest = call(Min, Some(reg("d")));
        aggregate(vec![], vec![count(), sum(reg("k")), sum(reg("c")), smallest])
    };
    let by_brand = || {
        let largest = call(Max, Some(year(true)));
        let calls = vec![count(), sum(reg("k")), sum(reg("d")), largest];
        aggregate(vec![("f", reg("f")), ("brand", brand()), ("flag", flag(true))], calls)
    };
    let case = |name, steps, sink| Case { name, steps, sink };
    let few = || Step::Filter(lt(reg("a"), i32s(-20)));
    let inner = || probe(SEVERAL, Inner, vec![reg("k")], all());
    vec![
        case(
            "several marked under a condition",
            vec![few(), judged(SEVERAL, Mark, "b", false)],
            aggregate(
                vec![("mark", appended(5, DataType::Bool, false, "mark")), ("f", reg("f"))],
                vec![count(), sum(reg("k"))],
            ),
        ),
        case(
            "several rows and their marks",
            vec![few(), judged(SEVERAL, Mark, "k", false)],
            rows(vec![("k", reg("k")), ("mark", appended(5, DataType::Bool, false, "mark"))]),
        ),
        case("several inner", vec![few(), inner()], everything(false)),
        case("several left", vec![probe(SEVERAL, Left, vec![reg("b")], all())], everything(true)),
        case(
            "first rows of several",
            vec![probe(SEVERAL, Left, vec![reg("b")], all())],
            first_rows(
                vec![("k", reg("k")), ("c", reg("c")), ("year", year(true)), ("f", reg("f"))],
                99,
            ),
        ),
        case("several counted", vec![inner()], counts()),
        case("several left counted", vec![probe(SEVERAL, Left, vec![reg("b")], all())], counts()),
        case("several by their payload", vec![few(), inner()], by_brand()),
        case(
            "several left by their payload",
            vec![probe(SEVERAL, Left, vec![reg("b")], all())],
            by_brand(),
        ),
        case(
            "several by many groups",
            vec![inner()],
            aggregate(
                vec![("k", reg("k")), ("flag", flag(false)), ("brand", brand())],
                vec![count(), call(Max, Some(reg("d"))), sum(year(false))],
            ),
        ),
        case(
            "several of several",
            vec![
                few(),
                inner(),
                Step::Filter(cmp(CompareOp::Ne, year(false), i32s(1993))),
                probe(SEVERAL, Left, vec![reg("b")], vec![0]),
                probe(DIRECT, Semi, vec![reg("k")], vec![]),
                Step::Compute(named(
                    "both",
                    add(year(false), appended(5, DataType::Int32, true, "year")),
                )),
            ],
            rows(vec![
                ("k", reg("k")),
                ("d", reg("d")),
                ("brand", brand()),
                ("both", appended(6, DataType::Int32, true, "both")),
            ]),
        ),
        case("judged inner", vec![judged(SEVERAL, Inner, "b", false)], everything(false)),
        case("judged left", vec![judged(SEVERAL, Left, "b", true)], everything(true)),
        case("judged semi", vec![judged(SEVERAL, Semi, "b", false)], counts()),
        case("judged anti", vec![judged(SEVERAL, Anti, "b", false)], counts()),
        case("judged left of one", vec![judged(DIRECT, Left, "b", true)], everything(true)),
        case("judged left by key", vec![judged(DIRECT, Left, "k", true)], by_brand()),
        case("judged semi of one", vec![judged(DIRECT, Semi, "b", false)], counts()),
        case("judged anti of one", vec![judged(DIRECT, Anti, "b", false)], counts()),
        case(
            "several and a failure",
            vec![few(), inner()],
            aggregate(
                vec![],
                vec![sum(div(
                    reg("k"),
                    arith(ArithmeticOp::Subtract, year(false), i32s(1995), OnOverflow::Error),
                ))],
            ),
        ),
    ]
}

/// Nothing matches; keys of the payload have no bounds but NULL.
pub fn empty_builds() -> Vec<Case> {
    use ProbeKind::{Anti, Inner, Left, Mark, NullAwareAnti, Semi};
    let year = || appended(0, DataType::Int32, true, "year");
    let brand = || appended(1, DataType::Utf8, true, "brand");
    let by_payload = || {
        aggregate(
            vec![("year", year()), ("brand", brand())],
            vec![count(), sum(year()), call(AggregateFunction::Max, Some(brand()))],
        )
    };
    let counts = || aggregate(vec![], vec![count(), sum(reg("k"))]);
    let step = |kind, payload| probe(EMPTY, kind, vec![reg("b")], payload);
    let case = |name, step, sink| Case { name, steps: vec![step], sink };
    vec![
        case("inner of nothing", step(Inner, vec![0, 1]), by_payload()),
        case("left of nothing", step(Left, vec![0, 1]), by_payload()),
        case(
            "first rows left of nothing",
            step(Left, vec![0, 1]),
            first_rows(
                vec![("k", reg("k")), ("c", reg("c")), ("year", year()), ("f", reg("f"))],
                99,
            ),
        ),
        case(
            "rows left of nothing",
            step(Left, vec![0, 1]),
            rows(vec![("b", reg("b")), ("year", year()), ("brand", brand())]),
        ),
        case("semi of nothing", step(Semi, vec![]), counts()),
        case("anti of nothing", step(Anti, vec![]), counts()),
        case("not in nothing", step(NullAwareAnti, vec![]), counts()),
        case(
            "mark of nothing",
            step(Mark, vec![]),
            rows(vec![("b", reg("b")), ("mark", appended(0, DataType::Bool, false, "mark"))]),
        ),
    ]
}
