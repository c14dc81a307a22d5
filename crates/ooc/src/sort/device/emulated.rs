//! The kernels on the CPU (`crate::emulated`), launched like `arrays` and `programs` do: the output is the stable
//! sort.

use super::shape::{Call, DIGITS, Kernel, Shape, Sorted, THREADS, all_layouts, told_bytes};
use crate::NumberType;
use crate::emulated::Emulated;
use crate::sort::{Order, RecordLayout, records};
use headrace_io::random::mixed;

/// The distribution of keys.
#[derive(Debug, Clone, Copy)]
enum Keys {
    Random,
    /// Few distinct keys, with the type's first and last among them.
    Special,
    Equal,
    Rising,
    Falling,
    /// Keys that differ in one digit only.
    OneDigit,
}

const KEYS: [Keys; 6] =
    [Keys::Random, Keys::Equal, Keys::OneDigit, Keys::Special, Keys::Rising, Keys::Falling];

impl Keys {
    /// The key of a record among `records`.
    fn key(self, number: NumberType, at: u64, records: u64) -> [u8; 8] {
        let specials =
            [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.5, 1e-310];
        let integers = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 31, (1 << 31) - 1, 77 << 30];
        let chance = mixed(at + 1);
        let special = (chance % 8) as usize;
        let payload = chance >> 32 & 0x7_ffff;
        let value = match (self, number) {
            (Keys::Random, _) => chance,
            (Keys::Special, NumberType::F32) if special < 4 => {
                let bits = (specials[special] as f32).to_bits();
                u64::from(bits) | if special > 1 { payload } else { 0 }
            }
            (Keys::Special, NumberType::F32) => u64::from((specials[special] as f32).to_bits()),
            (Keys::Special, NumberType::F64) => {
                specials[special].to_bits() | if (2..4).contains(&special) { payload } else { 0 }
            }
            (Keys::Special, _) => integers[special],
            (Keys::Equal, _) => 77,
            (Keys::Rising, _) => at / 3,
            (Keys::Falling, _) => (records - at) * 5,
            (Keys::OneDigit, _) => 0x0101_0101_0101_0101 & !0xff00 | (chance & 0xff00),
        };
        value.to_le_bytes()
    }
}

fn input(layout: &RecordLayout, keys: Keys, records: u64) -> Vec<u8> {
    let mut all = vec![0; records as usize * layout.record_bytes];
    for (at, record) in all.chunks_exact_mut(layout.record_bytes).enumerate() {
        let rest = (at as u64).to_le_bytes();
        record.iter_mut().enumerate().for_each(|(byte, to)| *to = rest[byte % 8]);
        let key = keys.key(layout.key, at as u64, records);
        record[layout.key_offset..][..layout.key.bytes()]
            .copy_from_slice(&key[..layout.key.bytes()]);
    }
    all
}

fn expected(layout: &RecordLayout, order: Order, input: &[u8]) -> Vec<u8> {
    let mut keys = Vec::new();
    records::of_layout(layout, order).add_keys(input, &mut keys);
    let mut records: Vec<(u64, &[u8])> =
        keys.into_iter().zip(input.chunks_exact(layout.record_bytes)).collect();
    records.sort_by_key(|(key, _)| *key);
    records.into_iter().flat_map(|(_, record)| record).copied().collect()
}

/// Kernels for one layout and order.
struct Sorter<'a> {
    device: &'a mut Emulated,
    sorted: Sorted,
    /// Of the source.
    number: usize,
    record_bytes: usize,
}

impl Sorter<'_> {
    fn launch(&mut self, call: &Call) {
        let name = format!("{}_{}", self.sorted.name(call.kernel), self.number);
        let grid = (call.blocks, THREADS, call.shared_bytes);
        self.device.launch(&name, grid, bytemuck::cast_slice(&call.args));
    }

    fn sort(&mut self, input: &[u8]) -> Vec<u8> {
        let (sorted, width) = (self.sorted, self.record_bytes);
        let records = (input.len() / width) as u64;
        let moved_bytes = records as usize * sorted.shape.record_bytes();
        let digits_bytes = sorted.shape.digits() * DIGITS * 8;
        let mut from = self.device.alloc(moved_bytes);
        let mut to = self.device.alloc(moved_bytes);
        let wide = self.device.upload(if sorted.is_wide() { input } else { &[] });
        let counts = self.device.upload(&vec![0; digits_bytes]);
        let starts = self.device.alloc(digits_bytes);
        let tells_bytes = told_bytes(&sorted.shape, records);
        let told = self.device.alloc(tells_bytes);

        let mut first = 0;
        for chunk in input.chunks((records as usize / 3 + 5) * width) {
            let chunk_at = self.device.upload(chunk);
            let taken = (chunk.len() / width) as u64;
            self.launch(&sorted.take((chunk_at, taken), from, first, counts));
            first += taken;
        }
        let counted = self.device.read(counts, digits_bytes);
        let mut counted: Vec<u64> = bytemuck::pod_collect_to_vec(&counted);
        let sweeps = sorted.sweeps(&mut counted, records);
        self.device.write(starts, bytemuck::cast_slice(&counted));
        for digit in sweeps {
            self.device.write(told, &vec![0; tells_bytes]);
            let starts = starts + (digit * DIGITS * 8) as u64;
            self.launch(&sorted.sweep((from, to), records, 8 * digit, (starts, told)));
            std::mem::swap(&mut from, &mut to);
        }
        if !sorted.is_wide() {
            return self.device.read(from, moved_bytes);
        }
        let mut output = Vec::new();
        while output.len() < input.len() {
            let bytes = (input.len() - output.len()).min(10_007);
            let gathered = self.device.alloc(bytes);
            let part = (output.len() as u64, bytes as u64);
            let call = sorted.gather((from, wide, gathered), part).unwrap();
            assert_eq!(call.kernel, Kernel::Gather);
            self.launch(&call);
            output.extend(self.device.read(gathered, bytes));
        }
        output
    }

    fn check(&mut self, layout: &RecordLayout, order: Order, keys: Keys, records: u64) {
        let input = input(layout, keys, records);
        let found = self.sort(&input);
        self.device.clear();
        let expected = expected(layout, order, &input);
        let differs = found.chunks(layout.record_bytes).zip(expected.chunks(layout.record_bytes));
        let differs = differs.enumerate().find(|(_, (found, expected))| found != expected);
        assert!(found.len() == expected.len());
        assert_eq!(differs, None, "{layout:?}, {order:?}, {keys:?}, {records} records");
    }
}

/// Sorts records of these layouts and numbers: each layout with all distributions of keys.
fn check(layouts: &[RecordLayout]) {
    let shape = |layout: &RecordLayout| Sorted::of(layout, Order::Ascending).shape;
    let mut texts: Vec<String> = layouts.iter().map(|layout| shape(layout).source()).collect();
    texts.sort();
    texts.dedup();
    let kernels = |text: &String| -> &[&str] {
        let all = &["take", "sweep", "note", "gather"];
        if *text == Shape::NUMBERED.source() { all } else { &all[..2] }
    };
    let sources: Vec<_> = texts.iter().map(|text| (text.clone(), kernels(text))).collect();
    let mut device = Emulated::new(&sources);
    let mut case = 0;
    for (at, layout) in layouts.iter().enumerate() {
        let tile = shape(layout).tile() as u64;
        // Where there are many layouts, half of them in turn.
        let kinds = if layouts.len() > 8 { 3 } else { 6 };
        for keys in KEYS.into_iter().cycle().skip(3 * at).take(kinds) {
            let order = [Order::Ascending, Order::Descending][case % 2];
            let sorted = Sorted::of(layout, order);
            let number = texts.iter().position(|text| *text == sorted.shape.source()).unwrap();
            let records = match keys {
                Keys::Equal => [0, 1, 2 * tile + 333][case % 3],
                _ => [tile - 1, tile, tile + 1, 700, 2 * tile + 333][case % 5],
            };
            device.workers = if case % 3 == 0 { 1 } else { 3 };
            let device = &mut device;
            let mut sorter = Sorter { device, sorted, number, record_bytes: layout.record_bytes };
            sorter.check(layout, order, keys, records);
            case += 1;
        }
    }
}

fn check_words(words: usize) {
    let is_checked = |layout: &RecordLayout| {
        let RecordLayout { record_bytes, key, key_offset } = *layout;
        // All aligned places, and of others enough that there is every remainder.
        let is_place = key_offset % 4 == 0 || key_offset % 3 == 1;
        // Integers differ in their mask alone: at each place one of both.
        let left_out = match key_offset % 2 {
            0 => [NumberType::U32, NumberType::I64],
            _ => [NumberType::I32, NumberType::U64],
        };
        record_bytes == 4 * words && is_place && (words == 1 || !left_out.contains(&key))
    };
    check(&all_layouts().into_iter().filter(is_checked).collect::<Vec<_>>());
}

#[test]
fn emulated_kernels_sort_records_of_one_word() {
    check_words(1);
}

#[test]
fn emulated_kernels_sort_records_of_two_words() {
    check_words(2);
}

#[test]
fn emulated_kernels_sort_records_of_three_words() {
    check_words(3);
}

#[test]
fn emulated_kernels_sort_records_of_four_words() {
    check_words(4);
}

#[test]
fn emulated_kernels_sort_wide_records() {
    let layouts = [
        (5, NumberType::U32, 1),
        (11, NumberType::F64, 3),
        (20, NumberType::I64, 8),
        (33, NumberType::F32, 29),
        (18, NumberType::I32, 0),
        (100, NumberType::U64, 92),
    ];
    check(&layouts.map(|(record_bytes, key, key_offset)| RecordLayout {
        record_bytes,
        key,
        key_offset,
    }));
}
