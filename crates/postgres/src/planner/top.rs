//! How many of a query's rows are wanted, and which come first.

use headrace_ir::{Expr, NamedExpr, OrderKey, Scalar, Sink};
use pgrx::pg_sys::{self, LimitOption, List, Node, NodeTag, PlannerInfo, RelOptInfo};

use crate::nodes::{self, WhyNot, items, why_not};
use crate::translate::{Translator, descends};
use crate::version;

/// What ORDER BY and LIMIT ask for.
pub struct Top {
    /// The first key decides; none: any rows will do.
    keys: Vec<Key>,
    /// The order as PostgreSQL knows it.
    pub pathkeys: *mut List,
    /// LIMIT, and OFFSET if there is one: so many rows are wanted in all.
    pub bounds: Vec<*mut Node>,
    /// Rows that are expected to be wanted.
    pub rows: f64,
}

struct Key {
    expr: *mut Node,
    descending: bool,
    nulls_first: bool,
}

/// What is wanted of a relation's rows, if they are those that a LIMIT counts.
///
/// # Errors
/// They come in an order that pipelines do not have.
pub unsafe fn of(root: *mut PlannerInfo, relation: *mut RelOptInfo) -> Result<Option<Top>, WhyNot> {
    let query = &*(*root).parse;
    if !counts(root, query) || !pg_sys::bms_equal((*relation).relids, version::all_relids(root)) {
        return Ok(None);
    }
    let mut bounds = vec![query.limitCount, query.limitOffset];
    bounds.retain(|bound| !bound.is_null());
    if bounds.iter().any(|bound| !is_known(*bound)) {
        return why_not("a LIMIT that may be another each time it is asked for");
    }
    // As PostgreSQL guesses.
    let unknown = (*relation).rows * 0.1;
    let rows = if (*root).limit_tuples > 0.0 { (*root).limit_tuples } else { unknown };
    let pathkeys = (*root).sort_pathkeys;
    let keys = if pathkeys.is_null() { Vec::new() } else { keys(root)? };
    Ok(Some(Top { keys, pathkeys, bounds, rows: rows.clamp(1.0, (*relation).rows.max(1.0)) }))
}

/// Whether LIMIT counts the rows that tables and joins give, not what is made of them.
unsafe fn counts(root: *mut PlannerInfo, query: &pg_sys::Query) -> bool {
    let lists = [query.groupClause, query.groupingSets, query.distinctClause];
    let is_made_of_rows = query.hasAggs
        || query.hasWindowFuncs
        || query.hasTargetSRFs
        || (*root).hasHavingQual
        || !query.setOperations.is_null()
        || lists.iter().any(|list| !list.is_null());
    let is_of_all = nodes::cast::<pg_sys::Const>(query.limitCount, NodeTag::T_Const)
        .is_some_and(|bound| (*bound).constisnull);
    !query.limitCount.is_null()
        && !is_of_all
        && !is_extreme(root)
        && query.limitOption == LimitOption::LIMIT_OPTION_COUNT
        && !is_made_of_rows
}

/// Whether PostgreSQL asks for a smallest or largest value, as the first of an order in an index: the grouping that it
/// is of finds it, and others, in one pass.
unsafe fn is_extreme(root: *mut PlannerInfo) -> bool {
    let mut entries = items::<pg_sys::TargetEntry>((*(*root).parse).targetList);
    // So the server calls it.
    let name = entries.next().map(|entry| nodes::owned((*entry).resname));
    !(*root).parent_root.is_null() && name.as_deref() == Some("agg_target")
}

/// Whether PostgreSQL, which counts rows itself, and the node find the same value.
unsafe fn is_known(bound: *mut Node) -> bool {
    let is_subplan =
        |node| matches!(nodes::tag(node), NodeTag::T_SubPlan | NodeTag::T_AlternativeSubPlan);
    !pg_sys::contain_volatile_functions(bound) && !nodes::any(bound, &mut |node| is_subplan(node))
}

unsafe fn keys(root: *mut PlannerInfo) -> Result<Vec<Key>, WhyNot> {
    let clauses = items::<pg_sys::SortGroupClause>((*(*root).parse).sortClause);
    let keys = clauses.map(|clause| {
        let entry = pg_sys::get_sortgroupclause_tle(clause, (*root).processed_tlist);
        let expr: *mut Node = (*entry).expr.cast();
        let descending = descends((*clause).sortop, pg_sys::exprCollation(expr))?;
        Ok(Key { expr, descending, nulls_first: (*clause).nulls_first })
    });
    keys.collect()
}

impl Top {
    /// Whether rows are wanted in an order.
    pub fn is_sorted(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Where rows of these columns end, which `exprs` are; those that only order them are appended.
    pub unsafe fn sink(
        &self,
        translator: &mut Translator,
        exprs: &[*mut Node],
        mut columns: Vec<NamedExpr>,
    ) -> Result<Sink, WhyNot> {
        let mut order = Vec::new();
        for key in &self.keys {
            let own = exprs.iter().position(|expr| nodes::equal(*expr, key.expr));
            let column = own.unwrap_or(columns.len());
            if own.is_none() {
                // What orders is not shown.
                let expr = translator.value(key.expr)?;
                columns.push(NamedExpr { name: format!("o{}", order.len()), expr });
            }
            let Key { descending, nulls_first, .. } = *key;
            order.push(OrderKey { column, descending, nulls_first });
        }
        let limit = self.constant();
        Ok(match self.is_sorted() {
            true => Sink::Sorted { columns, order, limit },
            false => Sink::Rows { columns: at_least_one(columns), limit },
        })
    }

    /// How many rows are wanted, where that is known before the query runs.
    unsafe fn constant(&self) -> Option<u64> {
        let mut rows = 0_u64;
        for bound in &self.bounds {
            let bound = nodes::cast::<pg_sys::Const>(*bound, NodeTag::T_Const)?;
            if (*bound).constisnull {
                return None;
            }
            rows = rows.checked_add(u64::try_from((*bound).constvalue.value() as i64).ok()?)?;
        }
        Some(rows)
    }
}

/// Rows are counted, even where nothing of them is asked for.
pub fn at_least_one(mut columns: Vec<NamedExpr>) -> Vec<NamedExpr> {
    if columns.is_empty() {
        columns.push(NamedExpr { name: "row".into(), expr: Expr::Literal(Scalar::bool(true)) });
    }
    columns
}
