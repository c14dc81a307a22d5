//! Functions that are other words for an expression: `year(x)` is `date_part('year', x)`.
//!
//! They are replaced in the parsed statement, so that pipelines take what they take of the expression, and so that types
//! follow from it. Columns of an answer keep the names that were written.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    ObjectNamePart, Statement, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::spellings::SPELLINGS;
use super::{arrows, lambdas, ordered_texts, replacements};
use crate::sql::walk::{Flow, ON, Stop, change, change_all, stop};

/// Other words for expressions, by name and number of arguments.
static EXPRESSIONS: LazyLock<HashMap<(&str, usize), &str>> = LazyLock::new(|| {
    let entry = |(call, expression): &(&'static str, &'static str)| {
        let (name, arguments) = call.split_once('(').unwrap_or((call, ""));
        let arguments = arguments.split(',').filter(|a| !a.trim_matches([' ', ')']).is_empty());
        ((name, arguments.count()), *expression)
    };
    SPELLINGS.iter().map(entry).collect()
});

/// Replaces calls in a statement by what they mean.
///
/// # Errors
/// Filters or windows of what is no aggregate; functions that are not here, with what to write in their place.
pub fn spell_out(statement: &mut Statement) -> Result<()> {
    change(statement, &mut SpellOut)
}

/// `x = ANY (list)`: an element that is NULL may be it.
const EQUAL_ANY: &str = "case when $2 is null then null when cardinality($2) = 0 then false when $1 is null then null \
    when array_has($2, $1) then true when array_position($2, null) is not null then null else false end";

struct SpellOut;

impl VisitorMut for SpellOut {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Function(function) = expr {
            lambdas::name(function);
            replacements::spell_out(function);
        }
        arrows::tighten(expr);
        if let Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } = expr
            && !matches!(right.as_ref(), Expr::Subquery(_))
        {
            let arguments = [left.as_ref().clone(), right.as_ref().clone()];
            match expanded(EQUAL_ANY, &arguments) {
                Ok(meant) => *expr = meant,
                Err(error) => return stop(error),
            }
        }
        // What a call means may be a call of such a name itself.
        while let Some(meant) = meant(expr) {
            match meant {
                Ok(meant) => *expr = meant,
                Err(error) => return stop(error),
            }
        }
        match ordered_texts::of_list(expr) {
            Some(Ok(meant)) => *expr = meant,
            Some(Err(error)) => return stop(error),
            None => {}
        }
        ON
    }
}

/// What a call means, if it is other words for something.
fn meant(expr: &Expr) -> Option<Result<Expr>> {
    let Expr::Function(call) = expr else { return None };
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return None };
    let arguments = arguments(call)?;
    let lower = name.value.to_lowercase();
    if name.quote_style.is_some() {
        return None;
    }
    if let Some(of_list) = super::spellings::of_list(&lower, &arguments) {
        return Some(Ok(of_list));
    }
    if let Some(instead) = super::refused::replacement(&lower) {
        return Some(plan_err!("there is no function {lower}()\nhint: {instead}"));
    }
    if lower == "any_value" && !has_order(call) {
        return None;
    }
    let template = *EXPRESSIONS.get(&(lower.as_str(), arguments.len()))?;
    Some(expanded(template, &arguments).and_then(|meant| with_clauses(meant, call)))
}

/// Whether a call says in which order its rows come.
fn has_order(call: &Function) -> bool {
    match &call.args {
        FunctionArguments::List(list) => !list.clauses.is_empty(),
        _ => false,
    }
}

/// Arguments that are nothing but expressions.
pub(super) fn arguments(call: &Function) -> Option<Vec<Expr>> {
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
pub(super) fn expanded(template: &str, arguments: &[Expr]) -> Result<Expr> {
    let parsed = Parser::new(&GenericDialect {}).try_with_sql(template);
    let parsed = parsed.and_then(|mut parser| parser.parse_expr());
    let mut expr = parsed.map_err(|cause| plan_datafusion_err!("{template}: {cause}"))?;
    fill(&mut expr, arguments);
    Ok(Expr::Nested(Box::new(expr)))
}

/// Puts arguments in the places of `$1`, `$2` and so on.
pub(crate) fn fill(node: &mut impl VisitMut, arguments: &[Expr]) {
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
pub(super) fn with_clauses(meant: Expr, call: &Function) -> Result<Expr> {
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
