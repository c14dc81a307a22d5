//! The kernels, and what is handed to them.

use headrace_gpu::{DeviceBuffer, Function, Grid, LaunchArgs, Source, Stream, launch};

use crate::sort::{Order, RecordLayout};
use crate::{DeviceRoom, NumberType, Result};

const TEXT: &str = include_str!("radix.cu");

/// Values of a digit.
pub(super) const DIGITS: usize = 256;

/// Threads of a block.
const THREADS: u32 = 512;

/// Blocks that keep a device busy; each thread then loops.
const BLOCKS_MAX: u64 = 2048;

/// Records as the kernels know them: a few words, in which lies a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    words: usize,
    key_bytes: usize,
    key_at: usize,
    is_float: bool,
    /// Bits of the ordered key that are turned round.
    mask: u64,
}

impl Shape {
    /// Keys with numbers of records, in place of records.
    pub const NUMBERED: Shape =
        Shape { words: 4, key_bytes: 8, key_at: 0, is_float: false, mask: 0 };

    /// The shape of records that are moved themselves; `None` if they are too wide, or no whole words.
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

    /// Records that a thread of `sweep` has in registers: so many that two blocks fit a multiprocessor.
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

/// Bits that are turned round after a float's bits were ordered, or of an integer.
fn mask(key: NumberType, order: Order) -> u64 {
    let all = u64::MAX >> (64 - 8 * key.bytes());
    let sign = match key {
        NumberType::I32 => 1 << 31,
        NumberType::I64 => 1 << 63,
        _ => 0,
    };
    sign ^ if order == Order::Descending { all } else { 0 }
}

/// Kernels for records of a shape, loaded on a device.
#[derive(Debug)]
pub(super) struct Kernels {
    pub shape: Shape,
    take: Function,
    sweep: Function,
    /// For records that are numbered.
    wide: Option<Wide>,
}

#[derive(Debug)]
struct Wide {
    note: Function,
    gather: Function,
    layout: RecordLayout,
    mask: u64,
}

impl Kernels {
    /// Compiles and loads the kernels for a layout.
    pub fn load(device: &DeviceRoom, layout: &RecordLayout, order: Order) -> Result<Kernels> {
        let own = Shape::of(layout, order);
        let shape = own.unwrap_or(Shape::NUMBERED);
        let text = shape.source();
        let module = device.module(&Source { name: "radix.cu", text: &text, headers: &[] })?;
        let sweep = module.function("sweep")?;
        sweep.set_max_dynamic_shared_bytes((shape.tile() * shape.record_bytes()) as u32)?;
        let wide = || -> Result<Wide> {
            Ok(Wide {
                note: module.function("note")?,
                gather: module.function("gather")?,
                layout: *layout,
                mask: mask(layout.key, order),
            })
        };
        let wide = if own.is_none() { Some(wide()?) } else { None };
        Ok(Kernels { shape, take: module.function("take")?, sweep, wide })
    }

    /// Whether what is sorted are numbers of records, which lie elsewhere.
    pub fn is_wide(&self) -> bool {
        self.wide.is_some()
    }

    /// Queues the taking of `records` records at `from`, the first of which has the number `first`, to their place
    /// in the array `to`, and the counting of their digits.
    ///
    /// # Safety
    /// `from` has as many records, `to` room for those and `first` before them, `counts` for all digits; all stay, and
    /// nobody else touches that part of `to`, until the stream is done.
    pub unsafe fn take(
        &self,
        stream: &Stream,
        (from, records): (u64, u64),
        to: &DeviceBuffer,
        first: u64,
        counts: &DeviceBuffer,
    ) -> Result<()> {
        if records == 0 {
            return Ok(());
        }
        let to = to.ptr() + first * self.shape.record_bytes() as u64;
        let counts = counts.ptr();
        // The members of `Take`, and of `Note`, in their order.
        let (function, args) = match &self.wide {
            None => (&self.take, vec![from, to, counts, records, self.shape.mask]),
            Some(Wide { note, layout, mask, .. }) => {
                let (width, key_at) = (layout.record_bytes as u64, layout.key_offset as u64);
                let key = [layout.key.bytes() as u64, u64::from(is_float(layout.key))];
                let mut args = vec![from, to, counts, records, first, *mask, width, key_at];
                args.extend(key);
                (note, args)
            }
        };
        // SAFETY: the struct is the kernel's; the memory is the caller's promise.
        unsafe { self.launch(function, stream, (blocks(records), 0), &args) }
    }

    /// Queues the moving of all records from one array to another in the order of the digit that begins with bit
    /// `shift` of their keys.
    ///
    /// # Safety
    /// Both arrays have `records` records, `starts` says for each digit how many of them have smaller ones, `told` has
    /// [`told_bytes`] of zeros; all stay, and nobody else touches them, until the stream is done.
    pub unsafe fn sweep(
        &self,
        stream: &Stream,
        (from, to): (&DeviceBuffer, &DeviceBuffer),
        records: u64,
        shift: usize,
        (starts, told): (u64, &DeviceBuffer),
    ) -> Result<()> {
        let tiles = records.div_ceil(self.shape.tile() as u64);
        // Behind the number of the next tile.
        let tells = told.ptr() + NEXT_TILE_BYTES as u64;
        let (next_tile, mask) = (told.ptr(), self.shape.mask);
        // The members of `Sweep` in their order.
        let args = [from.ptr(), to.ptr(), starts, tells, next_tile, records, mask, shift as u64];
        let shared_bytes = (self.shape.tile() * self.shape.record_bytes()) as u32;
        let grid = (tiles as u32, shared_bytes);
        // SAFETY: the struct is the kernel's; the memory is the caller's promise.
        unsafe { self.launch(&self.sweep, stream, grid, &args) }
    }

    /// Queues the gathering of bytes of the output, of records that were numbered.
    ///
    /// # Safety
    /// `order` are the sorted numbers of the records in `from`, `to` has room for the bytes; all stay until the stream
    /// is done.
    pub unsafe fn gather(
        &self,
        stream: &Stream,
        order: &DeviceBuffer,
        from: &DeviceBuffer,
        to: u64,
        (first_byte, bytes): (u64, u64),
    ) -> Result<()> {
        let Some(Wide { gather, layout, .. }) = &self.wide else { return Ok(()) };
        let width = layout.record_bytes as u64;
        // The members of `Gather` in their order.
        let args = [order.ptr(), from.ptr(), to, first_byte, bytes, width];
        // SAFETY: the struct is the kernel's; the memory is the caller's promise.
        unsafe { self.launch(gather, stream, (blocks(bytes), 0), &args) }
    }

    /// # Safety
    /// As [`headrace_gpu::launch`].
    unsafe fn launch(
        &self,
        function: &Function,
        stream: &Stream,
        (blocks, shared_bytes): (u32, u32),
        args: &[u64],
    ) -> Result<()> {
        let grid = Grid { blocks, threads: THREADS, shared_bytes };
        let mut list = LaunchArgs::new();
        list.push_bytes(bytemuck::cast_slice(args));
        // SAFETY: the caller's promise.
        unsafe { launch(function, grid, stream, &mut list)? };
        Ok(())
    }
}

fn blocks(items: u64) -> u32 {
    items.div_ceil(u64::from(THREADS)).clamp(1, BLOCKS_MAX) as u32
}

/// Where in the memory of `sweep` what tiles tell begins.
const NEXT_TILE_BYTES: usize = 256;

/// Bytes that `sweep` needs beside the arrays.
pub(super) fn told_bytes(shape: &Shape, records: u64) -> usize {
    NEXT_TILE_BYTES + records.div_ceil(shape.tile() as u64) as usize * DIGITS * 8
}

/// For tests that compile every variant.
#[cfg(test)]
pub(super) fn all_shapes() -> Vec<Shape> {
    let mut shapes = vec![Shape::NUMBERED];
    for key in [NumberType::I32, NumberType::F32, NumberType::I64, NumberType::F64] {
        for words in 1..=4usize {
            for key_offset in 0..=(4 * words).saturating_sub(key.bytes()) {
                let layout = RecordLayout { record_bytes: 4 * words, key, key_offset };
                if layout.check().is_ok() {
                    shapes.extend(Shape::of(&layout, Order::Ascending));
                }
            }
        }
    }
    shapes
}
