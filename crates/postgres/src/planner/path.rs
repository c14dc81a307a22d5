//! The path, what it costs, and the plan node that it becomes.

use std::ffi::c_void;
use std::ptr::null_mut;

use pgrx::pg_sys::{self, NodeTag, Path, PlannerInfo, RelOptInfo};

use super::Made;
use super::joins::Join;
use super::streamed::{Size, Streamed};
use super::target::Target;
use crate::nodes::{self, WhyNot, items, why_not};
use crate::{foreign, settings};

/// As the server calls the node.
pub const NAME: &std::ffi::CStr = c"Headrace";

/// What the server calls; nothing in it changes.
#[repr(transparent)]
pub struct Methods<T>(pub T);

// SAFETY: pointers to functions and to a constant name, which are the same for every thread.
unsafe impl<T> Sync for Methods<T> {}

static PATH_METHODS: Methods<pg_sys::CustomPathMethods> = Methods(pg_sys::CustomPathMethods {
    CustomName: NAME.as_ptr(),
    PlanCustomPath: Some(plan_custom_path),
    ReparameterizeCustomPathByChild: None,
});

/// How a plan node becomes one that can be executed.
pub static SCAN_METHODS: Methods<pg_sys::CustomScanMethods> = Methods(pg_sys::CustomScanMethods {
    CustomName: NAME.as_ptr(),
    CreateCustomScanState: Some(crate::executor::create_state),
});

/// Everything that a path is made of.
pub struct Offer<'a> {
    pub streamed: Streamed,
    pub joins: &'a [Join],
    pub target: &'a Target,
    pub made: Made,
    /// PostgreSQL's own path for the same rows.
    pub alternative: *mut Path,
}

/// PostgreSQL's cheapest path so far, kept from being freed when a cheaper one comes.
pub unsafe fn cheapest(output: *mut RelOptInfo) -> Result<*mut Path, WhyNot> {
    let paths = items::<Path>((*output).pathlist);
    let own = paths.filter(|path| (**path).param_info.is_null() && as_ours(*path).is_none());
    let cheapest = own.min_by(|a, b| (**a).total_cost.total_cmp(&(**b).total_cost));
    let Some(cheapest) = cheapest else { return why_not("PostgreSQL has no plan for it") };
    if (*cheapest).type_ == NodeTag::T_MinMaxAggPath {
        return why_not("an index has the smallest and the largest value at its ends");
    }
    let bytes = match (*cheapest).type_ {
        NodeTag::T_NestPath => size_of::<pg_sys::NestPath>(),
        NodeTag::T_MergePath => size_of::<pg_sys::MergePath>(),
        NodeTag::T_HashPath => size_of::<pg_sys::HashPath>(),
        NodeTag::T_Path => size_of::<Path>(),
        NodeTag::T_IndexPath => size_of::<pg_sys::IndexPath>(),
        NodeTag::T_BitmapHeapPath => size_of::<pg_sys::BitmapHeapPath>(),
        NodeTag::T_AppendPath => size_of::<pg_sys::AppendPath>(),
        NodeTag::T_MergeAppendPath => size_of::<pg_sys::MergeAppendPath>(),
        NodeTag::T_AggPath => size_of::<pg_sys::AggPath>(),
        NodeTag::T_GroupPath => size_of::<pg_sys::GroupPath>(),
        NodeTag::T_GroupResultPath => size_of::<pg_sys::GroupResultPath>(),
        NodeTag::T_ProjectionPath => size_of::<pg_sys::ProjectionPath>(),
        NodeTag::T_SortPath => size_of::<pg_sys::SortPath>(),
        NodeTag::T_GatherPath => size_of::<pg_sys::GatherPath>(),
        NodeTag::T_GatherMergePath => size_of::<pg_sys::GatherMergePath>(),
        NodeTag::T_CustomPath => size_of::<pg_sys::CustomPath>(),
        NodeTag::T_ForeignPath => size_of::<pg_sys::ForeignPath>(),
        other => return why_not(format!("PostgreSQL's own plan is a {other:?}")),
    };
    let copy = pg_sys::palloc(bytes);
    // `bytes` is the size of what the tag says that it is; `copy` has room for it.
    std::ptr::copy_nonoverlapping(cheapest.cast::<u8>(), copy.cast(), bytes);
    Ok(copy.cast())
}

/// The path that was added to a relation's, if it is still there.
pub unsafe fn of_headrace(output: *mut RelOptInfo) -> Option<*mut pg_sys::CustomPath> {
    items::<Path>((*output).pathlist).find_map(|path| as_ours(path))
}

unsafe fn as_ours(path: *mut Path) -> Option<*mut pg_sys::CustomPath> {
    let custom = nodes::cast::<pg_sys::CustomPath>(path.cast(), NodeTag::T_CustomPath)?;
    std::ptr::eq((*custom).methods, &raw const PATH_METHODS.0).then_some(custom)
}

/// Puts another path of PostgreSQL's own in place of the one for the same rows.
pub unsafe fn replace_alternative(ours: *mut pg_sys::CustomPath, alternative: *mut Path) {
    let children = items::<Path>((*ours).custom_paths).skip(1);
    (*ours).custom_paths = nodes::list(std::iter::once(alternative).chain(children));
}

/// Adds the path to those of the grouping, the table or the join.
// Later versions of the server have more fields.
#[allow(clippy::needless_update)]
pub unsafe fn add(output: *mut RelOptInfo, offer: Offer<'_>) -> Result<(), WhyNot> {
    let children = offer.joins.iter().map(|join| (*join.inner).cheapest_total_path);
    let children: Vec<*mut Path> = children.collect();
    let cost = Cost::of(&offer, &children);
    let of_folders = offer.streamed.of_folders().iter().map(|clause| nodes::copy(*clause));
    let plan = offer.made.plan.to_list(nodes::list(of_folders.collect::<Vec<_>>()))?;
    let parameters = nodes::list(offer.made.parameters.iter().copied());
    let private = [plan, offer.target.scan_list(), parameters, offer.target.having];
    let path = pg_sys::palloc0(size_of::<pg_sys::CustomPath>()).cast::<pg_sys::CustomPath>();
    *path = pg_sys::CustomPath {
        path: Path {
            type_: NodeTag::T_CustomPath,
            pathtype: NodeTag::T_CustomScan,
            parent: output,
            pathtarget: (*output).reltarget,
            param_info: null_mut(),
            parallel_aware: false,
            parallel_safe: false,
            parallel_workers: 0,
            rows: (*offer.alternative).rows,
            startup_cost: cost.startup,
            total_cost: cost.total,
            pathkeys: null_mut(),
            ..Path::default()
        },
        flags: 0,
        custom_paths: nodes::list(std::iter::once(offer.alternative).chain(children)),
        custom_private: nodes::list(private),
        methods: &raw const PATH_METHODS.0,
        ..pg_sys::CustomPath::default()
    };
    pg_sys::add_path(output, path.cast());
    Ok(())
}

struct Cost {
    startup: f64,
    total: f64,
}

impl Cost {
    /// Blocks cost what they cost PostgreSQL, a row a tenth of what it does, since vectors of them are
    /// worked on; looking a row up in a build costs a part of that, and less than giving it to a join of
    /// PostgreSQL's. Rows of blocks that are not visible to everybody are looked at one by one. A group costs
    /// several rows: where most rows are groups of their own, PostgreSQL is the faster one
    /// (`bench/postgres-costs`).
    unsafe fn of(offer: &Offer<'_>, children: &[*mut Path]) -> Self {
        const ROW_SHARE: f64 = 0.1;
        const PROBE_SHARE: f64 = 0.3;
        const GROUP_ROWS: f64 = 4.0;
        let give = (*offer.alternative).rows * pg_sys::cpu_tuple_cost;
        if settings::FORCE.get() {
            // Giving the rows is never free: a nested loop must not ask for them again and again.
            return Self { startup: 0.0, total: give };
        }
        let Size { blocks, visible_blocks, rows } = offer.streamed.size;
        let row = pg_sys::cpu_tuple_cost;
        let is_direct =
            settings::ENABLE_DIRECT_READ.get() && blocks > 0.0 && !pg_sys::RecoveryInProgress();
        let visible = match offer.streamed.files {
            Some(_) => 1.0,
            None if is_direct => visible_blocks / blocks,
            None => 0.0,
        };
        let builds: f64 =
            children.iter().map(|child| (**child).total_cost + (**child).rows * row).sum();
        let read = match offer.streamed.files {
            Some(_) => foreign::read_cost(offer.streamed.relation),
            None => blocks * pg_sys::seq_page_cost,
        };
        let steps = 1.0 + PROBE_SHARE * children.len() as f64;
        let run = rows * row * (visible * ROW_SHARE * steps + (1.0 - visible));
        let groups = groups(offer.alternative) * row * GROUP_ROWS;
        let startup = settings::STARTUP_COST.get() + builds + read + run + groups;
        Self { startup, total: startup + give }
    }
}

/// Groups that a plan makes before conditions on them.
unsafe fn groups(path: *mut Path) -> f64 {
    match (*path).type_ {
        NodeTag::T_AggPath => (*path.cast::<pg_sys::AggPath>()).numGroups,
        NodeTag::T_GroupPath => (*path).rows,
        _ => 0.0,
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn plan_custom_path(
    _root: *mut PlannerInfo,
    _relation: *mut RelOptInfo,
    best: *mut pg_sys::CustomPath,
    list: *mut pg_sys::List,
    _clauses: *mut pg_sys::List,
    children: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    let private: Vec<*mut pg_sys::List> = items((*best).custom_private).collect();
    let [plan, scan_list, parameters, having] = private[..] else {
        pgrx::error!("a path of Headrace has {} parts", private.len());
    };
    let node = pg_sys::palloc0(size_of::<pg_sys::CustomScan>()).cast::<pg_sys::CustomScan>();
    (*node).scan.plan.type_ = NodeTag::T_CustomScan;
    (*node).scan.plan.targetlist = list;
    (*node).scan.plan.qual = nodes::copy(having);
    (*node).flags = (*best).flags;
    (*node).custom_plans = children;
    (*node).custom_exprs = nodes::copy(parameters);
    (*node).custom_private = plan;
    (*node).custom_scan_tlist = scan_list;
    (*node).methods = &raw const SCAN_METHODS.0;
    node.cast::<c_void>().cast()
}
