//! Functions that are other words for an expression: `year(x)` is `date_part('year', x)`.
//!
//! They are replaced in the parsed statement, so that pipelines take what they take of the expression, and so that types
//! follow from it. Columns of an answer keep the names that were written.

use std::collections::HashMap;
use std::sync::LazyLock;

use datafusion::common::{Result, plan_err};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArguments, ObjectNamePart, Statement, VisitorMut,
};

use super::spellings::SPELLINGS;
use super::templates::{arguments, expanded, with_clauses};
use super::{lambdas, replacements};
use crate::fixes::{arrow_operators, string_agg_orders};
use crate::sql::walk::{Flow, ON, Stop, change, stop};

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
        arrow_operators::tighten(expr);
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
        match string_agg_orders::of_list(expr) {
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
