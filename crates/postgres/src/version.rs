//! What differs between PostgreSQL's major versions, and functions of the server that pgrx does not
//! bind.

use pgrx::pg_sys::{self, Datum, Oid};

unsafe extern "C-unwind" {
    #[link_name = "lc_collate_is_c"]
    fn server_lc_collate_is_c(collation: Oid) -> bool;
    #[link_name = "PredicateLockRelation"]
    fn server_predicate_lock_relation(relation: pg_sys::Relation, snapshot: pg_sys::Snapshot);
}

/// Whether texts of a collation are ordered by their bytes.
pub unsafe fn is_c_collation(collation: Oid) -> bool {
    collation != Oid::INVALID
        && pg_sys::ffi::pg_guard_ffi_boundary(|| server_lc_collate_is_c(collation))
}

/// Takes note that a serializable transaction reads a whole table.
pub unsafe fn predicate_lock(relation: pg_sys::Relation, snapshot: pg_sys::Snapshot) {
    pg_sys::ffi::pg_guard_ffi_boundary(|| server_predicate_lock_relation(relation, snapshot));
}

/// The elements of an array, NULL as `None`.
pub unsafe fn array_elements(array: Datum, element: Oid) -> Vec<Option<Datum>> {
    let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
    let (mut length, mut by_value, mut align) = (0_i16, false, 0);
    pg_sys::get_typlenbyvalalign(element, &mut length, &mut by_value, &mut align);
    let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    pg_sys::deconstruct_array(
        array,
        element,
        length.into(),
        by_value,
        align,
        &mut values,
        &mut nulls,
        &mut count,
    );
    (0..count as usize).map(|i| (!*nulls.add(i)).then(|| *values.add(i))).collect()
}

/// The clauses that must hold where `inner` is joined to `outer`, as equivalence classes imply them.
pub unsafe fn implied_equalities(
    root: *mut pg_sys::PlannerInfo,
    both: pg_sys::Relids,
    outer: pg_sys::Relids,
    inner: *mut pg_sys::RelOptInfo,
) -> *mut pg_sys::List {
    pg_sys::generate_join_implied_equalities(root, both, outer, inner)
}

/// The table that a buffer's block belongs to, and its number there: the main fork's alone.
pub unsafe fn block_of(buffer: *const pg_sys::BufferDesc) -> Option<(pg_sys::RelFileNode, u32)> {
    let tag = std::ptr::read_volatile(&raw const (*buffer).tag);
    (tag.forkNum == pg_sys::ForkNumber::MAIN_FORKNUM).then_some((tag.rnode, tag.blockNum))
}

/// Which files are a table's.
pub unsafe fn file_node(relation: pg_sys::Relation) -> pg_sys::RelFileNode {
    (*relation).rd_node
}

/// The path of a table's first segment file, from the data directory.
pub unsafe fn path_of(relation: pg_sys::Relation) -> String {
    let node = (*relation).rd_node;
    let path = pg_sys::GetRelationPath(
        node.dbNode,
        node.spcNode,
        node.relNode,
        pg_sys::InvalidBackendId,
        pg_sys::ForkNumber::MAIN_FORKNUM,
    );
    let owned = crate::nodes::owned(path);
    pg_sys::pfree(path.cast());
    owned
}

/// Whether snapshots may grow too old to be sure of what they see.
pub unsafe fn snapshots_expire() -> bool {
    pg_sys::old_snapshot_threshold >= 0
}

/// What a query groups by.
pub unsafe fn group_clause(root: *mut pg_sys::PlannerInfo) -> *mut pg_sys::List {
    (*(*root).parse).groupClause
}

/// Whether two name the same files.
pub fn same_file(a: &pg_sys::RelFileNode, b: &pg_sys::RelFileNode) -> bool {
    (a.spcNode, a.dbNode, a.relNode) == (b.spcNode, b.dbNode, b.relNode)
}

/// Whether changes of a table are logged, so that a page's position in the log says when it was last
/// changed.
pub unsafe fn is_logged(relation: pg_sys::Relation) -> bool {
    // In `wal_level = minimal` what this very transaction created or rewrote is not.
    let minimal = pg_sys::wal_level < pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32;
    let new = (*relation).rd_createSubid != 0 || (*relation).rd_firstRelfilenodeSubid != 0;
    (*(*relation).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT
        && !(minimal && new)
}

/// What the server does to explain a query where no hook does: plans it, and shows the plan.
pub unsafe fn explain_query(
    query: *mut pg_sys::Query,
    options: i32,
    into: *mut pg_sys::IntoClause,
    es: *mut pg_sys::ExplainState,
    text: *const std::ffi::c_char,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
) {
    let (before, started) = (pg_sys::pgBufferUsage, std::time::Instant::now());
    let plan = pg_sys::pg_plan_query(query, text, options, parameters);
    let took = started.elapsed();
    let duration =
        pg_sys::instr_time { tv_sec: took.as_secs() as _, tv_nsec: took.subsec_nanos().into() };
    let mut used = pg_sys::BufferUsage::default();
    pg_sys::BufferUsageAccumDiff(&mut used, &raw const pg_sys::pgBufferUsage, &before);
    let used = if (*es).buffers { &raw const used } else { std::ptr::null() };
    pg_sys::ExplainOnePlan(plan, into, es, text, parameters, environment, &duration, used);
}

/// As the server lays it out; pgrx knows only that there is one.
#[repr(C)]
struct AttrMissing {
    am_present: bool,
    am_value: Datum,
}

/// What tuples have that were written before a column was added with a constant default.
pub unsafe fn missing_value(descriptor: &pg_sys::TupleDescData, index: usize) -> Option<Datum> {
    let missing = descriptor.constr.as_ref()?.missing.cast::<AttrMissing>();
    if missing.is_null() {
        return None;
    }
    let missing = &*missing.add(index);
    missing.am_present.then_some(missing.am_value)
}

/// Counts a sequential scan of a table, as the server's statistics do, and blocks that were read past
/// its buffers.
pub unsafe fn count_scan(relation: pg_sys::Relation, rows: u64, direct_blocks: u32) {
    if (*relation).pgstat_info.is_null() && (*relation).pgstat_enabled {
        pg_sys::pgstat_assoc_relation(relation);
    }
    if let Some(status) = (*relation).pgstat_info.as_mut() {
        status.t_counts.t_numscans += 1;
        status.t_counts.t_blocks_fetched += i64::from(direct_blocks);
        status.t_counts.t_tuples_returned += i64::try_from(rows).unwrap_or(0);
    }
}
