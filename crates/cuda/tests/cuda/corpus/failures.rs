//! What must fail, and tables that lie about themselves.

use super::ArithmeticOp::{Add, Divide, Multiply};
use super::*;

pub fn failures() -> Vec<Case> {
    let case_of = |name, steps, argument| Case {
        name,
        steps,
        sink: aggregate(vec![], vec![sum(argument), count()]),
    };
    let big = |e| mul(e, i32s(100_000_000));
    let unfiltered = vec![];
    let float = || cast(reg("k"), DataType::Float64, CastFailure::Error);
    let large = || mul(float(), f64s(1e200));
    let strict = |op, left, right| arith(op, left, right, OnOverflow::Strict);
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
        case_of("a decimal divided by zero", unfiltered.clone(), {
            div(reg("d"), arith(ArithmeticOp::Subtract, reg("d"), reg("d"), OnOverflow::Error))
        }),
        case_of("a dividend beyond 128 bits", unfiltered.clone(), {
            let fine = DataType::Decimal128 { precision: 20, scale: 15 };
            div(mul(reg("d"), reg("d")), int(fine, 12_345))
        }),
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
        case_of("floats overflow", unfiltered.clone(), strict(Multiply, large(), large())),
        case_of("floats underflow", unfiltered.clone(), strict(Divide, f64s(1e-300), large())),
        case_of("floats by zero", unfiltered.clone(), strict(Divide, f64s(1.0), reg("e"))),
        case_of("floats in range", unfiltered.clone(), strict(Add, float(), f64s(0.5))),
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
