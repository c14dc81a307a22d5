//! A table whose segments no device decodes, as batches that the cores decode.
//!
//! ```text
//! table ──feed──► a race on the cores: read, decode ──► queue ──BatchTable──► the race that feeds the GPUs
//! ```
//!
//! Nothing is decoded before a device asks for the first chunk, and no more than the queue holds is decoded ahead.

use std::sync::Arc;
use std::task::{Poll, Waker};

use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use headrace_flow::{BoxError, CancelToken, HostConsumer, Race, RaceOptions, Verdict};
use headrace_format::batches::{
    BatchReceiver, BatchSender, BatchStream, BatchTable, ProducerError, batch_channel,
};
use headrace_format::{ChunkOptions, ColumnBound, Encoded, Feed, SegmentDecoder};
use headrace_io::{ChunkFeed, FedChunk};
use headrace_ir::Chunk;

use crate::error::RunError;
use crate::table::StreamTable;

/// Batches that wait for a device, for each thread.
const BATCHES_A_THREAD: usize = 4;
/// Texts of a dictionary at most that go along as codes: each batch looks them up.
const TEXTS_MAX: usize = 4096;

/// How the cores decode.
pub struct How {
    /// Threads.
    pub threads: usize,
    /// How they read.
    pub options: RaceOptions,
    /// Ends it early.
    pub token: CancelToken,
}

/// Columns of a table as batches that are made when they are asked for; `None`: there is nothing to decode.
pub fn batches_of(
    table: &StreamTable,
    ordinals: &[usize],
    conditions: &[ColumnBound],
    how: How,
) -> Result<Option<BatchTable>, RunError> {
    let (name, table) = (table.name(), table.source());
    let decoders = (0..how.threads).map(|_| Arc::clone(table).segment_decoder(ordinals));
    let decoders = decoders.collect::<Result<Option<Vec<_>>, _>>()?;
    let Some(decoders) = decoders else { return Ok(None) };
    let options = ChunkOptions { readers: how.threads as u64, ..ChunkOptions::default() };
    let feed = Arc::clone(table).feed(ordinals, conditions, options)?;
    let few = |texts: &&Arc<StringArray>| texts.len() <= TEXTS_MAX;
    let texts: Vec<_> =
        ordinals.iter().map(|&column| table.dictionary(column).filter(few).cloned()).collect();
    let fields = ordinals.iter().zip(&texts).map(|(&column, texts)| {
        let field = table.schema().field(column);
        let data_type = if texts.is_some() { code_type() } else { plain_type(field.data_type()) };
        Field::new(field.name(), data_type, field.is_nullable())
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let producer = |decoder| Producer { decoder, schema: Arc::clone(&schema), sender: None };
    let producers = decoders.into_iter().map(producer).collect();
    let work = Work { feed, producers, options: how.options, token: how.token };
    let mut batches = BatchTable::new(name, &schema, Decoding::Waiting(Some(work)));
    if let Some(rows_max) = table.rows() {
        batches = batches.with_rows_max(rows_max);
    }
    for (column, texts) in texts.into_iter().enumerate() {
        if let Some(texts) = texts {
            batches = batches.with_dictionary(column, texts)?;
        }
    }
    Ok(Some(batches))
}

fn code_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// Views are for the planner alone.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::Dictionary(..) => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

/// What is decoded, and how.
struct Work {
    feed: Box<dyn Feed>,
    producers: Vec<Producer>,
    options: RaceOptions,
    token: CancelToken,
}

impl Work {
    /// Decodes everything, unless the reader has enough.
    fn run(self, sender: BatchSender) {
        let sender = Arc::new(sender);
        let mut producers = self.producers;
        producers.iter_mut().for_each(|producer| producer.sender = Some(Arc::clone(&sender)));
        let bounds = self.feed.facts().bounds;
        let feed: Box<dyn ChunkFeed<Chunk>> = self.feed;
        let race = Race::fed(feed, bounds, self.options, self.token);
        let ran = race.run_host(producers).map(drop);
        // The producers, which had the others, are gone.
        if let Some(sender) = Arc::into_inner(sender) {
            match ran {
                Ok(()) => sender.finish(),
                Err(error) => sender.fail(error),
            }
        }
    }
}

/// Batches as a device asks for them.
enum Decoding {
    Waiting(Option<Work>),
    Running(BatchReceiver),
}

impl BatchStream for Decoding {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>> {
        if let Self::Waiting(work) = self {
            let Some(work) = work.take() else { return Poll::Ready(None) };
            let (sender, receiver) = batch_channel(work.producers.len() * BATCHES_A_THREAD);
            let body = move || {
                headrace_io::block_signals();
                work.run(sender);
            };
            if let Err(error) =
                std::thread::Builder::new().name("headrace-decode".into()).spawn(body)
            {
                return Poll::Ready(Some(Err(error.into())));
            }
            *self = Self::Running(receiver);
        }
        match self {
            Self::Running(receiver) => receiver.poll_next(waker),
            Self::Waiting(_) => Poll::Ready(None),
        }
    }
}

/// Decodes chunks on a core.
struct Producer {
    decoder: Box<dyn SegmentDecoder>,
    /// What batches are to be: files may have a column in different ways.
    schema: SchemaRef,
    sender: Option<Arc<BatchSender>>,
}

impl Producer {
    fn send(&self, batch: &RecordBatch) -> Result<Verdict, BoxError> {
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns =
            columns.map(|(column, field)| match column.data_type() == field.data_type() {
                true => Ok(Arc::clone(column)),
                false => cast(column, field.data_type()),
            });
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        let is_wanted = self.sender.as_ref().is_some_and(|sender| sender.send(batch));
        Ok(if is_wanted { Verdict::Continue } else { Verdict::Enough })
    }
}

impl HostConsumer<Chunk> for Producer {
    fn consume(&mut self, chunk: &FedChunk<Chunk>, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        let mut left = buffers;
        for segment in &chunk.payload.segments {
            let (buffers, behind) = left.split_at(segment.extents().count().min(left.len()));
            left = behind;
            let mut encoded = Encoded { segment, buffers, taken: 0 };
            while let Some(batch) = self.decoder.next_batch(&mut encoded)? {
                if self.send(&batch)? == Verdict::Enough {
                    return Ok(Verdict::Enough);
                }
            }
        }
        let rest = self.decoder.rest()?;
        rest.map_or(Ok(Verdict::Continue), |batch| self.send(&batch))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;

    use arrow_array::{Decimal128Array, Int32Array};
    use headrace_format::Table;
    use headrace_format::parquet::{ParquetFile, ParquetTable};
    use headrace_io::SourceFile;
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaDataReader;

    use super::*;

    const GROUPS: i32 = 20;
    const GROUP_ROWS: i32 = 1000;

    /// Row groups of numbers, of few texts, and of decimals.
    fn table() -> (tempfile::TempDir, StreamTable) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let batch = |group: i32| {
            let rows = || group * GROUP_ROWS..(group + 1) * GROUP_ROWS;
            let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(rows()));
            let text = |row: i32| (row % 7 > 0).then(|| format!("text {}", row % 3));
            let texts: ArrayRef = Arc::new(StringArray::from_iter(rows().map(text)));
            let decimals = Decimal128Array::from_iter_values(rows().map(|row| i128::from(-row)));
            let decimals: ArrayRef = Arc::new(decimals.with_precision_and_scale(9, 2).unwrap());
            RecordBatch::try_from_iter([("n", numbers), ("t", texts), ("d", decimals)]).unwrap()
        };
        let schema = batch(0).schema();
        let mut writer =
            ArrowWriter::try_new(File::create(&path).unwrap(), Arc::clone(&schema), None).unwrap();
        for group in 0..GROUPS {
            writer.write(&batch(group)).unwrap();
            writer.flush().unwrap();
        }
        writer.close().unwrap();
        let mut reader = ParquetMetaDataReader::new();
        reader.try_parse(&File::open(&path).unwrap()).unwrap();
        let columns = schema.fields().iter().map(|field| field.data_type().clone()).enumerate();
        let file = ParquetFile {
            source: SourceFile::open(&path).unwrap(),
            metadata: Arc::new(reader.finish().unwrap()),
            columns: columns.collect(),
            texts: Arc::default(),
        };
        let table = ParquetTable::new(schema, vec![file]).unwrap();
        (folder, StreamTable::new("t", Arc::new(table)))
    }

    fn batches(table: &StreamTable, conditions: &[ColumnBound]) -> Arc<dyn Table> {
        let (options, token) = (RaceOptions::default(), CancelToken::new());
        let how = How { threads: 3, options, token };
        Arc::new(batches_of(table, &[2, 1, 0], conditions, how).unwrap().unwrap())
    }

    /// Rows and bytes of the chunks that come, at most so many.
    fn read(table: Arc<dyn Table>, chunks_max: usize) -> (u64, u64) {
        let mut feed = table.feed(&[0, 1, 2], &[], ChunkOptions::default()).unwrap();
        for _ in 0..chunks_max {
            // Other threads decode meanwhile.
            let next = loop {
                match feed.poll_next(Waker::noop()) {
                    Poll::Ready(next) => break next,
                    Poll::Pending => std::thread::yield_now(),
                }
            };
            match next {
                Some(chunk) => drop(chunk.unwrap()),
                None => break,
            }
        }
        (feed.totals().rows, feed.totals().bytes)
    }

    #[test]
    fn batches_have_all_rows_as_a_device_takes_them() {
        let (_folder, table) = table();
        let all = batches(&table, &[]);
        assert_eq!(all.dictionary(1).unwrap().len(), 3);
        assert_eq!(all.schema().field(0).data_type(), &DataType::Decimal128(9, 2));
        let rows = (GROUPS * GROUP_ROWS) as u64;
        let (read_rows, bytes) = read(all, usize::MAX);
        // Of each row 16 bytes, a code and a number; whether there is a text.
        assert_eq!((read_rows, bytes), (rows, rows * 24 + rows / 8));
        let some = ColumnBound { column: 0, min: Some(1500), max: Some(2500) };
        assert_eq!(read(batches(&table, &[some]), usize::MAX).0, 2 * GROUP_ROWS as u64);
    }

    #[test]
    fn a_reader_that_has_enough_ends_the_decoding() {
        let (_folder, table) = table();
        let threads = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let names = tasks
                .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
            names.filter(|name| name.trim() == "headrace-decode").count()
        };
        for _ in 0..20 {
            assert!(read(batches(&table, &[]), 1).0 > 0);
        }
        let started = std::time::Instant::now();
        while threads() > 0 {
            assert!(started.elapsed().as_secs() < 60, "threads that still decode");
            std::thread::yield_now();
        }
    }
}
