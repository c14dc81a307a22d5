//! Bytes and vectors, and how alike they are.

use headrace_ir::Value;
use headrace_ir::function::Function;

use super::*;

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
