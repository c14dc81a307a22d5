use std::sync::Arc;

use arrow_array::*;
use headrace_format::arrow::ArrowTable;
use headrace_format::{ChunkOptions, ColumnBound, Feed};
use headrace_ir::ColumnExtents;

use crate::support::{ChunkPlan, dictionary, ints, open, plan_chunks, read_all, read_plan, write};

fn options(rows: u64, bytes: u64) -> ChunkOptions {
    ChunkOptions {
        chunk_rows_max: rows,
        chunk_bytes_max: bytes,
        chunk_bytes_wanted: bytes,
        chunk_segments_max: 1000,
        ..ChunkOptions::default()
    }
}

fn plan(table: &ArrowTable, columns: &[usize], rows: u64, bytes: u64) -> ChunkPlan {
    plan_chunks(table, columns, &[], options(rows, bytes)).unwrap()
}

fn mixed(dir: &std::path::Path, rows: usize, rows_per_batch: usize) {
    let texts = ["north", "south", "", "östlich"];
    let values: Vec<Option<&str>> = texts.iter().copied().map(Some).collect();
    let keys: Vec<Option<i8>> = (0..rows).map(|i| (i % 6 > 0).then_some((i % 4) as i8)).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", ints((0..rows as i32).map(Some))),
        ("n", ints((0..rows as i32).map(|i| (i % 3 > 0).then_some(-i)))),
        (
            "b",
            Arc::new(BooleanArray::from_iter((0..rows).map(|i| (i % 5 > 0).then_some(i % 2 == 0)))),
        ),
        (
            "s",
            Arc::new(StringArray::from_iter(
                (0..rows).map(|i| (i % 7 > 0).then(|| "x".repeat(i % 9))),
            )),
        ),
        ("k", dictionary(&values, &keys)),
        ("l", Arc::new(LargeStringArray::from_iter_values((0..rows).map(|i| i.to_string())))),
    ];
    write(&dir.join("t.arrow"), rows_per_batch, columns);
}

#[test]
fn every_plan_reads_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    mixed(dir.path(), 1000, 300);
    let table = open(&[dir.path()]);
    assert_eq!(table.rows(), 1000);
    let expected = read_all(&table);
    let all: Vec<usize> = (0..6).collect();
    for rows in [1, 64, 65, 100, 128, 299, 300, 301, 600, 5000] {
        for bytes in [1, 500, 5_000, 20_000, 1 << 30] {
            let plan = plan(&table, &all, rows, bytes);
            assert_eq!(plan.totals.rows, 1000);
            assert_eq!(read_plan(&table, &all, &plan), expected, "{rows} rows, {bytes} bytes");
            assert_eq!(plan.totals.bytes, plan.chunks.iter().map(|c| c.bytes()).sum::<u64>());
            for chunk in &plan.chunks {
                assert!(chunk.rows() <= rows.max(64), "{} of {rows}", chunk.rows());
                assert!(chunk.bytes() <= plan.totals.bytes_max);
            }
        }
    }
}

#[test]
fn limits_hold_for_fixed_width_columns() {
    let dir = tempfile::tempdir().unwrap();
    mixed(dir.path(), 1000, 300);
    let table = open(&[dir.path()]);
    let columns = [4, 0, 1, 2];
    let expected: Vec<_> = columns.iter().map(|c| read_all(&table)[*c].clone()).collect();
    for bytes in [700, 1000, 2000, 3000, 8000, 12_000] {
        let plan = plan(&table, &columns, 1 << 20, bytes);
        assert!(plan.totals.bytes_max <= bytes, "{} of {bytes}", plan.totals.bytes_max);
        assert_eq!(read_plan(&table, &columns, &plan), expected);
    }
}

#[test]
fn small_batches_share_chunks_and_large_ones_are_split_evenly() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("small.arrow"), 10, vec![("i", ints((0..1000).map(Some)))]);
    let table = open(&[dir.path()]);
    assert_eq!(table.files()[0].batches(), 100);
    let shared = plan(&table, &[0], 1 << 20, 400);
    assert_eq!(shared.chunks.len(), 10);
    assert!(shared.chunks.iter().all(|c| c.segments.len() == 10));
    let few = ChunkOptions { chunk_segments_max: 4, ..options(1 << 20, 400) };
    assert_eq!(plan_chunks(&table, &[0], &[], few).unwrap().chunks.len(), 25);

    let large = dir.path().join("large.arrow");
    write(&large, 1 << 20, vec![("i", ints((0..1000).map(Some)))]);
    let table = open(&[&large]);
    let split = plan(&table, &[0], 1 << 20, 3000);
    let rows: Vec<u64> = split.chunks.iter().map(|c| c.rows()).collect();
    assert_eq!(rows, [512, 488]);
}

#[test]
fn no_columns_count_rows() {
    let dir = tempfile::tempdir().unwrap();
    mixed(dir.path(), 1000, 300);
    let table = open(&[dir.path()]);
    let plan = plan(&table, &[], 1 << 20, 1 << 20);
    assert_eq!((plan.totals.rows, plan.totals.bytes, plan.chunks.len()), (1000, 0, 1));
    assert!(plan.chunks[0].segments.iter().all(|s| s.columns.is_empty()));
}

#[test]
fn batches_that_cannot_match_are_pruned() {
    let dir = tempfile::tempdir().unwrap();
    // Batches of 10: 0..10, 10..20 (half NULL), all NULL, 30..40.
    let values = (0..40).map(|i| match i {
        20..30 => None,
        i if (10..20).contains(&i) && i % 2 == 1 => None,
        i => Some(i),
    });
    let columns = vec![("i", ints(values)), ("j", ints((0..40).map(|i| Some(-i))))];
    write(&dir.path().join("t.arrow"), 10, columns);
    let table = open(&[dir.path()]);
    let batches = |conditions: &[(usize, Option<i64>, Option<i64>)]| {
        let conditions: Vec<ColumnBound> =
            conditions.iter().map(|&(column, min, max)| ColumnBound { column, min, max }).collect();
        let plan = plan_chunks(&table, &[1], &conditions, ChunkOptions::default()).unwrap();
        let kept: Vec<u32> =
            plan.chunks.iter().flat_map(|c| &c.segments).map(|s| s.batch).collect();
        assert_eq!(plan.totals.pruned_batches, 4 - kept.len() as u64);
        assert_eq!(plan.totals.pruned_rows, 40 - plan.totals.rows);
        kept
    };
    assert_eq!(batches(&[]), [0, 1, 2, 3]);
    assert_eq!(batches(&[(0, None, None)]), [0, 1, 2, 3]);
    assert_eq!(batches(&[(0, Some(0), None)]), [0, 1, 3]);
    assert_eq!(batches(&[(0, Some(9), Some(10))]), [0, 1]);
    // 19 is NULL, 18 is the largest value of batch 1.
    assert_eq!(batches(&[(0, Some(19), Some(29))]), [0; 0]);
    assert_eq!(batches(&[(0, None, Some(-1))]), [0; 0]);
    assert_eq!(batches(&[(0, Some(5), None), (1, Some(-15), None)]), [0, 1]);
    assert_eq!(batches(&[(0, Some(i64::MIN), Some(i64::MAX))]), [0, 1, 3]);

    let stats = table.column_stats(0);
    assert_eq!((stats.min, stats.max, stats.null_count), (Some(0), Some(39), Some(15)));
    assert_eq!(table.column_stats(1).min, Some(-39));
    assert_eq!(table.column_stats(9).bytes, 0);
}

#[test]
fn columns_that_cannot_be_planned_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("v", Arc::new(StringViewArray::from(vec!["a", "a value that is not inlined"]))),
        ("z", Arc::new(NullArray::new(2))),
        ("i", ints([Some(1), None])),
    ];
    write(&dir.path().join("t.arrow"), 10, columns);
    let table = open(&[dir.path()]);
    assert!(table.column_support(0).unwrap_err().contains("views"));
    assert!(table.column_support(1).unwrap_err().contains("Null"));
    assert_eq!(table.column_support(2), Ok(()));
    assert!(table.column_support(3).is_err());
    let error = plan_chunks(&table, &[2, 0], &[], ChunkOptions::default()).unwrap_err();
    assert!(error.to_string().contains("column v"), "{error}");
    assert!(plan_chunks(&table, &[7], &[], ChunkOptions::default()).is_err());
    assert!(plan_chunks(&table, &[2], &[], options(0, 1)).is_err());
    assert_eq!(read_all(&table)[0][1].as_deref(), Some("a value that is not inlined"));
    assert!(table.read_batch(0, 1, None).is_err());
    assert!(table.read_batch(0, 0, Some(&[3])).is_err());
}

#[test]
fn statistics_are_raw_integers_of_every_integer_like_type() {
    let dir = tempfile::tempdir().unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("date", Arc::new(Date32Array::from(vec![-5, 19_000]))),
        ("time", Arc::new(TimestampNanosecondArray::from(vec![i64::MIN, i64::MAX]))),
        (
            "price",
            Arc::new(Decimal128Array::from(vec![-150, 99]).with_precision_and_scale(9, 2).unwrap()),
        ),
        ("wide", Arc::new(Decimal128Array::from(vec![1 << 70, 5]))),
        ("unsigned", Arc::new(UInt64Array::from(vec![u64::MAX, 3]))),
        ("float", Arc::new(Float64Array::from(vec![1.0, 2.0]))),
    ];
    write(&dir.path().join("t.arrow"), 10, columns);
    let table = open(&[dir.path()]);
    let stats = |i| (table.column_stats(i).min, table.column_stats(i).max);
    assert_eq!(stats(0), (Some(-5), Some(19_000)));
    assert_eq!(stats(1), (Some(i64::MIN), Some(i64::MAX)));
    assert_eq!(stats(2), (Some(-150), Some(99)));
    assert_eq!(stats(3), (Some(5), None));
    assert_eq!(stats(4), (Some(3), None));
    assert_eq!(stats(5), (None, None));
    // Bounds beyond 64 bits prune all the same.
    let rows = |column, min, max| {
        let condition = ColumnBound { column, min, max };
        plan_chunks(&table, &[0], &[condition], ChunkOptions::default()).unwrap().totals.rows
    };
    assert_eq!(rows(4, Some(i64::MAX), None), 2);
    assert_eq!(rows(4, None, Some(2)), 0);
    assert_eq!(rows(3, None, Some(4)), 0);
    assert_eq!(rows(5, Some(100), None), 2);
    assert_eq!(rows(2, Some(100), None), 0);
}

/// What was read of a column for one query is looked for by the same ranges in the next.
#[test]
fn rows_alone_decide_where_a_batch_is_split() {
    let dir = tempfile::tempdir().unwrap();
    mixed(dir.path(), 10_000, 3000);
    let table = open(&[dir.path()]);
    let all: Vec<usize> = (0..6).collect();
    let extents = |columns: &[usize], column: usize, wanted: u64| -> Vec<ColumnExtents> {
        let options = ChunkOptions {
            part_rows_max: 512,
            chunk_bytes_wanted: wanted,
            ..ChunkOptions::default()
        };
        let plan = plan_chunks(&table, columns, &[], options).unwrap();
        let at = columns.iter().position(|c| *c == column).unwrap();
        let segments = plan.chunks.iter().flat_map(|chunk| &chunk.segments);
        segments.map(|segment| segment.columns[at].clone()).collect()
    };
    for column in all.iter().copied() {
        let alone = extents(&[column], column, 1 << 20);
        assert_eq!(alone.len(), 3 * 6 + 2);
        for (columns, wanted) in
            [(all.as_slice(), 1), (&[column, 3], 5_000), (&[5, column], 40_000)]
        {
            assert_eq!(extents(columns, column, wanted), alone, "{columns:?}");
        }
    }
}

#[test]
fn chunks_gather_parts_until_they_have_what_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("t.arrow"), 10, vec![("i", ints((0..1000).map(Some)))]);
    let table = open(&[dir.path()]);
    for (wanted, parts) in [(1, 1), (40, 1), (41, 2), (100, 3), (4000, 100), (1 << 30, 100)] {
        let options = ChunkOptions { chunk_bytes_wanted: wanted, ..ChunkOptions::default() };
        let plan = plan_chunks(&table, &[0], &[], options).unwrap();
        assert_eq!(plan.chunks[0].segments.len(), parts, "{wanted}");
        let mut feed = table.feed(&[0], &[], options).unwrap();
        let survey = feed.survey().unwrap();
        assert_eq!(survey.chunks, plan.chunks.len() as u64);
        let fed: Vec<_> = feed.by_ref().collect::<Result<_, _>>().unwrap();
        assert_eq!((fed, feed.totals()), (plan.chunks, survey));
    }
}

#[test]
fn no_chunk_is_larger_than_was_said_before_the_first() {
    let dir = tempfile::tempdir().unwrap();
    mixed(dir.path(), 10_000, 700);
    write(&dir.path().join("a.arrow"), 7, vec![("i", ints((0..300).map(Some)))]);
    let tables = [open(&[&dir.path().join("t.arrow")]), open(&[&dir.path().join("a.arrow")])];
    let mut tight = 0;
    for table in &tables {
        let all: Vec<usize> = (0..table.schema().fields().len()).collect();
        for columns in [all.as_slice(), &[0], &[]] {
            for rows in [64, 200, 1 << 20] {
                for (bytes, wanted, extra) in
                    [(1, 1, 0), (500, 100, 64), (5_000, 5_000, 8192), (1 << 20, 3_000, 8192)]
                {
                    let options = ChunkOptions {
                        part_rows_max: rows,
                        chunk_bytes_max: bytes,
                        chunk_bytes_wanted: wanted,
                        extent_extra_bytes: extra,
                        ..ChunkOptions::default()
                    };
                    let mut feed = table.feed(columns, &[], options).unwrap();
                    let facts = feed.facts();
                    let room = |segment: &headrace_ir::Segment| -> u64 {
                        segment.extents().map(|extent| extent.bytes + extra).sum()
                    };
                    let mut largest = 0;
                    for chunk in feed.by_ref() {
                        let rooms: Vec<u64> = chunk.unwrap().segments.iter().map(room).collect();
                        assert!(rooms.iter().all(|r| *r <= facts.segment_bytes), "{options:?}");
                        largest = largest.max(rooms.iter().sum());
                    }
                    let totals = feed.totals();
                    assert!(
                        largest <= facts.bounds.slot_bytes as u64,
                        "{largest} {facts:?} {options:?}"
                    );
                    assert!(totals.bytes <= facts.bounds.bytes.unwrap(), "{totals:?} {facts:?}");
                    assert!(totals.chunks <= facts.bounds.chunks.unwrap(), "{totals:?} {facts:?}");
                    assert_eq!(Some(totals.rows), facts.rows);
                    tight += usize::from(facts.bounds.slot_bytes as u64 <= 4 * largest);
                }
            }
        }
    }
    // Most of them say more than that nothing is endless.
    assert!(tight > 30, "{tight}");
}

/// A batch whose texts are many times a chunk, a few of them long, and all at its end or begin.
#[test]
fn each_part_of_a_batch_has_its_own_texts() {
    let dir = tempfile::tempdir().unwrap();
    let lengths: [&dyn Fn(usize) -> usize; 3] =
        [&|i| i % 9, &|i| if i % 1000 == 999 { 3_000 } else { 1 }, &|i| {
            if i > 4_900 { 200 } else { 0 }
        }];
    for (number, length) in lengths.iter().enumerate() {
        let path = dir.path().join(format!("{number}.arrow"));
        let text = |i: usize| (!i.is_multiple_of(7)).then(|| "x".repeat(length(i)));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("i", ints((0..5_000).map(Some))),
            ("s", Arc::new(StringArray::from_iter((0..5_000).map(text)))),
            ("l", Arc::new(LargeStringArray::from_iter((0..5_000).map(|i| text(4_999 - i))))),
        ];
        write(&path, 5_000, columns);
        let table = open(&[&path]);
        let expected = read_all(&table);
        let texts: usize = expected[1].iter().flatten().map(String::len).sum();
        for bytes in [4_000, 20_000, 1 << 30] {
            let options = options(1 << 20, bytes);
            let plan = plan_chunks(&table, &[0, 1, 2], &[], options).unwrap();
            assert_eq!(read_plan(&table, &[0, 1, 2], &plan), expected, "{number}, {bytes} bytes");
            let segments = || plan.chunks.iter().flat_map(|chunk| &chunk.segments);
            for column in [1, 2] {
                let read = segments().map(|s| s.columns[column].values.bytes).sum::<u64>();
                assert_eq!(read, texts as u64, "{number}, {bytes} bytes");
            }
            let largest = plan.chunks.iter().filter(|chunk| chunk.rows() > 64);
            assert!(largest.map(|chunk| chunk.bytes()).all(|of_chunk| of_chunk <= bytes));
            let feed = table.feed(&[0, 1, 2], &[], options).unwrap();
            assert!(plan.totals.bytes_max <= feed.facts().bounds.slot_bytes as u64);
            assert!(feed.facts().bounds.slot_bytes as u64 <= plan.totals.bytes_max.max(bytes));
            assert!(plan.totals.bytes <= feed.facts().bounds.bytes.unwrap());
            assert_eq!(feed.survey().unwrap(), plan.totals);
        }
    }
}

#[test]
fn offsets_that_fall_or_lie_outside_their_texts_end_the_feed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path, 1_000, vec![("s", Arc::new(StringArray::from(vec!["four"; 1_000])))]);
    let good = plan(&open(&[&path]), &[0], 100, 1 << 20);
    let at = good.chunks[3].segments[0].columns[0].offsets.unwrap().offset as usize;
    let bytes = std::fs::read(&path).unwrap();
    for (offset, cause) in [(4_001_u32, "begins at byte 4001 of"), (1, "offsets of texts fall")] {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&offset.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let table = open(&[&path]);
        let mut feed = table.feed(&[0], &[], options(100, 1 << 20)).unwrap();
        let chunks: Vec<_> = feed.by_ref().take(100).collect();
        let error = chunks.last().unwrap().as_ref().unwrap_err().to_string();
        assert!(error.contains(cause), "{error}");
        assert!(chunks.len() < 10, "{}", chunks.len());
        assert!(feed.next().is_none());
    }
}
