//! An out-of-core operator on two inputs: what `flow` needs to know of it is in `operator.rs`, once for the
//! processor and once for a GPU. The rest is which bytes are a chunk.
//!
//!     cargo run --release -p headrace-flow --example intersect -- A B OUT [gpu]
//!
//! A and B hold sorted `i64` without duplicates, OUT gets those of both.

mod operator;
mod schedule;

use std::sync::Arc;

use headrace_flow::{BoxError, CancelToken, CudaSlots, Race, RaceOptions};
use headrace_gpu::{Device, DevicePool};
use headrace_io::write::SinkFile;
use headrace_io::{ReadAt, SourceFile};

use operator::{OnGpu, OnHost};

const CHUNK_BYTES: usize = 4 << 20;
const SLOTS: usize = 6;

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (a, b, out, on_gpu) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [a, b, out] => (a, b, out, false),
        [a, b, out, "gpu"] => (a, b, out, true),
        _ => return Err("usage: intersect A B OUT [gpu]".into()),
    };
    let files: Vec<Arc<dyn ReadAt>> = vec![SourceFile::open(a)?, SourceFile::open(b)?];
    let chunks = schedule::chunks(&files, CHUNK_BYTES as u64)?;
    let sink = SinkFile::growing(out)?;
    let options =
        RaceOptions { output_slot_bytes: CHUNK_BYTES + (64 << 10), ..RaceOptions::default() };
    let race =
        Race::new(files, chunks, options, CancelToken::new())?.with_appended(vec![sink.clone()]);
    let report = if on_gpu {
        let (pool, slot_bytes) =
            (DevicePool::new(&Device::open(0)?, 4 << 30), 2 * CHUNK_BYTES + (64 << 10));
        let mut slots = CudaSlots::new(&pool, SLOTS, slot_bytes)?;
        race.run_device(&mut slots.lane(OnGpu::new(&pool, SLOTS, slot_bytes)?))?
    } else {
        let threads = std::thread::available_parallelism()?.get();
        race.run_host_writing((0..threads).map(|_| OnHost).collect())?.1
    };
    sink.commit(false)?;
    let (keys, rate) = (report.appended_bytes[0] / operator::KEY_BYTES as u64, report.gb_per_s());
    println!("{keys} keys in both; {rate:.2} GB/s of input");
    Ok(())
}
