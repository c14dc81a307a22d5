//! The kernels on the CPU (`crate::emulated`), launched like `device` does, on the plan's chunks.

use headrace_flow::DEVICE_ALIGN_BYTES;
use headrace_io::random::mixed;
use headrace_io::{MemoryBudget, MemoryFile};

use super::launches::{BLOCK, Call, KERNELS, Products, source};
use super::matrix::Matrix;
use super::plan::Plan;
use crate::NumberType;
use crate::emulated::Emulated;

/// Whether sums need rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// Small non-zero integers: sums are exact in any order.
    Whole,
    /// From -1 to 1.
    Fractions,
}

impl Values {
    fn value(self, seed: u64) -> f64 {
        match self {
            Values::Whole => {
                [-7.0, -5.0, -3.0, -2.0, 1.0, 4.0, 6.0, 9.0][(mixed(seed) % 8) as usize]
            }
            Values::Fractions => (mixed(seed) as i64) as f64 / (1u64 << 63) as f64,
        }
    }
}

/// A matrix and its vectors, which are as long as its rows or its columns.
struct Case {
    number: NumberType,
    rows: usize,
    columns: usize,
    /// As widened by the kernels.
    values: Vec<f64>,
    bytes: Vec<u8>,
    /// Vector after vector.
    x: [Vec<f64>; 2],
    counts: [usize; 2],
}

impl Case {
    fn new(
        number: NumberType,
        (rows, columns): (usize, usize),
        counts: [usize; 2],
        of: Values,
    ) -> Case {
        let (mut values, mut bytes) = (Vec::new(), Vec::new());
        for at in 0..rows * columns {
            let value = of.value(at as u64);
            let narrow = (value as f32).to_le_bytes();
            match number {
                NumberType::F64 => bytes.extend(value.to_le_bytes()),
                NumberType::F32 => bytes.extend(narrow),
                _ => bytes.extend(&narrow[2..]),
            }
            values.push(match number {
                NumberType::F64 => value,
                NumberType::F32 => f64::from(value as f32),
                _ => f64::from(f32::from_le_bytes([0, 0, narrow[2], narrow[3]])),
            });
        }
        let vectors = |which: usize, length: usize| {
            let seeds =
                (0..counts[which] * length).map(|at| ((which as u64 + 1) << 40) + at as u64);
            seeds.map(|seed| of.value(seed)).collect()
        };
        let x = [vectors(0, columns), vectors(1, rows)];
        Case { number, rows, columns, values, bytes, x, counts }
    }

    /// The products in the simplest order, and the sums of the terms' magnitudes.
    fn expected(&self) -> [Vec<(f64, f64)>; 2] {
        let Case { rows, columns, .. } = *self;
        let mut y = [rows, columns].map(|length| vec![(0.0, 0.0); length]);
        y = [0, 1].map(|which| y[which].repeat(self.counts[which]));
        let mut add = |which: usize, at: usize, term: f64| {
            let (sum, magnitude) = &mut y[which][at];
            *sum += term;
            *magnitude += term.abs();
        };
        for (at, value) in self.values.iter().enumerate() {
            let (row, column) = (at / columns, at % columns);
            for v in 0..self.counts[0] {
                add(0, v * rows + row, value * self.x[0][v * columns + column]);
            }
            for v in 0..self.counts[1] {
                add(1, v * columns + column, value * self.x[1][v * rows + row]);
            }
        }
        y
    }

    /// The products of the kernels, in chunks of about this many bytes.
    fn multiply(&self, device: &mut Emulated, chunk_bytes: usize) -> [Vec<f64>; 2] {
        let Case { number, rows, columns, counts, .. } = *self;
        let file = MemoryFile::new(&MemoryFile::named("matrix"), Vec::new());
        let matrix =
            Matrix { file, offset: 0, rows, columns, number, is_transposed: false, table: None };
        let plan = Plan::new(&matrix, chunk_bytes, &MemoryBudget::new(1 << 20)).unwrap();
        let (lengths, results) = ([columns, rows], [rows, columns]);
        let x =
            [0, 1].map(|w| (device.upload(bytemuck::cast_slice(&self.x[w])), lengths[w] as u64));
        let zeros = results.map(|length| vec![0; length * 8]);
        let y = [0, 1].map(|w| (device.upload(&zeros[w].repeat(counts[w])), results[w] as u64));
        let products = |device: &mut Emulated, chunk: usize| {
            let (tile, value_bytes) = (plan.tile(chunk), plan.value_bytes());
            let (base, row_bytes) = self.place(device, &plan, chunk);
            let sums = device.alloc(tile.forward_sums() * counts[0] * 8);
            let sums = [sums, device.alloc(tile.transposed_sums() * counts[1] * 8)];
            Products { tile, value_bytes, base, row_bytes, counts, x, sums, y }
        };
        let chunks: Vec<Products> = (0..plan.chunks()).map(|c| products(device, c)).collect();
        chunks.iter().rev().for_each(|products| run(device, products.multiply()));
        chunks.iter().for_each(|products| run(device, products.add()));
        let read = |which: usize| device.read(y[which].0, results[which] * counts[which] * 8);
        let found = [0, 1].map(read).map(|bytes| bytemuck::pod_collect_to_vec(&bytes));
        device.clear();
        found
    }

    /// Puts a chunk's reads into memory like the lane does, with NaN between them; returns their address and
    /// distance.
    fn place(&self, device: &mut Emulated, plan: &Plan, chunk: usize) -> (u64, u64) {
        let mut bytes = Vec::new();
        let mut pitch = plan.tile(chunk).columns * plan.value_bytes();
        for (buffer, read) in plan.spec(chunk).reads.iter().enumerate() {
            bytes.resize(bytes.len().next_multiple_of(DEVICE_ALIGN_BYTES), 0xff);
            if buffer == 1 {
                pitch = bytes.len();
            }
            bytes.extend(&self.bytes[read.offset as usize..][..read.bytes as usize]);
        }
        (device.upload(&bytes), pitch as u64)
    }
}

fn run(device: &mut Emulated, calls: Vec<Call>) {
    for Call { kernel, threads, args } in calls {
        let grid = (threads.div_ceil(BLOCK as usize) as u32, BLOCK, 0);
        device.launch(&format!("{}_0", KERNELS[kernel]), grid, bytemuck::cast_slice(&args));
    }
}

fn check(number: NumberType) {
    let mut device = Emulated::new(&[(source(number), &KERNELS)]);
    let per = 16 / number.bytes();
    let of_span = (16 << 10) / number.bytes();
    // Rows and columns, and bytes of a chunk: groups of all sizes, the last of several spans and bands cut short.
    let mut shapes = vec![(1, 1, 1), (1, of_span + 1, 1), (0, 5, 1), (5, 0, 1)];
    shapes.extend([1, 2, 3, 4, 7, 16, 17, 32].map(|loads| (21, loads * per - 1, 1 << 20)));
    shapes.extend([33 * per, 32 * per].map(|columns| (9, columns, 1 << 20)));
    shapes.extend([(4200, 1, 16 << 10), (66, 2 * of_span + 5, 1), (131, 260, 30_000)]);
    let counts = [[1, 1], [4, 4], [0, 5], [6, 0], [2, 1]];
    for (case, (rows, columns, chunk_bytes)) in shapes.into_iter().enumerate() {
        let counts = counts[case % counts.len()];
        let whole = Case::new(number, (rows, columns), counts, Values::Whole);
        let found = whole.multiply(&mut device, chunk_bytes);
        let expected =
            whole.expected().map(|y| y.into_iter().map(|(sum, _)| sum).collect::<Vec<_>>());
        assert_eq!(found, expected, "{number}, {rows} x {columns}, {counts:?} vectors");

        let case = Case::new(number, (rows, columns), counts, Values::Fractions);
        let found = case.multiply(&mut device, chunk_bytes);
        let in_one = case.multiply(&mut device, usize::MAX / 2);
        let bits = |y: &[Vec<f64>; 2]| {
            y.clone().map(|y| y.into_iter().map(f64::to_bits).collect::<Vec<_>>())
        };
        assert_eq!(
            bits(&found),
            bits(&in_one),
            "{number}, {rows} x {columns} in chunks of other sizes"
        );
        for (found, (sum, magnitude)) in
            found.iter().flatten().zip(case.expected().iter().flatten())
        {
            let bound = 2.0 * (rows.max(columns) + 1) as f64 * f64::EPSILON * magnitude;
            assert!(
                (found - sum).abs() <= bound,
                "{number}, {rows} x {columns}: {found}, not {sum}"
            );
        }
    }
}

#[test]
fn emulated_kernels_multiply_f64() {
    check(NumberType::F64);
}

#[test]
fn emulated_kernels_multiply_f32() {
    check(NumberType::F32);
}

#[test]
fn emulated_kernels_multiply_bf16() {
    check(NumberType::Bf16);
}
