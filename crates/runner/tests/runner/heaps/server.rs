//! A heap in files, and a server that owns its blocks: it reads those that are not listed, and those
//! that are rerouted.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use arrow_array::{Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use headrace_format::batches::{self, BatchSender, batch_channel};
use headrace_format::heap::{
    Align, Attribute, Block, BlockOwner, HeapBlocks, HeapTable, HeapType, Length, Relation,
    Reroute, ServerPages, Spare, keep_lines,
};
use headrace_runner::StreamTable;

use super::build::{BLOCK, Datum, Page, attribute, int4, int8, opaque, relation, text, tuple};

pub const BLOCKS: u32 = 200;
pub const BLOCKS_PER_FILE: u32 = 64;
pub const ROWS_PER_BLOCK: i64 = 50;
pub const ROWS: i64 = BLOCKS as i64 * ROWS_PER_BLOCK;

/// Number, something that is skipped, name, big.
pub fn attributes() -> Vec<Attribute> {
    vec![
        Attribute { not_null: true, ..attribute("number", HeapType::Int4) },
        opaque(Length::Varlena, Align::Int),
        attribute("name", HeapType::Text),
        attribute("big", HeapType::Int8),
    ]
}

/// Of the columns that can be asked for.
pub fn schema() -> Schema {
    Schema::new(vec![
        Field::new("number", DataType::Int32, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("big", DataType::Int64, true),
    ])
}

pub fn number(row: i64) -> i32 {
    row as i32
}

pub fn name(row: i64) -> Option<String> {
    (row % 11 > 0).then(|| format!("name {}", row % 7))
}

pub fn big(row: i64) -> Option<i64> {
    (row % 5 > 0).then_some(row * 1_000_000_007)
}

pub fn rows_of(block: u32) -> Range<i64> {
    i64::from(block) * ROWS_PER_BLOCK..i64::from(block + 1) * ROWS_PER_BLOCK
}

pub fn page(rows: Range<i64>) -> Page {
    let attributes = attributes();
    let row = |row: i64| {
        let name = name(row).map_or(Datum::Null, |name| text(&name));
        let big = big(row).map_or(Datum::Null, int8);
        tuple(&attributes, &[int4(number(row)), text("skip me"), name, big])
    };
    Page::of(&rows.map(row).collect::<Vec<_>>())
}

/// Rows as batches with the columns of a schema, by their names.
pub fn batch(rows: Range<i64>, schema: &Schema) -> RecordBatch {
    let column = |field: &Arc<Field>| -> arrow_array::ArrayRef {
        match field.name().as_str() {
            "number" => Arc::new(Int32Array::from_iter_values(rows.clone().map(number))),
            "name" => Arc::new(rows.clone().map(name).collect::<StringArray>()),
            _ => Arc::new(rows.clone().map(big).collect::<Int64Array>()),
        }
    };
    let columns = schema.fields().iter().map(column).collect();
    let options = arrow_array::RecordBatchOptions::new()
        .with_row_count(Some((rows.end - rows.start) as usize));
    RecordBatch::try_new_with_options(Arc::new(schema.clone()), columns, &options).unwrap()
}

pub fn heap_relation() -> Relation {
    relation(attributes())
}

/// What is the matter with a heap and its server.
#[derive(Clone, Default)]
pub struct Heap {
    /// Blocks that are not listed.
    pub own: BTreeSet<u32>,
    /// Whether it hands these over as pages, in which there are rows, too, that do not count.
    pub hands_over: bool,
    /// Those of them whose pages do not decode.
    pub broken: BTreeSet<u32>,
    /// Blocks that do not hold any more when they are asked about.
    pub changed: BTreeSet<u32>,
    /// Blocks whose page is not all-visible.
    pub busy: BTreeSet<u32>,
    /// Blocks that the files do not have, from this on in each.
    pub cut_at: Option<u32>,
    /// A file that is not there.
    pub missing: Option<u32>,
    /// The server fails after so many of its batches.
    pub fails_after: Option<usize>,
    /// It never says that there are no more.
    pub never_ends: bool,
    /// It panics when it is asked about this block.
    pub panics_at: Option<u32>,
}

enum Message {
    Reroute(u32),
    Done(u32),
}

struct Owner {
    heap: Heap,
    messages: Mutex<Sender<Message>>,
}

impl BlockOwner for Owner {
    fn holds(&self, Block { number: block, .. }: Block) -> bool {
        assert!(self.heap.panics_at != Some(block), "block {block} is accursed");
        !self.heap.changed.contains(&block)
    }

    fn reroute(&self, Block { number: block, .. }: Block, why: Reroute) {
        match why {
            Reroute::Changed => assert!(self.heap.changed.contains(&block)),
            Reroute::NotAllVisible => assert!(self.heap.busy.contains(&block)),
            Reroute::Length { .. } => assert!(!self.heap.is_there(block)),
            Reroute::Header { .. } => assert!(self.heap.broken.contains(&block)),
            other => panic!("{other}"),
        }
        let _ = self.messages.lock().unwrap().send(Message::Reroute(block));
    }

    fn done(&self, blocks: u32) {
        let _ = self.messages.lock().unwrap().send(Message::Done(blocks));
    }
}

/// What a server did.
#[derive(Debug, Default, PartialEq)]
pub struct Served {
    pub rerouted: BTreeSet<u32>,
    pub done: u32,
}

impl Heap {
    fn is_there(&self, block: u32) -> bool {
        let file = block / BLOCKS_PER_FILE;
        self.missing != Some(file) && self.cut_at.is_none_or(|cut| block % BLOCKS_PER_FILE < cut)
    }

    /// The listed blocks that only the server can read.
    pub fn rerouted(&self) -> BTreeSet<u32> {
        let only = |block: &u32| {
            self.changed.contains(block) || self.busy.contains(block) || !self.is_there(*block)
        };
        let listed = (0..BLOCKS).filter(|block| !self.own.contains(block)).filter(only);
        listed.chain(self.broken.iter().copied()).collect()
    }

    /// Blocks that the workers decode, or give back.
    pub fn decoded(&self) -> u32 {
        BLOCKS - if self.hands_over { 0 } else { self.own.len() as u32 }
    }

    fn direct(&self) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for block in (0..BLOCKS).filter(|block| !self.own.contains(block)) {
            match ranges.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => ranges.push(block..block + 1),
            }
        }
        ranges
    }

    /// Writes the files. Blocks that nobody may read from them have rows that are not the table's.
    pub fn write(&self, folder: &Path) -> HeapBlocks {
        let mut files = Vec::new();
        for file in 0..BLOCKS.div_ceil(BLOCKS_PER_FILE) {
            let path = folder.join(file.to_string());
            let end = BLOCKS_PER_FILE.min(BLOCKS - file * BLOCKS_PER_FILE);
            let mut bytes = Vec::new();
            for block in (0..end).map(|block| file * BLOCKS_PER_FILE + block) {
                let is_foreign = self.own.contains(&block) || self.changed.contains(&block);
                let mut page = match is_foreign {
                    true => page(0..1),
                    false => page(rows_of(block)),
                };
                if self.busy.contains(&block) {
                    page.put(10, 0);
                }
                bytes.extend(page.bytes);
            }
            if let Some(cut) = self.cut_at.filter(|cut| *cut < end) {
                // Half a block is none.
                bytes.truncate(cut as usize * BLOCK + BLOCK / 2);
            }
            if self.missing != Some(file) {
                std::fs::write(&path, bytes).unwrap();
            }
            files.push(path);
        }
        let (relation, direct) = (heap_relation(), self.direct());
        HeapBlocks { relation, files, blocks_per_file: BLOCKS_PER_FILE, direct, stamps: None }
    }

    /// The table, of which these columns will be asked for, and its server's thread.
    pub fn serve(
        &self,
        blocks: &HeapBlocks,
        columns: &[&str],
    ) -> (Arc<StreamTable>, JoinHandle<Served>) {
        let (messages, received) = channel();
        let (sender, receiver) = batch_channel(2);
        let owner = Owner { heap: self.clone(), messages: Mutex::new(messages) };
        let table = HeapTable::new("t", vec![blocks.clone()], Arc::new(owner), receiver);
        let (pages, handed_over) = headrace_format::batches::channel(2);
        let table = match self.hands_over {
            true => table.unwrap().with_pages(handed_over, self.own.len() as u64),
            false => table.unwrap(),
        };
        assert_eq!(**headrace_format::Table::schema(&table), schema());
        let table: Arc<dyn headrace_format::Table> = Arc::new(table);
        let ordinals = columns.iter().map(|name| table.schema().index_of(name).unwrap());
        let schema = table.schema().project(&ordinals.collect::<Vec<_>>()).unwrap();
        let heap = self.clone();
        let thread = std::thread::spawn(move || heap.run(&schema, sender, pages, &received));
        (Arc::new(StreamTable::new("t", table)), thread)
    }

    /// Its own blocks as pages; whether anybody wants them.
    fn hand_over(&self, sender: batches::Sender<ServerPages>) -> bool {
        let spare = Spare::default();
        let own: Vec<u32> = self.own.iter().copied().collect();
        for some in own.chunks(7) {
            let mut pages = ServerPages::new(0, BLOCK, some.len(), &spare);
            for &block in some {
                let rows = rows_of(block);
                let mut page = page(rows.start..rows.end + 1);
                keep_lines(&mut page.bytes, &Vec::from_iter(1..=ROWS_PER_BLOCK as u16));
                // Nobody may believe what the page says of itself.
                page.put(10, 0);
                if self.broken.contains(&block) {
                    page.put(12, 7);
                }
                let filled = pages.add(block, |into| {
                    into.copy_from_slice(&page.bytes);
                    Ok::<(), ()>(())
                });
                filled.unwrap();
            }
            if !sender.send(pages) {
                return false;
            }
        }
        sender.finish();
        true
    }

    fn run(
        &self,
        schema: &Schema,
        sender: BatchSender,
        pages: batches::Sender<ServerPages>,
        messages: &Receiver<Message>,
    ) -> Served {
        let mut served = Served::default();
        let listed = self.decoded();
        let mut sent = 0;
        let mut send = |block| {
            sent += 1;
            self.fails_after.is_none_or(|last| sent <= last)
                && sender.send(batch(rows_of(block), schema))
        };
        let mut is_wanted = match self.hands_over {
            true => self.hand_over(pages),
            false => self.own.iter().all(|block| send(*block)),
        };
        while is_wanted && (served.done < listed || self.never_ends) {
            match messages.recv() {
                Ok(Message::Reroute(block)) => {
                    assert!(served.rerouted.insert(block), "block {block} twice");
                    is_wanted = send(block);
                }
                Ok(Message::Done(blocks)) => served.done += blocks,
                // Nobody has the table any more.
                Err(_) => break,
            }
        }
        match self.fails_after {
            Some(_) => sender.fail("the buffers are on fire"),
            None => sender.finish(),
        }
        served
    }
}
