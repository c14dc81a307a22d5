//! Offers a path for the rows of one table, or of all tables of a query joined, whatever is done with them
//! above.

use pgrx::pg_sys::{self, CmdType, NodeTag, PlannerInfo, RangeTblEntry, RelOptInfo};

use super::target::Target;
use super::{check_query, cursor, joins, path, propose};
use crate::nodes::{self, WhyNot, cast, why_not};
use crate::settings;

static mut PREVIOUS: pg_sys::set_rel_pathlist_hook_type = None;
static mut PREVIOUS_JOIN: pg_sys::set_join_pathlist_hook_type = None;

/// From now on every table of a query is looked at, and its last join.
///
/// # Safety
/// The backend's thread, once a process.
pub unsafe fn install() {
    PREVIOUS = pg_sys::set_rel_pathlist_hook;
    pg_sys::set_rel_pathlist_hook = Some(set_rel_pathlist);
    PREVIOUS_JOIN = pg_sys::set_join_pathlist_hook;
    pg_sys::set_join_pathlist_hook = Some(set_join_pathlist);
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn set_rel_pathlist(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    number: pg_sys::Index,
    entry: *mut RangeTblEntry,
) {
    if let Some(previous) = PREVIOUS {
        previous(root, relation, number, entry);
    }
    // Foreign tables have scans of their own.
    let is_table = (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
        && (*entry).relkind as u8 != pg_sys::RELKIND_FOREIGN_TABLE
        && (*relation).reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL;
    if !is_table || !settings::ENABLED.get() || !settings::ENABLE_SCAN.get() {
        return;
    }
    note(root, propose_rows(root, relation, &[relation]));
}

/// Called for each pair of relations that a join may be made of.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn set_join_pathlist(
    root: *mut PlannerInfo,
    joined: *mut RelOptInfo,
    outer: *mut RelOptInfo,
    inner: *mut RelOptInfo,
    kind: pg_sys::JoinType::Type,
    extra: *mut pg_sys::JoinPathExtraData,
) {
    if let Some(previous) = PREVIOUS_JOIN {
        previous(root, joined, outer, inner, kind, extra);
    }
    let is_last = (*joined).reloptkind == pg_sys::RelOptKind::RELOPT_JOINREL
        && pg_sys::bms_equal((*joined).relids, (*root).all_baserels);
    if !is_last || !settings::ENABLED.get() || !settings::ENABLE_SCAN.get() {
        return;
    }
    match path::of_headrace(joined) {
        // PostgreSQL may have found a better one of its own.
        Some(ours) => {
            if let Ok(cheapest) = path::cheapest(joined) {
                path::replace_alternative(ours, cheapest);
            }
        }
        None => {
            let members = joins::members(root, joined);
            note(root, members.and_then(|members| propose_rows(root, joined, &members)));
        }
    }
}

/// Tells why there is no path, but where there is a grouping: of that it is told.
unsafe fn note(root: *mut PlannerInfo, proposed: Result<(), WhyNot>) {
    let query = &*(*root).parse;
    if let Err(WhyNot(reason)) = proposed
        && query.groupClause.is_null()
        && !query.hasAggs
    {
        crate::explain::note(reason);
    }
}

unsafe fn propose_rows(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    members: &[*mut RelOptInfo],
) -> Result<(), WhyNot> {
    // Rows that are changed, and those beside them, are asked for once more when others change them.
    if !matches!((*(*root).parse).commandType, CmdType::CMD_SELECT | CmdType::CMD_INSERT) {
        return why_not("a statement that changes rows that it reads");
    }
    if cursor::is_planned() {
        return why_not("a cursor, which may be read backwards, and rows at it changed");
    }
    check_query(root)?;
    if !(*relation).lateral_relids.is_null() {
        return why_not("lateral references");
    }
    if shows_storage(root) {
        return why_not("a function that shows how values are stored");
    }
    // All rows of the answer are there before the first of them is given.
    let bytes = (*relation).rows * f64::from((*(*relation).reltarget).width + 16);
    let limit = f64::from(settings::MEMORY_LIMIT_KIB.get()) * 1024.0 / 4.0;
    if bytes > limit {
        return why_not(format!(
            "{:.0} MB of rows, a quarter of headrace.memory_limit is {:.0} MB",
            bytes / 1e6,
            limit / 1e6
        ));
    }
    propose(root, members, relation, &Target::of_rows(relation))
}

/// Whether a query, or one that it is a part of, asks how values are stored: those of a pipeline are neither
/// compressed nor elsewhere.
unsafe fn shows_storage(root: *mut PlannerInfo) -> bool {
    let mut level = root;
    while let Some(of) = level.as_ref() {
        let query = &*of.parse;
        let parts = [query.targetList.cast(), query.jointree.cast(), query.havingQual];
        let shows = |part| {
            nodes::any(part, &mut |node| {
                let call = cast::<pg_sys::FuncExpr>(node, NodeTag::T_FuncExpr);
                let function = call.map(|call| (*call).funcid.to_u32());
                matches!(function, Some(pg_sys::F_PG_COLUMN_SIZE | pg_sys::F_PG_COLUMN_COMPRESSION))
            })
        };
        if parts.into_iter().any(shows) {
            return true;
        }
        level = of.parent_root;
    }
    false
}
