//! Records of a fixed width, sorted by a number in them: stable, in one pass if they fit in memory, otherwise in
//! two.
//!
//! ```text
//! input ─► sample ─► splitters
//!   │                   │
//!   └─► read, partition ┴─► in memory, or a temporary file ─► gather, sort, write ─► output
//!       a chunk at a time,   chunk 0 │ b0 │ b1 │ b2 │         b0 of all chunks, in a
//!       by any thread        chunk 1 │ b0 │ b1 │ b2 │         core's own cache; then b1
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `layout` | [`RecordLayout`], [`Order`] |
//! | `records` | what is done with records of a width and a type of key: the kernels' door |
//! | `radix` | records in the cache, sorted |
//! | `splitters` | which bucket a key belongs to |
//! | `sample` | where splitters come from: small reads all over the input |
//! | `partition` | the race that reads: chunks, each in the order of buckets |
//! | `gather` | the race that writes: the pieces of each bucket, sorted |
//! | `sizes` | how memory is shared out |
//! | `device` | the same on a GPU: an array in its memory, a sweep for each digit |
//! | [`table`] | tables of Arrow files, sorted by columns |
//!
//! Space for the output, and for as many bytes of temporary files if they are needed, is reserved before the input
//! is read: a full disk is an error at the beginning. Temporary files have no names, so the process leaves nothing
//! behind however it ends.
//!
//! A bucket's records are gathered from all chunks in input order and sorted by digits, so equal keys keep the
//! order of the input on every processor. A key that dominates the input has its own bucket, which is copied; a
//! bucket that is too large for memory is partitioned again.
//!
//! There is no merge, and no bucket's size must be known beforehand. How many buckets are read at once is decided
//! when their sizes are known. Splitters are looked up in a table by a key's leading bits and searched only where
//! keys crowd. On a GPU a chunk's keys are no more than counted on its way in.

mod device;
mod gather;
mod host;
mod layout;
mod partition;
mod radix;
mod records;
mod sample;
mod sizes;
mod splitters;
pub mod table;
mod work;

use std::time::Instant;

use headrace_io::decimal_bytes;

pub use layout::{Order, RECORD_BYTES_MAX, RecordLayout};
pub use work::SortJob;

use crate::room::on_threads;
use crate::{OocError, Options, Processor, Report, Result, Room};
use work::Work;

/// Sorts a file of records. Every byte of a record is preserved.
///
/// # Errors
/// [`OocError::Usage`] for an invalid layout; [`OocError::Input`] for a file that is not a whole number of records;
/// [`OocError::Memory`] if a limit is too small; errors of files and races. None leaves an output or a temporary file.
pub fn sort(job: &SortJob, options: &Options) -> Result<Report> {
    let started = Instant::now();
    job.layout.check()?;
    let input = options.files.open(&job.input)?;
    let (bytes, record_bytes) = (input.size_bytes(), job.layout.record_bytes as u64);
    if !bytes.is_multiple_of(record_bytes) {
        let (whole, rest) = (bytes / record_bytes, bytes % record_bytes);
        let what = format!(
            "{bytes} bytes are {whole} records of {record_bytes} bytes and {rest} bytes more"
        );
        return Err(OocError::input(&job.input, what, "name the width that its records have"));
    }
    let room = Room::new(options, why_cores(bytes).as_deref())?;
    let records = records::of_layout(&job.layout, job.order);
    let output = options.files.create(&job.output, bytes)?;
    let mut work = Work {
        job,
        options,
        room: &room,
        records: &*records,
        input,
        output,
        started,
        planned_ns: None,
        passes: Vec::new(),
        temporary_bytes: 0,
        reads_temporary: false,
        notes: Vec::new(),
    };
    work.check_cancelled()?;
    let why_not_cuda = if bytes > 0 { work.sort()? } else { None };
    work.output.commit(options.sync)?;
    let mut report = work.report(bytes);
    if why_not_cuda.is_some() {
        (report.ran_on, report.why_not_cuda) = (on_threads(room.threads), why_not_cuda);
    }
    Ok(report)
}

/// Bytes below which the CPU is done before a GPU has its kernels.
const DEVICE_BYTES_MIN: u64 = 1 << 30;

fn why_cores(bytes: u64) -> Option<String> {
    let least = decimal_bytes(DEVICE_BYTES_MIN);
    (bytes < DEVICE_BYTES_MIN).then(|| format!("less than {least} is sorted sooner on the cores"))
}

impl Work<'_> {
    /// Sorts on the faster processor; returns the reason if an available GPU is not used.
    fn sort(&mut self) -> Result<Option<String>> {
        let Some(device) = &self.room.device else {
            host::sort(self)?;
            return Ok(None);
        };
        let device = device::OnDevice::new(self, device)?;
        let (bytes, capacity_bytes) = (self.input.size_bytes(), device.capacity_bytes());
        if self.options.processor == Processor::Auto && bytes > capacity_bytes {
            host::sort(self)?;
            let capacity = decimal_bytes(capacity_bytes);
            return Ok(Some(format!("the GPU has room for {capacity} of records")));
        }
        device.sort(self)?;
        Ok(None)
    }

    fn report(self, bytes: u64) -> Report {
        let mut notes = self.notes.clone();
        if self.temporary_bytes > 0 {
            let folder = self.temporary_folder();
            notes.push(format!("temporary files were in {}", folder.display()));
        }
        Report {
            input_bytes: bytes,
            output_bytes: bytes,
            wall_ns: self.started.elapsed().as_nanos() as u64,
            plan_ns: self.planned_ns.unwrap_or(0),
            temporary_bytes: self.temporary_bytes,
            notes,
            ..self.room.report(self.passes)
        }
    }
}
