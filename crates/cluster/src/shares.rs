//! Shares of a table, as rows that Ballista divides among tasks.
//!
//! ```text
//! partition 0: a.arrow, version, batches 0..4
//! partition 1: a.arrow, version, batches 4..6
//!              b.arrow, version, batches 0..2
//! ```

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, UInt32Array, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result, exec_err};
use headrace_format::{BatchRanges, FileVersion, PortableFile, PortableTable};

/// Record batches of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRow {
    /// The file. Paths are bytes, not texts.
    pub path: PathBuf,
    /// Its version.
    pub version: FileVersion,
    /// The batches.
    pub batches: Range<u32>,
}

/// The columns of rows of shares.
pub fn schema() -> SchemaRef {
    let field = |name, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("path", DataType::Binary),
        field("size_bytes", DataType::UInt64),
        field("mtime_ns", DataType::Int64),
        field("footer_hash", DataType::UInt64),
        field("first_batch", DataType::UInt32),
        field("end_batch", DataType::UInt32),
    ]))
}

/// A table cut into shares of about as many batches each, of which each batch is in one: at most `shares` of them, one at least.
pub fn cut(files: &[PortableFile], shares: usize) -> Vec<Vec<ShareRow>> {
    let batches: u64 = files.iter().map(|file| u64::from(file.batches)).sum();
    let shares = (shares as u64).clamp(1, batches.max(1));
    let bound = |share: u64| (u128::from(share) * u128::from(batches) / u128::from(shares)) as u64;
    (0..shares).map(|share| between(files, bound(share)..bound(share + 1))).collect()
}

/// Batches by their numbers among those of all files.
fn between(files: &[PortableFile], wanted: Range<u64>) -> Vec<ShareRow> {
    let (mut rows, mut first) = (Vec::new(), 0_u64);
    for file in files {
        let end = first + u64::from(file.batches);
        let (from, to) = (wanted.start.max(first), wanted.end.min(end));
        if from < to {
            let batches = (from - first) as u32..(to - first) as u32;
            rows.push(ShareRow { path: file.path.clone(), version: file.version, batches });
        }
        first = end;
    }
    rows
}

/// A share as a batch.
///
/// # Errors
/// None of rows as they are made here.
pub fn batch(rows: &[ShareRow]) -> Result<RecordBatch> {
    let paths = rows.iter().map(|row| row.path.as_os_str().as_bytes());
    let u64s = |of: fn(&ShareRow) -> u64| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<UInt64Array>())
    };
    let u32s = |of: fn(&ShareRow) -> u32| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<UInt32Array>())
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BinaryArray::from_iter_values(paths)),
        u64s(|row| row.version.size_bytes),
        Arc::new(rows.iter().map(|row| row.version.mtime_ns).collect::<Int64Array>()),
        u64s(|row| row.version.footer_hash),
        u32s(|row| row.batches.start),
        u32s(|row| row.batches.end),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

/// The rows of a batch.
///
/// # Errors
/// A batch of something else.
pub fn rows(batch: &RecordBatch) -> Result<Vec<ShareRow>> {
    if batch.schema().fields() != schema().fields() {
        return exec_err!("rows of something else came where shares were expected");
    }
    fn column<T: 'static>(batch: &RecordBatch, at: usize) -> Result<&T> {
        match batch.column(at).as_any().downcast_ref() {
            Some(column) if batch.column(at).null_count() == 0 => Ok(column),
            _ => exec_err!("column {at} of shares has another type, or NULLs"),
        }
    }
    let paths = column::<BinaryArray>(batch, 0)?;
    let (sizes, hashes) = (column::<UInt64Array>(batch, 1)?, column::<UInt64Array>(batch, 3)?);
    let times = column::<Int64Array>(batch, 2)?;
    let (firsts, ends) = (column::<UInt32Array>(batch, 4)?, column::<UInt32Array>(batch, 5)?);
    let row = |at: usize| ShareRow {
        path: PathBuf::from(std::ffi::OsString::from_vec(paths.value(at).to_vec())),
        version: FileVersion {
            size_bytes: sizes.value(at),
            mtime_ns: times.value(at),
            footer_hash: hashes.value(at),
        },
        batches: firsts.value(at)..ends.value(at),
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

/// The batches of a table that rows of shares name.
///
/// # Errors
/// Rows of another table, or of another version of a file.
pub fn ranges(table: &PortableTable, rows: &[ShareRow]) -> Result<BatchRanges> {
    let numbers: HashMap<_, _> =
        table.files.iter().enumerate().map(|(number, file)| (&file.path, number)).collect();
    let mut ranges = BatchRanges::default();
    for row in rows {
        let number = numbers.get(&row.path).copied();
        let known = number.filter(|&number| table.files[number].version == row.version);
        let Some(number) = known else {
            return exec_err!(
                "a share is of {}, which is no file of its table",
                row.path.display()
            );
        };
        ranges.add(number, row.batches.clone());
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn files(batches: &[u32]) -> Vec<PortableFile> {
        let file = |(number, &batches): (usize, &u32)| PortableFile {
            path: PathBuf::from(format!("/data/{number}.arrow")),
            version: FileVersion { size_bytes: 1 << 40, mtime_ns: -5, footer_hash: u64::MAX },
            batches,
        };
        batches.iter().enumerate().map(file).collect()
    }

    #[test]
    fn each_batch_is_in_one_share() {
        for of in [&[0_u32][..], &[], &[1], &[7], &[1, 0, 5, 3, 1], &[100_000, 1]] {
            let files = files(of);
            let all: u32 = of.iter().sum();
            for shares in [1, 2, 3, 8, 1000] {
                let cut = cut(&files, shares);
                assert!(!cut.is_empty() && cut.len() <= shares.min(all.max(1) as usize));
                let mut next = HashMap::new();
                for row in cut.iter().flatten() {
                    let end = next.insert(row.path.clone(), row.batches.end).unwrap_or(0);
                    assert_eq!(row.batches.start, end, "{of:?} in {shares}");
                }
                for file in files.iter().filter(|file| file.batches > 0) {
                    assert_eq!(next.get(&file.path), Some(&file.batches), "{of:?} in {shares}");
                }
                let sizes = cut.iter().map(|share| {
                    share.iter().map(|row| row.batches.end - row.batches.start).sum::<u32>()
                });
                let sizes: Vec<_> = sizes.collect();
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn shares_are_what_they_were_as_rows() {
        for share in cut(&files(&[3, 4]), 2) {
            let batch = batch(&share).unwrap();
            assert_eq!(rows(&batch).unwrap(), share);
        }
        let other = RecordBatch::new_empty(Arc::new(Schema::empty()));
        assert!(rows(&other).is_err());
    }
}
