//! The table that is streamed.

use pgrx::pg_sys::{self, Node, PlannerInfo, RelOptInfo};

use crate::nodes::{self, WhyNot, items, why_not};
use crate::settings;

/// The largest of the relations, if it is a table that can be streamed.
pub unsafe fn choose(
    root: *mut PlannerInfo,
    members: &[*mut RelOptInfo],
) -> Result<*mut RelOptInfo, WhyNot> {
    let largest = members.iter().copied().max_by_key(|member| (**member).pages);
    let Some(largest) = largest else { return why_not("no table is read") };
    let entry = &*nodes::entry_of(root, largest);
    let name = nodes::owned((*entry.eref).aliasname);
    let refused = |reason: &str| why_not(format!("{name} {reason}"));
    if entry.rtekind != pg_sys::RTEKind::RTE_RELATION {
        return refused("is no table");
    }
    if entry.inh {
        return refused("is partitioned or has children");
    }
    if !matches!(entry.relkind as u8, pg_sys::RELKIND_RELATION | pg_sys::RELKIND_MATVIEW) {
        return refused("is no plain table");
    }
    if !entry.tablesample.is_null() {
        return refused("is sampled");
    }
    if !entry.securityQuals.is_null() {
        return refused("has row security, or is behind a security barrier");
    }
    if entry.relid.to_u32() < pg_sys::FirstNormalObjectId {
        return refused("belongs to the system catalog");
    }
    let min_blocks = settings::MIN_TABLE_BLOCKS.get() as u32;
    if (*largest).pages < min_blocks {
        let pages = (*largest).pages;
        return refused(&format!(
            "has {pages} blocks, less than headrace.min_table_size ({min_blocks} blocks)"
        ));
    }
    match check_storage(entry.relid) {
        Ok(()) => Ok(largest),
        Err(WhyNot(reason)) => refused(&reason),
    }
}

/// A heap of its own files that outlives a crash.
unsafe fn check_storage(relation: pg_sys::Oid) -> Result<(), WhyNot> {
    // The planner holds a lock.
    let relation = pg_sys::table_open(relation, pg_sys::NoLock as i32);
    let (form, handler) = (&*(*relation).rd_rel, (*relation).rd_amhandler);
    let persistence = form.relpersistence as u8;
    pg_sys::table_close(relation, pg_sys::NoLock as i32);
    if handler.to_u32() != pg_sys::F_HEAP_TABLEAM_HANDLER {
        return why_not("is stored by another access method than heap");
    }
    match persistence {
        pg_sys::RELPERSISTENCE_PERMANENT => Ok(()),
        pg_sys::RELPERSISTENCE_TEMP => why_not("is a temporary table"),
        _ => why_not("is an unlogged table"),
    }
}

/// The conditions on its rows alone.
pub unsafe fn filters(streamed: *mut RelOptInfo) -> Result<Vec<*mut Node>, WhyNot> {
    let mut filters = Vec::new();
    for clause in items::<pg_sys::RestrictInfo>((*streamed).baserestrictinfo) {
        if (*clause).security_level > 0 {
            return why_not("a clause behind a security barrier");
        }
        filters.push((*clause).clause.cast());
    }
    Ok(filters)
}
