//! Rows of a partitioned table alone. PostgreSQL drops all paths for them but those that it makes part by part,
//! once it knows what is computed of them: a path is offered for what comes after, their order or the answer.

use pgrx::pg_sys::{self, CmdType, Path, PlannerInfo, RelOptInfo, UpperRelationKind};

use super::{Place, joins, offers, scan};
use crate::nodes::{WhyNot, why_not};
use crate::settings;

/// Offers a path, if these are such rows. `extra` is the answer's.
pub unsafe fn propose(
    root: *mut PlannerInfo,
    stage: UpperRelationKind::Type,
    input: *mut RelOptInfo,
    output: *mut RelOptInfo,
    extra: *const pg_sys::FinalPathExtraData,
) -> Result<(), WhyNot> {
    let query = &*(*root).parse;
    let pathtarget = (*root).upper_targets[stage as usize];
    let is_select = query.commandType == CmdType::CMD_SELECT && !query.hasTargetSRFs;
    if !is_dropped(input) || !is_select || pathtarget.is_null() || !settings::ENABLE_SCAN.get() {
        return Ok(());
    }
    let is_ordered = stage == UpperRelationKind::UPPERREL_ORDERED;
    let own = if is_ordered { output } else { input };
    let place = Place { output, pathtarget, own };
    let (mut path, own) = scan::rows(root, input, &joins::members(root, input)?, place)?;
    if is_ordered {
        path = sorted(root, output, path)?;
    } else if (*extra).limit_needed {
        path = limited(root, output, path, &*extra);
    }
    offers::add(output, offers::Of::Rows, path, own);
    Ok(())
}

unsafe fn is_dropped(relation: *mut RelOptInfo) -> bool {
    use pg_sys::RelOptKind::{RELOPT_BASEREL, RELOPT_JOINREL};
    let is_of_tables = matches!((*relation).reloptkind, RELOPT_BASEREL | RELOPT_JOINREL);
    is_of_tables && !(*relation).part_scheme.is_null() && (*relation).nparts > 0
}

unsafe fn sorted(
    root: *mut PlannerInfo,
    output: *mut RelOptInfo,
    path: *mut Path,
) -> Result<*mut Path, WhyNot> {
    let wanted = (*root).sort_pathkeys;
    if pg_sys::pathkeys_contained_in(wanted, (*path).pathkeys) {
        return Ok(path);
    }
    // PostgreSQL computes it of sorted rows, and of no others.
    if pg_sys::contain_volatile_functions((*(*path).pathtarget).exprs.cast()) {
        return why_not("what is volatile is computed of rows after they are sorted");
    }
    Ok(pg_sys::create_sort_path(root, output, path, wanted, (*root).limit_tuples).cast())
}

unsafe fn limited(
    root: *mut PlannerInfo,
    output: *mut RelOptInfo,
    path: *mut Path,
    extra: &pg_sys::FinalPathExtraData,
) -> *mut Path {
    let query = &*(*root).parse;
    let (offset, count, option) = (query.limitOffset, query.limitCount, query.limitOption);
    let (offset_rows, count_rows) = (extra.offset_est, extra.count_est);
    pg_sys::create_limit_path(root, output, path, offset, count, option, offset_rows, count_rows)
        .cast()
}
