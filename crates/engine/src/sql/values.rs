//! Values in the planner's words:
//!
//! ```text
//! array[a, b]              make_array(a, b): in a literal, the planner does not see columns of outer queries
//! {'a': 1}.a, f(x).a       {'a': 1}['a'], f(x)['a']
//! user.name                "user".name
//! l[2:], l[:2]             l[2:-1], l[1:2]
//! a // b                   a / b, which is cut off if both are whole
//! l && m                   array_has_any(l, m)
//! struct_pack(a := 1)      named_struct('a', 1)
//! ```

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectNamePart, Subscript, Value,
};

use super::nodes::{call, plain_name};
use super::own::parse_expr;

/// Spells an expression out.
pub fn spell_out(expr: &mut Expr) {
    let meant = match expr {
        Expr::Array(array) if array.elem.iter().any(|element| !is_constant(element)) => {
            Some(Expr::Function(call("make_array", array.elem.iter().cloned())))
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            access_chain.iter_mut().for_each(access);
            keyword_table(root, access_chain)
        }
        Expr::BinaryOp { op: op @ BinaryOperator::DuckIntegerDivide, .. } => {
            *op = BinaryOperator::Divide;
            None
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGOverlap, right } => {
            let both = [left.as_ref().clone(), right.as_ref().clone()];
            Some(Expr::Function(call("array_has_any", both)))
        }
        Expr::Function(function) => struct_pack(function),
        _ => None,
    };
    if let Some(meant) = meant {
        *expr = meant;
    }
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::Array(array) => array.elem.iter().all(is_constant),
        Expr::UnaryOp { expr, .. } | Expr::Cast { expr, .. } | Expr::Nested(expr) => {
            is_constant(expr)
        }
        Expr::TypedString(_) | Expr::Interval(_) => true,
        _ => false,
    }
}

fn text(name: &Ident) -> Expr {
    Expr::value(Value::SingleQuotedString(plain_name(name)))
}

fn access(access: &mut AccessExpr) {
    match access {
        AccessExpr::Dot(name) => {
            if let Expr::Identifier(ident) = name {
                *name = text(ident);
            }
        }
        AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) => {
            let number = |number: &str| parse_expr(number).ok();
            if lower_bound.is_none() {
                *lower_bound = number("1");
            }
            if upper_bound.is_none() {
                *upper_bound = number("-1");
            }
        }
        AccessExpr::Subscript(_) => {}
    }
}

/// A column or table whose name the parser takes for a function without parentheses.
fn keyword_table(root: &Expr, accesses: &[AccessExpr]) -> Option<Expr> {
    let Expr::Function(Function { name, args: FunctionArguments::None, .. }) = root else {
        return None;
    };
    let [ObjectNamePart::Identifier(first)] = name.0.as_slice() else { return None };
    let field = |access: &AccessExpr| match access {
        AccessExpr::Dot(Expr::Value(value)) => match &value.value {
            Value::SingleQuotedString(name) => Some(Ident::with_quote('"', name)),
            _ => None,
        },
        _ => None,
    };
    let fields = accesses.iter().map(field).collect::<Option<Vec<_>>>()?;
    let first = Ident::with_quote('"', plain_name(first));
    Some(Expr::CompoundIdentifier([vec![first], fields].concat()))
}

fn struct_pack(function: &Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    if !name.value.eq_ignore_ascii_case("struct_pack") || list.args.is_empty() {
        return None;
    }
    let field = |arg: &FunctionArg| match arg {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
            Some([text(name), value.clone()])
        }
        FunctionArg::ExprNamed {
            name: Expr::Identifier(name),
            arg: FunctionArgExpr::Expr(value),
            ..
        } => Some([text(name), value.clone()]),
        _ => None,
    };
    let fields = list.args.iter().map(field).collect::<Option<Vec<_>>>()?;
    Some(Expr::Function(call("named_struct", fields.into_iter().flatten())))
}
