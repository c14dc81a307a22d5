//! The shapes and parameters of the kernels. Nothing here needs a GPU.

use crate::NumberType;
use crate::sort::{Order, RecordLayout};

const TEXT: &str = include_str!("radix.cu");

/// Values of a digit.
pub(super) const DIGITS: usize = 256;

/// Threads of a block.
pub(super) const THREADS: u32 = 512;

/// Blocks that keep a device busy; each thread then loops.
const BLOCKS_MAX: u64 = 2048;

/// Records as the kernels know them: a few words that contain a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    words: usize,
    key_bytes: usize,
    key_at: usize,
    is_float: bool,
    /// Bits of the ordered key that are inverted.
    mask: u64,
}

impl Shape {
    /// Keys with record numbers, in place of records.
    pub const NUMBERED: Shape =
        Shape { words: 4, key_bytes: 8, key_at: 0, is_float: false, mask: 0 };

    /// The shape of records that are moved themselves; `None` if they are too wide, or not whole
    /// words.
    pub fn of(layout: &RecordLayout, order: Order) -> Option<Shape> {
        let words = layout.record_bytes / 4;
        let fits = layout.record_bytes.is_multiple_of(4) && words <= 4;
        fits.then(|| Shape {
            words,
            key_bytes: layout.key.bytes(),
            key_at: layout.key_offset,
            is_float: is_float(layout.key),
            mask: mask(layout.key, order),
        })
    }

    pub fn record_bytes(&self) -> usize {
        self.words * 4
    }

    /// Digits of a key.
    pub fn digits(&self) -> usize {
        self.key_bytes
    }

    /// Records that a thread of `sweep` keeps in registers: two blocks must fit a multiprocessor.
    fn items(&self) -> usize {
        [16, 11, 8, 7][self.words - 1]
    }

    /// Records that a block sorts at once.
    pub fn tile(&self) -> usize {
        THREADS as usize * self.items()
    }

    /// CUDA C++ for such records.
    pub fn source(&self) -> String {
        let Shape { words, key_bytes, key_at, is_float, .. } = *self;
        let (is_float, items) = (u8::from(is_float), self.items());
        format!(
            "#define WORDS {words}\n#define KEY_BYTES {key_bytes}\n#define KEY_AT {key_at}\n\
             #define KEY_FLOAT {is_float}\n#define THREADS {THREADS}\n#define ITEMS {items}\n{TEXT}"
        )
    }
}

fn is_float(key: NumberType) -> bool {
    matches!(key, NumberType::F32 | NumberType::F64)
}

/// Bits that are inverted: after a float's bits were ordered, or of an integer.
fn mask(key: NumberType, order: Order) -> u64 {
    let all = u64::MAX >> (64 - 8 * key.bytes());
    let sign = match key {
        NumberType::I32 => 1 << 31,
        NumberType::I64 => 1 << 63,
        _ => 0,
    };
    sign ^ if order == Order::Descending { all } else { 0 }
}

/// The sorted items: records themselves, or the keys and numbers of wide ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sorted {
    pub shape: Shape,
    wide: Option<Wide>,
}

/// Records that are too wide to be moved, or not whole words.
#[derive(Debug, Clone, Copy)]
struct Wide {
    layout: RecordLayout,
    mask: u64,
}

/// A kernel by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    Take,
    Sweep,
    Gather,
}

/// A launch in blocks of [`THREADS`].
#[derive(Debug)]
pub(super) struct Call {
    pub kernel: Kernel,
    pub blocks: u32,
    pub shared_bytes: u32,
    /// The members of the kernel's struct, in order.
    pub args: Vec<u64>,
}

impl Sorted {
    pub fn of(layout: &RecordLayout, order: Order) -> Sorted {
        let own = Shape::of(layout, order);
        let wide = Wide { layout: *layout, mask: mask(layout.key, order) };
        Sorted { shape: own.unwrap_or(Shape::NUMBERED), wide: own.is_none().then_some(wide) }
    }

    /// Whether the sorted items are numbers of records that lie elsewhere.
    pub fn is_wide(&self) -> bool {
        self.wide.is_some()
    }

    /// A kernel's name in the source.
    pub fn name(&self, kernel: Kernel) -> &'static str {
        match kernel {
            Kernel::Take if self.is_wide() => "note",
            Kernel::Take => "take",
            Kernel::Sweep => "sweep",
            Kernel::Gather => "gather",
        }
    }

    /// Shared memory of `sweep` beside its declared memory.
    pub fn shared_bytes(&self) -> u32 {
        (self.shape.tile() * self.shape.record_bytes()) as u32
    }

    /// For some records at `from`, which go to the array `to` after `first` others.
    pub fn take(&self, (from, records): (u64, u64), to: u64, first: u64, counts: u64) -> Call {
        let to = to + first * self.shape.record_bytes() as u64;
        // `Take`, or `Note`.
        let mut args = vec![from, to, counts, records];
        match &self.wide {
            None => args.push(self.shape.mask),
            Some(Wide { layout, mask }) => {
                let (width, key_at) = (layout.record_bytes as u64, layout.key_offset as u64);
                args.extend([first, *mask, width, key_at]);
                args.extend([layout.key.bytes() as u64, u64::from(is_float(layout.key))]);
            }
        }
        Call { kernel: Kernel::Take, blocks: blocks(records), shared_bytes: 0, args }
    }

    /// For the digit that begins with bit `shift`.
    pub fn sweep(
        &self,
        (from, to): (u64, u64),
        records: u64,
        shift: usize,
        (starts, told): (u64, u64),
    ) -> Call {
        let tiles = records.div_ceil(self.shape.tile() as u64);
        // Behind the number of the next tile.
        let (next_tile, tells) = (told, told + NEXT_TILE_BYTES as u64);
        let args = vec![from, to, starts, tells, next_tile, records, self.shape.mask, shift as u64];
        let shared_bytes = self.shared_bytes();
        Call { kernel: Kernel::Sweep, blocks: tiles as u32, shared_bytes, args }
    }

    /// For output bytes of wide records.
    pub fn gather(
        &self,
        (order, from, to): (u64, u64, u64),
        (first_byte, bytes): (u64, u64),
    ) -> Option<Call> {
        let width = self.wide?.layout.record_bytes as u64;
        let args = vec![order, from, to, first_byte, bytes, width];
        Some(Call { kernel: Kernel::Gather, blocks: blocks(bytes), shared_bytes: 0, args })
    }

    /// The digits to sweep by: those that differ. Turns counts per digit value into the number of smaller ones.
    pub fn sweeps(&self, counts: &mut [u64], records: u64) -> Vec<usize> {
        let mut sweeps = Vec::new();
        for (digit, counts) in counts.chunks_exact_mut(DIGITS).enumerate() {
            let counted: u64 = counts.iter().sum();
            assert!(counted == records, "{counted} of {records} records were counted");
            if !counts.contains(&records) {
                sweeps.push(digit);
            }
            let mut sum = 0;
            for count in counts {
                sum += std::mem::replace(count, sum);
            }
        }
        sweeps
    }
}

fn blocks(items: u64) -> u32 {
    items.div_ceil(u64::from(THREADS)).clamp(1, BLOCKS_MAX) as u32
}

/// Offset of the tile states in the memory of `sweep`.
const NEXT_TILE_BYTES: usize = 256;

/// Bytes that `sweep` needs beside the arrays.
pub(super) fn told_bytes(shape: &Shape, records: u64) -> usize {
    NEXT_TILE_BYTES + records.div_ceil(shape.tile() as u64) as usize * DIGITS * 8
}

/// For tests of every variant: layouts of records that are moved themselves.
#[cfg(test)]
pub(super) fn all_layouts() -> Vec<RecordLayout> {
    let mut layouts = Vec::new();
    for record_bytes in [4, 8, 12, 16] {
        for key in NumberType::ALL {
            let of_offset = |key_offset| RecordLayout { record_bytes, key, key_offset };
            let fit = (0..record_bytes).map(of_offset).filter(|layout| layout.check().is_ok());
            layouts.extend(fit);
        }
    }
    layouts
}
