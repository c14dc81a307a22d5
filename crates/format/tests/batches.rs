//! Batches as a table: what a chunk over them says, and what a producer can do wrong.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::task::{Poll, Waker};

use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{DataType, Schema};
use headrace_format::batches::{BatchTable, ProducerError, Ready, batch_channel};
use headrace_format::{ChunkOptions, Feed, Table};
use headrace_io::{BoxError, FedChunk};
use headrace_ir::Chunk;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn numbers(rows: std::ops::Range<i64>) -> RecordBatch {
    let flags = BooleanArray::from_iter(rows.clone().map(|i| (i % 5 > 0).then_some(i % 3 == 0)));
    batch(vec![("n", Arc::new(Int64Array::from_iter_values(rows))), ("b", Arc::new(flags))])
}

fn ready(
    batches: Vec<RecordBatch>,
) -> Ready<impl Iterator<Item = Result<RecordBatch, ProducerError>> + Send> {
    Ready(batches.into_iter().map(Ok))
}

fn table(batches: Vec<RecordBatch>) -> Arc<BatchTable> {
    let schema = batches[0].schema();
    Arc::new(BatchTable::new("t", &schema, ready(batches)))
}

fn next(feed: &mut dyn Feed) -> Option<Result<FedChunk<Chunk>, BoxError>> {
    match feed.poll_next(Waker::noop()) {
        Poll::Ready(next) => next,
        Poll::Pending => panic!("nothing yet"),
    }
}

fn error_of(table: Arc<BatchTable>, columns: &[usize]) -> String {
    let mut feed = table.feed(columns, &[], ChunkOptions::default()).unwrap();
    loop {
        match next(&mut *feed) {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                assert!(next(&mut *feed).is_none(), "something comes after an error");
                return error.to_string();
            }
            None => panic!("no error"),
        }
    }
}

#[test]
fn values_lie_where_the_producer_has_them() {
    let whole = numbers(0..1000);
    let parts = [whole.slice(0, 100), whole.slice(100, 413), whole.slice(513, 487)];
    let values = whole.column(0).to_data().buffers()[0].as_ptr().addr() as u64;
    let table = table(parts.to_vec());
    let options = ChunkOptions { part_rows_max: 128, ..ChunkOptions::default() };
    let mut feed = Arc::clone(&table).feed(&[0, 1], &[], options).unwrap();
    let FedChunk { payload: chunk, files, .. } = next(&mut *feed).unwrap().unwrap();
    let memory = &files[0];
    assert_eq!(
        chunk.segments.iter().map(|s| s.rows).collect::<Vec<_>>(),
        [100, 128, 128, 128, 29, 128, 128, 128, 103]
    );
    let mut first_row = 0u64;
    for segment in &chunk.segments {
        let [n, b] = segment.columns.as_slice() else { panic!() };
        assert_eq!(n.values.offset, values + first_row * 8, "copied");
        let bits = |extent: &headrace_ir::Extent| {
            let bytes = memory.bytes_in_memory(extent.offset, extent.bytes).unwrap();
            (0..u64::from(segment.rows))
                .map(|i| bytes[i as usize / 8] >> (i % 8) & 1 == 1)
                .collect::<Vec<_>>()
        };
        let (valid, flags) = (bits(b.validity.as_ref().unwrap()), bits(&b.values));
        for row in 0..u64::from(segment.rows) {
            let i = first_row + row;
            assert_eq!(valid[row as usize], !i.is_multiple_of(5), "{i}");
            assert!(i.is_multiple_of(5) || flags[row as usize] == i.is_multiple_of(3), "{i}");
        }
        first_row += u64::from(segment.rows);
    }
    assert!(next(&mut *feed).is_none());
    assert_eq!((feed.totals().rows, feed.totals().segments), (1000, 9));
    // They came once.
    assert!(error_of(table, &[0]).contains("come once"));
}

#[test]
fn chunks_stay_below_what_was_said_before_the_first() {
    let parts: Vec<_> = [7i64, 0, 3000, 1, 64, 129, 2000].map(|rows| numbers(0..rows)).into();
    for (part_rows_max, bytes_max, wanted, extra) in [
        (64, 64 << 20, 1, 0),
        (128, 64 << 20, 5_000, 4096),
        (1 << 20, 64 << 20, 1 << 20, 8192),
        // Three parts of the largest batch would just fit, but for their whole words of bits.
        (1 << 20, 8_250, 1 << 20, 0),
        (1 << 20, 1, 1, 64),
    ] {
        let options = ChunkOptions {
            part_rows_max,
            chunk_bytes_max: bytes_max,
            chunk_bytes_wanted: wanted,
            extent_extra_bytes: extra,
            ..ChunkOptions::default()
        };
        let mut feed = table(parts.clone()).feed(&[0, 1], &[], options).unwrap();
        let facts = feed.facts();
        let mut rows = 0;
        while let Some(fed) = next(&mut *feed) {
            let chunk = fed.unwrap().payload;
            let extents = chunk.segments.iter().map(|s| s.extents().count() as u64).sum::<u64>();
            assert!(
                chunk.bytes() + extents * extra <= facts.bounds.slot_bytes as u64,
                "{options:?}"
            );
            rows += chunk.rows();
        }
        assert_eq!(rows, 5201);
    }
}

#[test]
fn batches_of_other_columns_and_broken_promises_are_errors() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let other = batch(vec![("n", texts.clone()), ("b", texts)]);
    let error = error_of(table(vec![numbers(0..10), other]), &[0]);
    assert!(error.contains("t: a batch of") && error.contains("Utf8"), "{error}");
    let schema = numbers(0..1).schema();
    let promised = BatchTable::new("t", &schema, ready(vec![numbers(0..10), numbers(0..10)]));
    let promised = Arc::new(promised.with_rows_max(19));
    assert_eq!(promised.rows(), Some(19));
    assert!(error_of(promised, &[0]).contains("20 rows where 19 were promised"));
}

#[test]
fn a_producer_that_fails_or_goes_away_never_looks_like_the_end() {
    let schema = numbers(0..1).schema();
    for fails in [true, false] {
        let (sender, receiver) = batch_channel(4);
        assert!(sender.send(numbers(0..10)));
        match fails {
            true => sender.fail("a disk of its own"),
            false => drop(sender),
        }
        let table = Arc::new(BatchTable::new("t", &schema, receiver));
        let error = error_of(table, &[0]);
        assert!(error.contains(if fails { "a disk of its own" } else { "went away" }), "{error}");
    }
    let (sender, receiver) = batch_channel(1);
    drop(receiver);
    assert!(!sender.send(numbers(0..10)), "nobody wants it");
}

#[test]
fn a_queue_holds_so_many_batches_and_wakes_who_waits() {
    let schema = numbers(0..1).schema();
    let (sender, receiver) = batch_channel(2);
    let producer = std::thread::spawn(move || {
        let sent = (0..50).filter(|i| sender.send(numbers(0..1 + i % 3))).count();
        sender.finish();
        sent
    });
    let table = Arc::new(BatchTable::new("t", &schema, receiver));
    let options = ChunkOptions { chunk_bytes_wanted: 1, ..ChunkOptions::default() };
    let mut feed = table.feed(&[0], &[], options).unwrap();
    let me = std::thread::current();
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(me)));
    let mut chunks = 0;
    loop {
        match feed.poll_next(&waker) {
            Poll::Pending => std::thread::park_timeout(std::time::Duration::from_secs(20)),
            Poll::Ready(None) => break,
            Poll::Ready(Some(chunk)) => chunks += usize::from(chunk.unwrap().payload.rows() > 0),
        }
    }
    assert_eq!((producer.join().unwrap(), chunks), (50, 50));
}

#[test]
fn dictionaries_of_batches_become_text_or_one_that_is_known() {
    let coded = |texts: &[Option<&str>]| -> RecordBatch {
        let codes: DictionaryArray<Int8Type> = texts.iter().copied().collect();
        batch(vec![("k", Arc::new(codes))])
    };
    let batches = || vec![coded(&[Some("b"), None, Some("a")]), coded(&[Some("c"), Some("b")])];
    let plain = table(batches());
    assert_eq!(*plain.schema().field(0).data_type(), DataType::Utf8);
    assert!(plain.dictionary(0).is_none());
    let with = |texts: Vec<&str>| {
        let schema: Arc<Schema> = batches()[0].schema();
        let table = BatchTable::new("t", &schema, ready(batches()));
        table.with_dictionary(0, Arc::new(StringArray::from(texts)))
    };
    let known = Arc::new(with(vec!["a", "b", "c"]).unwrap());
    let mut feed = Arc::clone(&known).feed(&[0], &[], ChunkOptions::default()).unwrap();
    let FedChunk { payload: chunk, files, .. } = next(&mut *feed).unwrap().unwrap();
    let codes = chunk.segments.iter().flat_map(|segment| {
        let extent = segment.columns[0].values;
        let bytes = files[0].bytes_in_memory(extent.offset, extent.bytes).unwrap();
        let codes = bytes.chunks_exact(4).map(|code| i32::from_le_bytes(code.try_into().unwrap()));
        codes.collect::<Vec<_>>()
    });
    let codes: Vec<i32> = codes.collect();
    assert_eq!([codes[0], codes[2], codes[3], codes[4]], [1, 0, 2, 1]);
    assert!(chunk.segments[0].columns[0].validity.is_some());
    assert!(chunk.segments[1].columns[0].validity.is_none());
    let error = error_of(Arc::new(with(vec!["a", "b"]).unwrap()), &[0]);
    assert!(error.contains("\"c\" is not in its dictionary"), "{error}");
    assert!(with(vec!["b", "a"]).is_err());
    let ints = batch(vec![("i", Arc::new(Int32Array::from(vec![1])))]);
    let ints = BatchTable::new("t", &ints.schema(), ready(vec![ints.clone()]));
    assert!(ints.with_dictionary(0, Arc::new(StringArray::from(vec!["a"]))).is_err());
}
