//! The table that is streamed.

use pgrx::pg_sys::{self, Node, PlannerInfo, RangeTblEntry, RelOptInfo};

use super::joins;
use crate::nodes::{self, WhyNot, items, why_not};
use crate::{foreign, settings};

/// A relation whose rows are streamed.
pub struct Streamed {
    /// The relation.
    pub relation: *mut RelOptInfo,
    /// Where its rows lie: itself, or all of its parts that PostgreSQL did not rule out.
    pub tables: Vec<u32>,
    /// What is known of its files, if it is a foreign table.
    pub files: Option<foreign::Streamed>,
    /// All of them.
    pub size: Size,
}

/// What the planner knows of tables' sizes.
#[derive(Clone, Copy, Default)]
pub struct Size {
    pub blocks: f64,
    /// Of these, visible to everybody.
    pub visible_blocks: f64,
    pub rows: f64,
}

/// The largest of the relations whose rows all count, if it is a table that can be streamed, or one whose parts can.
pub unsafe fn choose(
    root: *mut PlannerInfo,
    members: &[*mut RelOptInfo],
) -> Result<Streamed, WhyNot> {
    let is_alone = members.len() == 1;
    let outer = members.iter().filter(|member| is_alone || !joins::is_inner_side(root, **member));
    let sized = outer.map(|member| (*member, leaves(root, *member)));
    let sized = sized.map(|(member, leaves)| (member, Size::of(&leaves), leaves));
    let largest = sized.max_by(|(_, a, _), (_, b, _)| a.blocks.total_cmp(&b.blocks));
    let Some((relation, size, leaves)) = largest else { return why_not("no table is read") };
    let entry = &*nodes::entry_of(root, relation);
    let name = nodes::owned((*entry.eref).aliasname);
    let refused = |reason: &str| why_not(format!("{name} {reason}"));
    if entry.rtekind != pg_sys::RTEKind::RTE_RELATION {
        return refused(if entry.inh { "is a UNION ALL" } else { "is no table" });
    }
    if !entry.tablesample.is_null() {
        return refused("is sampled");
    }
    if !entry.securityQuals.is_null() {
        return refused("has row security, or is behind a security barrier");
    }
    if leaves.is_empty() {
        return refused("has no part that can have rows");
    }
    let (blocks, min_blocks) = (size.blocks, settings::MIN_TABLE_BLOCKS.get());
    if blocks < f64::from(min_blocks) {
        return refused(&format!(
            "has {blocks} blocks, less than headrace.min_table_size ({min_blocks} blocks)"
        ));
    }
    let mut tables = Vec::new();
    for leaf in leaves {
        let table = &*nodes::entry_of(root, leaf);
        if leaf == relation && table.relkind as u8 == pg_sys::RELKIND_FOREIGN_TABLE {
            if !foreign::is_ours(relation) {
                return refused("is a foreign table of another wrapper");
            }
            let files = Some(foreign::Streamed::of(relation, table.relid)?);
            return Ok(Streamed { relation, tables: vec![table.relid.to_u32()], files, size });
        }
        if let Err(WhyNot(reason)) = check_storage(table) {
            return match leaf == relation {
                true => refused(&reason),
                false => why_not(format!(
                    "{name}: {} {reason}",
                    nodes::owned(pg_sys::get_rel_name(table.relid))
                )),
            };
        }
        tables.push(table.relid.to_u32());
    }
    Ok(Streamed { relation, tables, files: None, size })
}

/// The tables that a relation's rows lie in, of partitioned ones and of those with children the parts.
unsafe fn leaves(root: *mut PlannerInfo, relation: *mut RelOptInfo) -> Vec<*mut RelOptInfo> {
    if !(*nodes::entry_of(root, relation)).inh {
        return vec![relation];
    }
    let parts = items::<pg_sys::AppendRelInfo>((*root).append_rel_list)
        .filter(|part| (**part).parent_relid == (*relation).relid)
        .map(|part| *(*root).simple_rel_array.add((*part).child_relid as usize));
    let parts = parts.filter(|part| !part.is_null() && !pg_sys::is_dummy_rel(*part));
    parts.flat_map(|part| leaves(root, part)).collect()
}

impl Size {
    unsafe fn of(leaves: &[*mut RelOptInfo]) -> Self {
        leaves.iter().fold(Self::default(), |sum, leaf| {
            let blocks = f64::from((**leaf).pages);
            Self {
                blocks: sum.blocks + blocks,
                visible_blocks: sum.visible_blocks + blocks * (**leaf).allvisfrac,
                rows: sum.rows + (**leaf).tuples.max(0.0),
            }
        })
    }
}

/// A heap whose files and buffers all sessions have.
unsafe fn check_storage(entry: &RangeTblEntry) -> Result<(), WhyNot> {
    if !matches!(entry.relkind as u8, pg_sys::RELKIND_RELATION | pg_sys::RELKIND_MATVIEW) {
        return why_not("is no plain table");
    }
    if entry.relid.to_u32() < pg_sys::FirstNormalObjectId {
        return why_not("belongs to the system catalog");
    }
    // The planner holds a lock.
    let relation = pg_sys::table_open(entry.relid, pg_sys::NoLock as i32);
    let (form, handler) = (&*(*relation).rd_rel, (*relation).rd_amhandler);
    let persistence = form.relpersistence as u8;
    pg_sys::table_close(relation, pg_sys::NoLock as i32);
    if handler.to_u32() != pg_sys::F_HEAP_TABLEAM_HANDLER {
        return why_not("is stored by another access method than heap");
    }
    match persistence {
        // Its blocks are in buffers of the session's own.
        pg_sys::RELPERSISTENCE_TEMP => why_not("is a temporary table"),
        _ => Ok(()),
    }
}

impl Streamed {
    /// Conditions that the names of folders decide.
    pub fn of_folders(&self) -> &[*mut Node] {
        self.files.as_ref().map(|files| files.clauses.as_slice()).unwrap_or_default()
    }

    /// The conditions on its rows alone that are decided row by row.
    pub unsafe fn filters(&self) -> Result<Vec<*mut Node>, WhyNot> {
        let mut filters = Vec::new();
        for clause in items::<pg_sys::RestrictInfo>((*self.relation).baserestrictinfo) {
            if (*clause).security_level > 0 {
                return why_not("a clause behind a security barrier");
            }
            let clause = (*clause).clause.cast();
            if !self.of_folders().contains(&clause) {
                filters.push(clause);
            }
        }
        Ok(filters)
    }
}
