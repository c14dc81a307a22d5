//! `string_agg(x, s ORDER BY y)` is the list of the texts in that order, with `s` between them.
//!
//! ```sql
//! SELECT string_agg(s, ',' ORDER BY x), string_agg(s, ',' ORDER BY y) FROM t
//! ```
//!
//! - DataFusion: Refused: rows have one order for all aggregates; right is a text of each.
//! - Upstream: apache/datafusion#8582.
//! - This can go when its canary finds the fault mended.
//!
//! The planner sorts the rows for it, once for all aggregates of a SELECT, and refuses two of other orders, or takes one for
//! both. The list sorts by itself.

use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArgumentClause, FunctionArguments, ObjectNamePart,
};

use crate::functions::templates::{arguments, expanded, with_clauses};

const NAME: &str = "string_agg";
const TEXTS: &str = "array_agg($1) filter (where $1 is not null)";

/// What a call with an order, or without duplicates, means.
pub fn of_list(expr: &Expr) -> Option<Result<Expr>> {
    let Expr::Function(call) = expr else { return None };
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return None };
    let FunctionArguments::List(list) = &call.args else { return None };
    let is_meant = name.value.eq_ignore_ascii_case(NAME) && call.over.is_none();
    let is_plain = list.clauses.is_empty()
        && list.duplicate_treatment.is_none()
        && call.within_group.is_empty();
    let texts_and_separator = arguments(call).filter(|arguments| arguments.len() == 2)?;
    if !is_meant || is_plain {
        return None;
    }
    let mut call = call.clone();
    if !call.within_group.is_empty() {
        let order = std::mem::take(&mut call.within_group);
        if let FunctionArguments::List(list) = &mut call.args {
            list.clauses.push(FunctionArgumentClause::OrderBy(order));
        }
    }
    let [text, separator] = texts_and_separator.as_slice() else { return None };
    let texts = expanded(TEXTS, std::slice::from_ref(text));
    let texts = texts.and_then(|texts| with_clauses(texts, &call));
    Some(texts.and_then(|texts| expanded("array_to_string($1, $2)", &[texts, separator.clone()])))
}
