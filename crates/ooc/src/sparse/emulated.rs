//! The kernels on the CPU (`crate::emulated`), launched like `device` does, on the plan's chunks: the bits of the cores.

use headrace_flow::{FedChunk, HostConsumer};
use headrace_io::MemoryBudget;
use headrace_io::random::Random;
use tempfile::TempDir;

use super::csr::{Csr, CsrFile};
use super::faults::Faults;
use super::launches::{BLOCK, Call, KERNELS, Memory, RANKED, RankMemory, source};
use super::plan::{Plan, TILE, reads};
use super::product::Multiplier;
use super::sums::Sums;
use crate::emulated::Emulated;
use crate::vectors::Vectors;
use crate::{NumberType, PlainFiles, npy};

const COLUMNS: usize = 1000;

/// A matrix in files, and their bytes.
pub(super) struct Case {
    pub csr: Csr,
    pub bytes: Vec<Vec<u8>>,
    x: Vectors,
    _folder: TempDir,
}

fn integers(values: &[u64], number: NumberType) -> Vec<u8> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()[..number.bytes()].to_vec());
    npy::header(number, &[values.len() as u64]).into_iter().chain(bytes).collect()
}

impl Case {
    fn new(
        types: (NumberType, NumberType, Option<NumberType>),
        lengths: &[usize],
        vectors: usize,
    ) -> Case {
        Case::with_columns(types, lengths, (COLUMNS, vectors))
    }

    pub(super) fn with_columns(
        (indptr, indices, data): (NumberType, NumberType, Option<NumberType>),
        lengths: &[usize],
        (columns_end, vectors): (usize, usize),
    ) -> Case {
        let mut random = Random(lengths.len() as u64);
        let mut starts = vec![0];
        for length in lengths {
            starts.push(starts[starts.len() - 1] + *length as u64);
        }
        let entries = starts[lengths.len()] as usize;
        let columns: Vec<u64> = (0..entries).map(|_| random.below(columns_end as u64)).collect();
        let mut fraction = || random.draw() as i64 as f64 / 2f64.powi(63);
        let shape = [lengths.len() as u64, columns_end as u64];
        let mut arrays = vec![
            ("indptr", integers(&starts, indptr)),
            ("indices", integers(&columns, indices)),
            ("shape", integers(&shape, NumberType::I64)),
        ];
        if let Some(number) = data {
            let values = (0..entries).flat_map(|_| match number {
                NumberType::F32 => (fraction() as f32).to_le_bytes().to_vec(),
                _ => fraction().to_le_bytes().to_vec(),
            });
            let header = npy::header(number, &[entries as u64]);
            arrays.insert(2, ("data", header.into_iter().chain(values).collect()));
        }
        let folder = TempDir::new().unwrap();
        for (name, bytes) in &arrays {
            std::fs::write(folder.path().join(format!("{name}.npy")), bytes).unwrap();
        }
        let source = CsrFile { path: folder.path().to_path_buf() };
        let csr = Csr::open(&PlainFiles, &source).unwrap();
        let count = columns_end * vectors;
        let values: Vec<f64> = (0..count).map(|_| fraction()).collect();
        let mut x = Vectors::one(&MemoryBudget::new(1 << 20), values.into_iter(), count).unwrap();
        (x.length, x.count) = (columns_end, vectors);
        let bytes = arrays.into_iter().map(|(_, bytes)| bytes).collect();
        Case { csr, bytes, x, _folder: folder }
    }

    /// Bytes of a chunk's arrays.
    pub(super) fn buffers(&self, plan: &Plan, chunk: usize) -> Vec<&[u8]> {
        let reads = reads(&self.csr, plan.piece(chunk));
        let bytes = reads.iter().zip(&self.bytes);
        bytes.map(|(read, bytes)| &bytes[read.offset as usize..][..read.bytes as usize]).collect()
    }

    fn on_cores(&self, plan: &Plan) -> Result<Vec<u64>, ()> {
        let memory = MemoryBudget::new(1 << 24);
        let mut sums =
            Sums::zero(&memory, (self.csr.rows, self.csr.entries), self.x.count).unwrap();
        let faults = Faults::default();
        let mut multiplier = Multiplier::new(&self.csr, &self.x, &sums, &faults);
        for chunk in (0..plan.chunks()).rev() {
            let payload = plan.piece(chunk);
            let fed = FedChunk { payload, ..FedChunk::default() };
            multiplier.consume(&fed, &self.buffers(plan, chunk)).map_err(|_| ())?;
        }
        sums.finish();
        Ok(sums.into_values().into_iter().map(f64::to_bits).collect())
    }

    /// What the kernels find: y, or what is wrong.
    fn on_device(&self, device: &mut Emulated, plan: &Plan) -> Result<Vec<u64>, [u64; 2]> {
        let (vectors, tiles) = (self.x.count, self.csr.entries.div_ceil(TILE));
        let y_bytes = self.csr.rows * vectors * 8;
        let memory = Memory {
            x: device.upload(bytemuck::cast_slice(&self.x.values)),
            y: device.upload(&vec![0; y_bytes]),
            vectors,
            head_rows: device.upload(&vec![0xff; tiles * 8]),
            heads: device.alloc(tiles * vectors * 8),
            faults: device.upload(&[0xff; 16]),
        };
        for chunk in (0..plan.chunks()).rev() {
            let addresses: Vec<u64> =
                self.buffers(plan, chunk).into_iter().map(|bytes| device.upload(bytes)).collect();
            run(device, memory.multiply(&self.csr, plan.piece(chunk), &addresses));
        }
        let faults: Vec<u64> = bytemuck::pod_collect_to_vec(&device.read(memory.faults, 16));
        if faults != [u64::MAX; 2] {
            device.clear();
            return Err([faults[0], faults[1]]);
        }
        run(device, vec![memory.add_heads(&self.csr)]);
        let y = bytemuck::pod_collect_to_vec(&device.read(memory.y, y_bytes));
        device.clear();
        Ok(y)
    }

    pub(super) fn plan(&self, chunk_bytes: usize) -> Plan {
        Plan::new(&self.csr, chunk_bytes, &MemoryBudget::new(1 << 24)).unwrap()
    }
}

pub(super) fn run(device: &mut Emulated, calls: Vec<Call>) {
    for Call { kernel, blocks, args } in calls.into_iter().filter(|call| call.blocks > 0) {
        let grid = (blocks as u32, BLOCK, 0);
        device.launch(&format!("{}_0", KERNELS[kernel]), grid, bytemuck::cast_slice(&args));
    }
}

/// Rows of all kinds: none, short, of several tiles; many empty ones between.
pub(super) fn shapes() -> Vec<Vec<usize>> {
    let mixed = (0..120).map(|row| [3, 0, 17, 8, 1, 40, 9][row % 7]);
    let long = mixed.clone().take(5).chain([1700, 0, 512, 3]).chain([0; 600]).chain([1030, 2]);
    vec![vec![], vec![0; 5], vec![1], vec![513], mixed.collect(), long.collect()]
}

fn check(types: (NumberType, NumberType, Option<NumberType>)) {
    let mut device = Emulated::new(&[(source(types.0, types.1, types.2), &KERNELS)]);
    for (shape, lengths) in shapes().into_iter().enumerate() {
        // Of a block of many vectors, too.
        let vectors = if shape == 5 { 11 } else { 1 + shape % 3 };
        let case = Case::new(types, &lengths, vectors);
        let whole = case.on_cores(&case.plan(1 << 30)).unwrap();
        for chunk_bytes in [1 << 30, 6000] {
            let plan = case.plan(chunk_bytes);
            assert_eq!(case.on_cores(&plan), Ok(whole.clone()), "{types:?}, shape {shape}");
            assert_eq!(
                case.on_device(&mut device, &plan),
                Ok(whole.clone()),
                "{types:?}, shape {shape}"
            );
        }
    }
    wrong(types, &mut device);
}

/// What is damaged after it was planned is found by both, and nothing is read or written elsewhere.
fn wrong(types: (NumberType, NumberType, Option<NumberType>), device: &mut Emulated) {
    let lengths = shapes().remove(5);
    for (array, at, value, wanted) in [
        (1, 700, COLUMNS as u64, [u64::MAX, 700]),
        (1, 3, u64::MAX, [u64::MAX, 3]),
        (0, 4, u64::MAX, [4, u64::MAX]),
        (0, 300, 1, [300, u64::MAX]),
    ] {
        let mut case = Case::new(types, &lengths, 1);
        let plan = case.plan(6000);
        let width = [types.0, types.1][array].bytes();
        let begin = [&case.csr.indptr, &case.csr.indices][array].offset as usize;
        case.bytes[array][begin + at * width..][..width]
            .copy_from_slice(&u64::to_le_bytes(value)[..width]);
        assert_eq!(case.on_cores(&plan), Err(()));
        let found = case.on_device(device, &plan).unwrap_err();
        assert_eq!(found[usize::from(array == 1)], wanted[usize::from(array == 1)], "{array} {at}");
    }
}

#[test]
fn emulated_kernels_multiply_sparse_f64() {
    check((NumberType::I64, NumberType::I64, Some(NumberType::F64)));
}

#[test]
fn emulated_kernels_multiply_sparse_f32() {
    check((NumberType::I32, NumberType::U32, Some(NumberType::F32)));
}

#[test]
fn emulated_kernels_multiply_sparse_ones() {
    check((NumberType::U64, NumberType::I32, None));
}

#[test]
fn emulated_kernels_make_the_ranks_of_the_cores() {
    let mut random = Random(5);
    let mut fraction = || (random.draw() >> 12) as f64 / 2f64.powi(52);
    let (vertices, constants) = (RANKED + 4321, (0.25, 0.85));
    let mut numbers = || (0..vertices).map(|_| fraction()).collect::<Vec<f64>>();
    let (y, ranks, shares) = (numbers(), numbers(), numbers());
    let degrees: Vec<u64> = (0..vertices as u64).map(|vertex| vertex * 7 % 5).collect();
    let types = (NumberType::I64, NumberType::I32, None);
    let mut device = Emulated::new(&[(source(types.0, types.1, types.2), &KERNELS)]);
    let memory = Memory {
        x: device.upload(bytemuck::cast_slice(&shares)),
        y: device.upload(bytemuck::cast_slice(&y)),
        vectors: 1,
        head_rows: 0,
        heads: 0,
        faults: 0,
    };
    let lie = RankMemory {
        ranks: device.upload(bytemuck::cast_slice(&ranks)),
        degrees: device.upload(bytemuck::cast_slice(&degrees)),
        sums: device.alloc(2 * 2 * 8),
    };
    run(&mut device, vec![lie.rank(&memory, vertices, constants)]);
    let mut read = |address: u64, values: usize| -> Vec<f64> {
        bytemuck::pod_collect_to_vec(&device.read(address, values * 8))
    };
    let new: Vec<f64> = y.iter().map(|sum| constants.0 + constants.1 * sum).collect();
    assert_eq!(read(lie.ranks, vertices), new);
    assert!(read(memory.y, vertices).iter().all(|sum| *sum == 0.0));
    let wanted = (0..vertices).map(|v| match degrees[v] {
        0 => shares[v],
        degree => new[v] / degree as f64,
    });
    assert_eq!(read(memory.x, vertices), wanted.collect::<Vec<_>>());
    for (block, found) in read(lie.sums, 4).chunks(2).enumerate() {
        let of_block = block * RANKED..((block + 1) * RANKED).min(vertices);
        let summed = |value: &dyn Fn(usize) -> f64| {
            let mut lanes = vec![0.0; BLOCK as usize];
            of_block.clone().for_each(|v| lanes[v % BLOCK as usize] += value(v));
            while lanes.len() > 1 {
                let half = lanes.len() / 2;
                lanes = (0..half).map(|lane| lanes[lane] + lanes[lane + half]).collect();
            }
            lanes[0]
        };
        assert_eq!(found[0], summed(&|v| (new[v] - ranks[v]).abs()), "block {block}");
        assert_eq!(found[1], summed(&|v| if degrees[v] == 0 { new[v] } else { 0.0 }));
    }
}
