//! `headrace model`: how long a scan should take on a measured or imagined machine. A thin door
//! over `headrace_ceilings::model`.

use std::fmt::Write;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use headrace_ceilings::Ceilings;
use headrace_ceilings::StoreKey;
use headrace_ceilings::model::{
    Decode, FigureSource, Gpu, Machine, ParseError, Placement, Prediction, Scan, StorageDevice,
    Target, Topology, known_gpus, known_nics, known_ssds, parse_gb_per_s, parse_gpus,
    parse_link_gb_per_s, parse_storage, pcie_gb_per_s, predict,
};
use serde::Serialize;

use crate::error::{CliError, Context, Result};
use crate::output;
use crate::sizes::parse_bytes;

/// `model`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace model --bytes 100GB --storage '4x 3.5GB/s' --gpu h200 --link pcie5x16
  headrace model --bytes 10TB --storage '24x pm1733' --topology 'shared:2x 28GB/s' --gpu '4x a100'
  headrace doctor ./tables && headrace model ./tables --selectivity 0.02
  headrace model --known

What is not stated is taken from the record of this machine's ceilings, which doctor and bench
keep. Speeds: GB/s with GB = 10^9 bytes. Shares are between 0 and 1.")]
pub struct ModelArgs {
    /// Files or folders to scan: their size and their storage's measured ceilings count.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// As PATH: a folder of tables.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Bytes of the table, uncompressed, such as 100GB.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub bytes: Option<u64>,
    /// Storage: '3.5GB/s', '4x 3.5GB/s', or drives known by name ('24x pm1733').
    #[arg(long, value_name = "DEVICES", value_parser = storage)]
    pub storage: Option<Devices>,
    /// GPUs by name: h200, '2x a100'.
    #[arg(long, value_name = "GPUS", value_parser = gpus)]
    pub gpu: Option<Gpus>,
    /// Link of each GPU: pcie5x16, or a rate such as 55.5GB/s.
    #[arg(long, value_name = "LINK", value_parser = parse_link_gb_per_s)]
    pub link: Option<f64>,
    /// What the devices share: direct, 'shared:28GB/s', 'shared:2x 28GB/s', 'local:12.5GB/s'.
    #[arg(long, value_name = "T")]
    pub topology: Option<Topology>,
    /// How the table lies on the devices: striped, even or proportional.
    #[arg(long, value_name = "P")]
    pub placement: Option<Placement>,
    /// What the links to all GPUs carry together.
    #[arg(long, value_name = "RATE", value_parser = parse_gb_per_s)]
    pub all_links: Option<f64>,
    /// Copies out of the page cache.
    #[arg(long, value_name = "RATE", value_parser = parse_gb_per_s)]
    pub page_cache_rate: Option<f64>,
    /// Host memory, read and written bytes together.
    #[arg(long, value_name = "RATE", value_parser = parse_gb_per_s)]
    pub host_memory: Option<f64>,
    /// Work of all CPU cores, where the host is the target.
    #[arg(long, value_name = "RATE", value_parser = parse_gb_per_s)]
    pub cpu: Option<f64>,
    /// Decompression by the CPU, before the link; without it whoever works on a chunk decompresses.
    #[arg(long, value_name = "RATE", value_parser = parse_gb_per_s)]
    pub host_decode: Option<f64>,
    /// Where chunks are worked on (default: the GPU, if there is one).
    #[arg(long, value_enum)]
    pub to: Option<To>,

    /// Share of rows that survive the first filter.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    pub selectivity: f64,
    /// Share of the bytes in the columns that are needed.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    pub columns: f64,
    /// Share of the needed bytes that the first filter reads.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    pub first_filter: f64,
    /// Share of the needed bytes that statistics rule out.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub pruned: f64,
    /// Share that the page cache holds.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub page_cache: f64,
    /// Share that lies in memory registered with the GPU (tmpfs).
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub registered: f64,
    /// Share that is already in device memory.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub resident: f64,
    /// Uncompressed through stored bytes.
    #[arg(long, value_name = "RATIO", default_value_t = 1.0)]
    pub compression: f64,
    /// Bytes of the answer.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub result: Option<u64>,
    /// Bytes of a chunk.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub chunk: Option<u64>,
    /// Slots of the ring.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// Seconds before the first read.
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    pub startup: f64,

    /// List the drives, network cards and GPUs that are known by name.
    #[arg(long)]
    pub known: bool,
    /// The prediction as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Where chunks are worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum To {
    /// GPUs.
    Gpu,
    /// The cores of the host.
    Host,
}

/// Storage devices of one option.
#[derive(Debug, Clone)]
pub struct Devices(Vec<StorageDevice>);

/// GPUs of one option.
#[derive(Debug, Clone)]
pub struct Gpus(Vec<Gpu>);

fn storage(text: &str) -> std::result::Result<Devices, ParseError> {
    parse_storage(text).map(Devices)
}

fn gpus(text: &str) -> std::result::Result<Gpus, ParseError> {
    parse_gpus(text).map(Gpus)
}

fn share(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("{text:?} is no share; write a number between 0 and 1")),
    }
}

/// The prediction and its inputs.
#[derive(Debug, Serialize)]
struct Answer {
    version: u32,
    scan: Scan,
    machine: Machine,
    prediction: Prediction,
}

/// Predicts and prints.
pub fn run(args: &ModelArgs) -> Result<()> {
    if args.known {
        return output::print(&known());
    }
    let answer = answer(args)?;
    if args.json {
        output::print_json(&answer)
    } else {
        output::print(&answer.prediction.to_string())
    }
}

fn answer(args: &ModelArgs) -> Result<Answer> {
    let machine = machine(args)?;
    let scan = scan(args, &machine)?;
    let prediction = predict(&scan, &machine).map_err(CliError::carrying_hint)?;
    Ok(Answer { version: 1, scan, machine, prediction })
}

/// The paths from all options.
fn paths(args: &ModelArgs) -> impl Iterator<Item = &Path> {
    args.paths.iter().chain(&args.data).map(PathBuf::as_path)
}

fn scan(args: &ModelArgs, machine: &Machine) -> Result<Scan> {
    let bytes = match args.bytes {
        Some(bytes) => bytes,
        // What lies on storage is compressed, what is asked for is not.
        None => (stored_bytes(args)? as f64 * args.compression) as u64,
    };
    let target = match args.to {
        Some(To::Gpu) => Target::Gpu,
        Some(To::Host) => Target::Host,
        None if machine.gpus.is_empty() => Target::Host,
        None => Target::Gpu,
    };
    let plain = Scan::of_bytes(bytes, target);
    Ok(Scan {
        column_share: args.columns,
        pruned_share: args.pruned,
        compression_ratio: args.compression,
        decode: if args.host_decode.is_some() { Decode::Host } else { Decode::InPlace },
        page_cache_share: args.page_cache,
        registered_share: args.registered,
        device_share: args.resident,
        selectivity: args.selectivity,
        first_filter_share: args.first_filter,
        result_bytes: args.result.unwrap_or(0),
        chunk_bytes: args.chunk.unwrap_or(plain.chunk_bytes),
        slots: args.slots.unwrap_or(plain.slots),
        startup_s: args.startup,
        ..plain
    })
}

fn stored_bytes(args: &ModelArgs) -> Result<u64> {
    if paths(args).next().is_none() {
        return Err(CliError::usage("how many bytes?")
            .hint("--bytes 100GB, or name files: headrace model ./tables"));
    }
    paths(args).map(bytes_below).sum()
}

/// Bytes of a file, or of all files below a folder; links below it are not followed.
fn bytes_below(path: &Path) -> Result<u64> {
    let metadata = std::fs::metadata(path).at(path.display())?;
    if metadata.file_type().is_block_device() {
        // Its metadata say 0.
        let mut device = File::open(path).at(path.display())?;
        return device.seek(SeekFrom::End(0)).at(path.display());
    }
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut sum = 0;
    for entry in std::fs::read_dir(path).at(path.display())? {
        let entry = entry.at(path.display())?;
        let kind = entry.file_type().at(entry.path().display())?;
        if kind.is_dir() || kind.is_file() {
            sum += bytes_below(&entry.path())?;
        }
    }
    Ok(sum)
}

/// The stated ceilings, else the measured ones.
fn machine(args: &ModelArgs) -> Result<Machine> {
    let stated = args.storage.is_some() && args.gpu.is_some();
    let mut machine = if stated { Machine::default() } else { measured(args)? };
    if let Some(Devices(devices)) = &args.storage {
        machine.storage = devices.clone();
    }
    if let Some(Gpus(gpus)) = &args.gpu {
        machine.gpus = gpus.clone();
        machine.all_links_gb_per_s = None;
    }
    if let Some(link) = args.link {
        for gpu in &mut machine.gpus {
            gpu.h2d_gb_per_s = link;
            gpu.d2h_gb_per_s = Some(link);
        }
    }
    machine.topology = args.topology.unwrap_or(machine.topology);
    machine.placement = args.placement.unwrap_or(machine.placement);
    machine.all_links_gb_per_s = args.all_links.or(machine.all_links_gb_per_s);
    machine.page_cache_gb_per_s = args.page_cache_rate.or(machine.page_cache_gb_per_s);
    machine.host_memory_gb_per_s = args.host_memory.or(machine.host_memory_gb_per_s);
    machine.cpu_gb_per_s = args.cpu.or(machine.cpu_gb_per_s);
    machine.host_decode_gb_per_s = args.host_decode.or(machine.host_decode_gb_per_s);
    if args.cpu.is_some() {
        let cores = headrace_io::system::cores();
        machine.cpu_workers = u32::try_from(cores).unwrap_or(1);
    }
    Ok(machine)
}

/// The record of this machine: the storage of the first path, and the GPUs present.
fn measured(args: &ModelArgs) -> Result<Machine> {
    let ceilings = Ceilings::load().map_err(|error| {
        let text = error.to_string();
        let (cause, remedy) =
            text.split_once("\nhint: ").unwrap_or((text.as_str(), "measure anew"));
        CliError::new(cause)
            .hint(format!("{remedy}; or state what is missing: --storage 3.5GB/s --gpu h200"))
    })?;
    let store = match paths(args).next() {
        Some(path) => Some(StoreKey::of_path(path).at(path.display())?),
        None => None,
    };
    let addresses: Vec<String> = match args.gpu {
        Some(_) => Vec::new(),
        None => headrace_gpu::probe().devices.into_iter().map(|device| device.pcie_id).collect(),
    };
    Ok(Machine::measured(&ceilings, store.as_ref(), &addresses))
}

/// Lanes of a GPU's slot.
const GPU_LANES: u32 = 16;

/// The tables of known figures.
fn known() -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "GB/s with GB = 10^9 bytes; k IOPS: thousands of random reads of 4 KiB a second; d: data sheet, s: standard, \
         m: measured, r: rule of thumb"
    );
    let _ = writeln!(out, "\n{:<28} {:>8} {:>8} {:>8}", "storage", "read", "write", "k IOPS");
    for ssd in known_ssds() {
        let _ = writeln!(
            out,
            "{:<28} {:>8.1} {:>8.1} {:>8.0} {}",
            ssd.name,
            ssd.read_gb_per_s,
            ssd.write_gb_per_s,
            ssd.random_read_kiops,
            mark(ssd.source)
        );
    }
    let _ = writeln!(out, "\n{:<28} {:>8}", "network", "GB/s");
    for nic in known_nics() {
        let _ = writeln!(out, "{:<28} {:>8.1} {}", nic.name, nic.gb_per_s, mark(nic.source));
    }
    let _ = writeln!(out, "\n{:<28} {:>8} {:>8}", "gpu", "link", "memory");
    for gpu in known_gpus() {
        let _ = writeln!(
            out,
            "{:<28} {:>8.1} {:>8.0} {}",
            gpu.name,
            pcie_gb_per_s(gpu.link, GPU_LANES).0,
            gpu.memory_gb_per_s,
            mark(gpu.source)
        );
    }
    out
}

fn mark(source: FigureSource) -> &'static str {
    match source {
        FigureSource::VendorDatasheet => "d",
        FigureSource::Standard => "s",
        FigureSource::Measured => "m",
        FigureSource::RuleOfThumb => "r",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ModelArgs,
    }

    fn answer_of(words: &[&str]) -> Result<Answer> {
        let line = Line::try_parse_from(["model"].iter().chain(words)).unwrap();
        answer(&line.args)
    }

    #[test]
    fn a_stated_machine_is_bound_by_its_storage() {
        let found =
            answer_of(&["--bytes", "140GB", "--storage", "4x 3.5GB/s", "--gpu", "h200"]).unwrap();
        assert_eq!(found.machine.storage.len(), 4);
        assert!((found.prediction.steady_s - 10.0).abs() < 0.01, "{:?}", found.prediction);
        assert_eq!(found.prediction.bottleneck.to_string(), "storage read");
    }

    #[test]
    fn the_stated_link_counts() {
        let words =
            ["--bytes", "100GB", "--storage", "100GB/s", "--gpu", "h200", "--link", "25GB/s"];
        let found = answer_of(&words).unwrap();
        assert_eq!(found.prediction.bottleneck.to_string(), "copy to device");
        assert!(found.prediction.total_s >= 4.0, "{:?}", found.prediction);
    }

    #[test]
    fn stored_files_are_that_much_more_when_compressed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("t")).unwrap();
        std::fs::write(dir.path().join("t/a"), vec![0u8; 1000]).unwrap();
        std::fs::write(dir.path().join("b"), vec![0u8; 500]).unwrap();
        let path = dir.path().display().to_string();
        let words = [&path, "--storage", "1GB/s", "--gpu", "h200", "--compression", "2"];
        assert_eq!(answer_of(&words).unwrap().scan.table_bytes, 3000);
    }

    #[test]
    fn without_bytes_or_paths_the_command_line_is_wrong() {
        let error = answer_of(&["--storage", "1GB/s", "--gpu", "h200"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("hint: --bytes"), "{error}");
    }

    #[test]
    fn wrong_words_are_refused_by_the_parser() {
        for words in [["--selectivity", "2"], ["--gpu", "potato"], ["--link", "pcie9x16"]] {
            assert!(Line::try_parse_from(["model"].iter().chain(&words)).is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_known_figures_are_listed() {
        let text = known();
        assert!(text.contains("h200") || text.contains("H200"), "{text}");
    }
}
