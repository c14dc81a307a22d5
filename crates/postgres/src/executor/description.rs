//! What a table is, as far as its blocks are concerned.

use std::path::PathBuf;

use headrace_format::heap::{Attribute, Relation as Description, Stamps};
use pgrx::pg_sys::{self, Relation};

use crate::blocks::{BLOCKS_PER_MAP_PAGE, Listing, Map};
use crate::nodes::WhyNot;
use crate::translate::HeapColumn;
use crate::version;

/// What a table's description says, and which of its attributes are read.
pub(super) unsafe fn description(relation: Relation) -> Result<Description, WhyNot> {
    let descriptor = &*(*relation).rd_att;
    let mut attributes = Vec::new();
    for (index, attribute) in version::attributes((*relation).rd_att).into_iter().enumerate() {
        let HeapColumn { kind, length, align } = HeapColumn::of(attribute)?;
        let missing = match kind {
            Some(_) if attribute.atthasmissing => missing(descriptor, index, attribute)?,
            _ => None,
        };
        attributes.push(Attribute {
            name: crate::nodes::owned(attribute.attname.data.as_ptr()),
            kind,
            length,
            align,
            dropped: attribute.attisdropped,
            not_null: version::is_never_null(descriptor, index),
            missing,
        });
    }
    Ok(Description {
        block_bytes: pg_sys::BLCKSZ as usize,
        checksums: pg_sys::DataChecksumsEnabled(),
        attributes,
        derived: Vec::new(),
    })
}

/// What tuples have that were written before a column was added.
unsafe fn missing(
    descriptor: &pg_sys::TupleDescData,
    index: usize,
    attribute: &pg_sys::FormData_pg_attribute,
) -> Result<Option<Vec<u8>>, WhyNot> {
    let Some(value) = version::missing_value(descriptor, index) else { return Ok(None) };
    Ok(Some(match attribute.attlen {
        -1 => {
            let whole = pg_sys::pg_detoast_datum_packed(value.cast_mut_ptr());
            let bytes = pgrx::varlena::vardata_any(whole).cast::<u8>();
            std::slice::from_raw_parts(bytes, pgrx::varlena::varsize_any_exhdr(whole)).to_vec()
        }
        length if attribute.attbyval => value.value().to_le_bytes()[..length as usize].to_vec(),
        length => {
            let bytes = value.cast_mut_ptr::<u8>();
            std::slice::from_raw_parts(bytes, usize::try_from(length).unwrap_or(0)).to_vec()
        }
    }))
}

/// What tells a table's blocks from what they were, for a process that keeps their rows as long as the
/// server runs: after a crash the log may come to a position once more. `None`: setting bits of its map
/// moves no position, or this transaction may still COPY frozen rows into blocks whose bits are set.
pub(super) unsafe fn stamps(relation: Relation, map: &Map) -> Option<Stamps> {
    if !version::is_logged(relation) || version::is_new(relation) {
        return None;
    }
    let (path, memory) = (version::path_of(relation), version::shared_memory()?);
    let identity = format!("{path} in shared memory {memory}");
    Some(Stamps { identity, blocks: BLOCKS_PER_MAP_PAGE, stamps: map.stamps() })
}

/// A table's segment files, from the data directory, as many as listed blocks lie in.
pub(super) unsafe fn files(relation: Relation, listing: &Listing) -> Vec<PathBuf> {
    let first = version::path_of(relation);
    let end = listing.direct.last().map_or(0, |range| range.end);
    let name = |number: u32| match number {
        0 => first.clone(),
        number => format!("{first}.{number}"),
    };
    (0..end.div_ceil(pg_sys::RELSEG_SIZE)).map(|number| name(number).into()).collect()
}
