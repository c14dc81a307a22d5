//! Records of many shapes, and what they are when they are sorted.

use std::cmp::Ordering;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use headrace_io::random::Random;
use headrace_io::write::{FaultySink, SinkFile, WriteAt};
use headrace_io::{FaultPlan, FaultyFile, ReadAt, ReadMode, SourceFile};
use headrace_ooc::sort::{Order, RecordLayout, SortJob};
use headrace_ooc::{Files, NumberType, Options, Processor, Result};

/// How keys follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Random,
    AllEqual,
    TwoValues,
    Sorted,
    Reversed,
    SawTooth,
    Zipf,
    Extremes,
    /// A few bits far apart.
    Sparse,
    /// One record that is not like all the others.
    Lonely,
}

impl Shape {
    pub const ALL: [Shape; 10] = [
        Shape::Random,
        Shape::AllEqual,
        Shape::TwoValues,
        Shape::Sorted,
        Shape::Reversed,
        Shape::SawTooth,
        Shape::Zipf,
        Shape::Extremes,
        Shape::Sparse,
        Shape::Lonely,
    ];

    fn key(self, at: usize, count: usize, random: &mut Random) -> u64 {
        match self {
            Shape::Random => random.draw(),
            Shape::AllEqual => 77,
            Shape::TwoValues => 5 + random.below(2),
            Shape::Sorted => at as u64 * 3,
            Shape::Reversed => (count - at) as u64 * 3,
            Shape::SawTooth => at as u64 % 1000,
            Shape::Zipf => {
                let uniform = (random.below(1 << 52) + 1) as f64 / (1u64 << 52) as f64;
                (1.0 / uniform) as u64
            }
            Shape::Extremes => {
                let all = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 31, (1 << 31) - 1, 1 << 32];
                all[random.below(all.len() as u64) as usize]
            }
            Shape::Sparse => random.draw() & 0x8000_0040_8000_0011,
            Shape::Lonely => u64::from(at == count / 2) * 1000 + 9,
        }
    }
}

fn float(shape: Shape, key: u64, random: &mut Random) -> f64 {
    let special = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        -1e-310,
    ];
    match shape {
        Shape::Extremes => special[random.below(special.len() as u64) as usize],
        // All bits, of which some are NaNs with something in them.
        Shape::Sparse => f64::from_bits(key | random.below(2) << 52),
        Shape::Random if random.below(50) == 0 => special[random.below(8) as usize],
        Shape::Random => (key as i64 as f64) / 1e15,
        _ => key as f64 - 500.0,
    }
}

/// Records whose keys have that shape, and whose other bytes are random.
pub fn records(layout: RecordLayout, shape: Shape, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; layout.record_bytes * count];
    for (at, record) in bytes.chunks_exact_mut(layout.record_bytes).enumerate() {
        for part in record.chunks_mut(8) {
            part.copy_from_slice(&random.draw().to_le_bytes()[..part.len()]);
        }
        let key = shape.key(at, count, random);
        let into = &mut record[layout.key_offset..][..layout.key.bytes()];
        match layout.key {
            NumberType::F64 => into.copy_from_slice(&float(shape, key, random).to_le_bytes()),
            NumberType::F32 => {
                into.copy_from_slice(&(float(shape, key, random) as f32).to_le_bytes());
            }
            NumberType::I32 | NumberType::U32 if shape == Shape::Random => {
                into.copy_from_slice(&((key >> 32) as u32).to_le_bytes());
            }
            _ => into.copy_from_slice(&key.to_le_bytes()[..into.len()]),
        }
    }
    bytes
}

/// The order of two numbers, as IEEE and integers have it, and NaN above all.
fn compare(key: NumberType, a: &[u8], b: &[u8]) -> Ordering {
    macro_rules! integer {
        ($type:ty) => {
            <$type>::from_le_bytes(a.try_into().unwrap())
                .cmp(&<$type>::from_le_bytes(b.try_into().unwrap()))
        };
    }
    let floats = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => a.partial_cmp(&b).unwrap(),
    };
    let narrow = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
    let wide = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
    match key {
        NumberType::I32 => integer!(i32),
        NumberType::U32 => integer!(u32),
        NumberType::I64 => integer!(i64),
        NumberType::U64 => integer!(u64),
        NumberType::F32 => floats(narrow(a), narrow(b)),
        NumberType::F64 => floats(wide(a), wide(b)),
        NumberType::Bf16 => unreachable!("no key"),
    }
}

/// Sorted by std.
pub fn oracle(layout: RecordLayout, order: Order, input: &[u8]) -> Vec<u8> {
    let RecordLayout { record_bytes, key, key_offset } = layout;
    let mut records: Vec<&[u8]> = input.chunks_exact(record_bytes).collect();
    let of = |record: &[u8]| record[key_offset..][..key.bytes()].to_vec();
    let mut keys: Vec<(Vec<u8>, usize)> =
        records.iter().enumerate().map(|(at, record)| (of(record), at)).collect();
    keys.sort_by(|(a, _), (b, _)| match order {
        Order::Ascending => compare(key, a, b),
        Order::Descending => compare(key, b, a),
    });
    records = keys.iter().map(|(_, at)| records[*at]).collect();
    records.concat()
}

/// A job in a folder: its files are "in" and "out".
pub fn job(folder: &Path, layout: RecordLayout, order: Order) -> SortJob {
    SortJob {
        input: folder.join("in"),
        output: folder.join("out"),
        layout,
        order,
        temporary_folder: None,
        temporary_limit_bytes: None,
    }
}

pub fn on_cores(threads: usize, memory_bytes: u64) -> Options {
    Options {
        processor: Processor::Cpu,
        threads: Some(threads),
        memory_limit_bytes: Some(memory_bytes),
        ..Options::default()
    }
}

/// Whether a folder has nothing but these.
pub fn is_clean(folder: &Path, names: &[&str]) -> bool {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .into_iter()
        .all(|entry| names.iter().any(|name| entry.as_ref().unwrap().file_name() == *name))
}

/// Files with faults, by what they are for.
#[derive(Debug, Clone, Default)]
pub struct FaultyFiles {
    pub input: FaultPlan,
    pub output: FaultPlan,
    pub unnamed: FaultPlan,
    pub read_back: FaultPlan,
}

impl Files for FaultyFiles {
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>> {
        Ok(FaultyFile::new(SourceFile::open(path)?, self.input.clone()))
    }

    fn create(&self, path: &Path, size_bytes: u64) -> Result<Arc<dyn WriteAt>> {
        Ok(FaultySink::new(SinkFile::create(path, size_bytes)?, self.output.clone()))
    }

    fn unnamed(&self, folder: &Path, size_bytes: u64) -> Result<Arc<dyn WriteAt>> {
        Ok(FaultySink::new(SinkFile::unnamed(folder, size_bytes)?, self.unnamed.clone()))
    }

    fn read_back(&self, unnamed: &SinkFile) -> Result<Arc<dyn ReadAt>> {
        Ok(FaultyFile::new(unnamed.read_back()?, self.read_back.clone()))
    }
}

/// An input of which small reads bring zeros: what is sampled is not what is there.
#[derive(Debug)]
pub struct LyingFiles;

#[derive(Debug)]
struct Lying(Arc<SourceFile>);

impl Files for LyingFiles {
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(Lying(SourceFile::open(path)?)))
    }
}

impl ReadAt for Lying {
    fn source(&self) -> &SourceFile {
        &self.0
    }

    fn intercept(
        &self,
        _: ReadMode,
        _: u64,
        into: &mut [u8],
        outcome: io::Result<usize>,
    ) -> io::Result<usize> {
        if into.len() <= 3 * 4096 {
            into.fill(0);
        }
        outcome
    }
}
