//! `list_transform(l, x -> x + 1)`, `list_reduce(l, (so_far, x) -> so_far + x)`: the parser takes the arrow for an operator,
//! which it is in JSON.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    LambdaFunction, LambdaFunctionParameter, LambdaSyntax, ObjectNamePart, OneOrManyWithParens,
    Value,
};

use super::folds;

/// Functions of which an argument is a function, by their other names.
const FUNCTIONS: [(&str, &str); 17] = [
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
    ("list_reduce", folds::NAME),
    ("array_reduce", folds::NAME),
    ("reduce", folds::NAME),
    ("fold", folds::NAME),
];

/// Makes such an argument one: the last, or the one before what a reduction begins with.
pub fn name(function: &mut Function) {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice() else { return };
    let lower = name.value.to_lowercase();
    let Some((_, own)) = FUNCTIONS.iter().find(|(known, _)| *known == lower) else { return };
    let FunctionArguments::List(list) = &mut function.args else { return };
    let place = match *own {
        folds::NAME => 1,
        _ => list.args.len().saturating_sub(1),
    };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = list.args.get_mut(place)
    else {
        return;
    };
    if matches!(argument, Expr::Lambda(_)) {
        *name = Ident::new(*own);
    }
    if let Some(params) = take_parameters(argument) {
        let body = Box::new(std::mem::replace(argument, Expr::value(Value::Null)));
        *argument = Expr::Lambda(LambdaFunction { params, body, syntax: LambdaSyntax::Arrow });
        *name = Ident::new(*own);
    }
}

type Parameters = OneOrManyWithParens<LambdaFunctionParameter>;

/// Takes `x ->` from the front of an expression, which is then the body of the function.
fn take_parameters(expr: &mut Expr) -> Option<Parameters> {
    if let Expr::BinaryOp { left, op: BinaryOperator::Arrow, right } = expr
        && let Some(parameters) = parameters(left)
    {
        let body = std::mem::replace(right.as_mut(), Expr::value(Value::Null));
        *expr = body;
        return Some(parameters);
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
        | Expr::Cast { expr: first, .. } => take_parameters(first),
        _ => None,
    }
}

/// A name alone, or names in parentheses.
fn parameters(expr: &Expr) -> Option<Parameters> {
    let parameter = |expr: &Expr| match expr {
        Expr::Identifier(name) => {
            Some(LambdaFunctionParameter { name: name.clone(), data_type: None })
        }
        _ => None,
    };
    match expr {
        Expr::Nested(inner) => parameters(inner),
        Expr::Tuple(names) => {
            names.iter().map(parameter).collect::<Option<_>>().map(OneOrManyWithParens::Many)
        }
        one => parameter(one).map(OneOrManyWithParens::One),
    }
}
