//! Files that others overwrite or cut while batches of them are in use: a right value, another
//! number or an error, never an offset, a code or a text that was checked and is not the same.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow_array::*;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::DataType;
use headrace_format::FormatError;

use crate::support::{dictionary, ints, open, write_foreign};

/// Rows enough that buffers have pages of their own.
const ROWS: usize = 20_000;

fn checked() -> RecordBatch {
    let text = |i: usize| (!i.is_multiple_of(5)).then(|| format!("a text that is number {i}"));
    let keys: Vec<Option<i8>> = (0..ROWS).map(|i| (i % 4 > 0).then_some((i % 3) as i8)).collect();
    let wide = DictionaryArray::<types::Int32Type>::new(
        keys.iter().map(|key| key.map(i32::from)).collect(),
        Arc::new(StringArray::from(vec!["x", "y", "z"])),
    );
    let lists = (0..ROWS).map(|i| (i % 6 > 0).then(|| vec![Some(i as i32); i % 4]));
    let lists = ListArray::from_iter_primitive::<types::Int32Type, _, _>(lists);
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("s", Arc::new(StringArray::from_iter((0..ROWS).map(text))), true),
        ("large", Arc::new(LargeStringArray::from_iter((0..ROWS).map(text))), true),
        ("view", Arc::new(StringViewArray::from_iter((0..ROWS).map(text))), true),
        ("k", dictionary(&[Some("x"), Some("y"), Some("z")], &keys), true),
        ("wide", Arc::new(wide), true),
        ("b", Arc::new(BooleanArray::from_iter((0..ROWS).map(|i| Some(i % 3 > 0)))), true),
        ("list", Arc::new(lists), true),
        ("i", ints((0..ROWS).map(|i| (i % 7 > 0).then_some(i as i32))), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn overwrite(path: &Path, byte: u8) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len() as usize;
    file.write_all_at(&vec![byte; bytes], 0).unwrap();
    // Clocks of file systems are coarse.
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
}

fn cut(path: &Path) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(100).unwrap();
}

/// What each column says of itself after the file became something else.
fn survives(batch: &RecordBatch, before: &RecordBatch, what: &str) {
    for (i, field) in before.schema().fields().iter().enumerate() {
        let (column, name) = (batch.column(i), field.name());
        column.to_data().validate_full().unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
        assert_eq!(column.logical_null_count(), before.column(i).logical_null_count(), "{name}");
        // What has a fixed width lies in the file, and may be something else by now.
        let data_type = field.data_type();
        let in_place =
            data_type.is_primitive() || matches!(data_type, DataType::FixedSizeBinary(_));
        if !in_place && !data_type.is_nested() {
            // A table's codes may be wider than its files'.
            let before = arrow_cast::cast(before.column(i), column.data_type()).unwrap();
            assert_eq!(column.to_data(), before.to_data(), "{what}: {name}");
        }
    }
}

#[test]
fn what_was_checked_stays_when_the_file_becomes_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    type Change = fn(&Path);
    let changes: [(&str, Change); 3] = [
        ("ones", |path| overwrite(path, 0xff)),
        ("zeros", |path| overwrite(path, 0)),
        ("cut", cut),
    ];
    for original in [checked(), crate::foreign::nested()] {
        for (what, change) in changes {
            write_foreign(
                &path,
                original.schema(),
                std::slice::from_ref(&original),
                IpcWriteOptions::default(),
            );
            let table = open(&[&path]);
            let batch = table.read_batch(0, 0, None).unwrap();
            change(&path);
            table.files()[0].release_mapped();
            survives(&batch, &original, what);
            assert!(matches!(table.check_unchanged(), Err(FormatError::Io(_))), "{what}");
        }
    }
}

#[test]
fn a_file_that_changed_before_it_was_read_is_not_called_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let original = checked();
    for codec in [None, Some(CompressionType::ZSTD)] {
        let options = || IpcWriteOptions::default().try_with_compression(codec).unwrap();
        write_foreign(&path, original.schema(), std::slice::from_ref(&original), options());
        let table = open(&[&path]);
        // From here on there is a mapping, which shows what others write.
        table.read_batch(0, 0, Some(&[7])).unwrap();
        overwrite(&path, 0xff);
        for column in 0..7 {
            let read = table.read_batch(0, 0, Some(&[column]));
            let error = read.and_then(|_| table.check_unchanged()).unwrap_err();
            assert!(matches!(error, FormatError::Io(_)), "{column}: {error}");
        }
    }
}

/// Somebody writes while batches are read: every batch is whole in itself or refused.
#[test]
fn writers_beside_a_reader_never_break_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let original = checked();
    write_foreign(
        &path,
        original.schema(),
        std::slice::from_ref(&original),
        IpcWriteOptions::default(),
    );
    let whole = std::fs::read(&path).unwrap();
    let table = open(&[&path]);
    table.read_batch(0, 0, Some(&[7])).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..40_u8 {
                let noise: Vec<u8> = whole.iter().map(|b| b.wrapping_mul(round | 1)).collect();
                file.write_all_at(&noise, 0).unwrap();
                file.write_all_at(&whole, 0).unwrap();
            }
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        });
        while !writer.is_finished() {
            let Ok(batch) = table.read_batch(0, 0, None) else { continue };
            for column in batch.columns() {
                column.to_data().validate_full().unwrap();
            }
        }
    });
    assert!(table.check_unchanged().is_err());
}
