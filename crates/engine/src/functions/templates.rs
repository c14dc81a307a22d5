//! Expressions of templates: calls that mean them, with arguments in the places of `$1`, `$2`.

use std::ops::ControlFlow;

use datafusion::common::{Result, plan_datafusion_err};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
    VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::sql::walk::{Flow, Stop, change_all};

/// Arguments that are nothing but expressions.
pub fn arguments(call: &Function) -> Option<Vec<Expr>> {
    let list = match &call.args {
        FunctionArguments::List(list) => list,
        FunctionArguments::None => return Some(Vec::new()),
        FunctionArguments::Subquery(_) => return None,
    };
    let argument = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(argument).collect()
}

/// The expression of a template with arguments in their places.
pub fn expanded(template: &str, arguments: &[Expr]) -> Result<Expr> {
    let parsed = Parser::new(&GenericDialect {}).try_with_sql(template);
    let parsed = parsed.and_then(|mut parser| parser.parse_expr());
    let mut expr = parsed.map_err(|cause| plan_datafusion_err!("{template}: {cause}"))?;
    fill(&mut expr, arguments);
    Ok(Expr::Nested(Box::new(expr)))
}

/// Puts arguments in the places of `$1`, `$2` and so on.
pub fn fill(node: &mut impl VisitMut, arguments: &[Expr]) {
    change_all(node, &mut Place(arguments));
}

struct Place<'a>(&'a [Expr]);

impl VisitorMut for Place<'_> {
    type Break = Stop;

    // Behind the walk: what is put there has no places.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(place) = &value.value
            && let Some(nth) = place.strip_prefix('$').and_then(|n| n.parse::<usize>().ok())
            && let Some(argument) = nth.checked_sub(1).and_then(|nth| self.0.get(nth))
        {
            *expr = match argument {
                simple @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)) => {
                    simple.clone()
                }
                other => Expr::Nested(Box::new(other.clone())),
            };
        }
        ControlFlow::Continue(())
    }
}

/// The clauses of a call belong to the aggregate that it means.
pub fn with_clauses(meant: Expr, call: &Function) -> Result<Expr> {
    let distinct_or_order = match &call.args {
        FunctionArguments::List(list) => (list.duplicate_treatment, list.clauses.clone()),
        _ => (None, Vec::new()),
    };
    let has_some = call.filter.is_some()
        || call.over.is_some()
        || call.null_treatment.is_some()
        || !call.within_group.is_empty()
        || distinct_or_order.0.is_some()
        || !distinct_or_order.1.is_empty();
    if !has_some {
        return Ok(meant);
    }
    let Expr::Nested(inner) = meant else { return Ok(meant) };
    let Expr::Function(mut inner) = *inner else {
        return Err(plan_datafusion_err!(
            "{} is no aggregate: it has no FILTER, OVER, DISTINCT or ORDER BY",
            call.name
        ));
    };
    inner.filter = match (inner.filter.take(), call.filter.clone()) {
        (Some(own), Some(other)) => Some(Box::new(Expr::BinaryOp {
            left: Box::new(Expr::Nested(own)),
            op: BinaryOperator::And,
            right: Box::new(Expr::Nested(other)),
        })),
        (own, other) => own.or(other),
    };
    inner.over.clone_from(&call.over);
    if inner.within_group.is_empty() {
        inner.within_group.clone_from(&call.within_group);
    }
    inner.null_treatment = inner.null_treatment.or(call.null_treatment);
    if let FunctionArguments::List(list) = &mut inner.args {
        list.duplicate_treatment = list.duplicate_treatment.or(distinct_or_order.0);
        list.clauses.extend(distinct_or_order.1);
    }
    Ok(Expr::Function(inner))
}
