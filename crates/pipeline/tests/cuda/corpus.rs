//! Pipelines over the random table: every step, sink and expression that the CUDA processor
//! takes, with the outcome that is expected of the CPU processor.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use headrace_ir::*;
use headrace_pipeline::build::{BuildOptions, BuildTable};

use crate::data::{DECIMAL, Shape, TEXTS, Table, fields};

pub struct Case {
    pub name: &'static str,
    pub steps: Vec<Step>,
    pub sink: Sink,
}

pub fn reg(name: &str) -> Expr {
    let fields = fields();
    let index = fields.iter().position(|f| f.name == name).unwrap();
    Expr::Register {
        index,
        data_type: fields[index].data_type.clone(),
        nullable: fields[index].nullable,
        name: name.into(),
    }
}

/// A register that a step has appended.
fn appended(offset: usize, data_type: DataType, nullable: bool, name: &str) -> Expr {
    Expr::Register { index: fields().len() + offset, data_type, nullable, name: name.into() }
}

fn int(data_type: DataType, value: i128) -> Expr {
    Expr::Literal(Scalar::int(data_type, value))
}
fn i32s(value: i128) -> Expr {
    int(DataType::Int32, value)
}
fn f64s(value: f64) -> Expr {
    Expr::Literal(Scalar::new(DataType::Float64, Value::Float(value)))
}
fn text(value: &str) -> Expr {
    Expr::Literal(Scalar::utf8(value))
}

fn cmp(op: CompareOp, left: Expr, right: Expr) -> Expr {
    Expr::Compare { op, left: Box::new(left), right: Box::new(right) }
}
fn lt(left: Expr, right: Expr) -> Expr {
    cmp(CompareOp::Lt, left, right)
}
fn ge(left: Expr, right: Expr) -> Expr {
    cmp(CompareOp::Ge, left, right)
}
fn eq(left: Expr, right: Expr) -> Expr {
    cmp(CompareOp::Eq, left, right)
}

fn arith(op: ArithmeticOp, left: Expr, right: Expr, on_overflow: OnOverflow) -> Expr {
    let data_type = match (left.data_type(), right.data_type()) {
        (DataType::Decimal128 { scale: l, .. }, DataType::Decimal128 { scale: r, .. }) => {
            let scale = if op == ArithmeticOp::Multiply { l + r } else { l.max(r) };
            DataType::Decimal128 { precision: 30, scale }
        }
        (left, _) => left,
    };
    Expr::Arithmetic { op, left: Box::new(left), right: Box::new(right), data_type, on_overflow }
}
fn add(left: Expr, right: Expr) -> Expr {
    arith(ArithmeticOp::Add, left, right, OnOverflow::Error)
}
fn mul(left: Expr, right: Expr) -> Expr {
    arith(ArithmeticOp::Multiply, left, right, OnOverflow::Error)
}
fn div(left: Expr, right: Expr) -> Expr {
    arith(ArithmeticOp::Divide, left, right, OnOverflow::Error)
}
fn cast(value: Expr, to: DataType, on_failure: CastFailure) -> Expr {
    Expr::Cast { value: Box::new(value), to, on_failure }
}
fn case(branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
    let data_type = branches[0].1.data_type();
    Expr::Case { branches, otherwise: otherwise.map(Box::new), data_type }
}
fn not(value: Expr) -> Expr {
    Expr::Not(Box::new(value))
}
fn is_null(value: Expr) -> Expr {
    Expr::IsNull(Box::new(value))
}
fn in_list(value: Expr, list: Vec<Scalar>, negated: bool) -> Expr {
    Expr::InList { value: Box::new(value), list, negated }
}
fn like(value: Expr, pattern: &str) -> Expr {
    Expr::Like {
        value: Box::new(value),
        pattern: pattern.into(),
        escape: None,
        negated: false,
        case_insensitive: false,
    }
}

fn named(name: &str, expr: Expr) -> NamedExpr {
    NamedExpr { name: name.into(), expr }
}
fn rows(columns: Vec<(&str, Expr)>) -> Sink {
    let columns = columns.into_iter().map(|(name, expr)| named(name, expr)).collect();
    Sink::Rows { columns, limit: None }
}

fn call(function: AggregateFunction, argument: Option<Expr>) -> AggregateCall {
    let result = match (function, argument.as_ref().map(Expr::data_type)) {
        (AggregateFunction::Count, _) => DataType::Int64,
        (AggregateFunction::Sum, Some(DataType::Decimal128 { scale, .. })) => {
            DataType::Decimal128 { precision: 38, scale }
        }
        (AggregateFunction::Sum, Some(t)) if t.is_float() => DataType::Float64,
        (AggregateFunction::Sum, Some(DataType::UInt64 | DataType::UInt16)) => DataType::UInt64,
        (AggregateFunction::Sum, _) => DataType::Int64,
        (AggregateFunction::Avg, Some(DataType::Decimal128 { scale, .. })) => {
            DataType::Decimal128 { precision: 38, scale: scale + 4 }
        }
        (AggregateFunction::Avg, _) => DataType::Float64,
        (_, Some(t)) => t,
        (_, None) => DataType::Int64,
    };
    AggregateCall {
        name: format!(
            "{}_{}",
            function.name(),
            argument.as_ref().map_or("rows".into(), Expr::to_string)
        ),
        function,
        argument,
        filter: None,
        distinct: false,
        result,
        on_overflow: OnOverflow::Error,
    }
}
fn count() -> AggregateCall {
    call(AggregateFunction::Count, None)
}
fn sum(argument: Expr) -> AggregateCall {
    call(AggregateFunction::Sum, Some(argument))
}
fn aggregate(keys: Vec<(&str, Expr)>, calls: Vec<AggregateCall>) -> Sink {
    Sink::Aggregate {
        keys: keys.into_iter().map(|(name, expr)| named(name, expr)).collect(),
        calls,
    }
}

/// Builds of the corpus, by their index in the program.
pub const DIRECT: usize = 0;
pub const HASHED: usize = 1;
pub const WITH_NULL_KEY: usize = 2;
pub const DUPLICATES: usize = 3;
pub const WIDE_KEYS: usize = 4;
/// As DIRECT, with up to four rows a key.
pub const SEVERAL: usize = 5;
/// As DIRECT, without any row.
pub const EMPTY: usize = 6;

/// A batch of a build: keys, then payload.
fn build(name: &str, keys: &[Field], payload: &[Field], columns: Vec<ArrayRef>) -> BuildTable {
    let named = keys.iter().chain(payload).zip(&columns);
    let fields: Vec<_> = named
        .map(|(f, c)| arrow_schema::Field::new(&f.name, c.data_type().clone(), f.nullable))
        .collect();
    let batch = RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(fields)), columns).unwrap();
    BuildTable::from_batches(name, keys, payload, &[batch], BuildOptions::default()).unwrap()
}

pub fn builds() -> Vec<Arc<BuildTable>> {
    let key = |name: &str, t: DataType, nullable| Field::new(name, t, nullable);
    let keys: Vec<i32> = (1..=500).filter(|k| k % 3 != 0).collect();
    let payload = [
        key("year", DataType::Int32, false),
        key("brand", DataType::Utf8, true),
        key("price", DataType::Float64, false),
        key("big", DataType::Int64, true),
        key("flag", DataType::Bool, false),
    ];
    let payload_columns = |keys: &[i32]| -> Vec<ArrayRef> {
        vec![
            Arc::new(keys.iter().map(|k| 1992 + k % 7).collect::<Int32Array>()),
            Arc::new(
                keys.iter()
                    .map(|k| (k % 11 != 0).then(|| format!("brand {}", k % 5)))
                    .collect::<StringArray>(),
            ),
            Arc::new(keys.iter().map(|k| f64::from(*k) / 4.0).collect::<Float64Array>()),
            Arc::new(
                keys.iter()
                    .map(|k| (k % 13 != 0).then(|| i64::from(*k) << 40))
                    .collect::<Int64Array>(),
            ),
            Arc::new(keys.iter().map(|k| Some(k % 2 == 0)).collect::<BooleanArray>()),
        ]
    };
    let mut direct: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(keys.clone()))];
    direct.extend(payload_columns(&keys));
    // Keys far apart make a hash build.
    let far: Vec<i64> = (0..400).map(|k| i64::from(k) * 3_000_000_007 - 600_000_000_000).collect();
    let far_values: Vec<i32> = (0..400).collect();
    let mut hashed: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(far))];
    hashed.extend(payload_columns(&far_values));
    let repeated: Vec<i32> = (0..600).map(|i| i % (100 + i / 5)).collect();
    let mut several: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(repeated))];
    several.extend(payload_columns(&(0..600).collect::<Vec<_>>()));
    let mut empty: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(Vec::<i32>::new()))];
    empty.extend(payload_columns(&[]));
    let with_null: Vec<Option<i32>> = vec![Some(3), None, Some(7), Some(250)];
    let duplicates: Vec<i32> = (0..300).map(|i| i % 100).collect();
    let pairs: Vec<(i32, i64)> =
        (1..=500).map(|k| (k, i64::from(k % 17) * 1_000_000_000_000)).collect();
    let one = |name: &str, t| [key(name, t, false)];
    vec![
        Arc::new(build("direct", &one("key", DataType::Int32), &payload, direct)),
        Arc::new(build("hashed", &one("key", DataType::Int64), &payload, hashed)),
        Arc::new(build(
            "with_null",
            &[key("key", DataType::Int32, true)],
            &[],
            vec![Arc::new(Int32Array::from(with_null))],
        )),
        Arc::new(build(
            "duplicates",
            &one("key", DataType::Int32),
            &[],
            vec![Arc::new(Int32Array::from(duplicates))],
        )),
        Arc::new(build(
            "wide",
            &[key("k1", DataType::Int32, false), key("k2", DataType::Int64, false)],
            &one("pair", DataType::Int32),
            vec![
                Arc::new(pairs.iter().map(|p| p.0).collect::<Int32Array>()),
                Arc::new(pairs.iter().map(|p| p.1).collect::<Int64Array>()),
                Arc::new(pairs.iter().map(|p| p.0 % 10).collect::<Int32Array>()),
            ],
        )),
        Arc::new(build("several", &one("key", DataType::Int32), &payload, several)),
        Arc::new(build("empty", &one("key", DataType::Int32), &payload, empty)),
    ]
}

fn probe(build: usize, kind: ProbeKind, keys: Vec<Expr>, payload: Vec<usize>) -> Step {
    Step::Probe(Probe { build, keys, kind, null_equal: false, residual: None, payload })
}

/// A key of the hashed build from `k`.
fn far_key() -> Expr {
    let wide = |e| cast(e, DataType::Int64, CastFailure::Error);
    let scaled = mul(wide(reg("k")), int(DataType::Int64, 3_000_000_007));
    arith(ArithmeticOp::Subtract, scaled, int(DataType::Int64, 600_000_000_000), OnOverflow::Error)
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut cases = filters();
    cases.extend(expressions());
    cases.extend(aggregates());
    cases.extend(joins());
    cases.extend(several_matches());
    cases.extend(hashed_groups());
    cases.extend(empty_builds());
    cases.extend(failures());
    cases
}

fn counted(name: &'static str, condition: Expr) -> Case {
    let sink = aggregate(vec![], vec![count(), sum(reg("a")), sum(reg("k"))]);
    Case { name, steps: vec![Step::Filter(condition)], sink }
}

fn filters() -> Vec<Case> {
    let s = |v: i128| Scalar::int(DataType::Int32, v);
    let long: Vec<Scalar> = (0..30).map(|i| s(i * 3)).collect();
    let texts = |list: &[&str]| list.iter().map(|t| Scalar::utf8(*t)).collect::<Vec<_>>();
    let and = |a, b| Expr::And(vec![a, b]);
    let or = |a, b| Expr::Or(vec![a, b]);
    vec![
        counted("between", and(ge(reg("a"), i32s(-10)), lt(reg("a"), i32s(10)))),
        counted("nullable compare", lt(reg("b"), i32s(40))),
        counted(
            "or over nulls",
            or(lt(reg("b"), i32s(10)), eq(reg("g"), Expr::Literal(Scalar::bool(true)))),
        ),
        counted("not over nulls", not(or(lt(reg("b"), i32s(50)), is_null(reg("c"))))),
        counted(
            "and inside or",
            or(and(reg("g"), lt(reg("b"), i32s(50))), and(not(reg("g")), is_null(reg("d")))),
        ),
        counted("is null", is_null(reg("f"))),
        counted("bool column", reg("g")),
        counted("contiguous in", in_list(reg("a"), vec![s(3), s(4), s(5)], false)),
        counted("short in", in_list(reg("b"), vec![s(3), s(40), s(95)], false)),
        counted("long in", in_list(reg("b"), long.clone(), false)),
        counted("not in", in_list(reg("b"), long, true)),
        counted(
            "in with null",
            in_list(reg("b"), vec![s(3), Scalar::null(DataType::Int32)], false),
        ),
        counted(
            "not in with null",
            in_list(reg("b"), vec![s(3), Scalar::null(DataType::Int32)], true),
        ),
        counted("text equals", eq(reg("f"), text("text 07"))),
        counted("text order", ge(reg("f"), text("text 3"))),
        counted("text like", like(reg("f"), "text _7")),
        counted("text in", in_list(reg("f"), texts(&["text 01", "text 05", "none"]), false)),
        counted("text or null", or(like(reg("f"), "%9"), is_null(reg("f")))),
        counted("floats", or(lt(reg("e"), f64s(-500.0)), eq(reg("e"), f64s(0.0)))),
        counted("float nan", lt(reg("e"), f64s(f64::NAN))),
        counted(
            "narrow integers",
            and(lt(reg("h"), int(DataType::Int8, 0)), ge(reg("u"), int(DataType::UInt16, 100))),
        ),
        counted("unsigned", lt(reg("x"), int(DataType::UInt64, 1 << 63))),
        counted("dates", ge(reg("t"), int(DataType::Date32, 8_015))),
        counted("decimals of equal scale", lt(reg("d"), int(DECIMAL, 100_000))),
        counted(
            "decimals of different scale",
            lt(reg("d"), int(DataType::Decimal128 { precision: 38, scale: 6 }, 5_000_000_000)),
        ),
        counted("columns compared", lt(reg("a"), reg("b"))),
    ]
}

fn expressions() -> Vec<Case> {
    let wrap = OnOverflow::Wrap;
    let c64 = |e| cast(e, DataType::Int64, CastFailure::Error);
    let classes = case(
        vec![
            (lt(reg("b"), i32s(30)), i32s(1)),
            (is_null(reg("b")), i32s(2)),
            (eq(reg("f"), text("text 11")), reg("a")),
        ],
        Some(i32s(-3)),
    );
    // The division stands behind its guard.
    let guarded =
        case(vec![(cmp(CompareOp::Ne, reg("a"), i32s(0)), div(i32s(1000), reg("a")))], None);
    let compute = |name: &'static str, list: Vec<(&'static str, Expr)>| Case {
        name,
        steps: vec![Step::Filter(lt(reg("a"), i32s(40)))],
        sink: rows(list),
    };
    vec![
        compute(
            "arithmetic",
            vec![
                ("sum", add(reg("a"), reg("b"))),
                ("product", mul(c64(reg("a")), c64(reg("b")))),
                ("wrapped", arith(ArithmeticOp::Multiply, reg("c"), reg("c"), wrap)),
                ("small", arith(ArithmeticOp::Add, reg("h"), reg("h"), wrap)),
                (
                    "negated",
                    Expr::Negate { value: Box::new(reg("a")), on_overflow: OnOverflow::Error },
                ),
                ("modulo", arith(ArithmeticOp::Modulo, reg("k"), i32s(7), OnOverflow::Error)),
                ("ratio", div(reg("a"), i32s(-3))),
            ],
        ),
        compute(
            "floats computed",
            vec![
                ("product", mul(reg("e"), f64s(0.1))),
                ("quotient", div(reg("e"), f64s(3.0))),
                ("fused", add(mul(reg("e"), reg("e")), reg("e"))),
                ("rest", arith(ArithmeticOp::Modulo, reg("e"), f64s(7.5), OnOverflow::Error)),
                ("narrow", add(reg("y"), reg("y"))),
                (
                    "minus",
                    Expr::Negate { value: Box::new(reg("e")), on_overflow: OnOverflow::Error },
                ),
            ],
        ),
        compute(
            "decimals computed",
            vec![
                (
                    "sum",
                    add(reg("d"), int(DataType::Decimal128 { precision: 20, scale: 4 }, 12_345)),
                ),
                ("product", mul(reg("d"), reg("d"))),
                ("minus", arith(ArithmeticOp::Subtract, reg("d"), reg("d"), OnOverflow::Error)),
            ],
        ),
        compute("case", vec![("class", classes), ("guarded", guarded)]),
        compute(
            "every column",
            fields()
                .iter()
                .map(|f| {
                    let name: &'static str = Box::leak(f.name.clone().into_boxed_str());
                    (name, reg(name))
                })
                .collect(),
        ),
        compute(
            "conditions",
            vec![
                ("less", lt(reg("b"), i32s(50))),
                ("null", is_null(reg("e"))),
                ("like", like(reg("f"), "%1%")),
                ("both", Expr::And(vec![reg("g"), lt(reg("b"), i32s(50))])),
            ],
        ),
        compute(
            "casts",
            vec![
                ("try narrow", cast(reg("c"), DataType::Int32, CastFailure::Null)),
                ("try unsigned", cast(reg("a"), DataType::UInt16, CastFailure::Null)),
                ("try signed", cast(reg("x"), DataType::Int64, CastFailure::Null)),
                ("to float", cast(reg("c"), DataType::Float64, CastFailure::Error)),
                ("float to int", cast(reg("e"), DataType::Int32, CastFailure::Null)),
                ("float to byte", cast(reg("e"), DataType::Int8, CastFailure::Null)),
                ("narrow float", cast(reg("e"), DataType::Float32, CastFailure::Error)),
                ("bool", cast(reg("a"), DataType::Bool, CastFailure::Error)),
                ("of bool", cast(reg("g"), DataType::Int32, CastFailure::Error)),
                (
                    "to decimal",
                    cast(
                        reg("a"),
                        DataType::Decimal128 { precision: 4, scale: 2 },
                        CastFailure::Null,
                    ),
                ),
                (
                    "rescaled",
                    cast(
                        reg("d"),
                        DataType::Decimal128 { precision: 10, scale: 1 },
                        CastFailure::Null,
                    ),
                ),
                (
                    "finer",
                    cast(
                        reg("d"),
                        DataType::Decimal128 { precision: 12, scale: 5 },
                        CastFailure::Null,
                    ),
                ),
                ("decimal to float", cast(reg("d"), DataType::Float64, CastFailure::Error)),
                (
                    "timestamp",
                    cast(
                        reg("t"),
                        DataType::Timestamp { unit: TimeUnit::Millisecond, timezone: None },
                        CastFailure::Error,
                    ),
                ),
            ],
        ),
        Case {
            name: "computed register",
            steps: vec![
                Step::Compute(named("twice", add(reg("b"), reg("b")))),
                Step::Filter(lt(appended(0, DataType::Int32, true, "twice"), i32s(60))),
            ],
            sink: aggregate(
                vec![("twice", appended(0, DataType::Int32, true, "twice"))],
                vec![count()],
            ),
        },
    ]
}

fn aggregates() -> Vec<Case> {
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

fn joins() -> Vec<Case> {
    use ProbeKind::{Anti, Inner, Left, NullAwareAnti, Semi};
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
    vec![
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
fn several_matches() -> Vec<Case> {
    use AggregateFunction::{Max, Min};
    use ProbeKind::{Anti, Inner, Left, Semi};
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
        Step::Probe(Probe { build, keys, kind, null_equal: false, residual, payload: all() })
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
        case("several inner", vec![few(), inner()], everything(false)),
        case("several left", vec![probe(SEVERAL, Left, vec![reg("b")], all())], everything(true)),
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

/// Groups without known bounds, or too many of them to be numbered densely.
fn hashed_groups() -> Vec<Case> {
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
    let case = |name, steps, sink| Case { name, steps, sink };
    let big = appended(3, DataType::Int64, true, "big");
    let year = |nullable| appended(0, DataType::Int32, nullable, "year");
    vec![
        case("hashed by a wide integer", vec![], by(&["c"], calls())),
        case("hashed by two words", vec![], by(&["x", "h", "u"], vec![sum(reg("k"))])),
        case("hashed by unsigned and truth", vec![], by(&["x", "g"], calls())),
        case("hashed by many small keys", vec![], by(&["k", "u", "t", "f"], calls())),
        case(
            "hashed by nothing that is left",
            vec![Step::Filter(lt(reg("a"), i32s(-1000)))],
            by(&["x"], calls()),
        ),
        case(
            "hashed by payload of several",
            vec![probe(SEVERAL, Left, vec![reg("b")], vec![0, 1, 2, 3, 4])],
            aggregate(vec![("big", big), ("year", year(true))], calls()),
        ),
        case(
            "hashed by several",
            vec![probe(SEVERAL, Inner, vec![reg("k")], vec![0])],
            aggregate(vec![("c", reg("c")), ("year", year(false))], calls()),
        ),
    ]
}

/// Nothing matches; keys of the payload have no bounds but NULL.
fn empty_builds() -> Vec<Case> {
    use ProbeKind::{Anti, Inner, Left, NullAwareAnti, Semi};
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
            "rows left of nothing",
            step(Left, vec![0, 1]),
            rows(vec![("b", reg("b")), ("year", year()), ("brand", brand())]),
        ),
        case("semi of nothing", step(Semi, vec![]), counts()),
        case("anti of nothing", step(Anti, vec![]), counts()),
        case("not in nothing", step(NullAwareAnti, vec![]), counts()),
    ]
}

fn failures() -> Vec<Case> {
    let case_of = |name, steps, argument| Case {
        name,
        steps,
        sink: aggregate(vec![], vec![sum(argument), count()]),
    };
    let big = |e| mul(e, i32s(100_000_000));
    let unfiltered = vec![];
    vec![
        case_of("overflow", unfiltered.clone(), big(reg("k"))),
        case_of(
            "no overflow behind a filter",
            vec![Step::Filter(lt(reg("k"), i32s(20)))],
            big(reg("k")),
        ),
        case_of(
            "no division by zero behind a filter",
            vec![Step::Filter(cmp(CompareOp::Ne, reg("a"), i32s(0)))],
            div(reg("k"), reg("a")),
        ),
        case_of("division by zero", unfiltered.clone(), div(reg("k"), reg("a"))),
        case_of(
            "cast fails",
            unfiltered.clone(),
            cast(reg("k"), DataType::Int8, CastFailure::Error),
        ),
        case_of(
            "negation overflows",
            unfiltered.clone(),
            cast(
                Expr::Negate { value: Box::new(reg("h")), on_overflow: OnOverflow::Error },
                DataType::Int32,
                CastFailure::Error,
            ),
        ),
        case_of(
            "decimal digits overflow",
            unfiltered,
            mul(reg("d"), int(DataType::Decimal128 { precision: 38, scale: 0 }, 10i128.pow(36))),
        ),
        Case {
            name: "and stops before a failure",
            steps: vec![Step::Filter(Expr::And(vec![
                cmp(CompareOp::Ne, reg("a"), i32s(0)),
                lt(div(reg("k"), reg("a")), i32s(5)),
            ]))],
            sink: aggregate(vec![], vec![count()]),
        },
        Case {
            name: "or stops before a failure",
            steps: vec![Step::Filter(Expr::Or(vec![
                eq(reg("a"), i32s(0)),
                lt(div(reg("k"), reg("a")), i32s(5)),
            ]))],
            sink: aggregate(vec![], vec![count()]),
        },
    ]
}

/// Counts by dictionary text.
pub fn by_text() -> Case {
    Case { name: "by text", steps: vec![], sink: aggregate(vec![("f", reg("f"))], vec![count()]) }
}

/// Tables of which one code lies outside its dictionary (or its translation).
pub fn corrupt_tables() -> Vec<(Shape, Table)> {
    let mut tables = Vec::new();
    for shape in crate::differential::shapes() {
        for code in [TEXTS as u8 + 1, 0x7f, 0xff] {
            let shape = Shape { nulls: false, ..shape };
            let mut table = Table::random(shape, &[1000, 77]);
            // One with a code translation, one without.
            let (segment, row) = if code == 0x7f { (1, 76) } else { (0, 999) };
            let column = &mut table.segments[segment].columns[5];
            let width = usize::from(shape.code_bytes);
            let at = shape.skew + row * width;
            column.values[at..at + width].fill(code);
            tables.push((shape, table));
        }
    }
    tables
}
