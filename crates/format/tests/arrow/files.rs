use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::*;
use arrow_schema::{DataType, Field, Schema};
use headrace_format::arrow::ArrowTable;
use headrace_format::{ChunkOptions, FormatError};

use crate::support::{ints, open, plan_chunks, read_all, read_plan, write};

fn one(from: i32, to: i32) -> Vec<(&'static str, ArrayRef)> {
    vec![("i", ints((from..to).map(Some)))]
}

#[test]
fn a_folder_is_its_complete_files_in_order_of_name() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write(&at("b.arrow"), 4, one(10, 20));
    write(&at("a.feather"), 4, one(0, 10));
    write(&at("c.ARROW"), 4, vec![("i", ints([]))]);
    std::fs::write(at("d.arrow"), b"").unwrap();
    let whole = std::fs::read(at("b.arrow")).unwrap();
    std::fs::write(at("e.arrow"), &whole[..whole.len() - 1]).unwrap();
    std::fs::write(at("f.arrow"), b"ARR").unwrap();
    std::fs::write(at(".hidden.arrow"), b"rubbish").unwrap();
    std::fs::write(at("readme.txt"), b"rubbish").unwrap();
    std::os::unix::fs::symlink(at("b.arrow"), at("g.arrow")).unwrap();
    std::fs::create_dir(at("sub.arrow")).unwrap();

    let table = open(&[dir.path()]);
    let names = |paths: Vec<PathBuf>| -> Vec<String> {
        paths.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_string()).collect()
    };
    let files = table.files().iter().map(|f| f.path().to_path_buf()).collect();
    assert_eq!(names(files), ["a.feather", "b.arrow", "c.ARROW"]);
    let skipped = table.skipped().iter().map(|s| s.path.clone()).collect();
    assert_eq!(names(skipped), ["d.arrow", "e.arrow", "f.arrow", "g.arrow"]);
    assert!(table.skipped()[0].reason.contains("empty"));
    assert!(table.skipped()[1].reason.contains("footer"));
    assert!(table.skipped()[3].reason.contains("b.arrow"));
    assert_eq!(table.rows(), 20);
    let expected: Vec<Option<String>> = (0..20).map(|i| Some(i.to_string())).collect();
    assert_eq!(read_all(&table)[0], expected);
    let plan = plan_chunks(&table, &[0], &[], ChunkOptions::default()).unwrap();
    assert_eq!(read_plan(&table, &[0], &plan)[0], expected);
    assert_eq!(plan.chunks.len(), 1);
}

#[test]
fn without_a_complete_file_the_columns_are_not_known() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.arrow"), b"").unwrap();
    let paths = [dir.path().to_path_buf()];
    let error = ArrowTable::open(&paths).unwrap_err();
    assert!(matches!(error, FormatError::NoFiles { .. }));
    assert!(error.to_string().contains("a.arrow (it is empty)"), "{error}");
    assert!(matches!(ArrowTable::open(&[]), Err(FormatError::NoFiles { .. })));
    assert!(matches!(ArrowTable::open(&["missing.arrow".into()]), Err(FormatError::Io(_))));
}

#[test]
fn other_formats_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    std::fs::write(&path, b"PAR1 and more than that").unwrap();
    let error = ArrowTable::open(std::slice::from_ref(&path)).unwrap_err();
    assert!(error.to_string().contains("PAR1"), "{error}");
    let batch = RecordBatch::try_from_iter(one(0, 3)).unwrap();
    let mut bytes = Vec::new();
    let mut stream = arrow_ipc::writer::StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    stream.write(&batch).unwrap();
    stream.finish().unwrap();
    std::fs::write(&path, bytes).unwrap();
    let error = ArrowTable::open(&[path]).unwrap_err();
    assert!(error.to_string().contains("stream"), "{error}");
}

#[test]
fn files_that_do_not_fit_together_name_file_and_column() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a.arrow"), 4, vec![("i", ints([Some(1)])), ("j", ints([Some(2)]))]);
    let second = dir.path().join("b.arrow");
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let cases: Vec<(Vec<(&str, ArrayRef)>, &str)> = vec![
        (vec![("i", ints([Some(1)]))], "column j"),
        (vec![("i", ints([Some(1)])), ("j", ints([None])), ("k", ints([None]))], "column k"),
        (vec![("i", ints([Some(1)])), ("j", text)], "column j"),
    ];
    for (columns, wanted) in cases {
        write(&second, 4, columns);
        let error = ArrowTable::open(&[dir.path().to_path_buf()]).unwrap_err();
        assert!(matches!(error, FormatError::SchemaMismatch { .. }), "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.to_string().contains("b.arrow"), "{error}");
    }
    // The same columns in another order are the same columns.
    write(&second, 4, vec![("j", ints([Some(20)])), ("i", ints([Some(10)]))]);
    let table = open(&[dir.path()]);
    let text = |values: [&str; 2]| values.map(|v| Some(v.to_string())).to_vec();
    let expected = vec![text(["1", "10"]), text(["2", "20"])];
    assert_eq!(read_all(&table), expected);
    let plan = plan_chunks(&table, &[0, 1], &[], ChunkOptions::default()).unwrap();
    assert_eq!(read_plan(&table, &[0, 1], &plan), expected);
    assert_eq!(table.column_stats(1).max, Some(20));
}

#[test]
fn a_file_that_changes_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path, 4, one(0, 10));
    let table = open(&[&path]);
    table.check_unchanged().unwrap();
    write(&path, 4, one(0, 11));
    let error = table.check_unchanged().unwrap_err();
    assert!(error.to_string().contains("t.arrow"), "{error}");
    assert!(matches!(table.read_batch(0, 0, None), Err(FormatError::Io(_))));
    let source = table.files()[0].source();
    let error = headrace_io::ReadAt::read_exact_at(source.as_ref(), 0, &mut [0; 6]).unwrap_err();
    assert!(matches!(error, headrace_io::IoError::Changed { .. }), "{error}");

    let table = open(&[&path]);
    let batch = table.read_batch(0, 0, None).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    assert!(table.check_unchanged().is_err());
    drop(batch);
}

#[test]
fn nullability_is_that_of_any_file() {
    let dir = tempfile::tempdir().unwrap();
    for (name, nullable) in [("a.arrow", false), ("b.arrow", true)] {
        let schema = Schema::new(vec![Field::new("i", DataType::Int32, nullable)]);
        let writer = headrace_format::arrow::ArrowWriter::create(
            dir.path().join(name),
            &schema,
            crate::support::rows_per_batch(4),
        );
        writer.unwrap().finish().unwrap();
    }
    assert!(open(&[dir.path()]).schema().field(0).is_nullable());
    assert!(!open(&[&dir.path().join("a.arrow")]).schema().field(0).is_nullable());
}

#[test]
fn thousands_of_small_batches_and_many_files_are_one_table() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("000.arrow"), 1, one(0, 2000));
    for i in 1..100 {
        write(&dir.path().join(format!("{i:03}.arrow")), 16, one(2000 + i * 10, 2010 + i * 10));
    }
    let table = open(&[dir.path()]);
    assert_eq!((table.files().len(), table.files()[0].batches()), (100, 2000));
    let plan = plan_chunks(&table, &[0], &[], ChunkOptions::default()).unwrap();
    assert_eq!(plan.chunks.len(), 3);
    assert_eq!(read_plan(&table, &[0], &plan), read_all(&table));
    let stats = table.column_stats(0);
    assert_eq!((stats.min, stats.max, stats.null_count), (Some(0), Some(2999), Some(0)));
}

#[test]
fn tables_and_writers_go_from_thread_to_thread() {
    fn sent<T: Send>() {}
    fn shared<T: Sync>() {}
    sent::<ArrowTable>();
    shared::<ArrowTable>();
    sent::<headrace_format::arrow::ArrowWriter>();
}

#[test]
fn pages_that_have_gone_are_an_error_not_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path, 100_000, one(0, 500_000));
    let table = open(&[&path]);
    let first = table.read_batch(0, 0, None).unwrap();
    table.files()[0].release_mapped();
    let values = |batch: &RecordBatch| -> i64 {
        let array = batch.column(0);
        let array =
            arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int32Type>(array);
        array.values().iter().map(|v| i64::from(*v)).sum()
    };
    assert_eq!(values(&first), (0..100_000).sum::<i64>());
    // Nothing of batch 4 is touched by reading it, so what is missing shows when it is used.
    let last = table.read_batch(0, 4, None).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    table.files()[0].release_mapped();
    values(&last);
    let error = table.check_unchanged().unwrap_err();
    assert!(matches!(error, FormatError::Io(headrace_io::IoError::Poisoned { .. })), "{error}");
    assert!(table.read_batch(0, 3, None).is_err());
}
