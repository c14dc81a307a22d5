//! The path, what it costs, and the plan node that it becomes.

use std::ffi::c_void;
use std::ptr::null_mut;

use headrace_ir::{DataType, Sink};
use pgrx::pg_sys::{self, NodeTag, Path, PlannerInfo, RelOptInfo};

use super::joins::Join;
use super::streamed::{Size, Streamed};
use super::target::Target;
use super::{Made, Place, offers};
use crate::nodes::{self, WhyNot, items};
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
    pub place: Place,
    pub streamed: Streamed,
    pub joins: &'a [Join],
    pub target: &'a Target,
    pub made: Made,
    /// PostgreSQL's own path for the same rows.
    pub alternative: *mut Path,
}

/// The path that was added to a relation's, if it is still there.
pub unsafe fn of_headrace(output: *mut RelOptInfo) -> Option<*mut pg_sys::CustomPath> {
    items((*output).pathlist).find_map(|path| as_ours(path))
}

/// A path as one of these, if it is.
pub unsafe fn as_ours(path: *mut Path) -> Option<*mut pg_sys::CustomPath> {
    let custom = nodes::cast::<pg_sys::CustomPath>(path.cast(), NodeTag::T_CustomPath)?;
    std::ptr::eq((*custom).methods, &raw const PATH_METHODS.0).then_some(custom)
}

/// The path for a grouping, for rows of a table or a join.
// Later versions of the server have more fields.
#[allow(clippy::needless_update)]
pub unsafe fn of(offer: Offer<'_>) -> Result<*mut Path, WhyNot> {
    let children = offer.joins.iter().map(|join| (*join.inner).cheapest_total_path);
    let children: Vec<*mut Path> = children.collect();
    let cost = Cost::of(&offer, &children);
    let of_folders = offer.streamed.of_folders().iter().map(|clause| nodes::copy(*clause));
    let plan = offer.made.plan.to_list(nodes::list(of_folders.collect::<Vec<_>>()))?;
    let (top, mut parameters) = (offer.target.top.as_ref(), offer.made.parameters.clone());
    parameters.extend(top.iter().flat_map(|top| &top.bounds));
    let parameters = nodes::list(parameters);
    let private = [plan, offer.target.scan_list(), parameters, offer.target.having];
    let path = pg_sys::palloc0(size_of::<pg_sys::CustomPath>()).cast::<pg_sys::CustomPath>();
    *path = pg_sys::CustomPath {
        path: Path {
            type_: NodeTag::T_CustomPath,
            pathtype: NodeTag::T_CustomScan,
            parent: offer.place.output,
            pathtarget: offer.place.pathtarget,
            param_info: null_mut(),
            parallel_aware: false,
            parallel_safe: false,
            parallel_workers: 0,
            rows: cost.rows,
            startup_cost: cost.startup,
            total_cost: cost.total,
            pathkeys: top.map_or(null_mut(), |top| top.pathkeys),
            ..Path::default()
        },
        flags: 0,
        custom_paths: nodes::list(std::iter::once(offer.alternative).chain(children)),
        custom_private: nodes::list(private),
        methods: &raw const PATH_METHODS.0,
        ..pg_sys::CustomPath::default()
    };
    Ok(path.cast())
}

/// What a row costs of what it costs PostgreSQL.
const ROW_SHARE: f64 = 0.1;

struct Cost {
    startup: f64,
    total: f64,
    /// Rows that are given.
    rows: f64,
}

impl Cost {
    /// Blocks cost what they cost PostgreSQL, a row a tenth of what it does, since vectors of them are
    /// worked on; looking a row up in a build costs a part of that, and less than giving it to a join of
    /// PostgreSQL's. Rows of blocks that are not visible to everybody are looked at one by one. A group costs
    /// several rows: where most rows are groups of their own, PostgreSQL is the faster one
    /// (`bench/postgres-costs`).
    unsafe fn of(offer: &Offer<'_>, children: &[*mut Path]) -> Self {
        const PROBE_SHARE: f64 = 0.3;
        /// One that is given, with what becomes of it.
        const GIVEN_ROWS: f64 = 3.0;
        let top = offer.target.top.as_ref();
        let (groups, share) = groups(offer);
        let all_rows = ((*offer.alternative).rows * share).max(1.0);
        let given_rows = top.map_or(all_rows, |top| top.rows);
        let give = given_rows * pg_sys::cpu_tuple_cost;
        if settings::FORCE.get() {
            // Giving the rows is never free: a nested loop must not ask for them again and again.
            return Self { startup: 0.0, total: give, rows: given_rows };
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
        let groups = groups * row * Self::group_rows(&offer.made.plan.program.answer.sink, groups);
        // Any rows will do: the stream ends when there are enough.
        let share = match top {
            Some(top) if !top.is_sorted() => given_rows / all_rows,
            _ => 1.0,
        };
        let sort = match top {
            Some(top) if top.is_sorted() => Self::sort(all_rows, given_rows),
            _ => 0.0,
        };
        let streamed = (read + run) * share.min(1.0) + sort;
        let give = give * GIVEN_ROWS;
        let startup = settings::STARTUP_COST.get() + builds + streamed + groups;
        Self { startup, total: startup + give, rows: given_rows }
    }
}

impl Cost {
    /// What a group costs, in rows: more with texts, and where not all fit the memory, so that some are written and
    /// read again.
    fn group_rows(sink: &Sink, groups: f64) -> f64 {
        const PLAIN: f64 = 4.0;
        const TEXT: f64 = 3.0;
        const SPILLED: f64 = 2.0;
        const TEXT_BYTES: f64 = 32.0;
        const VALUE_BYTES: f64 = 16.0;
        let Sink::Aggregate { keys, calls, .. } = sink else { return 0.0 };
        let is_text = |of: &DataType| *of == DataType::Utf8;
        let texts = keys.iter().filter(|key| is_text(&key.expr.data_type())).count()
            + calls.iter().filter(|call| is_text(&call.result)).count();
        let texts = texts as f64;
        let bytes = (keys.len() + calls.len() + 1) as f64 * VALUE_BYTES + texts * TEXT_BYTES;
        let limit_bytes = f64::from(settings::MEMORY_LIMIT_KIB.get()) * 1024.0;
        let is_spilled = groups * bytes > limit_bytes;
        PLAIN + TEXT * texts + if is_spilled { SPILLED } else { 0.0 }
    }

    /// Of all rows, which are compared with the last of those that are wanted, these are sorted; as PostgreSQL
    /// sees comparisons.
    unsafe fn sort(all_rows: f64, wanted_rows: f64) -> f64 {
        let comparison = 2.0 * pg_sys::cpu_operator_cost;
        comparison * (all_rows * ROW_SHARE + 2.0 * wanted_rows * (wanted_rows + 1.0).log2())
    }
}

/// Groups before conditions on them, and how many that is of those that PostgreSQL expects.
unsafe fn groups(offer: &Offer<'_>) -> (f64, f64) {
    let own = offer.alternative;
    let expected = match (*own).type_ {
        NodeTag::T_AggPath => (*own.cast::<pg_sys::AggPath>()).numGroups,
        NodeTag::T_GroupPath => (*own).rows,
        _ => return (0.0, 1.0),
    };
    let groups = expected.min(offer.target.groups);
    (groups, groups / expected.max(1.0))
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
    offers::take();
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
