//! Functions that users write, beside twins that mean the same.

use headrace_ir::Value;
use headrace_ir::function::Function;

use super::*;

fn called(name: &str, arguments: Vec<(&str, Expr)>, body: &str, twin: Expr) -> Expr {
    let parameters = arguments.iter().map(|(name, e)| ((*name).to_string(), e.data_type()));
    let function = CudaFunction {
        name: name.into(),
        parameters: parameters.collect(),
        result: twin.data_type(),
        body: body.into(),
    };
    assert_eq!(function.error(), None);
    let arguments: Vec<_> = arguments.into_iter().map(|(_, argument)| argument).collect();
    // As a planner makes it: NULL for NULL.
    let is_there = arguments.iter().filter(|argument| argument.nullable());
    let is_there: Vec<_> = is_there.map(|argument| not(is_null(argument.clone()))).collect();
    let twin = match is_there.is_empty() {
        true => twin,
        false => case(vec![(Expr::And(is_there), twin)], None),
    };
    Expr::Cuda { function: Box::new(function), arguments, twin: Some(Box::new(twin)) }
}

fn apply(function: Function, arguments: Vec<Expr>) -> Expr {
    let types: Vec<_> = arguments.iter().map(Expr::data_type).collect();
    let data_type = function.signature(&types).unwrap().result;
    Expr::Call { function, arguments, data_type }
}

fn wide(value: Expr) -> Expr {
    cast(value, DataType::Int64, CastFailure::Error)
}

/// Fails as a process does, for rows that it must not see.
fn of_small(of: &str) -> Expr {
    let body = "if (x < 0 || x >= 40) *static_cast<volatile int*>(nullptr) = 1;\n\
                return 2ll * x;";
    let twin =
        arith(ArithmeticOp::Multiply, wide(reg(of)), int(DataType::Int64, 2), OnOverflow::Wrap);
    called("of_small", vec![("x", reg(of))], body, twin)
}

const TANIMOTO: &str = "unsigned common = 0, either = 0;
for (unsigned i = 0; i < a.size; ++i) {
    common += __popc(a[i] & b.data[i]);
    either += __popc(a[i] | b[i]);
}
return either == 0 ? 1.0 : double(common) / double(either);";

/// In the order of additions that `dot` has.
const PRODUCT: &str = "double sums[8] = {};
for (unsigned i = 0; i < a.size; i += 8) {
#pragma unroll
    for (unsigned lane = 0; lane < 8; ++lane)
        if (i + lane < a.size) sums[lane] += double(a[i + lane]) * double(b[i + lane]);
}
return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));";

fn product(of: &str) -> Expr {
    let twin = apply(Function::Dot, vec![reg(of), reg(of)]);
    called(&format!("product_of_{of}"), vec![("a", reg(of)), ("b", reg(of))], PRODUCT, twin)
}

pub fn user_functions() -> Vec<Case> {
    let alike = || {
        let twin = apply(Function::Tanimoto, vec![reg("p"), reg("p")]);
        called("alike", vec![("a", reg("p")), ("b", reg("p"))], TANIMOTO, twin)
    };
    let bytes = || {
        let twin = apply(Function::OctetLength, vec![reg("f")]);
        let body = "uint32_t n = 0;\nfor (uint8_t byte : text) n += byte >= 0;\nreturn n;";
        called("bytes", vec![("text", reg("f"))], body, twin)
    };
    let is_small =
        || vec![Step::Filter(ge(reg("a"), i32s(0))), Step::Filter(lt(reg("a"), i32s(40)))];
    vec![
        Case {
            name: "functions of users",
            steps: is_small(),
            sink: rows(vec![
                ("twice", of_small("a")),
                ("alike", alike()),
                ("product", product("v")),
                ("wide product", product("z")),
                ("bytes", bytes()),
                ("a", reg("a")),
            ]),
        },
        Case {
            name: "functions of users behind conditions",
            steps: vec![
                Step::Filter(Expr::And(vec![
                    ge(reg("a"), i32s(0)),
                    lt(reg("a"), i32s(40)),
                    lt(of_small("a"), int(DataType::Int64, 60)),
                ])),
                Step::Filter(ge(
                    alike(),
                    Expr::Literal(Scalar::new(DataType::Float64, Value::Float(0.5))),
                )),
            ],
            sink: rows(vec![("a", reg("a"))]),
        },
        Case {
            name: "functions of users in branches",
            steps: vec![],
            sink: rows(vec![(
                "chosen",
                case(
                    vec![(
                        Expr::And(vec![ge(reg("b"), i32s(0)), lt(reg("b"), i32s(40))]),
                        of_small("b"),
                    )],
                    None,
                ),
            )]),
        },
        Case {
            name: "functions of users in groups",
            steps: is_small(),
            sink: aggregate(
                vec![("h", reg("h"))],
                vec![
                    count(),
                    call(AggregateFunction::Sum, Some(of_small("a"))),
                    call(AggregateFunction::Max, Some(alike())),
                    call(AggregateFunction::Min, Some(product("v"))),
                ],
            ),
        },
    ]
}
