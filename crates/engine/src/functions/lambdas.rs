//! `list_transform(l, x -> x + 1)`: the parser takes the arrow for an operator, which it is in JSON.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    LambdaFunction, LambdaFunctionParameter, LambdaSyntax, ObjectNamePart, OneOrManyWithParens,
    Value,
};

/// Functions whose last argument is a function, by their other names.
const FUNCTIONS: [(&str, &str); 13] = [
    ("list_transform", "array_transform"),
    ("array_transform", "array_transform"),
    ("list_apply", "array_transform"),
    ("array_apply", "array_transform"),
    ("transform", "array_transform"),
    ("apply", "array_transform"),
    ("list_filter", "array_filter"),
    ("array_filter", "array_filter"),
    ("filter", "array_filter"),
    ("array_any_match", "array_any_match"),
    ("list_any_match", "array_any_match"),
    ("array_first", "array_first"),
    ("list_first_match", "array_first"),
];

/// Makes the last argument of such a function one.
pub fn name(function: &mut Function) {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice() else { return };
    let lower = name.value.to_lowercase();
    let Some((_, own)) = FUNCTIONS.iter().find(|(known, _)| *known == lower) else { return };
    let FunctionArguments::List(list) = &mut function.args else { return };
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(last))) = list.args.last_mut()
        && let Some(parameter) = take_parameter(last)
    {
        let body = Box::new(std::mem::replace(last, Expr::value(Value::Null)));
        let parameter = LambdaFunctionParameter { name: parameter, data_type: None };
        let params = OneOrManyWithParens::One(parameter);
        *last = Expr::Lambda(LambdaFunction { params, body, syntax: LambdaSyntax::Arrow });
        *name = Ident::new(*own);
    }
}

/// Takes `x ->` from the front of an expression, which is then the body of the function.
fn take_parameter(expr: &mut Expr) -> Option<Ident> {
    if let Expr::BinaryOp { left, op: BinaryOperator::Arrow, right } = expr
        && let Some(parameter) = parameter(left)
    {
        let body = std::mem::replace(right.as_mut(), Expr::value(Value::Null));
        *expr = body;
        return Some(parameter);
    }
    match expr {
        Expr::BinaryOp { left: first, .. }
        | Expr::IsNull(first)
        | Expr::IsNotNull(first)
        | Expr::IsTrue(first)
        | Expr::IsFalse(first)
        | Expr::Between { expr: first, .. }
        | Expr::InList { expr: first, .. }
        | Expr::Like { expr: first, .. }
        | Expr::ILike { expr: first, .. }
        | Expr::Cast { expr: first, .. } => take_parameter(first),
        _ => None,
    }
}

/// A name alone, or in parentheses.
fn parameter(expr: &Expr) -> Option<Ident> {
    match expr {
        Expr::Identifier(name) => Some(name.clone()),
        Expr::Nested(inner) => parameter(inner),
        _ => None,
    }
}
