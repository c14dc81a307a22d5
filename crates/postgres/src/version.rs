//! What differs between PostgreSQL's major versions, and functions of the server that pgrx does not
//! bind.

use pgrx::pg_sys::{self, Datum, Oid};

use crate::nodes::items;

unsafe extern "C-unwind" {
    #[cfg(not(feature = "pg18"))]
    #[link_name = "lc_collate_is_c"]
    fn server_lc_collate_is_c(collation: Oid) -> bool;
    #[cfg(not(feature = "pg18"))]
    #[link_name = "lc_ctype_is_c"]
    fn server_lc_ctype_is_c(collation: Oid) -> bool;
    #[cfg(feature = "pg18")]
    #[link_name = "pg_newlocale_from_collation"]
    fn server_locale_of(collation: Oid) -> *const LocaleStart;
    // storage/pg_shmem.h; written before there are sessions.
    #[link_name = "UsedShmemSegAddr"]
    static SHARED_MEMORY: *const SharedMemoryStart;
    #[link_name = "PredicateLockRelation"]
    fn server_predicate_lock_relation(relation: pg_sys::Relation, snapshot: pg_sys::Snapshot);
    // pgrx binds these, but takes note of where to return to at each call: too much for each row.
    #[link_name = "HeapTupleSatisfiesVisibility"]
    fn server_is_visible(
        tuple: *mut pg_sys::HeapTupleData,
        snapshot: pg_sys::Snapshot,
        buffer: pg_sys::Buffer,
    ) -> bool;
    #[link_name = "ExecScan"]
    fn server_scan(
        node: *mut pg_sys::ScanState,
        access: pg_sys::ExecScanAccessMtd,
        recheck: pg_sys::ExecScanRecheckMtd,
    ) -> *mut pg_sys::TupleTableSlot;
    #[link_name = "HeapCheckForSerializableConflictOut"]
    fn server_check_conflict_out(
        is_visible: bool,
        relation: pg_sys::Relation,
        tuple: *mut pg_sys::HeapTupleData,
        buffer: pg_sys::Buffer,
        snapshot: pg_sys::Snapshot,
    );
}

/// How `struct pg_locale_struct` begins.
#[cfg(feature = "pg18")]
#[repr(C)]
struct LocaleStart {
    provider: std::ffi::c_char,
    deterministic: bool,
    collate_is_c: bool,
    ctype_is_c: bool,
}

/// How `struct PGShmemHeader` begins.
#[repr(C)]
struct SharedMemoryStart {
    magic: i32,
    creator: libc::pid_t,
    total_bytes: usize,
    free_offset: usize,
    dynamic_control: u32,
}

/// Whether texts of a collation are ordered by their bytes.
pub unsafe fn is_c_collation(collation: Oid) -> bool {
    if collation == Oid::INVALID {
        return false;
    }
    #[cfg(not(feature = "pg18"))]
    return pg_sys::ffi::pg_guard_ffi_boundary(|| server_lc_collate_is_c(collation));
    #[cfg(feature = "pg18")]
    return pg_sys::ffi::pg_guard_ffi_boundary(|| (*server_locale_of(collation)).collate_is_c);
}

/// Whether a collation knows capital and small letters of ASCII alone.
pub unsafe fn is_c_ctype(collation: Oid) -> bool {
    if collation == Oid::INVALID {
        return false;
    }
    #[cfg(not(feature = "pg18"))]
    return pg_sys::ffi::pg_guard_ffi_boundary(|| server_lc_ctype_is_c(collation));
    #[cfg(feature = "pg18")]
    return pg_sys::ffi::pg_guard_ffi_boundary(|| (*server_locale_of(collation)).ctype_is_c);
}

/// What an operator means in B-tree families: the family, and the number of `<`, `<=`, `=`, `>=`, `>` (from
/// 1) or `<>` in it.
pub unsafe fn meanings(operator: Oid) -> Vec<(u32, u32)> {
    #[cfg(not(feature = "pg18"))]
    return items::<pg_sys::OpBtreeInterpretation>(pg_sys::get_op_btree_interpretation(operator))
        .map(|meaning| ((*meaning).opfamily_id.to_u32(), (*meaning).strategy as u32))
        .collect();
    #[cfg(feature = "pg18")]
    return items::<pg_sys::OpIndexInterpretation>(pg_sys::get_op_index_interpretation(operator))
        .map(|meaning| ((*meaning).opfamily_id.to_u32(), (*meaning).cmptype))
        .collect();
}

/// A relation's attributes in their order.
pub unsafe fn attributes<'a>(
    descriptor: pg_sys::TupleDesc,
) -> Vec<&'a pg_sys::FormData_pg_attribute> {
    #[cfg(not(feature = "pg18"))]
    return (*descriptor).attrs.as_slice((*descriptor).natts as usize).iter().collect();
    #[cfg(feature = "pg18")]
    return (0..(*descriptor).natts).map(|i| &*pg_sys::TupleDescAttr(descriptor, i)).collect();
}

/// Whether no tuple has NULL there, older ones included.
pub unsafe fn is_never_null(descriptor: &pg_sys::TupleDescData, index: usize) -> bool {
    #[cfg(not(feature = "pg18"))]
    return descriptor.attrs.as_slice(descriptor.natts as usize)[index].attnotnull;
    // A constraint that was not validated yet counts as `attnotnull` already.
    #[cfg(feature = "pg18")]
    return (*pg_sys::TupleDescCompactAttr(std::ptr::from_ref(descriptor).cast_mut(), index as i32))
        .attnullability as u8
        == pg_sys::ATTNULLABLE_VALID;
}

/// Takes note that a serializable transaction reads a whole table.
pub unsafe fn predicate_lock(relation: pg_sys::Relation, snapshot: pg_sys::Snapshot) {
    pg_sys::ffi::pg_guard_ffi_boundary(|| server_predicate_lock_relation(relation, snapshot));
}

/// Keeps the tuples, of those of a pinned and locked buffer, that a snapshot sees, and takes note for
/// serializable transactions that it was asked.
pub unsafe fn keep_visible(
    tuples: &mut Vec<pg_sys::HeapTupleData>,
    relation: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    buffer: pg_sys::Buffer,
) {
    // An error of the server leaves the closure without running destructors: it has nothing to drop.
    pg_sys::ffi::pg_guard_ffi_boundary(|| {
        tuples.retain_mut(|tuple| {
            let is_visible = server_is_visible(tuple, snapshot, buffer);
            server_check_conflict_out(is_visible, relation, tuple, buffer, snapshot);
            is_visible
        });
    });
}

/// The next tuple of a scan, of those that `access` gives. An error of the server leaves the caller without running
/// destructors: it may have nothing to drop.
pub unsafe fn scan(
    node: *mut pg_sys::ScanState,
    access: pg_sys::ExecScanAccessMtd,
    recheck: pg_sys::ExecScanRecheckMtd,
) -> *mut pg_sys::TupleTableSlot {
    server_scan(node, access, recheck)
}

/// A slot of values without a tuple is empty.
pub unsafe fn clear_virtual(slot: *mut pg_sys::TupleTableSlot) {
    if (*slot).tts_flags & pg_sys::TTS_FLAG_SHOULDFREE as u16 != 0 {
        pg_sys::ExecClearTuple(slot);
    }
    (*slot).tts_flags |= pg_sys::TTS_FLAG_EMPTY as u16;
    (*slot).tts_nvalid = 0;
}

/// The values in an empty slot of values are a tuple.
pub unsafe fn store_virtual(slot: *mut pg_sys::TupleTableSlot) {
    (*slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
    (*slot).tts_nvalid = (*(*slot).tts_tupleDescriptor).natts as i16;
}

/// Blocks that were read from tables' files, as the server counts those of its own reading.
pub unsafe fn count_read(blocks: u64) {
    let counted = &raw mut pg_sys::pgBufferUsage.shared_blks_read;
    *counted += i64::try_from(blocks).unwrap_or(0);
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

/// All that a query's FROM joins.
pub unsafe fn all_relids(root: *mut pg_sys::PlannerInfo) -> pg_sys::Relids {
    #[cfg(feature = "pg15")]
    return (*root).all_baserels;
    #[cfg(not(feature = "pg15"))]
    return (*root).all_query_rels;
}

/// What is joined when `special` (if it is one) has joined `inputs`. Since PostgreSQL 16 outer joins have
/// numbers of their own.
pub unsafe fn joined(
    inputs: pg_sys::Relids,
    special: *const pg_sys::SpecialJoinInfo,
) -> pg_sys::Relids {
    #[cfg(not(feature = "pg15"))]
    if let Some(special) = special.as_ref()
        && special.ojrelid != 0
    {
        return pg_sys::bms_add_member(pg_sys::bms_copy(inputs), special.ojrelid as i32);
    }
    #[cfg(feature = "pg15")]
    let _ = special;
    inputs
}

/// Whether a clause can be decided where `inputs` are joined, which makes `both` of them.
pub unsafe fn is_decidable(
    clause: *const pg_sys::RestrictInfo,
    inputs: pg_sys::Relids,
    both: pg_sys::Relids,
) -> bool {
    // Of the forms that a clause has for different orders of outer joins, the one of this order.
    #[cfg(not(feature = "pg15"))]
    if ((*clause).has_clone || (*clause).is_clone)
        && (!pg_sys::bms_is_subset((*clause).required_relids, inputs)
            || pg_sys::bms_overlap((*clause).incompatible_relids, inputs))
    {
        return false;
    }
    #[cfg(feature = "pg15")]
    let _ = inputs;
    pg_sys::bms_is_subset((*clause).required_relids, both)
}

/// The clauses that must hold where `inner` is joined to `outer`, as equivalence classes imply them.
pub unsafe fn implied_equalities(
    root: *mut pg_sys::PlannerInfo,
    both: pg_sys::Relids,
    outer: pg_sys::Relids,
    inner: *mut pg_sys::RelOptInfo,
    special: *mut pg_sys::SpecialJoinInfo,
) -> *mut pg_sys::List {
    #[cfg(feature = "pg15")]
    {
        let _ = special;
        pg_sys::generate_join_implied_equalities(root, both, outer, inner)
    }
    #[cfg(not(feature = "pg15"))]
    pg_sys::generate_join_implied_equalities(root, both, outer, inner, special)
}

/// Which files are a table's: tablespace, database and number.
pub type FileNode = (Oid, Oid, Oid);

/// The path of all rows of a foreign table.
pub unsafe fn foreign_path(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    startup_cost: f64,
    total_cost: f64,
) -> *mut pg_sys::ForeignPath {
    use std::ptr::null_mut;
    pg_sys::create_foreignscan_path(
        root,
        relation,
        null_mut(),
        (*relation).rows,
        #[cfg(feature = "pg18")]
        0,
        startup_cost,
        total_cost,
        null_mut(),
        (*relation).lateral_relids,
        null_mut(),
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        null_mut(),
        null_mut(),
    )
}

/// What makes another node of one.
pub type Mutator =
    unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut std::ffi::c_void) -> *mut pg_sys::Node;

/// A copy of an expression, in which `mutator` made what is below its top.
pub unsafe fn mutated(
    node: *mut pg_sys::Node,
    mutator: Mutator,
    context: *mut std::ffi::c_void,
) -> *mut pg_sys::Node {
    #[cfg(feature = "pg15")]
    {
        type Declared = unsafe extern "C-unwind" fn() -> *mut pg_sys::Node;
        // The server declares the mutator without its parameters, and calls it with these two.
        let declared = std::mem::transmute::<Mutator, Declared>(mutator);
        pg_sys::expression_tree_mutator(node, Some(declared), context)
    }
    #[cfg(not(feature = "pg15"))]
    pg_sys::expression_tree_mutator_impl(node, Some(mutator), context)
}

/// The table that a buffer's block belongs to, and its number there: the main fork's alone.
pub unsafe fn block_of(buffer: *const pg_sys::BufferDesc) -> Option<(FileNode, u32)> {
    let tag = std::ptr::read_volatile(&raw const (*buffer).tag);
    #[cfg(feature = "pg15")]
    let node = (tag.rnode.spcNode, tag.rnode.dbNode, tag.rnode.relNode);
    #[cfg(not(feature = "pg15"))]
    let node = (tag.spcOid, tag.dbOid, tag.relNumber);
    (tag.forkNum == pg_sys::ForkNumber::MAIN_FORKNUM).then_some((node, tag.blockNum))
}

/// Which files are a table's.
pub unsafe fn file_node(relation: pg_sys::Relation) -> FileNode {
    #[cfg(feature = "pg15")]
    let node =
        ((*relation).rd_node.spcNode, (*relation).rd_node.dbNode, (*relation).rd_node.relNode);
    #[cfg(not(feature = "pg15"))]
    let node = {
        let node = (*relation).rd_locator;
        (node.spcOid, node.dbOid, node.relNumber)
    };
    node
}

/// The path of a table's first segment file, from the data directory.
pub unsafe fn path_of(relation: pg_sys::Relation) -> String {
    // Of a table that all sessions may see.
    const OWNER: i32 = -1;
    let (space, database, number) = file_node(relation);
    let fork = pg_sys::ForkNumber::MAIN_FORKNUM;
    let path = pg_sys::GetRelationPath(database, space, number, OWNER, fork);
    #[cfg(feature = "pg18")]
    return crate::nodes::owned(path.str_.as_ptr());
    #[cfg(not(feature = "pg18"))]
    {
        let owned = crate::nodes::owned(path);
        pg_sys::pfree(path.cast());
        owned
    }
}

/// A number that is drawn whenever the server makes its shared memory, after a crash too: that of the
/// control segment of its dynamic shared memory. The key of the shared memory itself is always the same.
pub unsafe fn shared_memory() -> Option<u32> {
    SHARED_MEMORY.as_ref().map(|start| start.dynamic_control)
}

/// Whether snapshots may grow too old to be sure of what they see.
pub unsafe fn snapshots_expire() -> bool {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    return pg_sys::old_snapshot_threshold >= 0;
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    return false;
}

/// What a query groups by.
pub unsafe fn group_clause(root: *mut pg_sys::PlannerInfo) -> *mut pg_sys::List {
    (*(*root).parse).groupClause
}

/// Whether changes of a table are logged, so that a page's position in the log says when it was last
/// changed.
pub unsafe fn is_logged(relation: pg_sys::Relation) -> bool {
    // In `wal_level = minimal` what this very transaction created or rewrote is not.
    let minimal = pg_sys::wal_level < pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32;
    (*(*relation).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT
        && !(minimal && is_new(relation))
}

/// Whether this very transaction created or rewrote a table.
pub unsafe fn is_new(relation: pg_sys::Relation) -> bool {
    #[cfg(feature = "pg15")]
    let rewritten = (*relation).rd_firstRelfilenodeSubid;
    #[cfg(not(feature = "pg15"))]
    let rewritten = (*relation).rd_firstRelfilelocatorSubid;
    (*relation).rd_createSubid != 0 || rewritten != 0
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
    #[cfg(feature = "pg15")]
    let duration =
        pg_sys::instr_time { tv_sec: took.as_secs() as _, tv_nsec: took.subsec_nanos().into() };
    #[cfg(not(feature = "pg15"))]
    let duration = pg_sys::instr_time { ticks: i64::try_from(took.as_nanos()).unwrap_or(i64::MAX) };
    let mut used = pg_sys::BufferUsage::default();
    pg_sys::BufferUsageAccumDiff(&mut used, &raw const pg_sys::pgBufferUsage, &before);
    let used = if (*es).buffers { &raw const used } else { std::ptr::null() };
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    pg_sys::ExplainOnePlan(plan, into, es, text, parameters, environment, &duration, used);
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    {
        let memory = std::ptr::null();
        pg_sys::ExplainOnePlan(
            plan, into, es, text, parameters, environment, &duration, used, memory,
        );
    }
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
        let rows = i64::try_from(rows).unwrap_or(0);
        #[cfg(feature = "pg15")]
        {
            status.t_counts.t_numscans += 1;
            status.t_counts.t_blocks_fetched += i64::from(direct_blocks);
            status.t_counts.t_tuples_returned += rows;
        }
        #[cfg(not(feature = "pg15"))]
        {
            status.counts.numscans += 1;
            status.counts.blocks_fetched += i64::from(direct_blocks);
            status.counts.tuples_returned += rows;
        }
    }
}
