//! A sort on the CPU: one pass if all records fit in memory, otherwise two.

use headrace_flow::ReadSpec;

use super::gather::Units;
use super::partition::Partitioned;
use super::sizes::Sizes;
use super::work::Work;
use crate::room::on_threads;
use crate::{OocError, Result};

/// Sorts the non-empty input into the output.
pub(super) fn sort(work: &mut Work<'_>) -> Result<()> {
    let bytes = work.input.size_bytes();
    let (limit_bytes, threads) = (work.room.memory.limit_bytes(), work.room.threads);
    let chunk_bytes = work.options.chunk_bytes;
    let one_pass = Sizes::of_one_pass(work.records, bytes, limit_bytes, threads, chunk_bytes);
    if let Some(sizes) = one_pass {
        if sort_by(work, &sizes, true)? {
            return Ok(());
        }
        work.notes
            .push("the sample did not show a bucket that memory is too small for".to_string());
    }
    let sizes = Sizes::of_two_passes(work.records, bytes, limit_bytes, threads, chunk_bytes);
    if sizes.threads < threads {
        let threads = on_threads(sizes.threads);
        work.notes.push(format!("on {threads}: memory is too small for more"));
    }
    if sort_by(work, &sizes, false)? {
        return Ok(());
    }
    Err(OocError::Memory {
        what: format!("sorting {}", work.input.path().display()),
        memory: "host memory",
        wanted_bytes: 2 * limit_bytes,
        limit_bytes,
        remedy: "raise the limit of memory".to_string(),
    })
}

/// `false` if memory is too small for a bucket.
fn sort_by(work: &mut Work<'_>, sizes: &Sizes, in_memory: bool) -> Result<bool> {
    let input = work.input.clone();
    let all = ReadSpec { file: 0, offset: 0, bytes: input.size_bytes() };
    let partitioned = Partitioned::of_extents(work, &[input], &[all], sizes, in_memory)?;
    let mut units = Units::default();
    units.add(work, partitioned, sizes)?;
    units.write(work, sizes)
}
