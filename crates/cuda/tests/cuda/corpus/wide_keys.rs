//! Builds whose keys are more than two words, texts, floats, or NULL, and probes of them; groups by floats.

use super::*;

/// Texts of the column, short and long, others, and one that is not there.
fn texts() -> impl Iterator<Item = (i32, Option<String>)> {
    let text = |i: i32| match i {
        0..=33 => format!("text {i:02}{}", if i < 30 { "" } else { &"ééé"[..i as usize % 4 * 2] }),
        34..=39 => format!("text, one of those that are as long as an address: {i}"),
        // Almost the same.
        40..=45 => format!("text, one of those that are as long as an address: {i}!"),
        46..=50 => "x".repeat(i as usize - 19),
        _ => String::new(),
    };
    let some = (0..52).filter(|i| i % 5 != 0).map(move |i| (i, Some(text(i))));
    some.chain([(52, None), (53, Some("text 01".into())), (54, None), (55, Some("text 02".into()))])
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
    let floats = (-8000..8000).step_by(3).map(|quarter| Some(f64::from(quarter) / 8.0));
    let floats = floats.chain([Some(f64::NAN), Some(-0.0), None]);
    let with_nulls: Vec<(Option<i32>, Option<bool>)> = (0..120)
        .map(|i| {
            ((i % 9 != 0).then_some(i * 7 % 100), [None, Some(true), Some(false)][i as usize % 3])
        })
        .collect();
    vec![
        of("by_text", &[text.clone()], vec![text_column()], false),
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
    ]
}

/// The builds, by their index in the program.
const BY_TEXT: usize = super::EMPTY + 1;
const BY_TEXT_AND_NUMBER: usize = BY_TEXT + 1;
const NULLS_OF_A_PAIR: usize = BY_TEXT + 2;
const NULLS_OF_NUMBERS: usize = BY_TEXT + 3;
const THREE_WORDS: usize = BY_TEXT + 4;
const FLOATS: usize = BY_TEXT + 5;

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
