//! What the tests share: writing small files, reading chunks back by hand.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::*;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, SchemaRef};
use headrace_format::arrow::{ArrowTable, ArrowWriter, WriterOptions};
use headrace_format::{ChunkOptions, ChunkTotals, ColumnBound, Feed, Result};
use headrace_ir::{Chunk, ColumnExtents, Encoding, Extent, Segment};

pub fn rows_per_batch(rows_per_batch: usize) -> WriterOptions {
    WriterOptions { rows_per_batch, ..WriterOptions::default() }
}

/// Writes columns with our writer.
pub fn write(path: &Path, rows: usize, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let mut writer = ArrowWriter::create(path, &batch.schema(), rows_per_batch(rows)).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

/// Writes batches with the Arrow library's writer.
pub fn write_foreign(
    path: &Path,
    schema: SchemaRef,
    batches: &[RecordBatch],
    options: IpcWriteOptions,
) {
    let file = File::create(path).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &schema, options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

pub fn open(paths: &[&Path]) -> ArrowTable {
    let paths: Vec<PathBuf> = paths.iter().map(|p| p.to_path_buf()).collect();
    ArrowTable::open(&paths).unwrap()
}

pub fn ints(values: impl IntoIterator<Item = Option<i32>>) -> ArrayRef {
    Arc::new(Int32Array::from_iter(values))
}

pub fn dictionary(values: &[Option<&str>], keys: &[Option<i8>]) -> ArrayRef {
    let values = Arc::new(StringArray::from(values.to_vec()));
    Arc::new(DictionaryArray::<Int8Type>::new(Int8Array::from(keys.to_vec()), values))
}

/// All chunks of a feed.
#[derive(Debug)]
pub struct ChunkPlan {
    pub chunks: Vec<Chunk>,
    pub remaps: Vec<Arc<[i32]>>,
    pub totals: ChunkTotals,
}

pub fn plan_chunks(
    table: &ArrowTable,
    columns: &[usize],
    conditions: &[ColumnBound],
    options: ChunkOptions,
) -> Result<ChunkPlan> {
    let mut feed = table.feed(columns, conditions, options)?;
    let chunks = feed.by_ref().collect::<Result<_>>()?;
    Ok(ChunkPlan { chunks, remaps: feed.remaps().to_vec(), totals: feed.totals() })
}

/// No multiple of 8, so that parts begin within bytes of bitmaps.
const PART_ROWS: usize = 13;

/// Rows of a table read batch by batch, as plain text, column by column; some at a time they are the same.
pub fn read_all(table: &ArrowTable) -> Vec<Vec<Option<String>>> {
    let mut columns = vec![Vec::new(); table.schema().fields().len()];
    for (file, info) in table.files().iter().enumerate() {
        for batch in 0..info.batches() {
            let stored = table.stored_batch(file, batch, None).unwrap();
            let batch = table.read_batch(file, batch, None).unwrap();
            assert_eq!(stored.rows(), batch.num_rows());
            for first in (0..stored.rows()).step_by(PART_ROWS) {
                let rows = PART_ROWS.min(stored.rows() - first);
                let part = table.read_rows(&stored, first..first + rows).unwrap();
                assert_eq!(part, batch.slice(first, rows));
            }
            for (out, column) in columns.iter_mut().zip(batch.columns()) {
                let text = arrow_cast::cast(column, &DataType::Utf8).unwrap();
                let text: &StringArray = arrow_array::cast::AsArray::as_string(&text);
                out.extend(text.iter().map(|v| v.map(str::to_string)));
            }
        }
    }
    columns
}

fn bytes(file: &File, extent: Extent) -> Vec<u8> {
    let mut bytes = vec![0; extent.bytes as usize];
    file.read_exact_at(&mut bytes, extent.offset).unwrap();
    bytes
}

fn signed(bytes: &[u8]) -> i64 {
    let mut wide = [if bytes[bytes.len() - 1] & 0x80 == 0 { 0 } else { 0xff }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

fn bit(bytes: &[u8], i: usize) -> bool {
    bytes[i / 8] >> (i % 8) & 1 == 1
}

/// Values of a column of a segment as a processor would understand its extents.
fn values(
    table: &ArrowTable,
    plan: &ChunkPlan,
    column: usize,
    segment: &Segment,
    extents: &ColumnExtents,
) -> Vec<Option<String>> {
    let file = File::open(table.files()[segment.file as usize].path()).unwrap();
    let rows = segment.rows as usize;
    let data = bytes(&file, extents.values);
    let validity = extents.validity.map(|e| bytes(&file, e));
    let offsets = extents.offsets.map(|e| bytes(&file, e));
    if let Some(validity) = &validity {
        assert_eq!(validity.len(), rows.div_ceil(8));
    }
    let value = |i: usize| -> Option<String> {
        match &extents.encoding {
            Encoding::Plain | Encoding::Narrow { .. } => {
                assert_eq!(data.len() % rows, 0);
                let width = data.len() / rows;
                Some(signed(&data[i * width..][..width]).to_string())
            }
            Encoding::Deltas { base, delta_bytes } => {
                let width = usize::from(*delta_bytes);
                assert_eq!(data.len(), rows * width);
                let mut delta = [0; 8];
                delta[..width].copy_from_slice(&data[i * width..][..width]);
                Some((base + i64::from_le_bytes(delta)).to_string())
            }
            Encoding::Bits => Some(bit(&data, i).to_string()),
            Encoding::Offsets { offset_bytes } => {
                let width = usize::from(*offset_bytes);
                let offset =
                    |i: usize| signed(&offsets.as_ref().unwrap()[i * width..][..width]) as usize;
                let offset = |i: usize| offset(i) - extents.offsets_base as usize;
                Some(String::from_utf8(data[offset(i)..offset(i + 1)].to_vec()).unwrap())
            }
            Encoding::Pages { .. } | Encoding::ColumnPages | Encoding::Constant { .. } => {
                panic!("no column of a file")
            }
            Encoding::Dictionary { code_bytes } => {
                let width = usize::from(*code_bytes);
                assert_eq!(data.len(), rows * width);
                let code = signed(&data[i * width..][..width]);
                let code = match extents.remap {
                    Some(remap) => i64::from(plan.remaps[remap as usize][code as usize]),
                    None => code,
                };
                let texts = table.dictionary(column).unwrap();
                usize::try_from(code).ok().map(|code| texts.value(code).to_string())
            }
        }
    };
    (0..rows)
        .map(|i| if validity.as_ref().is_none_or(|v| bit(v, i)) { value(i) } else { None })
        .collect()
}

/// All rows of a plan, column by column, read from its extents.
pub fn read_plan(
    table: &ArrowTable,
    columns: &[usize],
    plan: &ChunkPlan,
) -> Vec<Vec<Option<String>>> {
    let mut out = vec![Vec::new(); columns.len()];
    for segment in plan.chunks.iter().flat_map(|c| &c.segments) {
        assert!(segment.first_row % headrace_ir::layout::ROW_ALIGNMENT == 0);
        assert_eq!(segment.columns.len(), columns.len());
        for ((out, column), extents) in out.iter_mut().zip(columns).zip(&segment.columns) {
            out.extend(values(table, plan, *column, segment, extents));
        }
    }
    out
}
