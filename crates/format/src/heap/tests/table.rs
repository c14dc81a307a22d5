//! What a table of blocks gives: chunks within their bounds, by turns, and batches of a size.

use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use arrow_array::{Int32Array, RecordBatch};
use headrace_ir::pages::{PageFlaw, PageVerdict};
use headrace_ir::{ColumnExtents, Encoding, Extent, Segment};

use super::build::*;
use crate::ChunkOptions;
use crate::batches::{BatchReceiver, BatchSender, Ready, batch_channel};
use crate::heap::{Block, BlockOwner, HeapBlocks, HeapTable, HeapType, Reroute, Stamps};
use crate::{Encoded, Table};

/// Remembers what it is told.
#[derive(Default)]
struct Owner {
    rerouted: Mutex<Vec<(Block, Reroute)>>,
    done: AtomicU32,
}

impl BlockOwner for Owner {
    fn holds(&self, _block: Block) -> bool {
        true
    }

    fn reroute(&self, block: Block, why: Reroute) {
        self.rerouted.lock().unwrap().push((block, why));
    }

    fn done(&self, blocks: u32) {
        self.done.fetch_add(blocks, Ordering::SeqCst);
    }
}

/// Files of 100 blocks each, the last with 57 and a half, of which odd ranges are listed.
fn blocks(folder: &std::path::Path) -> HeapBlocks {
    let files: Vec<_> = (0..3).map(|file| folder.join(file.to_string())).collect();
    for (path, bytes) in files.iter().zip([100 * BLOCK, 100 * BLOCK, 57 * BLOCK + BLOCK / 2]) {
        File::create(path).unwrap().set_len(bytes as u64).unwrap();
    }
    let sparse = (20..90).step_by(3).map(|block| block..block + 1);
    let direct = std::iter::once(1..18).chain(sparse).chain([95..96, 98..230, 250..260]);
    let relation = relation(vec![attribute("a", HeapType::Int4)]);
    HeapBlocks { relation, files, blocks_per_file: 100, direct: direct.collect(), stamps: None }
}

fn batch(rows: usize) -> RecordBatch {
    let values = Int32Array::from_iter_values(0..rows as i32);
    RecordBatch::try_from_iter_with_nullable([("a", Arc::new(values) as _, true)]).unwrap()
}

fn table(blocks: HeapBlocks) -> (Arc<HeapTable>, Arc<Owner>, BatchSender) {
    let (sender, receiver): (_, BatchReceiver) = batch_channel(100);
    let owner = Arc::new(Owner::default());
    let table = HeapTable::new("t", vec![blocks], Arc::clone(&owner) as _, receiver).unwrap();
    (Arc::new(table), owner, sender)
}

/// As [`crate::options::Filling`] counts, of whatever kind a chunk is.
fn room_bytes(chunk: &headrace_ir::Chunk, options: &ChunkOptions) -> u64 {
    let extents = chunk.segments.iter().flat_map(|segment| segment.extents());
    extents.map(|extent| extent.bytes + options.extent_extra_bytes).sum()
}

/// The blocks of a chunk; none of a chunk of the stream.
fn numbers(chunk: &headrace_ir::Chunk) -> Vec<u32> {
    let pages = chunk.segments.iter().filter(|segment| segment.is_pages());
    pages
        .flat_map(|segment| {
            let [column] = segment.columns.as_slice() else { panic!("{segment:?}") };
            assert_eq!(column.encoding, Encoding::Pages { block_bytes: BLOCK as u32 });
            assert_eq!((segment.rows, column.values.bytes % BLOCK as u64), (0, 0));
            let first = segment.file * 100 + (column.values.offset / BLOCK as u64) as u32;
            first..first + (column.values.bytes / BLOCK as u64) as u32
        })
        .collect()
}

/// Of no columns the stream's chunks take next to nothing: then the bounds are those of the blocks.
#[test]
fn chunks_have_each_listed_block_once_and_are_within_their_bounds() {
    let wanted = [1, BLOCK as u64, 40_000, 1 << 20, u64::MAX];
    for (wanted, max) in wanted.into_iter().flat_map(|w| [(w, w), (w, 100_000), (w, 1)]) {
        for (segments, columns) in [(1, &[0][..]), (1, &[]), (5, &[0]), (5, &[]), (1000, &[0])] {
            let options = ChunkOptions {
                chunk_bytes_wanted: wanted,
                chunk_bytes_max: max,
                chunk_segments_max: segments,
                extent_extra_bytes: 8192,
                ..ChunkOptions::default()
            };
            check_chunks(columns, options);
        }
    }
}

fn check_chunks(columns: &[usize], options: ChunkOptions) {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks(folder.path());
    let listed = blocks.direct.iter().cloned().flatten();
    // Of the last file's 57 and a half there are 57, 200 to 256.
    let (there, missing): (Vec<u32>, Vec<u32>) = listed.partition(|block| *block < 257);
    let (table, owner, sender) = table(blocks);
    let mut feed = table.feed(columns, &[], options).unwrap();
    let facts = feed.facts();
    assert!((0..5).all(|_| sender.send(batch(3000).project(columns).unwrap())));
    let (mut found, mut streamed) = (Vec::new(), 0);
    while let Poll::Ready(Some(fed)) = feed.poll_next(Waker::noop()) {
        let chunk = fed.unwrap().payload;
        assert!(chunk.segments.len() <= options.chunk_segments_max, "{options:?}");
        let room = room_bytes(&chunk, &options);
        assert!(room <= facts.bounds.slot_bytes as u64, "{room} {facts:?} {options:?}");
        if chunk.segments.len() == 1 {
            assert!(room <= facts.segment_bytes, "{room} {facts:?} {options:?}");
        }
        streamed += chunk.rows();
        found.extend(numbers(&chunk));
    }
    assert_eq!((found, streamed), (there, 15_000), "{options:?}");
    let why = |block: &u32| {
        let found_bytes = if *block == 257 { BLOCK / 2 } else { 0 };
        let block = Block { part: 0, number: *block };
        (block, Reroute::Length { found_bytes, block_bytes: BLOCK })
    };
    assert_eq!(*owner.rerouted.lock().unwrap(), missing.iter().map(why).collect::<Vec<_>>());
    // What is left is for the decoders.
    assert_eq!(owner.done.load(Ordering::SeqCst), missing.len() as u32);
    let totals = feed.totals();
    assert_eq!((totals.rows, totals.bytes_max <= facts.bounds.slot_bytes as u64), (15_000, true));
}

/// Neither waits for the other: as long as both have something they take turns.
#[test]
fn blocks_and_the_stream_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let (table, _, sender) = table(blocks(folder.path()));
    let options = ChunkOptions { chunk_bytes_wanted: 1, ..ChunkOptions::default() };
    let mut feed = table.feed(&[0], &[], options).unwrap();
    let mut kinds = |chunks: usize| -> String {
        let kind = |_| match feed.poll_next(Waker::noop()) {
            Poll::Ready(Some(fed)) if !fed.as_ref().unwrap().files[0].is_in_memory() => 'b',
            Poll::Ready(Some(_)) => 's',
            Poll::Ready(None) => '.',
            Poll::Pending => '?',
        };
        (0..chunks).map(kind).collect()
    };
    assert_eq!(kinds(3), "bbb");
    assert!((0..4).all(|_| sender.send(batch(10))));
    assert_eq!(kinds(8), "sbsbsbsb");
    assert_eq!(kinds(2), "bb");
    // All that are listed and there, less those that were taken.
    let listed = 17 + 24 + 1 + 132 + 7;
    assert_eq!(kinds(listed - 9), "b".repeat(listed - 9));
    assert_eq!(kinds(2), "??");
    assert!(sender.send(batch(10)));
    assert_eq!(kinds(2), "s?");
}

#[test]
fn batches_are_about_as_large_as_a_cache_and_go_on_over_segments() {
    let folder = tempfile::tempdir().unwrap();
    let attributes = vec![attribute("a", HeapType::Int8)];
    let rows: Vec<_> = (0..200).map(|i| tuple(&attributes, &[int8(i)])).collect();
    let page = Page::of(&rows).bytes;
    let (table, owner, _sender) =
        table(HeapBlocks { relation: relation(attributes), ..blocks(folder.path()) });
    let (segment, mut found) = (page.repeat(100), Vec::new());
    let mut decoder = Arc::clone(&table).segment_decoder(&[0]).unwrap().unwrap();
    for file in 0..5 {
        let pages = pages_of(file);
        let mut encoded = Encoded { segment: &pages, buffers: &[&segment], taken: 0 };
        while let Some(batch) = decoder.next_batch(&mut encoded).unwrap() {
            found.push(batch.num_rows());
        }
        assert_eq!(encoded.taken, segment.len() as u64);
    }
    found.extend(decoder.rest().unwrap().map(|batch| batch.num_rows()));
    assert!(decoder.rest().unwrap().is_none());
    // 256 KiB of eight bytes, in whole pages of 200.
    assert_eq!(found, [32_800, 32_800, 32_800, 1600]);
    assert_eq!(owner.done.load(Ordering::SeqCst), 500);
    // Whoever has enough leaves the rest.
    let (pages, bytes) = (pages_of(0), page.repeat(1000));
    let mut encoded = Encoded { segment: &pages, buffers: &[&bytes], taken: 0 };
    assert_eq!(decoder.next_batch(&mut encoded).unwrap().unwrap().num_rows(), 32_800);
    assert_eq!(encoded.taken, 164 * BLOCK as u64);
}

/// A segment of pages at the front of a file.
fn pages_of(file: u32) -> Segment {
    let values = Extent { offset: 0, bytes: 0 };
    let encoding = Encoding::Pages { block_bytes: BLOCK as u32 };
    let column = ColumnExtents { encoding, values, ..ColumnExtents::constant(None) };
    Segment { file, batch: 0, first_row: 0, rows: 0, columns: vec![column] }
}

/// Of no columns nothing fills a cache: rows are counted.
#[test]
fn rows_without_columns_come_in_batches_too() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<_> = (0..200).map(|_| tuple(&[], &[])).collect();
    let page = Page::of(&rows).bytes;
    let blocks = blocks(folder.path());
    let stream = Ready(std::iter::empty());
    let table = HeapTable::new("t", vec![blocks], Arc::new(Owner::default()), stream).unwrap();
    let mut decoder = Arc::new(table).segment_decoder(&[]).unwrap().unwrap();
    let (pages, bytes) = (pages_of(0), page.repeat(400));
    let mut encoded = Encoded { segment: &pages, buffers: &[&bytes], taken: 0 };
    let batch = decoder.next_batch(&mut encoded).unwrap().unwrap();
    assert_eq!((batch.num_rows(), batch.num_columns()), (65_600, 0));
}

/// Blocks are numbered over all files, and rerouted before they are done.
#[test]
fn what_a_device_says_of_pages_reaches_their_owner() {
    let folder = tempfile::tempdir().unwrap();
    let (table, owner, _sender) = table(blocks(folder.path()));
    let source = Arc::clone(&table).page_source(&[0]).unwrap().unwrap();
    let plan = source.plan().unwrap();
    assert_eq!(plan.block_bytes, BLOCK as u32);
    assert_eq!((plan.attributes, plan.steps.len()), (1, 1));
    let offset = 20 * BLOCK as u64;
    assert_eq!(source.first_block(1, offset), 120);
    assert_eq!(source.ask(1, offset, 4)(), [true; 4]);
    let flaws = [PageFlaw::Compressed(3), PageFlaw::Checksum { stored: 1, computed: 2 }];
    let [compressed, checksum] = flaws.map(PageVerdict::Flawed);
    let verdicts = [PageVerdict::Rows(7), PageVerdict::Changed, compressed, checksum];
    source.settle(1, offset, &verdicts);
    let expected = [
        (121, Reroute::Changed),
        (122, Reroute::Compressed { attribute: 3 }),
        (123, Reroute::Checksum { stored: 1, computed: 2 }),
    ];
    let expected = expected.map(|(number, why)| (Block { part: 0, number }, why));
    assert_eq!(*owner.rerouted.lock().unwrap(), expected);
    assert_eq!(owner.done.load(Ordering::SeqCst), 4);
    assert!(table.page_source(&[1]).is_err());
}

/// The segments of all listed blocks, as ranges, with their stamps, where chunks have `wanted` bytes.
fn segments(blocks: HeapBlocks, wanted: usize) -> Vec<(std::ops::Range<u32>, Option<u64>)> {
    let (table, _owner, _sender) = table(blocks);
    let pages = Arc::clone(&table).page_source(&[0]).unwrap().unwrap();
    let (chunk_bytes_wanted, chunk_bytes_max) = (wanted as u64, wanted as u64);
    let options = ChunkOptions { chunk_bytes_wanted, chunk_bytes_max, ..ChunkOptions::default() };
    let mut feed = Arc::clone(&table).feed(&[0], &[], options).unwrap();
    let mut found = Vec::new();
    while let Poll::Ready(Some(Ok(fed))) = feed.poll_next(Waker::noop()) {
        for segment in &fed.payload.segments {
            let values = segment.columns[0].values;
            let first = pages.first_block(segment.file, values.offset);
            let end = first + (values.bytes / BLOCK as u64) as u32;
            found.push((
                first..end,
                pages.stamp(segment.file, values.offset).map(|(_, stamp)| stamp),
            ));
        }
    }
    found
}

#[test]
fn blocks_with_stamps_are_cut_alike_whatever_is_listed_before_them() {
    let folder = tempfile::tempdir().unwrap();
    // Of 40 blocks each, the third without one: segments of two blocks.
    let stamps = Stamps { identity: "t".into(), blocks: 40, stamps: vec![5, 6, 0, 7, 8, 9] };
    let listed = |direct: &[(u32, u32)], wanted| {
        let direct = direct.iter().map(|&(start, end)| start..end).collect();
        let stamps = Some(stamps.clone());
        segments(HeapBlocks { direct, stamps, ..blocks(folder.path()) }, wanted)
    };
    for wanted in [2 * BLOCK, 3 * BLOCK, 7 * BLOCK, 1 << 20] {
        let all = listed(&[(0, 257)], wanted);
        assert_eq!(all.len(), 129, "{all:?}");
        assert!(all.iter().all(|(range, _)| range.start % 2 == 0 && range.len() <= 2));
        let stamp = |block: u32| all.iter().find(|(range, _)| range.contains(&block)).unwrap().1;
        assert_eq!(
            [0, 39, 40, 80, 119, 120, 256].map(stamp),
            [5, 5, 6, 0, 0, 7, 0].map(|s| (s > 0).then_some(s))
        );
        let some = listed(&[(1, 17), (18, 19), (21, 200)], wanted);
        let whole = some.iter().filter(|(range, _)| range.len() == 2);
        assert_eq!(whole.clone().count(), 7 + 89, "{some:?}");
        assert!(whole.into_iter().all(|segment| all.contains(segment)));
    }
    // A block does not fit: then there is no choice.
    assert_eq!(listed(&[(0, 4)], 1).len(), 4);
    let (table, ..) = table(blocks(folder.path()));
    assert!(table.page_source(&[0]).unwrap().unwrap().stamp(0, 0).is_none());
}
