//! Bytes and vectors, and how alike they are.

use arrow_array::{FixedSizeBinaryArray, FixedSizeListArray, Float32Array};
use headrace_ir::Value;
use headrace_ir::function::Function;

use super::*;

/// Builds of the corpus behind those by wide keys: rows that are paired with all, and rows by `b`.
const PAIRED: usize = super::EMPTY + 10;
const PRINTS: usize = PAIRED + 1;

fn types() -> [DataType; 4] {
    ["p", "q", "v", "o"].map(|of| reg(of).data_type())
}

/// Bytes and vectors beside keys, some of them NULL.
pub fn builds() -> Vec<Arc<BuildTable>> {
    let payload = ["p", "q", "v", "o"].into_iter().zip(types());
    let payload: Vec<_> = payload.map(|(name, of)| Field::new(name, of, name != "q")).collect();
    let key = [Field::new("key", DataType::Int32, false)];
    let bytes = |row: i32, count: i32| (0..count).map(move |i| (row * 89 + i * 57 + 3) as u8);
    let of = |name: &str, keys: Vec<i32>, domain: i32| {
        let rows = || 0..keys.len() as i32;
        let wide = rows().map(|row| (row % 4 != 2).then(|| bytes(row, 32).collect::<Vec<_>>()));
        let long = rows().map(|row| (row % 6 != 3).then(|| bytes(row, 144).collect::<Vec<_>>()));
        let narrow = rows().map(|row| bytes(row, 7).collect::<Vec<_>>());
        let floats = rows().flat_map(|row| (0..12).map(move |i| (row * i) as f32 * 1.7 - 31.5));
        let item =
            Arc::new(arrow_schema::Field::new_list_field(arrow_schema::DataType::Float32, false));
        let valid = arrow_buffer::NullBuffer::from_iter(rows().map(|row| row % 5 != 1));
        let floats: ArrayRef = Arc::new(Float32Array::from_iter_values(floats));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(keys.iter().map(|key| key % domain).collect::<Int32Array>()),
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(wide, 32).unwrap()),
            Arc::new(FixedSizeBinaryArray::try_from_iter(narrow).unwrap()),
            Arc::new(FixedSizeListArray::new(item, 12, floats, Some(valid))),
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(long, 144).unwrap()),
        ];
        Arc::new(build(name, &key, &payload, columns))
    };
    vec![of("paired", vec![1; 37], 2), of("prints", (0..300).map(|k| k * 2).collect(), 1000)]
}

/// Pairs with rows of builds that hold bytes.
fn pairs() -> Vec<Case> {
    let [p, q, v, o] = types();
    let of =
        |at: usize, of: &DataType, nullable, name: &str| appended(at, of.clone(), nullable, name);
    let alike = |nullable| {
        vec![
            ("alike", apply(Function::Tanimoto, vec![reg("p"), of(0, &p, true, "p")])),
            ("apart", apply(Function::HammingDistance, vec![reg("q"), of(1, &q, nullable, "q")])),
        ]
    };
    let all = || probe(PAIRED, ProbeKind::Inner, vec![i32s(1)], vec![0, 1, 2, 3]);
    let few = || Step::Filter(lt(reg("a"), i32s(40)));
    let case = |name, steps, sink| Case { name, steps, sink };
    let largest = |column: (&str, Expr)| call(AggregateFunction::Max, Some(column.1));
    let [of_bits, of_bytes] = [0, 1].map(|at| alike(false)[at].clone());
    vec![
        case("all pairs of bits", vec![few(), all()], rows(alike(false))),
        case(
            "all pairs, and what they are made of",
            vec![few(), all()],
            rows(vec![
                ("p", of(0, &p, true, "p")),
                ("q", of(1, &q, false, "q")),
                ("v", of(2, &v, true, "v")),
                ("a", reg("a")),
            ]),
        ),
        case(
            "pairs under a condition",
            vec![all(), Step::Filter(lt(of_bytes.1.clone(), int(DataType::Int64, 25)))],
            aggregate(vec![], vec![count(), sum(reg("a"))]),
        ),
        case(
            "the nearest of each of several",
            vec![all()],
            aggregate(vec![("h", reg("h"))], vec![count(), largest(of_bits), largest(of_bytes)]),
        ),
        // Their common bits are counted by warps, sixteen rows of the build at a time.
        case(
            "long pairs by group",
            vec![all()],
            aggregate(
                vec![("h", reg("h"))],
                vec![
                    count(),
                    largest(("alike", likeness(Function::Tanimoto, 3, &o, "o"))),
                    call(
                        AggregateFunction::Sum,
                        Some(likeness(Function::HammingDistance, 3, &o, "o")),
                    ),
                ],
            ),
        ),
        case(
            "long pairs that are near, of some rows",
            vec![
                Step::Filter(lt(reg("a"), i32s(-20))),
                all(),
                Step::Filter(lt(
                    likeness(Function::HammingDistance, 3, &o, "o"),
                    int(DataType::Int64, 540),
                )),
            ],
            rows(vec![("a", reg("a")), ("alike", likeness(Function::Tanimoto, 3, &o, "o"))]),
        ),
        case(
            "likeness of a match",
            vec![few(), probe(PRINTS, ProbeKind::Inner, vec![reg("b")], vec![0, 1])],
            rows(alike(false)),
        ),
        case(
            "likeness of a match, if any",
            vec![few(), probe(PRINTS, ProbeKind::Left, vec![reg("b")], vec![0, 1])],
            rows(alike(true)),
        ),
        case(
            "no match's bytes",
            vec![few(), probe(PRINTS, ProbeKind::Left, vec![reg("b")], vec![0, 1])],
            rows(vec![("p", of(0, &p, true, "p")), ("q", of(1, &q, true, "q")), ("a", reg("a"))]),
        ),
    ]
}

/// Of a column and the payload of that name.
fn likeness(function: Function, at: usize, of: &DataType, name: &str) -> Expr {
    apply(function, vec![appended(at, of.clone(), true, name), reg(name)])
}

fn apply(function: Function, arguments: Vec<Expr>) -> Expr {
    let types: Vec<_> = arguments.iter().map(Expr::data_type).collect();
    let data_type = function.signature(&types).unwrap().result;
    Expr::Call { function, arguments, data_type }
}

/// A constant of a column's type.
fn constant(of: &str) -> Expr {
    let data_type = reg(of).data_type();
    let bytes = match data_type {
        DataType::FloatList { item_bytes: 4, items } => {
            (0..items).flat_map(|i| (i as f32 * 7.3 - 31.7).to_le_bytes()).collect()
        }
        DataType::FloatList { items, .. } => {
            (0..items).flat_map(|i| (f64::from(i) * 7.3 - 31.7).to_le_bytes()).collect()
        }
        _ => (0..data_type.plain_width_bytes().unwrap()).map(|i| (i * 89 + 3) as u8).collect(),
    };
    Expr::Literal(Scalar::new(data_type, Value::Binary(bytes)))
}

fn between(function: Function, of: &str) -> Expr {
    apply(function, vec![reg(of), constant(of)])
}

pub fn distances() -> Vec<Case> {
    [alone(), pairs()].concat()
}

fn alone() -> Vec<Case> {
    let compute = |name: &'static str, list: Vec<(&'static str, Expr)>| Case {
        name,
        steps: vec![Step::Filter(lt(reg("a"), i32s(40)))],
        sink: rows(list),
    };
    let chosen = |one: &str| case(vec![(lt(reg("a"), i32s(0)), reg(one))], None);
    let chosen_or = |one: &str| case(vec![(lt(reg("a"), i32s(0)), reg(one))], Some(constant(one)));
    let listed = |of: &str| {
        let Expr::Literal(scalar) = constant(of) else { panic!("a constant") };
        in_list(reg(of), vec![scalar], true)
    };
    let of_bits = || {
        vec![
            ("ones", apply(Function::BitCount, vec![reg("p")])),
            ("ones of seven bytes", apply(Function::BitCount, vec![reg("q")])),
            ("apart", between(Function::HammingDistance, "p")),
            ("alike", between(Function::Tanimoto, "p")),
            ("seven apart", between(Function::HammingDistance, "q")),
            ("seven alike", between(Function::Tanimoto, "q")),
            ("itself", apply(Function::Tanimoto, vec![reg("p"), reg("p")])),
        ]
    };
    let of_vectors = |of: &'static str| {
        vec![
            ("product", between(Function::Dot, of)),
            ("far", between(Function::L2Distance, of)),
            ("itself", apply(Function::L2Distance, vec![reg(of), reg(of)])),
        ]
    };
    let nearest = |name, distance, limit| Case {
        name,
        steps: vec![],
        sink: first_rows(vec![("distance", distance), ("a", reg("a")), ("x", reg("x"))], limit),
    };
    vec![
        compute("likeness of bits", of_bits()),
        compute("likeness of vectors", of_vectors("v")),
        compute("likeness of wide vectors", of_vectors("z")),
        compute("angles of vectors", vec![("turned", between(Function::CosineDistance, "v"))]),
        compute("angles of wide vectors", vec![("turned", between(Function::CosineDistance, "z"))]),
        compute(
            "bytes and vectors as they are",
            ["p", "q", "v", "z"].map(|of| (of, reg(of))).to_vec(),
        ),
        compute(
            "chosen bytes",
            vec![
                ("p", chosen("p")),
                ("q", chosen_or("q")),
                ("v", chosen("v")),
                ("z", chosen_or("z")),
            ],
        ),
        Case {
            name: "bytes that are compared",
            steps: vec![
                Step::Filter(not(eq(reg("p"), constant("p")))),
                Step::Filter(lt(reg("q"), constant("q"))),
                Step::Filter(listed("q")),
            ],
            sink: rows(vec![("q", reg("q")), ("none", is_null(reg("v")))]),
        },
        nearest("the nearest by bits", between(Function::Tanimoto, "p"), 5),
        nearest("the nearest by floats", between(Function::L2Distance, "v"), 8),
        nearest("the nearest by angle", between(Function::CosineDistance, "z"), 9),
        Case {
            name: "likeness by group",
            steps: vec![],
            sink: aggregate(
                vec![("h", reg("h"))],
                vec![
                    count(),
                    call(AggregateFunction::Max, Some(between(Function::Tanimoto, "p"))),
                    call(AggregateFunction::Min, Some(between(Function::L2Distance, "v"))),
                ],
            ),
        },
    ]
}
