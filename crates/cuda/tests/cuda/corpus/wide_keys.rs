//! Builds whose keys are more than two words, texts, floats, or NULL, and probes of them; groups by floats.

use arrow_array::{Decimal128Array, Float32Array, UInt16Array};

use super::*;
use crate::data::long_text;

/// Texts of the column, short and long, others, and one that is not there.
fn texts() -> impl Iterator<Item = (i32, Option<String>)> {
    let text = |i: i32| match i {
        0..=33 => format!("text {i:02}{}", if i < 30 { "" } else { &"ééé"[..i as usize % 4 * 2] }),
        34..=39 => long_text(i as usize),
        // Almost the same.
        40..=45 => format!("{}!", long_text(i as usize - 6)),
        46..=51 => long_text(i as usize - 12).replacen(['t', 'x'], "y", 1),
        // A prefix of another.
        52 => long_text(35)[..31].to_string(),
        _ => String::new(),
    };
    let some = (0..54).filter(|i| i % 7 != 0).map(move |i| (i, Some(text(i))));
    some.chain([(54, None), (55, Some("text 01".into())), (56, None), (57, Some("text 02".into()))])
}

pub fn builds() -> Vec<Arc<BuildTable>> {
    let field = |name: &str, t| Field::new(name, t, true);
    let number = [field("number", DataType::Int32)];
    let of = |name, keys: &[Field], columns: Vec<ArrayRef>, nulls_equal| {
        let payload: ArrayRef = Arc::new(Int32Array::from_iter_values(0..columns[0].len() as i32));
        let options = BuildOptions { nulls_equal, ..BuildOptions::default() };
        let columns = columns.into_iter().chain([payload]).collect();
        Arc::new(build_with(name, keys, &number, columns, options))
    };
    let (text, small) = (field("t", DataType::Utf8), field("h", DataType::Int8));
    let all: Vec<_> = texts().collect();
    let text_column =
        || -> ArrayRef { Arc::new(all.iter().map(|(_, t)| t.clone()).collect::<StringArray>()) };
    let pairs: Vec<_> =
        all.iter().flat_map(|(i, t)| (-40i8..40).map(move |h| (t, h, i + i32::from(h)))).collect();
    let pairs: Vec<_> = pairs.iter().filter(|(.., sum)| sum % 3 != 0).collect();
    let pair_columns: Vec<ArrayRef> = vec![
        Arc::new(pairs.iter().map(|(t, ..)| (*t).clone()).collect::<StringArray>()),
        Arc::new(
            pairs.iter().map(|(_, h, sum)| (sum % 7 != 0).then_some(*h)).collect::<Int8Array>(),
        ),
    ];
    let numbers: Vec<(i64, i64)> =
        (-50..50).step_by(2).flat_map(|a| (0..99).step_by(3).map(move |b| (a, b))).collect();
    let wide = |name: &str| field(name, DataType::Int64);
    let column = |of: fn(&(i64, i64)) -> i64| -> ArrayRef {
        Arc::new(numbers.iter().map(|pair| Some(of(pair))).collect::<Int64Array>())
    };
    // Behind a small number and its NULL a float lies anywhere.
    let crooked: Vec<(Option<u16>, Option<f32>)> = (0..300u16)
        .map(|i| ((i % 11 != 0).then_some(i), (i % 13 != 0).then(|| f32::from(i) * 6.25 - 1000.0)))
        .collect();
    let digits = DataType::Decimal128 { precision: 38, scale: 0 };
    let large: Vec<(i64, i128)> =
        (-50..50).step_by(3).flat_map(|a| (1..500).step_by(7).map(move |k| (a, k))).collect();
    let decimals = large.iter().map(|pair| pair.1).collect::<Decimal128Array>();
    let decimals = decimals.with_precision_and_scale(38, 0).unwrap();
    let floats = (-8000..8000).step_by(3).map(|quarter| Some(f64::from(quarter) / 8.0));
    let floats = floats.chain([Some(f64::NAN), Some(-0.0), None]);
    let with_nulls: Vec<(Option<i32>, Option<bool>)> = (0..120)
        .map(|i| {
            ((i % 9 != 0).then_some(i * 7 % 100), [None, Some(true), Some(false)][i as usize % 3])
        })
        .collect();
    vec![
        of("by_text", std::slice::from_ref(&text), vec![text_column()], false),
        of("by_text_and_number", &[text.clone(), small.clone()], pair_columns.clone(), false),
        of("nulls_of_a_pair", &[text, small], pair_columns, true),
        of(
            "nulls_of_numbers",
            &[field("b", DataType::Int32), field("g", DataType::Bool)],
            vec![
                Arc::new(with_nulls.iter().map(|pair| pair.0).collect::<Int32Array>()),
                Arc::new(with_nulls.iter().map(|pair| pair.1).collect::<BooleanArray>()),
            ],
            true,
        ),
        of(
            "three_words",
            &[wide("a"), wide("a again"), wide("b")],
            vec![column(|pair| pair.0), column(|pair| pair.0), column(|pair| pair.1)],
            false,
        ),
        of(
            "floats",
            &[field("e", DataType::Float64)],
            vec![Arc::new(floats.collect::<Float64Array>())],
            false,
        ),
        of(
            "crooked_floats",
            &[field("u", DataType::UInt16), field("y", DataType::Float32)],
            vec![
                Arc::new(crooked.iter().map(|pair| pair.0).collect::<UInt16Array>()),
                Arc::new(crooked.iter().map(|pair| pair.1).collect::<Float32Array>()),
            ],
            true,
        ),
        of(
            "a_number_and_a_decimal",
            &[wide("a"), field("k", digits)],
            vec![
                Arc::new(large.iter().map(|pair| Some(pair.0)).collect::<Int64Array>()),
                Arc::new(decimals),
            ],
            false,
        ),
        of(
            "no_pairs",
            &[field("t", DataType::Utf8), field("h", DataType::Int8)],
            vec![Arc::new(StringArray::new_null(0)), Arc::new(Int8Array::new_null(0))],
            false,
        ),
    ]
}

/// The builds, by their index in the program.
const BY_TEXT: usize = super::EMPTY + 1;
const BY_TEXT_AND_NUMBER: usize = BY_TEXT + 1;
const NULLS_OF_A_PAIR: usize = BY_TEXT + 2;
const NULLS_OF_NUMBERS: usize = BY_TEXT + 3;
const THREE_WORDS: usize = BY_TEXT + 4;
const FLOATS: usize = BY_TEXT + 5;
const CROOKED_FLOATS: usize = BY_TEXT + 6;
const A_NUMBER_AND_A_DECIMAL: usize = BY_TEXT + 7;
const NO_PAIRS: usize = BY_TEXT + 8;

/// Probes by such keys.
pub fn wide_keys() -> Vec<Case> {
    use ProbeKind::{Anti, Inner, Left, Mark, NullAwareAnti, Semi};
    let case_of = |name, step, sink| Case { name, steps: vec![step], sink };
    let number = || appended(0, DataType::Int32, true, "number");
    let found =
        |keys: Vec<(&str, Expr)>| aggregate(keys, vec![count(), sum(reg("k")), sum(number())]);
    let counts = || aggregate(vec![], vec![count(), sum(reg("k"))]);
    let marked = || {
        let mark = appended(0, DataType::Bool, false, "mark");
        aggregate(vec![("mark", mark)], vec![count(), sum(reg("k"))])
    };
    let shown =
        || rows(vec![("f", reg("f")), ("h", reg("h")), ("k", reg("k")), ("number", number())]);
    let equal = |build, kind, keys, payload| {
        Step::Probe(Probe { kind, payload, null_equal: true, ..Probe::semi(build, keys) })
    };
    let text = || vec![reg("f")];
    let pair = || vec![reg("f"), reg("h")];
    let numbers = || vec![reg("b"), reg("g")];
    let wide = |name| cast(reg(name), DataType::Int64, CastFailure::Error);
    let decimal = |name| {
        let digits = DataType::Decimal128 { precision: 38, scale: 0 };
        cast(reg(name), digits, CastFailure::Error)
    };
    let words = || vec![wide("a"), wide("a"), wide("b")];
    let judged = |kind| {
        let residual = Some(lt(number(), reg("k")));
        let probe = Probe::semi(BY_TEXT_AND_NUMBER, pair());
        Step::Probe(Probe { kind, residual, payload: vec![0], ..probe })
    };
    // A text that no dictionary has: of a code or of a constant.
    let either = || case(vec![(lt(reg("a"), i32s(0)), reg("f"))], Some(super::text("text 07")));
    vec![
        case_of("inner by a text", probe(BY_TEXT, Inner, text(), vec![0]), shown()),
        case_of("left by a text", probe(BY_TEXT, Left, text(), vec![0]), shown()),
        case_of("semi by a text", probe(BY_TEXT, Semi, text(), vec![]), counts()),
        case_of("anti by a text", probe(BY_TEXT, Anti, text(), vec![]), counts()),
        case_of("not in texts", probe(BY_TEXT, NullAwareAnti, text(), vec![]), counts()),
        case_of("mark by a text", probe(BY_TEXT, Mark, text(), vec![]), marked()),
        case_of(
            "inner by a computed text",
            probe(BY_TEXT, Inner, vec![either()], vec![0]),
            found(vec![]),
        ),
        case_of(
            "inner by a pair",
            probe(BY_TEXT_AND_NUMBER, Inner, pair(), vec![0]),
            found(vec![]),
        ),
        case_of(
            "left by a pair",
            probe(BY_TEXT_AND_NUMBER, Left, pair(), vec![0]),
            found(vec![("f", reg("f"))]),
        ),
        case_of("anti by a pair", probe(BY_TEXT_AND_NUMBER, Anti, pair(), vec![]), counts()),
        case_of("judged semi by a pair", judged(Semi), counts()),
        case_of("judged left by a pair", judged(Left), shown()),
        case_of(
            "nulls of a pair are equal",
            equal(NULLS_OF_A_PAIR, Inner, pair(), vec![0]),
            shown(),
        ),
        case_of(
            "nulls of a pair, unequal",
            probe(NULLS_OF_A_PAIR, Inner, pair(), vec![0]),
            found(vec![]),
        ),
        case_of(
            "nulls of a pair, none like it",
            equal(NULLS_OF_A_PAIR, Anti, pair(), vec![]),
            counts(),
        ),
        case_of(
            "nulls of numbers are equal",
            equal(NULLS_OF_NUMBERS, Inner, numbers(), vec![0]),
            found(vec![]),
        ),
        case_of(
            "nulls of numbers, or none",
            equal(NULLS_OF_NUMBERS, Left, numbers(), vec![0]),
            shown(),
        ),
        case_of(
            "nulls of numbers, marked",
            equal(NULLS_OF_NUMBERS, Mark, numbers(), vec![]),
            marked(),
        ),
        case_of(
            "nulls are equal where none is kept",
            equal(THREE_WORDS, Semi, words(), vec![]),
            counts(),
        ),
        case_of("inner by three words", probe(THREE_WORDS, Inner, words(), vec![0]), shown()),
        case_of("anti by three words", probe(THREE_WORDS, Anti, words(), vec![]), counts()),
        case_of(
            "inner by a float anywhere",
            equal(CROOKED_FLOATS, Inner, vec![reg("u"), reg("y")], vec![0]),
            shown(),
        ),
        case_of(
            "inner by a number and a decimal",
            probe(A_NUMBER_AND_A_DECIMAL, Inner, vec![wide("a"), decimal("k")], vec![0]),
            shown(),
        ),
        case_of("left by none", probe(NO_PAIRS, Left, pair(), vec![0]), shown()),
        case_of("not in none", probe(NO_PAIRS, Anti, pair(), vec![]), counts()),
        case_of("inner by a float", probe(FLOATS, Inner, vec![reg("e")], vec![0]), shown()),
        case_of("not in floats", probe(FLOATS, NullAwareAnti, vec![reg("e")], vec![]), counts()),
        Case {
            name: "by floats",
            steps: vec![],
            sink: aggregate(vec![("e", reg("e")), ("y", reg("y"))], vec![count(), sum(reg("a"))]),
        },
        Case {
            name: "by a float that is none",
            steps: vec![Step::Compute(named("q", div_floats(reg("e"))))],
            sink: aggregate(
                vec![("q", appended(0, DataType::Float64, true, "q")), ("f", reg("f"))],
                vec![count()],
            ),
        },
    ]
}

/// Infinities, and what is no number.
fn div_floats(value: Expr) -> Expr {
    let zero = arith(ArithmeticOp::Subtract, value.clone(), value.clone(), OnOverflow::Wrap);
    arith(ArithmeticOp::Divide, value, zero, OnOverflow::Wrap)
}
