//! Sorted edges as compressed sparse rows: a race that appends columns, and counts those of each row.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use headrace_flow::{
    BoxError, ChunkSpec, FedChunk, HostProducer, Outbox, Race, RaceOptions, ReadSpec, Verdict,
};
use headrace_io::MemoryUse;
use headrace_io::write::WriteAt;

use super::fill::on_cores;
use crate::files::write_all;
use crate::{NumberType, Options, Report, Result, npy};

/// Edges of a chunk.
const CHUNK_KEYS: u64 = 1 << 20;

/// Chunks that are being read.
const SLOTS: usize = 4;

/// Values that are written at once.
const BLOCK: usize = 1 << 17;

/// The rows to write.
pub(super) struct Rows<'a> {
    /// Folder of the matrix.
    pub folder: &'a Path,
    pub rows: u64,
    /// Whether equal edges stay.
    pub keeps_repeats: bool,
}

/// Writes the matrix of a file of sorted keys: rows in their upper halves, columns in their lower ones. Returns the
/// number of entries.
pub(super) fn write_rows(rows: &Rows<'_>, keys: &Path, options: &Options) -> Result<(u64, Report)> {
    let start = Instant::now();
    let room = on_cores(options)?;
    let file = options.files.open(keys)?;
    let count = file.size_bytes() / 8;
    let windows = room.threads + 2;
    // A column takes half of a key's bytes, and a chunk sends what is left of a header before them.
    let window_bytes = CHUNK_KEYS as usize * 4 + (64 << 10);
    let _windows = room.memory.reserve(MemoryUse::Slots, (windows * window_bytes) as u64)?;
    let _lengths = room.memory.reserve(MemoryUse::Operators, rows.rows * 8)?;
    let lengths: Vec<AtomicU64> = (0..rows.rows).map(|_| AtomicU64::new(0)).collect();
    let columns = if rows.rows <= 1 << 31 { NumberType::I32 } else { NumberType::U32 };
    // As long as it will be with the true number.
    let header_bytes = npy::header(columns, &[count]).len();
    // The key before a chunk's first says whether that is a repeated one.
    let chunk = |chunk: u64| {
        let (first, end) = (chunk * CHUNK_KEYS, ((chunk + 1) * CHUNK_KEYS).min(count));
        let before = first.saturating_sub(1);
        ChunkSpec {
            reads: vec![ReadSpec { file: 0, offset: before * 8, bytes: (end - before) * 8 }],
        }
    };
    let chunks = (0..count.div_ceil(CHUNK_KEYS).max(1)).map(chunk).collect();
    let race_options = RaceOptions {
        slots: SLOTS,
        memory: Some(room.memory.clone()),
        output_slots: windows,
        output_slot_bytes: window_bytes,
        ..options.race()
    };
    let sink = options.files.growing(&rows.folder.join("indices.npy"))?;
    let race = Race::new(vec![file], chunks, race_options, options.token.clone())?
        .with_appended(vec![sink.clone()]);
    let (lengths, keeps_repeats) = (&lengths, rows.keeps_repeats);
    let thread = |_| Splitter { lengths, keeps_repeats, header_bytes };
    let (_, race) = race.run_host_writing((0..room.threads).map(thread).collect())?;
    let entries: u64 = lengths.iter().map(|length| length.load(Ordering::Relaxed)).sum();
    let header = npy::header(columns, &[entries]);
    assert_eq!(header.len(), header_bytes, "room for the header");
    write_all(&*sink, 0, &header)?;
    sink.commit(options.sync)?;
    let shape = [npy::header(NumberType::I64, &[2]), [rows.rows; 2].map(u64::to_le_bytes).concat()]
        .concat();
    let shape_sink = options.files.create(&rows.folder.join("shape.npy"), shape.len() as u64)?;
    write_all(&*shape_sink, 0, &shape)?;
    shape_sink.commit(options.sync)?;
    let indptr_bytes = write_indptr(rows, lengths, entries, options)?;
    let mut report = room.report(vec![("rows", race)]);
    report.output_bytes = sink.size_bytes() + shape_sink.size_bytes() + indptr_bytes;
    report.wall_ns = start.elapsed().as_nanos() as u64;
    Ok((entries, report))
}

/// Where each row begins. Returns the bytes of the file.
fn write_indptr(
    rows: &Rows<'_>,
    lengths: &[AtomicU64],
    entries: u64,
    options: &Options,
) -> Result<u64> {
    let number = if entries <= i32::MAX as u64 { NumberType::I32 } else { NumberType::I64 };
    let header = npy::header(number, &[rows.rows + 1]);
    let bytes = header.len() as u64 + (rows.rows + 1) * number.bytes() as u64;
    let sink = options.files.create(&rows.folder.join("indptr.npy"), bytes)?;
    let put = |block: &mut Vec<u8>, value: u64| {
        block.extend_from_slice(&value.to_le_bytes()[..number.bytes()])
    };
    let (mut block, mut offset, mut total) = (header, 0, 0);
    put(&mut block, 0);
    for lengths in lengths.chunks(BLOCK) {
        for length in lengths {
            total += length.load(Ordering::Relaxed);
            put(&mut block, total);
        }
        write_block(&*sink, &mut offset, &mut block)?;
    }
    write_block(&*sink, &mut offset, &mut block)?;
    sink.commit(options.sync)?;
    Ok(bytes)
}

fn write_block(sink: &dyn WriteAt, offset: &mut u64, block: &mut Vec<u8>) -> Result<()> {
    write_all(sink, *offset, block)?;
    *offset += block.len() as u64;
    block.clear();
    Ok(())
}

/// Makes columns of keys on a thread.
struct Splitter<'a> {
    lengths: &'a [AtomicU64],
    keeps_repeats: bool,
    header_bytes: usize,
}

impl HostProducer for Splitter<'_> {
    fn produce(
        &mut self,
        chunk: &FedChunk,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> std::result::Result<Verdict, BoxError> {
        let keys = buffers[0].as_chunks::<8>().0.iter().map(|key| u64::from_le_bytes(*key));
        let (mut last, skipped, head) = match chunk.number {
            0 => (None, 0, self.header_bytes),
            _ => (keys.clone().next(), 1, 0),
        };
        let mut window = outbox.append(0, head + buffers[0].len() / 2)?;
        // The header is written when the number of columns is known.
        window[..head].fill(0);
        let (mut bytes, mut run) = (head, (0, 0));
        for key in keys.skip(skipped) {
            if last.replace(key) == Some(key) && !self.keeps_repeats {
                continue;
            }
            let row = key >> 32;
            if row != run.0 {
                self.count(run);
                run = (row, 0);
            }
            run.1 += 1;
            window[bytes..bytes + 4].copy_from_slice(&(key as u32).to_le_bytes());
            bytes += 4;
        }
        self.count(run);
        window.send_first(bytes);
        Ok(Verdict::Continue)
    }
}

impl Splitter<'_> {
    /// Counts some entries of a row.
    fn count(&self, (row, entries): (u64, u64)) {
        if entries > 0 {
            self.lengths[row as usize].fetch_add(entries, Ordering::Relaxed);
        }
    }
}
