//! Hashes of keys by value: the same for any processor, process and way to hold a value, so
//! that all agree on the partition of a group.

use crate::key::{SEED, canonical_f32, canonical_f64, fold, hash as hash_bytes};
use crate::vector::{Data, Vector};

/// What a NULL counts as.
const NULL: u64 = 0x8ebc_6af0_9c88_c6e3;

/// Bits of a hash that number the partitions of one level.
const LEVEL_BITS: u32 = 8;
/// Levels of partitions; bits below them find a group in its table.
pub const LEVELS: u32 = 3;
/// Most partitions of a level.
pub const FAN_OUT_MAX: usize = 1 << LEVEL_BITS;

/// The partition of a hash among `fan_out` (a power of two) at a level, which divides what was
/// one partition of the level before.
#[inline(always)]
pub fn partition(hash: u64, level: u32, fan_out: usize) -> usize {
    let shift = 64 - LEVEL_BITS * (level + 1);
    (hash >> shift) as usize & (fan_out - 1)
}

/// Numbers of rows in the order of their partitions, each in its own order, and where each partition ends.
pub fn in_order(
    partitions: impl ExactSizeIterator<Item = usize> + Clone,
    fan_out: usize,
) -> (Vec<u32>, Vec<usize>) {
    let mut order = vec![0u32; partitions.len()];
    let mut ends = vec![0usize; fan_out];
    partitions.clone().for_each(|partition| ends[partition] += 1);
    let mut end = 0;
    for partition in &mut ends {
        let begin = end;
        end += *partition;
        *partition = begin;
    }
    for (row, partition) in partitions.enumerate() {
        let place = &mut ends[partition];
        order[*place] = row as u32;
        *place += 1;
    }
    (order, ends)
}

/// Hashes of `rows` keys into `hashes`. Integers count by value whatever their width, codes as
/// integers: what is to agree with others must be text.
pub fn hash_keys(columns: &[&Vector<'_>], rows: usize, hashes: &mut Vec<u64>) {
    hashes.clear();
    hashes.resize(rows, SEED);
    columns.iter().for_each(|column| fold_column(column, hashes));
    hashes.iter_mut().for_each(|hash| *hash = fold(*hash, SEED));
}

fn fold_column(column: &Vector<'_>, hashes: &mut [u64]) {
    macro_rules! fold_words {
        ($values:expr, $word:expr) => {
            fold_values(column, $values, hashes, $word)
        };
    }
    match &column.data {
        Data::Bool(values) | Data::U8(values) => fold_words!(values, |v: u8| u64::from(v)),
        Data::I8(values) => fold_words!(values, |v: i8| i64::from(v) as u64),
        Data::I16(values) => fold_words!(values, |v: i16| i64::from(v) as u64),
        Data::I32(values) => fold_words!(values, |v: i32| i64::from(v) as u64),
        Data::I64(values) => fold_words!(values, |v: i64| v as u64),
        Data::U16(values) => fold_words!(values, |v: u16| u64::from(v)),
        Data::U32(values) => fold_words!(values, |v: u32| u64::from(v)),
        Data::U64(values) => fold_words!(values, |v: u64| v),
        Data::F32(values) => {
            fold_words!(values, |v: f32| u64::from(canonical_f32(v).to_bits()))
        }
        Data::F64(values) => fold_words!(values, |v: f64| canonical_f64(v).to_bits()),
        Data::I128(values) => {
            fold_words!(values, |v: i128| fold(v as u64, (v >> 64) as u64 ^ SEED))
        }
        Data::Str(values) => fold_words!(values, |v: &str| hash_bytes(v.as_bytes())),
        Data::Bytes(values) => fold_words!(values, hash_bytes),
    }
}

#[inline(always)]
fn fold_values<T: Copy>(
    column: &Vector<'_>,
    values: &[T],
    hashes: &mut [u64],
    word: impl Fn(T) -> u64,
) {
    match (&column.validity, column.constant) {
        (None, false) => {
            hashes.iter_mut().zip(values).for_each(|(hash, &v)| *hash = fold(*hash, word(v)));
        }
        (Some(valid), false) => {
            for ((hash, &value), &valid) in hashes.iter_mut().zip(values).zip(valid.iter()) {
                *hash = fold(*hash, if valid != 0 { word(value) } else { NULL });
            }
        }
        (validity, true) => {
            let one = if validity.is_some() { NULL } else { word(values[0]) };
            hashes.iter_mut().for_each(|hash| *hash = fold(*hash, one));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(column: Vector<'_>) -> Vec<u64> {
        let mut hashes = Vec::new();
        hash_keys(&[&column], 2, &mut hashes);
        hashes
    }

    #[test]
    fn a_hash_is_of_the_value_not_of_how_it_is_held() {
        let wide = hashes(Vector::new(Data::I64(vec![-7, 3].into())));
        assert_eq!(wide, hashes(Vector::new(Data::I8(vec![-7, 3].into()))));
        assert_ne!(wide[0], wide[1]);
        let constant = hashes(Vector::constant(Data::I32(vec![-7].into()), false));
        assert_eq!(constant, [wide[0]; 2]);
        let null = Vector::with_validity(Data::I32(vec![-7, 3].into()), Some(vec![1, 0]));
        let null = hashes(null);
        assert_eq!(null[0], wide[0]);
        assert_eq!(null[1], hashes(Vector::constant(Data::I64(vec![9].into()), true))[0]);
        assert_eq!(
            hashes(Vector::new(Data::F64(vec![0.0, f64::NAN].into()))),
            hashes(Vector::new(Data::F64(vec![-0.0, -f64::NAN].into()))),
        );
    }

    #[test]
    fn partitions_of_all_levels_are_filled_evenly() {
        let values: Vec<i64> = (0..65_536).collect();
        let mut hashes = Vec::new();
        hash_keys(&[&Vector::new(Data::I64(values.into()))], 65_536, &mut hashes);
        for level in 0..LEVELS {
            let mut rows = [0u32; 64];
            hashes.iter().for_each(|&hash| rows[partition(hash, level, 64)] += 1);
            assert!(rows.iter().all(|rows| (800..1250).contains(rows)), "{level}: {rows:?}");
        }
    }
}
