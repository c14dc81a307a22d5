//! Damaged files: an error or the truth, never a panic.

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::IpcWriteOptions;
use headrace_format::arrow::ArrowTable;
use headrace_format::{ChunkOptions, ColumnBound, FormatError};
use proptest::prelude::*;

use crate::support::{dictionary, ints, plan_chunks, write, write_foreign};

fn columns() -> Vec<(&'static str, arrow_array::ArrayRef)> {
    let keys: Vec<Option<i8>> = (0..100).map(|i| (i % 4 > 0).then_some(i % 3)).collect();
    vec![
        ("i", ints((0..100).map(|i| (i % 3 > 0).then_some(i)))),
        ("k", dictionary(&[Some("c"), Some("a"), Some("b")], &keys)),
        (
            "s",
            std::sync::Arc::new(arrow_array::StringArray::from_iter_values(
                (0..100).map(|i| format!("text {i}")),
            )),
        ),
    ]
}

fn plain(path: &Path) -> Vec<u8> {
    write(path, 40, columns());
    std::fs::read(path).unwrap()
}

fn with_options(path: &Path, batch: &RecordBatch, options: IpcWriteOptions) -> Vec<u8> {
    write_foreign(path, batch.schema(), std::slice::from_ref(batch), options);
    std::fs::read(path).unwrap()
}

/// Opens a file and does with it all that can be done.
fn exercise(path: &Path, bytes: &[u8]) -> Result<(), FormatError> {
    // A new file each time: mappings of earlier ones stay what they were.
    std::fs::remove_file(path).ok();
    std::fs::write(path, bytes).unwrap();
    let table = ArrowTable::open(&[path.to_path_buf()])?;
    let columns: Vec<usize> =
        (0..table.schema().fields().len()).filter(|i| table.column_support(*i).is_ok()).collect();
    for column in &columns {
        let conditions = [ColumnBound { column: *column, min: Some(5), max: Some(50) }];
        plan_chunks(&table, &[*column], &conditions, ChunkOptions::default())?;
    }
    for rows in [64, 1 << 20] {
        let options = ChunkOptions { chunk_rows_max: rows, ..ChunkOptions::default() };
        // Row counts may be damaged where no column contradicts them: not 2^34 segments then.
        if table.rows() > 1 << 24 {
            continue;
        }
        let plan = plan_chunks(&table, &columns, &[], options)?;
        let size = bytes.len() as u64;
        for extent in plan.chunks.iter().flat_map(|c| &c.segments).flat_map(|s| s.extents()) {
            assert!(extent.bytes <= size && extent.offset + extent.bytes <= size);
        }
    }
    for (file, info) in table.files().iter().enumerate() {
        for batch in 0..info.batches() {
            table.read_batch(file, batch, None)?;
        }
    }
    Ok(())
}

#[test]
fn a_file_cut_at_any_byte_is_skipped_and_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let whole = plain(&path);
    exercise(&path, &whole).unwrap();
    for length in 0..whole.len() {
        let error = exercise(&path, &whole[..length]).unwrap_err();
        assert!(matches!(error, FormatError::NoFiles { .. }), "{length}: {error}");
    }
}

#[test]
fn a_wrong_footer_length_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let whole = plain(&path);
    let at = whole.len() - 10;
    for length in [0, -1, i32::MIN, i32::MAX, 1, 7, whole.len() as i32] {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        assert!(matches!(exercise(&path, &bytes), Err(FormatError::Corrupt { .. })), "{length}");
    }
}

#[test]
fn a_compressed_buffer_that_lies_about_its_length_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let values: Vec<i64> = vec![7; 4000];
    let array: arrow_array::ArrayRef = std::sync::Arc::new(arrow_array::Int64Array::from(values));
    let batch = RecordBatch::try_from_iter([("i", array)]).unwrap();
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
        let whole = with_options(&path, &batch, options);
        let length = 32_000_i64.to_le_bytes();
        let at = whole.windows(8).position(|w| w == length).unwrap();
        for lie in [0, 1, 31_999, 32_001, 1 << 60, i64::MAX, -2, -1] {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&i64::to_le_bytes(lie));
            let outcome = exercise(&path, &bytes);
            assert!(matches!(outcome, Err(FormatError::Corrupt { .. })), "{lie}: {outcome:?}");
        }
    }
}

fn mutated(bytes: &[u8], changes: &[(proptest::sample::Index, u8)], tail: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    // Half of the cases damage the footer and what describes the last batch.
    let from = if tail { bytes.len() / 2 } else { 0 };
    for (index, value) in changes {
        let at = from + index.index(bytes.len() - from);
        bytes[at] = *value;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_bytes_never_panic(
        kind in 0..3_usize,
        tail in any::<bool>(),
        changes in prop::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        thread_local! {
            static FILES: (tempfile::TempDir, Vec<Vec<u8>>) = {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("t.arrow");
                let batch = RecordBatch::try_from_iter(columns()).unwrap();
                let zstd = IpcWriteOptions::default()
                    .try_with_compression(Some(CompressionType::ZSTD))
                    .unwrap();
                let files = vec![
                    plain(&path),
                    with_options(&path, &batch, zstd),
                    with_options(&path, &crate::foreign::nested(), IpcWriteOptions::default()),
                ];
                (dir, files)
            };
        }
        FILES.with(|(dir, files)| {
            let bytes = mutated(&files[kind], &changes, tail);
            // Whatever comes out is fine, as long as something does.
            let _ = exercise(&dir.path().join("t.arrow"), &bytes);
        });
    }
}
