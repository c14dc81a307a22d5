//! Named functions.

use headrace_ir::function::{DatePart, Function};

use super::*;

fn apply(function: Function, argument: Expr) -> Expr {
    let data_type = function.signature(&[argument.data_type()]).unwrap().result;
    Expr::Call { function, arguments: vec![argument], data_type }
}

fn part(part: DatePart, of: &str) -> Expr {
    apply(Function::DatePart(part), reg(of))
}

fn began(part: DatePart, of: &str) -> Expr {
    apply(Function::DateTrunc(part), reg(of))
}

fn in_calendar(of: Expr) -> Expr {
    apply(Function::InCalendar, of)
}

fn later_days(days: Expr) -> Expr {
    let day = cast(part(DatePart::Doy, "w"), DataType::Date32, CastFailure::Error);
    let (function, arguments) = (Function::AddDays, vec![day, days]);
    Expr::Call { function, arguments, data_type: DataType::Date32 }
}

pub fn functions() -> Vec<Case> {
    let compute = |name: &'static str, list: Vec<(&'static str, Expr)>| Case {
        name,
        steps: vec![Step::Filter(lt(reg("a"), i32s(40)))],
        sink: rows(list),
    };
    let parts = |of: &str| DatePart::ALL.map(|(p, name)| (name, part(p, of))).to_vec();
    // No moment in ticks of a second or less is so early that a part of it begins before time.
    let later = |of: &str, condition: Vec<(&'static str, Expr)>, name| {
        let data_type = reg(of).data_type();
        let late = ge(reg(of), int(data_type, i128::from(i64::MIN / 2)));
        Case { name, steps: vec![Step::Filter(late)], sink: rows(condition) }
    };
    let begins = |of: &str| {
        let begins = DatePart::ALL.into_iter().filter(|(part, _)| part.begins());
        begins.map(|(p, name)| (name, began(p, of))).collect::<Vec<_>>()
    };
    let decimal = |precision, scale| DataType::Decimal128 { precision, scale };
    let wide = |e, to| cast(e, to, CastFailure::Error);
    let year = || part(DatePart::Year, "w");
    vec![
        compute("parts of days", parts("w")),
        compute("parts of milliseconds", parts("m")),
        compute("parts of nanoseconds", parts("n")),
        later("m", begins("m"), "milliseconds cut down"),
        later("n", begins("n"), "nanoseconds cut down"),
        compute(
            "absolute values",
            vec![
                ("a", apply(Function::Abs, reg("a"))),
                ("c", apply(Function::Abs, reg("c"))),
                ("d", apply(Function::Abs, reg("d"))),
                ("e", apply(Function::Abs, reg("e"))),
                ("y", apply(Function::Abs, reg("y"))),
                ("x", apply(Function::Abs, reg("x"))),
            ],
        ),
        compute(
            "ones among bits",
            vec![
                ("a", apply(Function::BitCount, reg("a"))),
                ("c", apply(Function::BitCount, reg("c"))),
                ("h", apply(Function::BitCount, reg("h"))),
            ],
        ),
        compute(
            "whole numbers",
            vec![
                ("floor", apply(Function::Floor, reg("e"))),
                ("ceil", apply(Function::Ceil, reg("y"))),
                ("floor of decimal", apply(Function::Floor, reg("d"))),
                ("ceil of decimal", apply(Function::Ceil, reg("d"))),
                ("of whole", apply(Function::Ceil, wide(reg("a"), decimal(10, 0)))),
                ("trunc", apply(Function::Trunc(0), reg("e"))),
                ("trunc of decimal", apply(Function::Trunc(1), reg("d"))),
                ("of single", apply(Function::Trunc(0), reg("y"))),
            ],
        ),
        compute(
            "rounded numbers",
            vec![
                ("double", apply(Function::Round(0), div(reg("e"), f64s(8.0)))),
                ("to even", apply(Function::RoundEven, div(reg("e"), f64s(2.0)))),
                ("single to even", apply(Function::RoundEven, reg("y"))),
                ("digits", apply(Function::Round(2), div(reg("e"), f64s(3.0)))),
                ("single", apply(Function::Round(1), reg("y"))),
                ("decimal", apply(Function::Round(1), reg("d"))),
                ("whole decimal", apply(Function::Round(0), reg("d"))),
                ("as it is", apply(Function::Round(5), reg("d"))),
            ],
        ),
        compute(
            "a year of the calendar",
            vec![("year", apply(Function::DatePart(DatePart::Year), in_calendar(reg("t"))))],
        ),
        compute("later days", vec![("later", later_days(i32s(40)))]),
        compute("lengths of texts", vec![("length", apply(Function::CharacterLength, reg("f")))]),
        counted("a length", eq(apply(Function::OctetLength, reg("f")), i32s(7))),
        counted("a long text", lt(apply(Function::OctetLength, reg("f")), add(reg("a"), reg("a")))),
        Case {
            name: "by length",
            steps: vec![],
            sink: aggregate(
                vec![("length", apply(Function::CharacterLength, reg("f"))), ("t", reg("t"))],
                vec![count()],
            ),
        },
        counted("a year", eq(year(), i32s(1970))),
        Case {
            name: "by month",
            steps: vec![Step::Compute(named("month", part(DatePart::Month, "t")))],
            sink: aggregate(
                vec![
                    ("month", appended(0, DataType::Int32, true, "month")),
                    ("dow", part(DatePart::Dow, "w")),
                ],
                vec![count(), sum(reg("a"))],
            ),
        },
        Case {
            name: "hashed by year",
            steps: vec![],
            sink: aggregate(vec![("year", year())], vec![count()]),
        },
    ]
}

/// What must fail.
pub fn failing_functions() -> Vec<Case> {
    let case_of = |name, argument| Case { name, steps: vec![], sink: rows(vec![("", argument)]) };
    let decimal = |precision| DataType::Decimal128 { precision, scale: 1 };
    let whole = cast(reg("a"), decimal(4), CastFailure::Error);
    let half = cast(add(whole, int(decimal(4), 5)), decimal(2), CastFailure::Null);
    vec![
        case_of("the smallest byte has no absolute value", apply(Function::Abs, reg("h"))),
        case_of("a whole decimal of too many digits", apply(Function::Ceil, half)),
        case_of("a day that no date is", later_days(i32s(2_145_042_906))),
        case_of("moments beyond the calendar", in_calendar(reg("m"))),
        case_of("a week that began before time", began(DatePart::Week, "m")),
        case_of("a second that began before time", began(DatePart::Second, "n")),
    ]
}

#[test]
fn what_must_fail_does() {
    for case in failing_functions() {
        for shape in crate::differential::shapes() {
            let table = Table::random(shape, &[8000]);
            let bound = crate::differential::bound_of(&case, &table, &[]).unwrap();
            let answer = crate::differential::on_cpu(&bound, &table);
            assert!(answer.is_err_and(|error| error.contains("overflow")), "{}", case.name);
        }
    }
}
