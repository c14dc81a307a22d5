//! PostgreSQL's own path for the same rows, which answers where a pipeline cannot. No node of Headrace is in it:
//! what keeps one from finishing may keep all of them, each after a pass of its own over a table.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, List, NodeTag, Path, PlannerInfo, RelOptInfo};

use super::path::as_ours;
use super::top::Top;
use crate::nodes::{self, WhyNot, items, why_not};

/// The cheapest path so far, in the order that is asked for.
pub unsafe fn of(
    root: *mut PlannerInfo,
    output: *mut RelOptInfo,
    top: Option<&Top>,
) -> Result<*mut Path, WhyNot> {
    let pathkeys = top.map_or(null_mut(), |top| top.pathkeys);
    sorted(root, output, pathkeys, top.map_or(-1.0, |top| top.rows))
}

/// Puts a better one in place of the one that a path for a join has, if PostgreSQL finds it for one more pair of
/// relations, of which `add_paths` adds its paths to a join. It is another than the path's: there what costs more
/// than Headrace is dropped, however much better than the rest.
pub unsafe fn renew(
    root: *mut PlannerInfo,
    ours: *mut pg_sys::CustomPath,
    add_paths: impl FnOnce(*mut RelOptInfo),
) {
    let path = &(*ours).path;
    // Paths keep the address of what they are of.
    let apart = pg_sys::palloc(size_of::<RelOptInfo>()).cast::<RelOptInfo>();
    *apart = RelOptInfo { pathlist: null_mut(), partial_pathlist: null_mut(), ..*path.parent };
    add_paths(apart);
    let mut paths = items::<Path>((*ours).custom_paths);
    let (Some(before), Ok(found)) = (paths.next(), sorted(root, apart, path.pathkeys, path.rows))
    else {
        return;
    };
    if (*found).total_cost < (*before).total_cost {
        (*ours).custom_paths = nodes::list(std::iter::once(found).chain(paths));
    }
}

unsafe fn sorted(
    root: *mut PlannerInfo,
    output: *mut RelOptInfo,
    pathkeys: *mut List,
    rows: f64,
) -> Result<*mut Path, WhyNot> {
    let cheapest = cheapest(output)?;
    if pg_sys::pathkeys_contained_in(pathkeys, (*cheapest).pathkeys) {
        return Ok(cheapest);
    }
    Ok(pg_sys::create_sort_path(root, output, cheapest, pathkeys, rows).cast())
}

unsafe fn cheapest(output: *mut RelOptInfo) -> Result<*mut Path, WhyNot> {
    let paths = items::<Path>((*output).pathlist);
    let own = paths.filter(|path| (**path).param_info.is_null() && as_ours(*path).is_none());
    let cheapest = own.min_by(|a, b| (**a).total_cost.total_cmp(&(**b).total_cost));
    let Some(cheapest) = cheapest else { return why_not("PostgreSQL has no plan for it") };
    match (*cheapest).type_ {
        NodeTag::T_MinMaxAggPath => {
            why_not("an index has the smallest and the largest value at its ends")
        }
        tag => {
            copied(cheapest).ok_or_else(|| WhyNot(format!("PostgreSQL's own plan is a {tag:?}")))
        }
    }
}

/// A path in which PostgreSQL's own stands for each of Headrace's.
unsafe fn own(path: *mut Path) -> *mut Path {
    match as_ours(path) {
        // Its own is free of others.
        Some(ours) => items((*ours).custom_paths).next().unwrap_or(path),
        None => copied(path).unwrap_or(path),
    }
}

unsafe fn all_own(paths: *mut List) -> *mut List {
    nodes::list(items::<Path>(paths).map(|path| own(path)).collect::<Vec<_>>())
}

/// A copy of a path, of which the server frees the original when it finds a cheaper one, with those below it as
/// [`own`] has them; `None` for kinds whose size only others know.
unsafe fn copied(path: *mut Path) -> Option<*mut Path> {
    macro_rules! copy {
        ($type:ident $(, $($below:ident).+)*) => {{
            let copy = pg_sys::palloc(size_of::<pg_sys::$type>()).cast::<pg_sys::$type>();
            // `path` is what its tag says that it is, and `copy` has room for it.
            std::ptr::copy_nonoverlapping(path.cast(), copy, 1);
            $((*copy).$($below).+ = own((*copy).$($below).+);)*
            copy.cast()
        }};
    }
    Some(match (*path).type_ {
        NodeTag::T_Path => copy!(Path),
        NodeTag::T_IndexPath => copy!(IndexPath),
        NodeTag::T_BitmapHeapPath => copy!(BitmapHeapPath),
        NodeTag::T_ForeignPath => copy!(ForeignPath),
        NodeTag::T_GroupResultPath => copy!(GroupResultPath),
        NodeTag::T_SubqueryScanPath => copy!(SubqueryScanPath, subpath),
        NodeTag::T_NestPath => copy!(NestPath, jpath.outerjoinpath, jpath.innerjoinpath),
        NodeTag::T_MergePath => copy!(MergePath, jpath.outerjoinpath, jpath.innerjoinpath),
        NodeTag::T_HashPath => copy!(HashPath, jpath.outerjoinpath, jpath.innerjoinpath),
        NodeTag::T_MaterialPath => copy!(MaterialPath, subpath),
        NodeTag::T_MemoizePath => copy!(MemoizePath, subpath),
        NodeTag::T_UniquePath => copy!(UniquePath, subpath),
        NodeTag::T_GatherPath => copy!(GatherPath, subpath),
        NodeTag::T_GatherMergePath => copy!(GatherMergePath, subpath),
        NodeTag::T_ProjectionPath => copy!(ProjectionPath, subpath),
        NodeTag::T_SortPath => copy!(SortPath, subpath),
        NodeTag::T_IncrementalSortPath => copy!(IncrementalSortPath, spath.subpath),
        NodeTag::T_GroupPath => copy!(GroupPath, subpath),
        NodeTag::T_AggPath => copy!(AggPath, subpath),
        NodeTag::T_WindowAggPath => copy!(WindowAggPath, subpath),
        NodeTag::T_LimitPath => copy!(LimitPath, subpath),
        NodeTag::T_AppendPath => {
            let append: *mut pg_sys::AppendPath = copy!(AppendPath);
            (*append).subpaths = all_own((*append).subpaths);
            append.cast()
        }
        NodeTag::T_MergeAppendPath => {
            let append: *mut pg_sys::MergeAppendPath = copy!(MergeAppendPath);
            (*append).subpaths = all_own((*append).subpaths);
            append.cast()
        }
        _ => return None,
    })
}
