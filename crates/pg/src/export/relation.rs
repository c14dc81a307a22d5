//! Tables in the server, cut into parts for parallel reading.
//!
//! A table is cut by ctid: each part is a range of blocks, which the server reads with a TID range
//! scan. A partitioned or inherited table is cut leaf by leaf. Everything else is one part: a query, a
//! view, a foreign table, a table with row security or leaves that the user may not read by themselves,
//! a server before version 14.

use tokio_postgres::Row;

use super::columns::{Column, select};

/// Stored bytes of a part, including TOASTed values.
const PART_BYTES: u64 = 16 << 20;

/// The first version with TID range scans.
const TID_RANGE_SCANS: i32 = 140_000;

/// The rows of one statement.
#[derive(Debug)]
pub(super) struct Part {
    /// The query.
    pub sql: String,
    /// For messages.
    pub place: String,
    /// Server bytes; 0 if unknown.
    pub bytes: u64,
}

/// A table that has rows, or might have them: a leaf of the exported table.
pub(super) struct Relation {
    name: String,
    /// Whether it is the table itself.
    pub is_root: bool,
    kind: i8,
    is_heap: bool,
    may_read: bool,
    has_row_security: bool,
    heap_bytes: u64,
    /// With TOASTed values, and everything else but indexes.
    pub all_bytes: u64,
}

const RELATION: &str = "c.oid = $1, pg_catalog.format('%I.%I', n.nspname, c.relname), c.relkind,
    coalesce(a.amname = 'heap', false), pg_catalog.has_table_privilege(c.oid, 'select'),
    pg_catalog.row_security_active(c.oid), coalesce(pg_catalog.pg_relation_size(c.oid), 0),
    coalesce(pg_catalog.pg_table_size(c.oid), 0)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    left join pg_catalog.pg_am a on a.oid = c.relam";

impl Relation {
    pub fn of(row: &Row) -> Relation {
        let bytes = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
        Relation {
            is_root: row.get(0),
            name: row.get(1),
            kind: row.get(2),
            is_heap: row.get(3),
            may_read: row.get(4),
            has_row_security: row.get(5),
            heap_bytes: bytes(6),
            all_bytes: bytes(7),
        }
    }

    fn has_blocks(&self) -> bool {
        matches!(self.kind as u8, b'r' | b'm') && self.is_heap
    }
}

/// The leaves of the table $1, itself first if it has its own rows.
pub(super) fn leaves() -> String {
    format!(
        "with recursive tree as (select $1::oid as oid union
             select inhrelid from pg_catalog.pg_inherits join tree on inhparent = tree.oid)
         select {RELATION} where c.oid in (select oid from tree) and c.relkind <> 'p'
         order by c.oid <> $1, n.nspname collate \"C\", c.relname collate \"C\""
    )
}

/// Why a table is read by one connection, if it is.
pub(super) fn whole_because(
    version: i32,
    has_row_security: bool,
    is_partitioned: bool,
    leaves: &[Relation],
) -> Option<&'static str> {
    if version < TID_RANGE_SCANS {
        return Some("servers before version 14 cannot read ranges of blocks");
    }
    if has_row_security || leaves.iter().any(|leaf| leaf.has_row_security) {
        return Some("it has row security");
    }
    if !leaves.iter().all(|leaf| leaf.may_read) {
        return Some("its partitions may not be read by themselves");
    }
    (!leaves.iter().any(Relation::has_blocks) && !is_partitioned).then_some("it is no plain table")
}

/// The rows of all leaves.
pub(super) fn parts(leaves: &[Relation], columns: &[Column], block_bytes: u64) -> Vec<Part> {
    leaves.iter().flat_map(|leaf| parts_of(leaf, columns, block_bytes)).collect()
}

fn parts_of(leaf: &Relation, columns: &[Column], block_bytes: u64) -> Vec<Part> {
    let name = &leaf.name;
    if !leaf.has_blocks() {
        let sql = select(columns, name);
        return vec![Part { sql, place: name.clone(), bytes: leaf.all_bytes }];
    }
    let all = select(columns, &format!("only {name}"));
    let part = |(first, end, bytes)| {
        let (within, place) = match (first, end) {
            (0, None) => (String::new(), name.clone()),
            (_, None) => {
                (format!(" where ctid >= '({first},0)'"), format!("{name}, blocks from {first}"))
            }
            (_, Some(end)) => (
                format!(" where ctid >= '({first},0)' and ctid < '({end},0)'"),
                format!("{name}, blocks {first} to {}", end - 1),
            ),
        };
        Part { sql: all.clone() + &within, place, bytes }
    };
    ranges(leaf, block_bytes).map(part).collect()
}

/// Ranges of blocks: the first, the one after the last, and their approximate bytes. The last one is open:
/// blocks appended since are not visible.
fn ranges(
    leaf: &Relation,
    block_bytes: u64,
) -> impl Iterator<Item = (u64, Option<u64>, u64)> + use<> {
    let blocks = leaf.heap_bytes.div_ceil(block_bytes.max(1));
    let bytes_a_block = (leaf.all_bytes / blocks.max(1)).max(block_bytes);
    let step = (PART_BYTES / bytes_a_block.max(1)).max(1);
    let parts = blocks.div_ceil(step).max(1);
    (0..parts).map(move |part| {
        let (first, end) = (part * step, (part + 1) * step);
        let is_last = part + 1 == parts;
        let here = end.min(blocks).saturating_sub(first);
        (first, (!is_last).then_some(end), here * bytes_a_block)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(heap_bytes: u64, all_bytes: u64) -> Relation {
        Relation {
            name: "t".into(),
            is_root: true,
            kind: b'r' as i8,
            is_heap: true,
            may_read: true,
            has_row_security: false,
            heap_bytes,
            all_bytes,
        }
    }

    #[test]
    fn ranges_cover_every_block_once_and_the_last_is_open() {
        for (heap, all) in [
            (0, 0),
            (8192, 8192),
            (100 << 20, 100 << 20),
            (1 << 20, 10 << 30),
            (16 << 20, 16 << 20),
        ] {
            let ranges: Vec<_> = ranges(&leaf(heap, all), 8192).collect();
            let mut next = 0;
            for (i, (first, end, bytes)) in ranges.iter().enumerate() {
                assert_eq!(*first, next);
                assert_eq!(end.is_none(), i + 1 == ranges.len());
                next = end.unwrap_or(heap / 8192);
                assert!(*bytes <= PART_BYTES.max(all));
            }
            assert_eq!(next.max(1), (heap / 8192).max(1));
        }
        assert_eq!(ranges(&leaf(100 << 20, 100 << 20), 8192).count(), 7);
        // Values outside of the heap count.
        assert_eq!(ranges(&leaf(1 << 20, 10 << 30), 8192).count(), 128);
    }
}
