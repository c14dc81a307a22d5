//! Filters: what passes.

use super::*;

pub fn filters() -> Vec<Case> {
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
