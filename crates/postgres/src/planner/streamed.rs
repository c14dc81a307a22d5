//! The table that is streamed.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, Node, NodeTag, PlannerInfo, RangeTblEntry, RelOptInfo};

use super::{joins, numbers};
use crate::nodes::{self, WhyNot, items, why_not};
use crate::translate::{ir_type, stored};
use crate::{foreign, settings};

/// A relation whose rows are streamed.
pub struct Streamed {
    /// The relation.
    pub relation: *mut RelOptInfo,
    /// Where its rows lie: itself, or all of its parts that PostgreSQL did not rule out.
    pub leaves: Vec<Leaf>,
    /// What is known of its files, if it is a foreign table.
    pub files: Option<foreign::Streamed>,
    /// All of them.
    pub size: Size,
}

/// A table that rows of a relation lie in.
pub struct Leaf {
    relation: *mut RelOptInfo,
    /// Which.
    pub table: u32,
    /// What each part on the way to it is of the one before it.
    way: Vec<*mut pg_sys::AppendRelInfo>,
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
    let is_union = entry.rtekind == pg_sys::RTEKind::RTE_SUBQUERY && entry.inh;
    if let Err(WhyNot(reason)) = if is_union { Ok(()) } else { check_member(entry) } {
        return refused(&reason);
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
    for leaf in &leaves {
        let table = &*nodes::entry_of(root, leaf.relation);
        let is_whole = leaf.relation == relation;
        if is_whole && table.relkind as u8 == pg_sys::RELKIND_FOREIGN_TABLE {
            if !foreign::is_ours(relation) {
                return refused("is a foreign table of another wrapper");
            }
            let files = foreign::Streamed::of(relation, table.relid)?;
            let files = Some(files.ok_or_else(|| WhyNot("the table has no files yet".into()))?);
            return Ok(Streamed { relation, leaves, files, size });
        }
        let checked = check_way(root, leaf);
        let checked = checked.and_then(|()| if is_union { check_member(table) } else { Ok(()) });
        if let Err(WhyNot(reason)) = checked.and_then(|()| check_storage(table)) {
            return match is_whole {
                true => refused(&reason),
                false => why_not(format!(
                    "{name}: {} {reason}",
                    nodes::owned(pg_sys::get_rel_name(table.relid))
                )),
            };
        }
    }
    Ok(Streamed { relation, leaves, files: None, size })
}

/// The tables that a relation's rows lie in: of partitioned ones and of those with children the parts, of a UNION
/// ALL its members.
unsafe fn leaves(root: *mut PlannerInfo, relation: *mut RelOptInfo) -> Vec<Leaf> {
    let entry = &*nodes::entry_of(root, relation);
    if !entry.inh {
        return vec![Leaf { relation, table: entry.relid.to_u32(), way: Vec::new() }];
    }
    let parts = items::<pg_sys::AppendRelInfo>((*root).append_rel_list)
        .filter(|part| (**part).parent_relid == (*relation).relid)
        .map(|part| (part, *(*root).simple_rel_array.add((*part).child_relid as usize)));
    let parts = parts.filter(|(_, part)| !part.is_null() && !pg_sys::is_dummy_rel(*part));
    let leaves = parts.flat_map(|(info, part)| {
        leaves(root, part).into_iter().map(move |mut leaf| {
            leaf.way.insert(0, info);
            leaf
        })
    });
    leaves.collect()
}

/// Row security of a member of a UNION ALL stands at the member alone, not at the parts that it has.
unsafe fn check_way(root: *mut PlannerInfo, leaf: &Leaf) -> Result<(), WhyNot> {
    let is_secured = |info: &*mut pg_sys::AppendRelInfo| {
        !(*joins::entry(root, (**info).child_relid)).securityQuals.is_null()
    };
    match leaf.way.iter().any(is_secured) {
        true => why_not("has row security, or is behind a security barrier"),
        false => Ok(()),
    }
}

impl Leaf {
    /// Columns of the whole by their numbers here.
    pub unsafe fn attributes(&self, of_whole: &[i16]) -> Result<Vec<i16>, WhyNot> {
        let mut attributes: Vec<i16> = Vec::new();
        for of in of_whole {
            let mut number = *of;
            for info in &self.way {
                number = translated(info, number)?;
            }
            let known = attributes.iter().position(|known| *known == number);
            if known.is_some_and(|known| of_whole[known] != *of) {
                return why_not("a UNION ALL with a member that gives a column twice");
            }
            attributes.push(number);
        }
        Ok(attributes)
    }
}

/// What a part has where the whole has a column.
unsafe fn translated(info: &*mut pg_sys::AppendRelInfo, number: i16) -> Result<i16, WhyNot> {
    let place = usize::try_from(number - 1).unwrap_or(usize::MAX);
    let mut given = items::<Node>((**info).translated_vars).nth(place).unwrap_or(null_mut());
    // Types that are stored alike.
    while let Some(relabel) = nodes::cast::<pg_sys::RelabelType>(given, NodeTag::T_RelabelType) {
        let (from, to) = ((*relabel).arg.cast(), given);
        let type_of = |node| ir_type(pg_sys::exprType(node), pg_sys::exprTypmod(node));
        let is_number = |node| stored(pg_sys::exprType(node), -1).0 == pg_sys::NUMERICOID;
        let are_numbers = is_number(from) && is_number(to);
        let is_padded = pg_sys::exprType(from) == pg_sys::BPCHAROID;
        if !are_numbers && (type_of(from)? != type_of(to)? || is_padded) {
            break;
        }
        given = from;
    }
    match nodes::cast::<pg_sys::Var>(given, NodeTag::T_Var) {
        Some(var) if (*var).varno as u32 == (**info).child_relid => Ok((*var).varattno),
        _ => why_not("a UNION ALL of what is no column in one of its members"),
    }
}

/// What is asked of the table that a query names, and of each that a UNION ALL does.
unsafe fn check_member(entry: &RangeTblEntry) -> Result<(), WhyNot> {
    if entry.rtekind != pg_sys::RTEKind::RTE_RELATION {
        return why_not("is no table");
    }
    if !entry.tablesample.is_null() {
        return why_not("is sampled");
    }
    match entry.securityQuals.is_null() {
        true => Ok(()),
        false => why_not("has row security, or is behind a security barrier"),
    }
}

impl Size {
    unsafe fn of(leaves: &[Leaf]) -> Self {
        leaves.iter().map(|leaf| leaf.relation).fold(Self::default(), |sum, leaf| {
            let blocks = f64::from((*leaf).pages);
            Self {
                blocks: sum.blocks + blocks,
                visible_blocks: sum.visible_blocks + blocks * (*leaf).allvisfrac,
                rows: sum.rows + (*leaf).tuples.max(0.0),
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

/// A column of a relation in all tables that its rows lie in.
pub unsafe fn columns(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
    attribute: i16,
) -> Result<Vec<numbers::Column>, WhyNot> {
    leaves(root, relation).iter().map(|leaf| leaf.column(attribute)).collect()
}

impl Leaf {
    unsafe fn column(&self, of_whole: i16) -> Result<numbers::Column, WhyNot> {
        let attribute = self.attributes(&[of_whole])?[0];
        let is_empty = (*self.relation).tuples <= 0.0;
        Ok(numbers::Column { table: self.table, attribute, is_empty })
    }
}

impl Streamed {
    /// A column in all tables that the rows lie in.
    pub unsafe fn columns(&self, attribute: i16) -> Result<Vec<numbers::Column>, WhyNot> {
        self.leaves.iter().map(|leaf| leaf.column(attribute)).collect()
    }

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
