//! What the planner asks of a foreign table: rows, cost, a plan node.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, List, Node, Oid, PlannerInfo, RelOptInfo};
use serde::{Deserialize, Serialize};

use super::failure::or_fail;
use super::files::Found;
use super::partitions;
use super::pushed::Pushed;
use super::streamed::Streamed;
use super::table::{self, ForeignTable};
use crate::nodes::{self, WhyNot, items};
use crate::version;

/// What travels to the executor; conditions that folders decide come beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScanPlan {
    /// Numbers of the columns that are read.
    pub wanted: Vec<i16>,
    /// What a pipeline knows of its rows.
    pub pushed: Option<Pushed>,
}

impl ScanPlan {
    /// As a list that can be copied.
    unsafe fn to_list(&self, clauses: *mut List) -> Result<*mut List, WhyNot> {
        let text = serde_json::to_string(self);
        let text = text.map_err(|e| WhyNot(format!("the plan cannot be written: {e}")))?;
        Ok(nodes::list([nodes::string(&text), clauses.cast()]))
    }

    /// From such a list, with the conditions.
    pub unsafe fn of_list(list: *mut List) -> Result<(Self, *mut List), WhyNot> {
        let parts: Vec<*mut Node> = items(list).collect();
        let [text, clauses] = parts[..] else {
            return nodes::why_not("a foreign scan without its plan");
        };
        let text = nodes::text_of(text).unwrap_or_default();
        let plan = serde_json::from_str(text).map_err(|error| WhyNot(error.to_string()))?;
        Ok((plan, clauses.cast()))
    }
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn rel_size(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    table: Oid,
) {
    or_fail(estimate(root, relation, table));
}

unsafe fn estimate(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    table: Oid,
) -> Result<(), WhyNot> {
    let table = ForeignTable::of(table)?;
    let all = table.find()?;
    let likely = match all.iter().any(|file| !file.values.is_empty()) {
        false => all,
        true => {
            let arrow = super::files::open(&all)?;
            let clauses = partitions::clauses(relation, &table.of_folders(&arrow, &all));
            partitions::likely(root, &table, all, &clauses)
        }
    };
    let arrow = table::open(&likely)?;
    let rows = arrow.as_ref().map_or(0, |arrow| arrow.rows());
    (*relation).tuples = rows as f64;
    (*relation).pages = blocks(likely.iter().map(size_of_file).sum());
    pg_sys::set_baserel_size_estimates(root, relation);
    // What is read of them decides the cost.
    let names: Vec<i16> = wanted(relation);
    let read = |number: &i16| -> u64 {
        let column = table.column(*number).ok().zip(arrow.as_ref());
        let ordinal =
            column.and_then(|(c, arrow)| Some((arrow.schema().index_of(&c.name).ok()?, arrow)));
        ordinal.map_or(0, |(ordinal, arrow)| arrow.column_stats(ordinal).bytes)
    };
    let bytes: u64 = names.iter().map(read).sum();
    (*relation).fdw_private = nodes::list([nodes::string(&bytes.to_string())]).cast();
    Ok(())
}

pub fn size_of_file(file: &Found) -> u64 {
    std::fs::metadata(&file.path).map_or(0, |metadata| metadata.len())
}

/// Blocks of the server that so many bytes would fill.
pub fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(pg_sys::BLCKSZ.into())).unwrap_or(u32::MAX)
}

/// Numbers of the columns that a query reads of a relation; all, if it wants whole rows.
unsafe fn wanted(relation: *mut RelOptInfo) -> Vec<i16> {
    let mut found: *mut pg_sys::Bitmapset = null_mut();
    let target = (*(*relation).reltarget).exprs;
    pg_sys::pull_varattnos(target.cast(), (*relation).relid, &mut found);
    for clause in items::<pg_sys::RestrictInfo>((*relation).baserestrictinfo) {
        pg_sys::pull_varattnos((*clause).clause.cast(), (*relation).relid, &mut found);
    }
    let mut numbers = Vec::new();
    let mut member = pg_sys::bms_next_member(found, -1);
    while member >= 0 {
        numbers.push((member + pg_sys::FirstLowInvalidHeapAttributeNumber) as i16);
        member = pg_sys::bms_next_member(found, member);
    }
    match numbers.contains(&0) {
        true => (1..=(*relation).max_attr).collect(),
        // Others are the server's own.
        false => numbers.into_iter().filter(|number| *number > 0).collect(),
    }
}

/// What it costs to read the wanted columns.
pub unsafe fn read_cost(relation: *mut RelOptInfo) -> f64 {
    let bytes = items::<Node>((*relation).fdw_private.cast()).next();
    let bytes = bytes.and_then(|node| nodes::text_of(node)).and_then(|text| text.parse().ok());
    f64::from(blocks(bytes.unwrap_or(0))) * pg_sys::seq_page_cost
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn paths(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    _table: Oid,
) {
    let read = read_cost(relation);
    let row = pg_sys::cpu_tuple_cost + (*relation).baserestrictcost.per_tuple;
    let startup = (*relation).baserestrictcost.startup;
    let total = startup + read + (*relation).tuples * row;
    pg_sys::add_path(relation, version::foreign_path(root, relation, startup, total).cast());
}

#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn plan(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    table: Oid,
    _path: *mut pg_sys::ForeignPath,
    list: *mut List,
    clauses: *mut List,
    outer: *mut pg_sys::Plan,
) -> *mut pg_sys::ForeignScan {
    let (private, parameters) = or_fail(private(root, relation, table));
    let clauses = pg_sys::extract_actual_clauses(clauses, false);
    pg_sys::make_foreignscan(
        list,
        clauses,
        (*relation).relid,
        parameters,
        private,
        null_mut(),
        null_mut(),
        outer,
    )
}

/// What the executor has to know, and the expressions of parameters.
unsafe fn private(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    table: Oid,
) -> Result<(*mut List, *mut List), WhyNot> {
    let wanted = wanted(relation);
    let Some(files) = Streamed::of(relation, table)? else {
        let plan = ScanPlan { wanted, pushed: None };
        return Ok((plan.to_list(null_mut())?, null_mut()));
    };
    let copies = |nodes: &[*mut Node]| {
        let copies = nodes.iter().map(|node| nodes::copy(*node));
        nodes::list(copies.collect::<Vec<_>>())
    };
    let (pushed, parameters) = Pushed::of(root, relation, &files, &files.columns(&wanted));
    let pushed = (!pushed.is_empty()).then_some(pushed);
    let plan = ScanPlan { wanted, pushed };
    Ok((plan.to_list(copies(&files.clauses))?, copies(&parameters)))
}
