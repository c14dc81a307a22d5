//! Expressions of every type.

use super::*;

const WHOLE: DataType = DataType::Decimal128 { precision: 10, scale: 0 };

fn decimal(precision: u8, scale: i8, value: i128) -> Expr {
    int(DataType::Decimal128 { precision, scale }, value)
}

fn one() -> Expr {
    decimal(20, 4, 10_000)
}

fn modulo(left: Expr, right: Expr) -> Expr {
    arith(ArithmeticOp::Modulo, left, right, OnOverflow::Error)
}

pub fn expressions() -> Vec<Case> {
    let as_decimal = |column, precision, scale| {
        cast(reg(column), DataType::Decimal128 { precision, scale }, CastFailure::Null)
    };
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
        compute(
            "decimals divided",
            vec![
                ("quotient", div(reg("d"), decimal(20, 4, -12_345))),
                ("other", div(decimal(20, 4, 12_345), add(mul(reg("d"), reg("d")), one()))),
                ("whole", div(cast(reg("k"), WHOLE, CastFailure::Error), decimal(9, 0, 7))),
                (
                    "guarded",
                    case(
                        vec![(
                            cmp(CompareOp::Ne, reg("d"), decimal(12, 2, 0)),
                            div(one(), reg("d")),
                        )],
                        None,
                    ),
                ),
                ("rest", modulo(reg("d"), decimal(20, 4, 70_001))),
                ("whole rest", modulo(reg("d"), decimal(5, 0, -7))),
            ],
        ),
        compute("case", vec![("class", classes), ("guarded", guarded)]),
        compute(
            "case of codes",
            vec![
                ("some", case(vec![(lt(reg("b"), i32s(30)), reg("f"))], None)),
                ("same", case(vec![(lt(reg("b"), i32s(30)), reg("f"))], Some(reg("f")))),
            ],
        ),
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
                ("to decimal", as_decimal("a", 4, 2)),
                ("rescaled", as_decimal("d", 10, 1)),
                ("finer", as_decimal("d", 12, 5)),
                ("float to decimal", as_decimal("e", 5, 2)),
                ("float to a long decimal", as_decimal("e", 38, 15)),
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
