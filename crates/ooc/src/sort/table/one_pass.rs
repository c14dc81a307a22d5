//! Rows that fit in memory: read once, partitioned, and gathered in place.

use std::ops::Range;

use arrow_array::RecordBatch;
use headrace_io::random::drawn_at;
use headrace_io::{MemoryUse, Reservation};

use super::keys::Keys;
use super::leaf::Leaf;
use super::source::Source;
use super::splitters::{Sampled, Splitters};
use super::work::Work;
use crate::Result;

/// Rows of a unit, in memory.
struct Piece {
    batch: RecordBatch,
    keys: Keys,
    /// Its rows by bucket, and where each bucket begins.
    order: Vec<u32>,
    starts: Vec<u32>,
    _reserved: Reservation,
}

/// Rows of one bucket: some of each piece's order.
#[derive(Default)]
struct Part {
    of_pieces: Vec<(usize, Range<u32>)>,
    rows: u64,
    is_single: bool,
}

/// Sorts rows that fit in memory.
///
/// # Errors
/// [`crate::OocError::Budget`] if they do not; nothing was written then.
pub(super) fn sort(
    work: &Work<'_>,
    source: &Source<'_>,
    mut write: impl FnMut(Vec<RecordBatch>) -> Result<()> + Send,
) -> Result<()> {
    let mut pieces = work.staged("read", || read(work, source))?;
    let rows: u64 = (0..source.units()).map(|unit| source.rows(unit)).sum();
    let bytes: u64 = (0..source.units()).map(|unit| source.bytes(unit)).sum();
    let leaf_rows = work.sizes.leaf_rows(bytes, rows);
    let parts = work.staged("divide", || {
        let buckets = rows.div_ceil(leaf_rows) as usize;
        let splitters = Splitters::of_sample(sample(&pieces, buckets), buckets);
        divide(work, &splitters, &mut pieces)?;
        Ok(parts(&splitters, &pieces, leaf_rows))
    })?;
    let row_bytes = bytes.div_ceil(rows.max(1)) * 5 / 4;
    let leaf_bytes = |part: &Part| Leaf::needs_bytes(work, part.rows);
    work.staged("sort and write", || {
        work.turns.run(
            parts.len(),
            |part| parts[part].rows * row_bytes + leaf_bytes(&parts[part]),
            |part, reserved| {
                let part = &parts[part];
                let mut leaf = Leaf::with_capacity(part.rows as usize);
                for (piece, range) in &part.of_pieces {
                    let piece = &pieces[*piece];
                    let rows = &piece.order[range.start as usize..range.end as usize];
                    leaf.add(&piece.batch, &piece.keys, rows.iter().copied());
                }
                if !part.is_single {
                    leaf.sort();
                }
                leaf.gather(work, reserved, leaf_bytes(part))
            },
            |batches, _| write(batches),
        )
    })
}

fn read(work: &Work<'_>, source: &Source<'_>) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    work.turns.run(
        source.units(),
        |unit| source.needs_bytes(unit) + source.rows(unit) * work.maker.fixed_row_bytes(),
        |unit, reserved| {
            let batch = source.read(work, unit)?;
            let arrays = work.maker.arrays(&batch)?;
            let keys_bytes = work.maker.bytes_max(&arrays) + 4 * batch.num_rows() as u64;
            reserved.resize(source.needs_bytes(unit) + keys_bytes)?;
            let keys = work.maker.keys(&arrays)?;
            // Now there is what was read once, and no more than the keys really take.
            let order_bytes = 4 * batch.num_rows() as u64;
            reserved.resize(source.holds_bytes(unit) + keys.bytes() + order_bytes)?;
            Ok((batch, keys))
        },
        |(batch, keys), reserved| {
            let (order, starts) = Default::default();
            pieces.push(Piece { batch, keys, order, starts, _reserved: reserved });
            Ok(())
        },
    )?;
    Ok(pieces)
}

/// Keys of all pieces, sampled evenly.
fn sample(pieces: &[Piece], buckets: usize) -> Vec<Sampled> {
    let rows: usize = pieces.iter().map(|piece| piece.batch.num_rows()).sum();
    let step = rows.div_ceil(buckets * 64).max(1);
    let of_piece = |piece: &Piece| {
        let rows = piece.batch.num_rows();
        let picked = (0..rows).step_by(step);
        let picked = picked.map(|at| at + drawn_at(0, at as u64) as usize % step.min(rows - at));
        picked.map(|row| (piece.keys.prefixes[row], piece.keys.row(row).into())).collect::<Vec<_>>()
    };
    pieces.iter().flat_map(of_piece).collect()
}

fn divide(work: &Work<'_>, splitters: &Splitters, pieces: &mut [Piece]) -> Result<()> {
    let memory = &work.turns.memory;
    let starts_bytes = 4 * (pieces.len() * (splitters.buckets() + 1)) as u64;
    let _starts = memory.reserve(MemoryUse::Operators, starts_bytes)?;
    let mut divided = Vec::with_capacity(pieces.len());
    work.turns.run(
        pieces.len(),
        // Numbers of buckets; the order has its place already.
        |piece| 2 * pieces[piece].batch.num_rows() as u64,
        |piece, _| Ok(splitters.divide(&pieces[piece].keys)),
        |one, _| {
            divided.push(one);
            Ok(())
        },
    )?;
    for (piece, (order, starts)) in pieces.iter_mut().zip(divided) {
        (piece.order, piece.starts) = (order, starts);
    }
    Ok(())
}

/// The buckets in order; those of a single key, whose rows are in order, in parts of about `leaf_rows`.
fn parts(splitters: &Splitters, pieces: &[Piece], leaf_rows: u64) -> Vec<Part> {
    let mut parts = Vec::new();
    for bucket in 0..splitters.buckets() {
        let is_single = splitters.is_single(bucket);
        let mut part = Part { is_single, ..Part::default() };
        for (number, piece) in pieces.iter().enumerate() {
            let mut rest = piece.starts[bucket]..piece.starts[bucket + 1];
            while !rest.is_empty() {
                let room = if is_single { leaf_rows - part.rows } else { u64::MAX };
                let end =
                    rest.end
                        .min((u64::from(rest.start) + room.min(1 << 32)).min(u64::from(rest.end))
                            as u32);
                part.of_pieces.push((number, rest.start..end));
                part.rows += u64::from(end - rest.start);
                rest.start = end;
                if is_single && part.rows == leaf_rows {
                    parts.push(std::mem::replace(&mut part, Part { is_single, ..Part::default() }));
                }
            }
        }
        if part.rows > 0 {
            parts.push(part);
        }
    }
    parts
}
