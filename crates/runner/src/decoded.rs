//! A table whose segments no device decodes, as batches that the cores decode.
//!
//! ```text
//! table ──feed──► a race on the cores: read, decode ──► queue ──BatchTable──► the race that feeds the GPUs
//! ```
//!
//! Nothing is decoded before a device asks for the first chunk, and no more than the queue holds is decoded ahead.

use std::sync::Arc;
use std::task::{Poll, Waker};

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use headrace_flow::{BoxError, CancelToken, HostConsumer, Race, RaceOptions, Verdict};
use headrace_format::batches::{
    BatchReceiver, BatchSender, BatchStream, BatchTable, ProducerError, batch_channel,
};
use headrace_format::{ChunkOptions, Encoded, Feed, FormatError, SegmentDecoder};
use headrace_io::{ChunkFeed, FedChunk};
use headrace_ir::{Chunk, Pipeline};

use crate::chunks::conditions;
use crate::error::RunError;
use crate::table::StreamTable;
use crate::task::Task;

/// Batches that wait for a device, for each thread.
const BATCHES_A_THREAD: usize = 4;
/// Texts of a dictionary at most that go along as codes: each batch looks them up.
const TEXTS_MAX: usize = 4096;

/// A task's table as batches of the columns that it reads, with the pipeline over these; `None`: a device takes the
/// table's segments as they are.
pub fn decoded(task: &Task<'_>) -> Result<Option<(StreamTable, Pipeline)>, RunError> {
    let (table, ordinals) = (task.table.source(), &task.pipeline.source.ordinals);
    let decoder = || Arc::clone(table).segment_decoder(ordinals);
    if Arc::clone(table).page_source(ordinals)?.is_some() || decoder()?.is_none() {
        return Ok(None);
    }
    let options = ChunkOptions { readers: task.threads as u64, ..ChunkOptions::default() };
    let feed = Arc::clone(table).feed(ordinals, &conditions(task), options)?;
    let texts: Vec<_> = ordinals
        .iter()
        .map(|&column| table.dictionary(column).filter(|texts| texts.len() <= TEXTS_MAX).cloned())
        .collect();
    let code_type = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let fields = ordinals.iter().zip(&texts).map(|(&column, texts)| {
        let field = table.schema().field(column);
        let data_type = if texts.is_some() { code_type() } else { plain_type(field.data_type()) };
        Field::new(field.name(), data_type, field.is_nullable())
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let producers = (0..task.threads.max(1)).map(|_| {
        let decoder = decoder()?.ok_or_else(|| FormatError::Argument("no decoder".to_string()))?;
        Ok::<_, RunError>(Producer { decoder, schema: Arc::clone(&schema), sender: None })
    });
    let work = Work {
        feed,
        producers: producers.collect::<Result<_, _>>()?,
        options: task.runner.race_options(task.settings, table.policy()),
        token: task.token.clone(),
    };
    let rows_max = table.rows();
    let mut batches = BatchTable::new(task.table.name(), &schema, Decoding::Waiting(Some(work)));
    if let Some(rows_max) = rows_max {
        batches = batches.with_rows_max(rows_max);
    }
    for (column, texts) in texts.into_iter().enumerate() {
        if let Some(texts) = texts {
            batches = batches.with_dictionary(column, texts)?;
        }
    }
    let mut pipeline = task.pipeline.clone();
    pipeline.source.ordinals = (0..ordinals.len()).collect();
    Ok(Some((StreamTable::new(task.table.name(), Arc::new(batches)), pipeline)))
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
