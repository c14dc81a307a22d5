//! Relations that are one table: columns by name, blocks by part.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;

use super::build::*;
use crate::ChunkOptions;
use crate::batches::{BatchSender, batch_channel};
use crate::heap::{Attribute, Block, BlockOwner, HeapBlocks, HeapTable, HeapType, Length, Reroute};
use crate::{Encoded, Table};

/// Does not believe one block, and remembers what it is told.
struct Owner {
    doubted: Block,
    rerouted: Mutex<Vec<Block>>,
}

impl BlockOwner for Owner {
    fn holds(&self, block: Block) -> bool {
        block != self.doubted
    }

    fn reroute(&self, block: Block, _why: Reroute) {
        self.rerouted.lock().unwrap().push(block);
    }

    fn done(&self, _blocks: u32) {}
}

fn dropped(kind: HeapType) -> Attribute {
    Attribute { dropped: true, ..attribute("........pg.dropped.1........", kind) }
}

/// `a` and `t` in three orders, of which one has a column between that was dropped.
fn relations() -> [Vec<Attribute>; 3] {
    let a = || attribute("a", HeapType::Int4);
    let t = || attribute("t", HeapType::Text);
    [vec![a(), t()], vec![t(), dropped(HeapType::Int8), a()], vec![t(), a()]]
}

/// A page of a part with one row, `number`.
fn page(part: usize, number: i32) -> Vec<u8> {
    let (a, t) = (int4(number), text(&format!("t{number}")));
    let values = match part {
        0 => vec![a, t],
        1 => vec![t, int8(-1), a],
        _ => vec![t, a],
    };
    Page::of(&[tuple(&relations()[part], &values)]).bytes
}

/// Of the parts 0 to 2, with files of two blocks: five blocks, none at all, three blocks.
fn heaps(folder: &std::path::Path) -> Vec<HeapBlocks> {
    let mut heaps = Vec::new();
    for (part, (attributes, blocks)) in relations().into_iter().zip([5, 0, 3]).enumerate() {
        let pages: Vec<_> = (0..blocks).map(|b| page(part, part as i32 * 100 + b)).collect();
        let mut files = Vec::new();
        for (number, pages) in pages.chunks(2).enumerate() {
            files.push(folder.join(format!("{part}.{number}")));
            std::fs::write(&files[number], pages.concat()).unwrap();
        }
        let direct = (blocks > 0).then_some(0..blocks as u32).into_iter().collect();
        heaps.push(HeapBlocks {
            relation: relation(attributes),
            files,
            blocks_per_file: 2,
            direct,
            stamps: None,
        });
    }
    heaps
}

/// The server's rows end with the sender.
fn table(heaps: Vec<HeapBlocks>, doubted: Block) -> (Arc<HeapTable>, Arc<Owner>, BatchSender) {
    let owner = Arc::new(Owner { doubted, rerouted: Mutex::default() });
    let (sender, stream) = batch_channel(1);
    let table = HeapTable::new("t", heaps, Arc::clone(&owner) as _, stream).unwrap();
    (Arc::new(table), owner, sender)
}

/// Both columns of a batch, the text first.
fn rows(batch: &RecordBatch) -> Vec<(String, i32)> {
    let (texts, numbers) = (batch.column(0).as_string::<i32>(), batch.column(1));
    let numbers = numbers.as_primitive::<Int32Type>().values();
    texts.iter().flatten().map(str::to_string).zip(numbers.iter().copied()).collect()
}

#[test]
fn the_blocks_of_all_parts_are_one_stream() {
    let folder = tempfile::tempdir().unwrap();
    let doubted = Block { part: 2, number: 1 };
    let heaps = heaps(folder.path());
    let files: Vec<_> = heaps.iter().flat_map(|heap| heap.files.clone()).collect();
    let (table, owner, _sender) = table(heaps, doubted);
    assert_eq!(table.file_count(), files.len());
    let mut feed = Arc::clone(&table).feed(&[1, 0], &[], ChunkOptions::default()).unwrap();
    let mut decoder = Arc::clone(&table).segment_decoder(&[1, 0]).unwrap().unwrap();
    let mut batches = Vec::new();
    while let Poll::Ready(Some(Ok(fed))) = feed.poll_next(Waker::noop()) {
        for segment in &fed.payload.segments {
            let extent = segment.columns[0].values;
            let file = std::fs::read(&files[segment.file as usize]).unwrap();
            let bytes = &file[extent.offset as usize..][..extent.bytes as usize];
            let mut pages = Encoded { segment, buffers: &[bytes], taken: 0 };
            while let Some(batch) = decoder.next_batch(&mut pages).unwrap() {
                batches.push(rows(&batch));
            }
        }
        batches.extend(decoder.rest().unwrap().map(|batch| rows(&batch)));
    }
    let row = |number: i32| (format!("t{number}"), number);
    // Rows of two parts are never of one batch.
    assert_eq!(batches, [[0, 1, 2, 3, 4].map(row).to_vec(), [200, 202].map(row).to_vec()]);
    assert_eq!(*owner.rerouted.lock().unwrap(), [doubted]);
}

#[test]
fn parts_without_a_column_cannot_be_asked_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut Attribute)| {
        let mut heaps = heaps(folder.path());
        change(&mut heaps[2].relation.attributes[1]);
        let table = table(heaps, Block { part: 0, number: 9 }).0;
        assert!(table.clone().feed(&[0], &[], ChunkOptions::default()).is_err());
        (table.column_support(0).unwrap_err(), table.column_support(1))
    };
    let cause = "a part has no a of the same type".to_string();
    assert_eq!(refused(|a| a.name = "b".into()), (cause.clone(), Ok(())));
    assert_eq!(refused(|a| a.kind = Some(HeapType::Date)), (cause.clone(), Ok(())));
    assert_eq!(refused(|a| a.dropped = true), (cause, Ok(())));
}

#[test]
fn a_column_may_be_null_if_it_may_in_any_part() {
    let folder = tempfile::tempdir().unwrap();
    let mut heaps = heaps(folder.path());
    heaps[0].relation.attributes.iter_mut().for_each(|attribute| attribute.not_null = true);
    heaps[1].relation.attributes[0].not_null = true;
    heaps[2].relation.attributes[0].not_null = true;
    let table = table(heaps, Block { part: 0, number: 9 }).0;
    let fields = table.schema().fields().iter().map(|field| field.is_nullable());
    assert_eq!(fields.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_plan_knows_what_no_device_decodes() {
    let folder = tempfile::tempdir().unwrap();
    let mut heap = heaps(folder.path()).swap_remove(0);
    let attributes = &mut heap.relation.attributes;
    attributes.extend([attribute("u", HeapType::Uuid), attribute("b", HeapType::Int4)]);
    let table = table(vec![heap], Block { part: 0, number: 9 }).0;
    let source = table.page_source(&[0, 3, 2]).unwrap().unwrap();
    let plan = source.plan().unwrap();
    assert_eq!([0, 1, 2, 3].map(|column| plan.decodes(column)), [true, true, false, false]);
    // Its values are walked past.
    assert_eq!(plan.steps[2].length, Length::Fixed(16));
}

/// A device has one plan for all blocks, and is told their numbers in their own part.
#[test]
fn a_device_takes_parts_that_are_laid_out_alike() {
    let folder = tempfile::tempdir().unwrap();
    let doubted = Block { part: 2, number: 1 };
    let source = |heaps| table(heaps, doubted).0.page_source(&[0]).unwrap().unwrap();
    let different = source(heaps(folder.path()));
    assert_eq!(different.plan().unwrap_err(), "parts whose tuples are laid out differently");
    let mut alike = heaps(folder.path());
    for heap in &mut alike {
        heap.relation = relation(relations()[0].clone());
    }
    let alike = source(alike);
    assert!(alike.plan().is_ok());
    // Five blocks are three files; the last part's first file is the fourth.
    assert_eq!((alike.first_block(1, 0), alike.first_block(3, 0)), (2, 0));
    assert_eq!(alike.ask(3, 0, 2)(), [true, false]);
}
