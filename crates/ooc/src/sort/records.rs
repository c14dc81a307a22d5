//! Operations on records, for each width and type of key: the only code that knows either.

use std::fmt;

use super::radix::{self, Digits};
use super::splitters::{AT_ONCE, Splitters};
use super::{Order, RecordLayout};
use crate::{Number, NumberType};

/// Work on records of one layout. A key is represented as 64 bits whose unsigned order is the requested order.
pub(super) trait Records: Send + Sync + fmt::Debug {
    /// Bytes of a record.
    fn record_bytes(&self) -> usize;

    /// The largest possible key.
    fn key_max(&self) -> u64;

    /// Adds the keys of whole records.
    fn add_keys(&self, records: &[u8], keys: &mut Vec<u64>);

    /// Partitions the records of all pieces into buckets, in order: one bucket after the other, filling `into`
    /// exactly. `ids` has room for a number per record. Returns for each bucket, and for the end, how many records
    /// are before it.
    fn partition(
        &self,
        pieces: &[&[u8]],
        splitters: &Splitters,
        ids: &mut [u16],
        into: &mut [u8],
    ) -> Box<[u32]>;

    /// Sorts the first `bytes` bytes of the bench.
    fn sort(&self, bench: &mut Bench, bytes: usize);

    /// Size of a bench on which this many bytes of records can be sorted.
    fn bench_bytes(&self, bytes: usize) -> usize;
}

/// The workspace for sorting a bucket.
#[derive(Debug)]
pub(super) struct Bench {
    pub records: Vec<u8>,
    spare: Vec<u8>,
    entries: Vec<Entry>,
    spare_entries: Vec<Entry>,
    digits: Digits,
}

/// A record of any width during the sort.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    key: u64,
    number: u32,
}

impl Bench {
    /// For up to this many bytes of records.
    pub fn new(records: &dyn Records, bytes: usize) -> Bench {
        let entries = match records.bench_bytes(bytes) > 2 * bytes {
            true => bytes / records.record_bytes(),
            false => 0,
        };
        Bench {
            records: vec![0; bytes],
            spare: vec![0; bytes],
            entries: vec![Entry::default(); entries],
            spare_entries: vec![Entry::default(); entries],
            digits: Digits::new(),
        }
    }
}

/// The work for a layout.
pub(super) fn of_layout(layout: &RecordLayout, order: Order) -> Box<dyn Records> {
    let all = |descending: u64| if order == Order::Descending { descending } else { 0 };
    let (bits32, bits64) = (all(u64::from(u32::MAX)), all(u64::MAX));
    match layout.key {
        NumberType::U32 => of_key(layout, Bits32(bits32 as u32)),
        NumberType::I32 => of_key(layout, Bits32(bits32 as u32 ^ 1 << 31)),
        NumberType::F32 | NumberType::Bf16 => of_key(layout, Float32(bits32 as u32)),
        NumberType::U64 => of_key(layout, Bits64(bits64)),
        NumberType::I64 => of_key(layout, Bits64(bits64 ^ 1 << 63)),
        NumberType::F64 => of_key(layout, Float64(bits64)),
    }
}

fn of_key<K: Key>(layout: &RecordLayout, key: K) -> Box<dyn Records> {
    let offset = layout.key_offset;
    match layout.record_bytes {
        4 => Box::new(Fixed::<K, 4>::new(key, offset)),
        8 => Box::new(Fixed::<K, 8>::new(key, offset)),
        12 => Box::new(Fixed::<K, 12>::new(key, offset)),
        16 => Box::new(Fixed::<K, 16>::new(key, offset)),
        record_bytes => {
            assert!(offset + K::BYTES <= record_bytes, "a key inside its record");
            Box::new(Wide { key, offset, record_bytes })
        }
    }
}

/// A type of keys.
trait Key: Copy + Send + Sync + fmt::Debug + 'static {
    /// Bytes in a record.
    const BYTES: usize;

    /// The bits by which it is ordered.
    ///
    /// # Safety
    /// Its bytes can be read there; they need not be aligned.
    unsafe fn read(self, at: *const u8) -> u64;
}

/// Integers that order by their bits with some of them inverted.
#[derive(Debug, Clone, Copy)]
struct Bits32(u32);

/// As [`Bits32`].
#[derive(Debug, Clone, Copy)]
struct Bits64(u64);

/// As [`Bits32`], after [`Number::ordered`].
#[derive(Debug, Clone, Copy)]
struct Float32(u32);

/// As [`Float32`].
#[derive(Debug, Clone, Copy)]
struct Float64(u64);

impl Key for Bits32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn read(self, at: *const u8) -> u64 {
        // SAFETY: the caller's promise.
        u64::from(unsafe { at.cast::<u32>().read_unaligned() } ^ self.0)
    }
}

impl Key for Bits64 {
    const BYTES: usize = 8;

    #[inline(always)]
    unsafe fn read(self, at: *const u8) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<u64>().read_unaligned() ^ self.0 }
    }
}

impl Key for Float32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn read(self, at: *const u8) -> u64 {
        // SAFETY: the caller's promise.
        u64::from(unsafe { at.cast::<f32>().read_unaligned() }.ordered() ^ self.0)
    }
}

impl Key for Float64 {
    const BYTES: usize = 8;

    #[inline(always)]
    unsafe fn read(self, at: *const u8) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<f64>().read_unaligned() }.ordered() ^ self.0
    }
}

/// Records of a width known at compile time.
#[derive(Debug, Clone, Copy)]
struct Fixed<K, const BYTES: usize> {
    key: K,
    offset: usize,
}

impl<K: Key, const BYTES: usize> Fixed<K, BYTES> {
    fn new(key: K, offset: usize) -> Self {
        assert!(offset + K::BYTES <= BYTES, "a key inside its record");
        Fixed { key, offset }
    }

    #[inline(always)]
    fn key(&self, record: &[u8; BYTES]) -> u64 {
        // SAFETY: the key lies inside the record, which was checked when this was made.
        unsafe { self.key.read(record.as_ptr().add(self.offset)) }
    }
}

impl<K: Key, const BYTES: usize> Records for Fixed<K, BYTES> {
    fn record_bytes(&self) -> usize {
        BYTES
    }

    fn key_max(&self) -> u64 {
        u64::MAX >> (64 - 8 * K::BYTES)
    }

    fn add_keys(&self, records: &[u8], keys: &mut Vec<u64>) {
        keys.extend(records.as_chunks().0.iter().map(|record| self.key(record)));
    }

    fn partition(
        &self,
        pieces: &[&[u8]],
        splitters: &Splitters,
        ids: &mut [u16],
        into: &mut [u8],
    ) -> Box<[u32]> {
        let pieces = pieces.iter().map(|piece| piece.as_chunks::<BYTES>().0);
        let into = into.as_chunks_mut::<BYTES>().0;
        let mut classes = Classes::new(splitters);
        let mut at = 0;
        for piece in pieces.clone() {
            let keys = piece.iter().map(|record| self.key(record));
            classes.add(keys, &mut ids[at..at + piece.len()]);
            at += piece.len();
        }
        assert!(at == into.len(), "{at} records where there is room for {}", into.len());
        let is_in_order = classes.is_in_order;
        let starts = classes.starts();
        if is_in_order {
            let mut rest = into;
            for piece in pieces {
                let (own, behind) = rest.split_at_mut(piece.len());
                own.copy_from_slice(piece);
                rest = behind;
            }
            return starts;
        }
        let mut places = starts.clone();
        let mut ids = ids.iter();
        for piece in pieces {
            for (record, id) in piece.iter().zip(&mut ids) {
                // SAFETY: the numbers were written when the records were counted, and are those of buckets.
                let place = unsafe { places.get_unchecked_mut(usize::from(*id)) };
                // SAFETY: places begin where the counts of these same numbers say, so each record has a place of its
                // own, and there are as many as `into` has, which was compared.
                unsafe { *into.get_unchecked_mut(*place as usize) = *record };
                *place += 1;
            }
        }
        starts
    }

    fn sort(&self, bench: &mut Bench, bytes: usize) {
        let records = bench.records[..bytes].as_chunks_mut::<BYTES>().0;
        let spare = bench.spare[..bytes].as_chunks_mut::<BYTES>().0;
        radix::sort(records, spare, |record| self.key(record), &mut bench.digits);
    }

    fn bench_bytes(&self, bytes: usize) -> usize {
        2 * bytes
    }
}

/// Records of any width: their keys are sorted with their numbers, then the records are moved.
#[derive(Debug, Clone, Copy)]
struct Wide<K> {
    key: K,
    offset: usize,
    record_bytes: usize,
}

impl<K: Key> Wide<K> {
    #[inline(always)]
    fn key(&self, record: &[u8]) -> u64 {
        assert!(record.len() == self.record_bytes, "a whole record");
        // SAFETY: the key lies inside the record, which was checked when this was made.
        unsafe { self.key.read(record.as_ptr().add(self.offset)) }
    }
}

impl<K: Key> Records for Wide<K> {
    fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    fn key_max(&self) -> u64 {
        u64::MAX >> (64 - 8 * K::BYTES)
    }

    fn add_keys(&self, records: &[u8], keys: &mut Vec<u64>) {
        keys.extend(records.chunks_exact(self.record_bytes).map(|record| self.key(record)));
    }

    fn partition(
        &self,
        pieces: &[&[u8]],
        splitters: &Splitters,
        ids: &mut [u16],
        into: &mut [u8],
    ) -> Box<[u32]> {
        let bytes = self.record_bytes;
        let mut classes = Classes::new(splitters);
        let mut at = 0;
        for piece in pieces {
            let records = piece.chunks_exact(bytes);
            let end = at + records.len();
            classes.add(records.map(|record| self.key(record)), &mut ids[at..end]);
            at = end;
        }
        assert!(at * bytes == into.len(), "room for exactly {at} records");
        let starts = classes.starts();
        let records = pieces.iter().flat_map(|piece| piece.chunks_exact(bytes));
        let mut places = starts.clone();
        for (record, id) in records.zip(ids.iter()) {
            let place = &mut places[usize::from(*id)];
            into[*place as usize * bytes..][..bytes].copy_from_slice(record);
            *place += 1;
        }
        starts
    }

    fn sort(&self, bench: &mut Bench, bytes: usize) {
        let Bench { records, spare, entries, spare_entries, digits } = bench;
        let width = self.record_bytes;
        let list = records[..bytes].chunks_exact(width);
        let entries = &mut entries[..list.len()];
        let spare_entries = &mut spare_entries[..list.len()];
        for ((entry, record), number) in entries.iter_mut().zip(list).zip(0..) {
            *entry = Entry { key: self.key(record), number };
        }
        radix::sort(entries, spare_entries, |entry| entry.key, digits);
        for (into, entry) in spare[..bytes].chunks_exact_mut(width).zip(entries) {
            into.copy_from_slice(&records[entry.number as usize * width..][..width]);
        }
        std::mem::swap(records, spare);
    }

    fn bench_bytes(&self, bytes: usize) -> usize {
        2 * bytes + bytes / self.record_bytes * 2 * size_of::<Entry>()
    }
}

/// Counts records by bucket while numbering them.
struct Classes<'s> {
    splitters: &'s Splitters,
    counts: Box<[u32]>,
    before: u16,
    /// Whether the records are already in bucket order.
    is_in_order: bool,
}

impl<'s> Classes<'s> {
    fn new(splitters: &'s Splitters) -> Self {
        let counts = vec![0; splitters.buckets() + 1].into_boxed_slice();
        Classes { splitters, counts, before: 0, is_in_order: true }
    }

    #[inline(always)]
    fn add(&mut self, keys: impl ExactSizeIterator<Item = u64>, ids: &mut [u16]) {
        assert!(keys.len() == ids.len(), "a number for each record");
        match self.splitters.is_table() {
            true => self.add_by::<false>(keys, ids),
            false => self.add_by::<true>(keys, ids),
        }
    }

    #[inline(always)]
    fn add_by<const SEARCHES: bool>(
        &mut self,
        mut keys: impl Iterator<Item = u64>,
        ids: &mut [u16],
    ) {
        let (mut before, mut is_in_order) = (self.before, self.is_in_order);
        let counts = &mut *self.counts;
        for ids in ids.chunks_mut(AT_ONCE) {
            let mut some = [0; AT_ONCE];
            some.iter_mut().zip(&mut keys).for_each(|(place, key)| *place = key);
            let buckets = self.splitters.buckets_of::<SEARCHES>(&some);
            for (id, bucket) in ids.iter_mut().zip(buckets) {
                *id = bucket;
                counts[usize::from(bucket)] += 1;
                is_in_order &= before <= bucket;
                before = bucket;
            }
        }
        (self.before, self.is_in_order) = (before, is_in_order);
    }

    /// Records before each bucket, and in total.
    fn starts(self) -> Box<[u32]> {
        let (mut starts, mut sum) = (self.counts, 0);
        for start in &mut starts {
            sum += std::mem::replace(start, sum);
        }
        starts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stdout)]
    use std::time::Instant;

    use headrace_io::random::Random;

    use super::*;

    /// `cargo test --release -p headrace-ooc --lib -- --ignored --nocapture speed_of_the_kernels`
    #[test]
    #[ignore = "measures"]
    fn speed_of_the_kernels() {
        let mut random = Random(0);
        let input: Vec<u8> = (0..4 << 20).flat_map(|_| random.draw().to_le_bytes()).collect();
        for (record_bytes, key) in [
            (4, NumberType::I32),
            (8, NumberType::I64),
            (8, NumberType::F64),
            (12, NumberType::I64),
            (16, NumberType::I64),
            (32, NumberType::I64),
        ] {
            let layout = RecordLayout { record_bytes, key, key_offset: 0 };
            let records = of_layout(&layout, Order::Ascending);
            let input = &input[..input.len() / record_bytes * record_bytes];
            let mut keys = Vec::new();
            records.add_keys(&input[..1 << 20], &mut keys);
            let splitters = Splitters::of_sample(&mut keys, 2000, records.key_max());
            let chunk = (8 << 20) / record_bytes * record_bytes;
            let mut ids = vec![0; chunk / record_bytes];
            let mut into = vec![0; chunk];
            let per_key = |took: std::time::Duration, bytes: usize| {
                took.as_nanos() as f64 / (bytes / record_bytes) as f64
            };
            let best =
                |run: &mut dyn FnMut() -> f64| (0..5).map(|_| run()).fold(f64::MAX, f64::min);
            let partitioned = best(&mut || {
                let started = Instant::now();
                for piece in input.chunks_exact(chunk) {
                    records.partition(&[piece], &splitters, &mut ids, &mut into);
                }
                per_key(started.elapsed(), input.len() / chunk * chunk)
            });
            // Keys in eight crowds: they must be searched for.
            let (mut crowds, end) = (input[..chunk].to_vec(), key.bytes());
            for key in crowds.chunks_exact_mut(record_bytes) {
                key[end - 1] &= 0xe0;
                key[end - 2] = 0;
            }
            keys.clear();
            records.add_keys(&crowds[..chunk / 16 / record_bytes * record_bytes], &mut keys);
            let splitters = Splitters::of_sample(&mut keys, 2000, records.key_max());
            assert!(!splitters.is_table());
            let searched = best(&mut || {
                let started = Instant::now();
                records.partition(&[&crowds], &splitters, &mut ids, &mut into);
                per_key(started.elapsed(), chunk)
            });
            print!(
                "{record_bytes:2} bytes, {key}: partition {partitioned:.2} ns, {searched:.2} ns;"
            );
            for bucket in [64 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20] {
                let bucket = bucket / record_bytes * record_bytes;
                let mut bench = Bench::new(&*records, bucket);
                let sorted = best(&mut || {
                    let started = Instant::now();
                    let buckets = input.chunks_exact(bucket).take(8);
                    let bytes = buckets.len() * bucket;
                    for piece in buckets {
                        bench.records.copy_from_slice(piece);
                        records.sort(&mut bench, bucket);
                    }
                    per_key(started.elapsed(), bytes)
                });
                print!(" {} KiB {sorted:.2} ns;", bucket >> 10);
            }
            let std = best(&mut || {
                let mut words: Vec<u64> = input[..512 << 10]
                    .as_chunks()
                    .0
                    .iter()
                    .map(|w| u64::from_le_bytes(*w))
                    .collect();
                let started = Instant::now();
                words.sort_unstable();
                started.elapsed().as_nanos() as f64 / words.len() as f64
            });
            println!(" std of 512 KiB of u64 {std:.2} ns");
        }
    }
}
