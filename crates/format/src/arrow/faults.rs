//! Reading metadata from files on failing storage.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch};
use headrace_io::{FaultPlan, FaultyFile, IoError, SourceFile};

use super::file::{ArrowFile, Opened};
use super::schema::Shared;
use super::{ArrowWriter, WriterOptions};
use crate::error::{FormatError, Result};

fn write(path: &Path) -> u64 {
    let ints: ArrayRef = Arc::new(Int32Array::from_iter_values(0..20_000));
    let texts = (0..20_000).map(|i| ["north", "south", "east", "west"][i % 4]);
    let texts: ArrayRef = Arc::new(texts.collect::<DictionaryArray<Int8Type>>());
    let batch = RecordBatch::try_from_iter([("i", ints), ("k", texts)]).unwrap();
    let options = WriterOptions { rows_per_batch: 3000, ..WriterOptions::default() };
    let mut writer = ArrowWriter::create(path, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap().bytes
}

fn parse(path: &Path, plan: FaultPlan) -> Result<ArrowFile> {
    let source = FaultyFile::new(SourceFile::open(path).unwrap(), plan);
    match ArrowFile::parse(source.as_ref(), &Shared::default())? {
        Opened::File(file) => Ok(*file),
        Opened::Skipped(reason) => panic!("skipped: {reason}"),
    }
}

#[test]
fn short_and_interrupted_reads_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path);
    for seed in 0..20 {
        let plan = FaultPlan {
            seed,
            short_permille: 600,
            interrupted_permille: 300,
            ..FaultPlan::default()
        };
        let file = parse(&path, plan).unwrap();
        assert_eq!((file.rows(), file.batches()), (20_000, 7));
        assert!(file.statistics_refused().is_empty());
        assert_eq!(file.dictionaries.len(), 1);
    }
}

#[test]
fn errors_and_truncation_name_the_file_and_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let bytes = write(&path);
    let mut failed = 0;
    for at in (0..bytes).step_by(40).chain([bytes - 1]) {
        match parse(&path, FaultPlan { io_error_at: Some(at), ..FaultPlan::default() }) {
            // Values are not read, and the schema at the start only for the statistics.
            Ok(file) => assert_eq!(file.rows(), 20_000),
            Err(error) => {
                assert!(matches!(&error, FormatError::Io(IoError::Read { .. })), "{error}");
                assert!(error.to_string().contains("t.arrow"), "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 7, "{failed} failures");
    for end in [0, 10, 1000, bytes / 2, bytes - 11, bytes - 1] {
        let plan = FaultPlan { truncated_at: Some(end), ..FaultPlan::default() };
        let error = parse(&path, plan).unwrap_err();
        assert!(matches!(error, FormatError::Io(IoError::UnexpectedEnd { .. })), "{error}");
    }
}

#[test]
fn torn_metadata_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path);
    let mut corrupt = 0;
    for seed in 0..200 {
        let plan = FaultPlan { seed, torn_blocks_permille: 200, ..FaultPlan::default() };
        let source = FaultyFile::new(SourceFile::open(&path).unwrap(), plan);
        match ArrowFile::parse(source.as_ref(), &Shared::default()) {
            Ok(_) => {}
            Err(FormatError::Corrupt { .. } | FormatError::NotArrow { .. }) => corrupt += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(corrupt > 0);
}
