//! Sorts a file and says what it took:
//!
//!     cargo run --release -p headrace-ooc --example sort -- IN OUT KEY [record=BYTES] [offset=BYTES]
//!         [memory=BYTES] [threads=N] [order=descending] [processor=cpu|cuda] [direct]
//!
//! `generate OUT KEYS` writes random `i64`.

use std::io::Write;

use headrace_flow::{AccessPath, BoxError, WriteAccess};
use headrace_ooc::Options;
use headrace_ooc::sort::{Order, RecordLayout, SortJob, sort};

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["generate", out, keys] => generate(out, keys.parse()?),
        [input, output, key, ..] => run(input, output, key, &arguments[3..]),
        _ => Err("usage: sort IN OUT KEY [NAME=VALUE]... | sort generate OUT KEYS".into()),
    }
}

fn run(input: &str, output: &str, key: &str, settings: &[String]) -> Result<(), BoxError> {
    let mut job = SortJob {
        input: input.into(),
        output: output.into(),
        layout: RecordLayout::keys(key.parse()?),
        order: Order::Ascending,
        temporary_folder: None,
        temporary_limit_bytes: None,
    };
    let mut options = Options::default();
    for setting in settings {
        match setting.split_once('=') {
            Some(("record", bytes)) => job.layout.record_bytes = bytes.parse()?,
            Some(("offset", bytes)) => job.layout.key_offset = bytes.parse()?,
            Some(("memory", bytes)) => options.memory_limit_bytes = Some(bytes.parse()?),
            Some(("device_memory", bytes)) => options.device_limit_bytes = Some(bytes.parse()?),
            Some(("threads", threads)) => options.threads = Some(threads.parse()?),
            Some(("chunk", bytes)) => options.chunk_bytes = Some(bytes.parse()?),
            Some(("slots", slots)) => options.slots = Some(slots.parse()?),
            Some(("order", order)) => job.order = order.parse()?,
            Some(("processor", processor)) => options.processor = processor.parse()?,
            Some(("temporary", folder)) => job.temporary_folder = Some(folder.into()),
            None if setting == "direct" => {
                (options.access, options.write_access) = (AccessPath::Direct, WriteAccess::Direct);
            }
            _ => return Err(format!("{setting:?} is no setting").into()),
        }
    }
    let report = sort(&job, &options)?;
    report.lines().iter().for_each(|line| println!("{line}"));
    for pass in &report.passes {
        let ms = |ns: u64| ns as f64 / 1e6;
        let race = &pass.race;
        println!(
            "  {}: {:.0} ms; threads {}: work {:.0} ms, wait {:.0} ms, wait for windows {:.0} ms; \
             reads {:.0} ms, writes {:.0} ms",
            pass.name,
            ms(race.wall_ns),
            race.consumers,
            ms(race.execute_busy_ns),
            ms(race.execute_wait_ns),
            ms(race.write_wait_ns),
            ms(race.read_busy_ns),
            ms(race.write_busy_ns),
        );
    }
    let rate = report.input_bytes as f64 / job.layout.record_bytes as f64 / report.wall_ns as f64;
    println!("{:.1} M records/s, planned in {:.1} ms", rate * 1e3, report.plan_ns as f64 / 1e6);
    Ok(())
}

fn generate(out: &str, keys: u64) -> Result<(), BoxError> {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(out)?);
    let mut state = 0u64;
    for _ in 0..keys {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        file.write_all(&(mixed ^ (mixed >> 31)).to_le_bytes())?;
    }
    Ok(file.flush()?)
}
