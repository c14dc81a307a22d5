//! Lists of outputs that are all that FROM has, and what stands in their place while [`stars`](super::stars) and
//! [`long_lists`](super::long_lists) keep them from the planner.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, Ident, JoinConstraint, JoinOperator, Select, SelectItem,
    TableFactor, TableWithJoins,
};

use crate::sql::nodes::call as call_of;

/// What stands in the place of `*`.
pub const NAME: &str = "every column";
/// What stands in the place of a list.
pub fn everything() -> SelectItem {
    SelectItem::UnnamedExpr(Expr::Function(call()))
}

/// Whether a SELECT is of the rows of a FROM, in which each column stands once.
pub fn keeps_rows(select: &Select) -> bool {
    is_list_of_rows(select) && keys(select).is_some_and(|keys| keys.is_empty())
}

/// What a SELECT groups rows by, if that is a list of expressions.
pub fn keys(select: &Select) -> Option<&[Expr]> {
    match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) if modifiers.is_empty() => Some(keys),
        _ => None,
    }
}

/// Whether a SELECT is of the rows of a FROM, or of groups of them, and nothing more.
pub fn is_list_of_rows(select: &Select) -> bool {
    !select.from.is_empty()
        && select.from.iter().all(has_columns_apart)
        && select.distinct.is_none()
        && select.top.is_none()
        && select.exclude.is_none()
        && select.into.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty()
        && select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty()
        && select.having.is_none()
        && select.named_window.is_empty()
        && select.qualify.is_none()
        && select.value_table_mode.is_none()
}

/// Whether no join merges a column of both sides into one of `*`.
fn has_columns_apart(chain: &TableWithJoins) -> bool {
    use JoinConstraint::{Natural, Using};
    use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
    let is_one = |table: &TableFactor| !matches!(table, TableFactor::NestedJoin { .. });
    is_one(&chain.relation)
        && chain.joins.iter().all(|join| {
            is_one(&join.relation)
                && !matches!(
                    &join.join_operator,
                    Join(Using(_) | Natural)
                        | Inner(Using(_) | Natural)
                        | Left(Using(_) | Natural)
                        | LeftOuter(Using(_) | Natural)
                        | Right(Using(_) | Natural)
                        | RightOuter(Using(_) | Natural)
                        | FullOuter(Using(_) | Natural)
                )
        })
}

/// The call of it.
pub fn call() -> Function {
    call_of(Ident::with_quote('"', NAME), [])
}
