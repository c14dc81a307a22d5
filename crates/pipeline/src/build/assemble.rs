//! From rows to a build.

use arrow_array::RecordBatch;
use headrace_columns::column::Column;
use headrace_columns::column_in::append_array;
use headrace_columns::convert::integers;
use headrace_columns::key;
use headrace_columns::repr::Repr;
use headrace_io::try_map;
use headrace_ir::{DataType, Field};

use crate::ExecError;
use crate::build::payload::{BuildColumn, Placement, encode};
use crate::build::{BuildId, BuildIndex, BuildTable, Chains, PayloadColumn, PayloadData, Presence};

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

/// Payload columns of fewer rows are laid out before another thread has begun.
const THREAD_ROWS_MIN: usize = 1 << 16;

/// What is known of a build besides its rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildOptions {
    /// Whether probes will ask for NULL keys (see [`BuildTable::nulls_equal`]).
    pub nulls_equal: bool,
    /// Rows of the table that the build was filtered from (see [`BuildTable::source_rows`]).
    pub source_rows: Option<u64>,
    /// Threads that lay out payload columns; 0 is one.
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
        let mut columns = fields
            .iter()
            .map(|field| Ok(Column::new(repr_of(&field.data_type)?)?))
            .collect::<Result<Vec<_>, ExecError>>()?;
        for batch in batches {
            if batch.num_columns() != fields.len() {
                return Err(ExecError::Internal(format!(
                    "build {name}: {} columns where {} were planned",
                    batch.num_columns(),
                    fields.len()
                )));
            }
            for ((column, array), field) in columns.iter_mut().zip(batch.columns()).zip(&fields) {
                append_array(column, array, field)?;
            }
        }
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let mut columns: Vec<BuildColumn<'_>> = fields
            .into_iter()
            .zip(&columns)
            .map(|(field, c)| BuildColumn { field, repr: c.repr().clone(), vector: c.vector() })
            .collect();
        let payload = columns.split_off(keys.len());
        Self::assemble(name, columns, payload, rows, options)
    }

    /// A build from columns of `rows` rows. Keys are never codes, except those of a
    /// dictionary that the streamed side has too.
    pub(crate) fn assemble<'v>(
        name: &str,
        mut keys: Vec<BuildColumn<'v>>,
        mut payload: Vec<BuildColumn<'v>>,
        mut rows: usize,
        options: BuildOptions,
    ) -> Result<Self, ExecError> {
        let kept = rows_without_null(&keys, rows);
        let has_null_key = kept.is_some();
        if let (Some(kept), false) = (kept, options.nulls_equal) {
            for column in keys.iter_mut().chain(&mut payload) {
                column.vector = column.vector.take(&kept);
            }
            rows = kept.len();
        }
        if rows as u64 >= u64::from(u32::MAX) {
            return Err(ExecError::Internal(format!(
                "build {name} has {rows} rows; at most 2^32 - 2 can be numbered"
            )));
        }
        let direct = if options.nulls_equal { None } else { direct_index(&keys, &payload, rows) };
        let (index, placement, unique) = match direct {
            Some((index, placement)) => (index, placement, true),
            None => {
                let chains = chains(&keys, rows, options.nulls_equal);
                let unique = chains.duplicates_max <= 1;
                (BuildIndex::Chains(chains), Placement::in_row_order(rows), unique)
            }
        };
        // Texts are sorted, each column's by itself.
        let laid_out = |column: usize| encode(&payload[column], &placement);
        let threads = if rows < THREAD_ROWS_MIN { 1 } else { options.threads };
        let payload = try_map(payload.len(), (1, threads), laid_out)?;
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

fn repr_of(data_type: &DataType) -> Result<Repr, ExecError> {
    let unknown = || ExecError::Internal(format!("a build column of type {data_type}"));
    Repr::of(data_type).ok_or_else(unknown)
}

/// Rows whose keys are all there; `None`: all rows.
fn rows_without_null(keys: &[BuildColumn<'_>], rows: usize) -> Option<Vec<u32>> {
    if keys.iter().all(|key| key.vector.validity.is_none()) {
        return None;
    }
    let complete = |row: &u32| keys.iter().all(|key| key.vector.is_valid(*row as usize));
    let kept: Vec<u32> = (0..rows as u32).filter(complete).collect();
    (kept.len() < rows).then_some(kept)
}

/// A direct-address table, if there is one integer key, dense enough, without duplicates.
fn direct_index(
    keys: &[BuildColumn<'_>],
    payload: &[BuildColumn<'_>],
    rows: usize,
) -> Option<(BuildIndex, Placement)> {
    let [key] = keys else { return None };
    if !key.repr.is_integer_like() {
        return None;
    }
    let values = integers(&key.vector.data)?;
    let base = values.iter().copied().min().unwrap_or(0);
    let max = values.iter().copied().max().unwrap_or(-1);
    let domain = u64::try_from(i128::from(max) - i128::from(base) + 1).ok()?;
    if domain > direct_entries_max(rows as u64, payload).min(DIRECT_ENTRIES_MAX) {
        return None;
    }
    let mut present = Presence::empty(base, domain);
    let mut entries = Vec::with_capacity(rows);
    for &value in values.iter() {
        entries.push(present.insert(value)? as u32);
    }
    let placement = Placement { entry_of_row: Some(entries), entries: domain as usize };
    Some((BuildIndex::Direct(present), placement))
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
        _ => 4,
    };
    let entry_bytes: u64 = payload.iter().map(value_bytes).sum();
    let a_row = DIRECT_BYTES_FACTOR * (HASHED_ROW_BYTES + entry_bytes) / entry_bytes;
    rows.saturating_mul(a_row.min(DIRECT_ENTRIES_A_ROW)).max(DIRECT_ENTRIES_MIN)
}

/// NULLs are no numbers: where they may be found, keys are bytes.
fn chains(keys: &[BuildColumn<'_>], rows: usize, with_nulls: bool) -> Chains {
    if let ([key], false) = (keys, with_nulls)
        && key.repr.is_integer_like()
        && let Some(values) = integers(&key.vector.spelled(rows).data)
    {
        return Chains::of_integers(&values);
    }
    Chains::of_encoded(key::encode(keys.iter().map(|key| &key.vector), rows))
}

fn index_bytes(index: &BuildIndex) -> u64 {
    match index {
        BuildIndex::Direct(present) => present.bytes(),
        BuildIndex::Chains(chains) => chains.bytes(),
    }
}

fn payload_bytes(column: &PayloadColumn) -> u64 {
    let entries = column.data.len();
    let width = match &column.data {
        PayloadData::U8 { .. } | PayloadData::Bool(_) => 1,
        PayloadData::U16 { .. } => 2,
        PayloadData::U32 { .. } => 4,
        PayloadData::I64(_) | PayloadData::U64(_) | PayloadData::F64(_) => 8,
        PayloadData::I128(_) => 16,
    };
    let validity = column.validity.as_ref().map_or(0, |bits| bits.len() * 8);
    (entries * width + validity) as u64
}

#[cfg(test)]
mod tests {
    use headrace_columns::vector::{Data, Vector};

    use super::*;

    fn column(repr: Repr) -> BuildColumn<'static> {
        let field = Field::new("p", DataType::Int64, false);
        BuildColumn { field, repr, vector: Vector::new(Data::I64(Vec::new().into())) }
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
