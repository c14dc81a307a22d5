//! Offers a path for the rows of one table, or of all tables of a query joined, whatever is done with them
//! above.

use std::cell::Cell;

use pgrx::pg_sys::{self, CmdType, NodeTag, Path, PlannerInfo, RangeTblEntry, RelOptInfo};

use super::offers::{self, Of};
use super::target::Target;
use super::top::Top;
use super::{Place, alternative, check_query, cursor, joins, made, path, top};
use crate::nodes::{self, WhyNot, cast, items, oids, why_not};
use crate::translate::is_deterministic;
use crate::{settings, version};

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
    let is_union = (*entry).rtekind == pg_sys::RTEKind::RTE_SUBQUERY && (*entry).inh;
    let is_table = (is_union || (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION)
        && (*entry).relkind as u8 != pg_sys::RELKIND_FOREIGN_TABLE
        && (*relation).reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL;
    if !is_table || !settings::ENABLED.get() || !settings::ENABLE_SCAN.get() {
        return;
    }
    note(root, propose(root, relation, &[relation]));
}

thread_local! {
    /// Whether the paths that PostgreSQL adds are for nobody but the node's own plan.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// For as long as it lives; an error of the server unwinds.
struct Apart;

impl Apart {
    fn begin() -> Self {
        IS_APART.set(true);
        Self
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        IS_APART.set(false);
    }
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
    if IS_APART.get() {
        return;
    }
    if let Some(previous) = PREVIOUS_JOIN {
        previous(root, joined, outer, inner, kind, extra);
    }
    let is_last = (*joined).reloptkind == pg_sys::RelOptKind::RELOPT_JOINREL
        && pg_sys::bms_equal((*joined).relids, version::all_relids(root));
    if !is_last || !settings::ENABLED.get() || !settings::ENABLE_SCAN.get() {
        return;
    }
    match path::of_headrace(joined) {
        // PostgreSQL may have found a better one of its own.
        Some(ours) => alternative::renew(root, ours, |apart| {
            let (special, clauses) = ((*extra).sjinfo, (*extra).restrictlist);
            let _apart = Apart::begin();
            pg_sys::add_paths_to_joinrel(root, apart, outer, inner, kind, special, clauses);
        }),
        None => {
            let members = joins::members(root, joined);
            note(root, members.and_then(|members| propose(root, joined, &members)));
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

unsafe fn propose(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    members: &[*mut RelOptInfo],
) -> Result<(), WhyNot> {
    let (path, own) = rows(root, relation, members, Place::of(relation))?;
    let of = if members.len() > 1 { Of::JoinedRows } else { Of::Rows };
    offers::add(relation, of, path, own);
    Ok(())
}

/// A path for a relation's rows, and PostgreSQL's own.
pub unsafe fn rows(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    members: &[*mut RelOptInfo],
    place: Place,
) -> Result<(*mut Path, *mut Path), WhyNot> {
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
    if groups_alike(root) {
        return why_not("groups by texts under a collation that is not deterministic");
    }
    let all = || {
        check_memory(relation, (*relation).rows)?;
        made(root, members, place, &Target::of_rows(place.pathtarget, None))
    };
    let wanted = match top::of(root, relation) {
        Ok(None) => return all(),
        Ok(Some(top)) => check_memory(relation, kept_rows(&top, (*relation).rows)).and_then(|()| {
            made(root, members, place, &Target::of_rows(place.pathtarget, Some(top)))
        }),
        Err(reason) => Err(reason),
    };
    // Sorted and counted by PostgreSQL, if they are few.
    wanted.or_else(|reason| all().map_err(|_| reason))
}

/// Each thread keeps the best that it has seen, as many again, and memory to sort them.
fn kept_rows(top: &Top, all_rows: f64) -> f64 {
    match top.is_sorted() {
        true => (top.rows * 4.0 * settings::threads() as f64).min(all_rows).max(top.rows),
        false => top.rows,
    }
}

/// All rows of the answer are there before the first of them is given.
unsafe fn check_memory(relation: *mut RelOptInfo, rows: f64) -> Result<(), WhyNot> {
    let bytes = rows * f64::from((*(*relation).reltarget).width + 16);
    let limit = f64::from(settings::MEMORY_LIMIT_KIB.get()) * 1024.0 / 4.0;
    match bytes > limit {
        true => why_not(format!(
            "{:.0} MB of rows, a quarter of headrace.memory_limit is {:.0} MB",
            bytes / 1e6,
            limit / 1e6
        )),
        false => Ok(()),
    }
}

/// Whether rows are brought together that are equal and written differently: PostgreSQL shows the first of them.
unsafe fn groups_alike(root: *mut PlannerInfo) -> bool {
    let query = &*(*root).parse;
    let of_list = |list| {
        items::<pg_sys::SortGroupClause>(list).any(|clause| {
            let entry = pg_sys::get_sortgroupclause_tle(clause, query.targetList);
            !is_deterministic(pg_sys::exprCollation((*entry).expr.cast()))
        })
    };
    let of_set_operation = (*root).parent_root.as_ref().is_some_and(|outer| {
        let of = (*outer.parse).setOperations;
        cast::<pg_sys::SetOperationStmt>(of, NodeTag::T_SetOperationStmt).is_some_and(|of| {
            oids((*of).colCollations).any(|collation| !is_deterministic(collation))
        })
    });
    of_list(query.groupClause) || of_list(query.distinctClause) || of_set_operation
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
