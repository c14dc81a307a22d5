//! From rows to a build.

use std::time::Instant;

use arrow_array::{ArrayRef, RecordBatch};
use headrace_columns::column::Column;
use headrace_columns::column_in::append_array;
use headrace_columns::key::{self, EncodedKeys};
use headrace_columns::repr::Repr;
use headrace_io::try_map;
use headrace_ir::{DataType, Field, PassedOn, ValueRange};

use crate::ExecError;
use crate::build::payload::{Placement, UniqueKeys, encode, range_of, wider};
use crate::build::pieces::{BuildColumn, Pieces, threads_for};
use crate::build::{BuildId, BuildIndex, BuildTable, Chains, PayloadColumn, Presence};

/// A direct-address table may have this many entries for each row ..
const DIRECT_ENTRIES_A_ROW: u64 = 64;
/// .. or this many, whatever the number of rows: a strongly filtered dimension is probed four
/// times faster by address than by hash, and 4 Mi entries of a byte are quickly made.
const DIRECT_ENTRIES_MIN: u64 = 4 << 20;
/// Without payload an entry is a bit.
const DIRECT_BITS_MIN: u64 = 8 * DIRECT_ENTRIES_MIN;
/// But never more than this: 1 Gi bits are 128 MiB.
const DIRECT_ENTRIES_MAX: u64 = 1 << 30;
/// Nor so many that it takes more than this many times what a hash table takes: it would be made, and brought to a
/// device, for longer than it is probed.
const DIRECT_BYTES_FACTOR: u64 = 4;
/// What a hash table takes for a row beside its payload: two to four slots of a row number and a key.
const HASHED_ROW_BYTES: u64 = 40;

/// What is known of a build besides its rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildOptions {
    /// Whether probes will ask for NULL keys (see [`BuildTable::nulls_equal`]).
    pub nulls_equal: bool,
    /// Rows of the table that the build was filtered from (see [`BuildTable::source_rows`]).
    pub source_rows: Option<u64>,
    /// What becomes of the payload.
    pub passed_on: PassedOn,
    /// Threads that make it; 0 is one.
    pub threads: usize,
}

impl BuildTable {
    /// A build from record batches whose columns are the keys, then the payload.
    pub fn from_batches(
        name: &str,
        keys: &[Field],
        payload: &[Field],
        batches: &[RecordBatch],
        options: BuildOptions,
    ) -> Result<Self, ExecError> {
        let fields: Vec<Field> = keys.iter().chain(payload).cloned().collect();
        let reprs = fields.iter().map(|field| repr_of(&field.data_type));
        let reprs = reprs.collect::<Result<Vec<_>, ExecError>>()?;
        let part = |batch: &RecordBatch| {
            if batch.num_columns() != fields.len() {
                return Err(ExecError::Internal(format!(
                    "build {name}: {} columns where {} were planned",
                    batch.num_columns(),
                    fields.len()
                )));
            }
            let columns = batch.columns().iter().zip(fields.iter().zip(&reprs));
            let column = |(array, (field, repr)): (&ArrayRef, (&Field, &Repr))| {
                let mut column = Column::new(repr.clone())?;
                append_array(&mut column, array, field)?;
                Ok(column)
            };
            columns.map(column).collect::<Result<Vec<Column>, ExecError>>()
        };
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let threads = threads_for(rows, options.threads);
        let parts = try_map(batches.len(), (1, threads), |batch| part(&batches[batch]))?;
        let columns = fields.iter().zip(&reprs).enumerate().map(|(place, (field, repr))| {
            let parts = parts.iter().map(|part| &part[place]).collect();
            BuildColumn { field: field.clone(), repr: repr.clone(), parts }
        });
        let mut columns: Vec<BuildColumn<'_>> = columns.collect();
        let payload = columns.split_off(keys.len());
        Self::assemble(name, columns, payload, options)
    }

    /// A build from columns, all of which have the same parts. Keys are never codes, except those of a
    /// dictionary that the streamed side has too.
    pub(crate) fn assemble(
        name: &str,
        keys: Vec<BuildColumn<'_>>,
        payload: Vec<BuildColumn<'_>>,
        options: BuildOptions,
    ) -> Result<Self, ExecError> {
        let complete;
        let (mut keys, mut payload) = (keys, payload);
        let any = keys.first().or(payload.first());
        let rows: usize = any.into_iter().flat_map(BuildColumn::part_rows).sum();
        if rows as u64 >= u64::from(u32::MAX) {
            return Err(ExecError::Internal(format!(
                "build {name} has {rows} rows; at most 2^32 - 2 can be numbered"
            )));
        }
        let threads = threads_for(rows, options.threads);
        let kept = rows_without_null(&keys, threads)?;
        let has_null_key = kept.iter().any(Option::is_some);
        if has_null_key && !options.nulls_equal {
            complete = taken(keys.iter().chain(&payload), &kept, threads)?;
            for (column, taken) in keys.iter_mut().chain(&mut payload).zip(&complete) {
                let parts = column.parts.iter_mut().zip(taken);
                parts.for_each(|(part, taken)| *part = taken.as_ref().unwrap_or(part));
            }
        }
        let any = keys.first().or(payload.first());
        let pieces = Pieces::of(any.into_iter().flat_map(BuildColumn::part_rows), threads);
        let rows = pieces.rows();
        let started = Instant::now();
        let direct = match options.nulls_equal {
            true => None,
            false => direct_index(&keys, &payload, &pieces)?,
        };
        let (index, placement, unique) = match direct {
            Some((present, keys)) => (BuildIndex::Direct(present), Placement::Keys(keys), true),
            None => {
                let chains = chains(&keys, &pieces, options.nulls_equal)?;
                let unique = chains.duplicates_max <= 1;
                (BuildIndex::Chains(chains), Placement::Rows, unique)
            }
        };
        tracing::debug!(build = name, rows, unique, ms = ms_since(started), "keys are laid out");
        let laid_out = payload.iter().enumerate().map(|(place, column)| {
            let started = Instant::now();
            let is_passed_on = options.passed_on.holds(place, unique);
            let encoded = encode(column, &placement, &pieces, is_passed_on);
            let (column, ms) = (&column.field.name, ms_since(started));
            tracing::debug!(build = name, column, ms, "a column is laid out");
            encoded
        });
        let payload = laid_out.collect::<Result<Vec<_>, _>>()?;
        let bytes = index_bytes(&index) + payload.iter().map(payload_bytes).sum::<u64>();
        Ok(Self {
            name: name.to_string(),
            keys: keys.iter().map(|column| column.field.clone()).collect(),
            key_reprs: keys.iter().map(|column| column.repr.clone()).collect(),
            rows: rows as u64,
            source_rows: options.source_rows,
            nulls_equal: options.nulls_equal,
            has_null_key,
            unique,
            index,
            payload,
            bytes,
            id: BuildId::default(),
        })
    }

    /// Most rows of one key.
    pub fn duplicates_max(&self) -> u64 {
        match &self.index {
            BuildIndex::Chains(chains) => chains.duplicates_max.max(1),
            BuildIndex::Direct(_) => 1,
        }
    }

    /// Entries of each payload column.
    pub fn entries(&self) -> usize {
        match &self.index {
            BuildIndex::Direct(present) => present.domain as usize,
            BuildIndex::Chains(chains) => chains.next.len(),
        }
    }
}

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

fn repr_of(data_type: &DataType) -> Result<Repr, ExecError> {
    let unknown = || ExecError::Internal(format!("a build column of type {data_type}"));
    Repr::of(data_type).ok_or_else(unknown)
}

/// For each part, the rows without a NULL key; `None`: all rows.
fn rows_without_null(
    keys: &[BuildColumn<'_>],
    threads: usize,
) -> Result<Vec<Option<Vec<u32>>>, ExecError> {
    let parts = keys.first().map_or(0, |key| key.parts.len());
    try_map(parts, (1, threads), |part| {
        let parts = || keys.iter().map(|key| key.parts[part]);
        let rows = parts().map(Column::rows).next().unwrap_or(0);
        let validity: Vec<&[u8]> = parts().filter_map(Column::validity).collect();
        if validity.is_empty() {
            return Ok(None);
        }
        let complete = |row: &u32| validity.iter().all(|valid| valid[*row as usize] != 0);
        let kept: Vec<u32> = (0..rows as u32).filter(complete).collect();
        Ok(Some(kept).filter(|kept| kept.len() < rows))
    })
}

/// For each column and part, the rows that are kept; `None`: all rows.
fn taken<'c>(
    columns: impl Iterator<Item = &'c BuildColumn<'c>>,
    kept: &[Option<Vec<u32>>],
    threads: usize,
) -> Result<Vec<Vec<Option<Column>>>, ExecError> {
    let of_column = |column: &BuildColumn<'_>| {
        try_map(kept.len(), (1, threads), |part| {
            let rows = kept[part].as_deref();
            Ok(rows.map(|rows| column.parts[part].take(rows)).transpose()?)
        })
    };
    columns.map(of_column).collect()
}

/// A direct-address table, if there is one integer key, dense enough, without duplicates.
fn direct_index<'k>(
    keys: &'k [BuildColumn<'k>],
    payload: &[BuildColumn<'_>],
    pieces: &Pieces,
) -> Result<Option<(Presence, UniqueKeys<'k>)>, ExecError> {
    let [key] = keys else { return Ok(None) };
    if !key.repr.is_integer_like() {
        return Ok(None);
    }
    let spans = pieces.map(|piece| key.with_integers(piece, |keys, _| range_of(keys, None)))?;
    let span = spans.into_iter().flatten().reduce(wider);
    let ValueRange { min, max } = span.unwrap_or(ValueRange { min: 0, max: -1 });
    let Ok(domain) = u64::try_from(i128::from(max) - i128::from(min) + 1) else { return Ok(None) };
    let most = direct_entries_max(pieces.rows() as u64, payload).min(DIRECT_ENTRIES_MAX);
    if domain > most { Ok(None) } else { UniqueKeys::of(key, pieces, (min, domain)) }
}

/// Entries that a direct-address table of so many rows may have.
fn direct_entries_max(rows: u64, payload: &[BuildColumn<'_>]) -> u64 {
    if payload.is_empty() {
        return rows.saturating_mul(DIRECT_ENTRIES_A_ROW).max(DIRECT_BITS_MIN);
    }
    // Integers and texts are numbers of one to four bytes, mostly.
    let value_bytes = |column: &BuildColumn<'_>| match column.repr {
        Repr::Bool | Repr::I8 | Repr::U8 => 1,
        Repr::I16 | Repr::U16 => 2,
        Repr::F64 | Repr::U64 => 8,
        Repr::I128 => 16,
        Repr::Bytes(width) => width as u64,
        _ => 4,
    };
    let entry_bytes: u64 = payload.iter().map(value_bytes).sum();
    let a_row = DIRECT_BYTES_FACTOR * (HASHED_ROW_BYTES + entry_bytes) / entry_bytes;
    rows.saturating_mul(a_row.min(DIRECT_ENTRIES_A_ROW)).max(DIRECT_ENTRIES_MIN)
}

/// NULLs are no numbers: where they may be found, keys are bytes.
fn chains(
    keys: &[BuildColumn<'_>],
    pieces: &Pieces,
    with_nulls: bool,
) -> Result<Chains, ExecError> {
    if let ([key], false) = (keys, with_nulls)
        && key.repr.is_integer_like()
    {
        let values = pieces.values(|piece, own| {
            key.with_integers(piece, |values, _| own.copy_from_slice(values))
        })?;
        return Ok(Chains::of_integers(values, pieces.threads()));
    }
    Ok(Chains::of_encoded(encoded(keys, pieces)?, pieces.threads()))
}

/// The keys of all rows.
fn encoded(keys: &[BuildColumn<'_>], pieces: &Pieces) -> Result<EncodedKeys, ExecError> {
    let by_piece = pieces.map(|piece| {
        let vectors: Vec<_> = keys.iter().map(|key| key.of(piece)).collect();
        Ok(key::encode(vectors.iter(), piece.rows.len()))
    })?;
    Ok(EncodedKeys::joined(&by_piece, pieces.threads()))
}

fn index_bytes(index: &BuildIndex) -> u64 {
    match index {
        BuildIndex::Direct(present) => present.bytes(),
        BuildIndex::Chains(chains) => chains.bytes(),
    }
}

fn payload_bytes(column: &PayloadColumn) -> u64 {
    let validity = column.validity.as_ref().map_or(0, |bits| bits.len() * 8);
    (column.data.bytes().len() + validity) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(repr: Repr) -> BuildColumn<'static> {
        BuildColumn { field: Field::new("p", DataType::Int64, false), repr, parts: Vec::new() }
    }

    #[test]
    fn a_direct_table_is_no_more_than_a_few_times_as_large_as_a_hashed_one() {
        let [small, word, wide] = [Repr::Bool, Repr::I64, Repr::I128].map(column);
        // A tenth of the keys of six hundred million.
        let (rows, domain) = (60_000_000, 600_000_000);
        assert!(direct_entries_max(rows, std::slice::from_ref(&word)) > domain);
        // A fortieth, with three columns: 4.8 GB in place of half a gigabyte.
        let rows = 14_600_000;
        let three = [column(Repr::I64), column(Repr::I32), column(Repr::Bool)];
        assert!(direct_entries_max(rows, &three) < domain);
        for columns in [[small], [word], [wide]] {
            let a_row = direct_entries_max(rows, &columns) / rows;
            assert!((10..=DIRECT_ENTRIES_A_ROW).contains(&a_row), "{a_row}");
            assert_eq!(direct_entries_max(10, &columns), DIRECT_ENTRIES_MIN);
        }
        assert_eq!(direct_entries_max(10, &[]), DIRECT_BITS_MIN);
    }
}
