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
        let direct =
            if options.nulls_equal { None } else { direct_index(&keys, rows, payload.is_empty()) };
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
    rows: usize,
    is_bits: bool,
) -> Option<(BuildIndex, Placement)> {
    let [key] = keys else { return None };
    if !key.repr.is_integer_like() {
        return None;
    }
    let values = integers(&key.vector.data)?;
    let base = values.iter().copied().min().unwrap_or(0);
    let max = values.iter().copied().max().unwrap_or(-1);
    let domain = u64::try_from(i128::from(max) - i128::from(base) + 1).ok()?;
    let at_least = if is_bits { DIRECT_BITS_MIN } else { DIRECT_ENTRIES_MIN };
    let allowed = (rows as u64).saturating_mul(DIRECT_ENTRIES_A_ROW).max(at_least);
    if domain > allowed.min(DIRECT_ENTRIES_MAX) {
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
