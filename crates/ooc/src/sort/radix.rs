//! A stable sort of records by key, in cache.
//!
//! ```text
//! one look ──► least and greatest key; rising already, or falling? ──► done, or turned round
//!    │
//!    ▼
//! digits of the leading bits, the last of them first ──► runs that agree in all of these bits are sorted the
//!   (as many bits as tell most records apart)             same way, short ones by insertion
//! ```

/// Maximum bits of one round.
const BITS_MAX: u32 = DIGITS_MAX as u32 * DIGIT_BITS_MAX;

/// Number of records for which insertion sort is faster.
const INSERTION_RECORDS: usize = 32;

/// Maximum bits of a digit.
const DIGIT_BITS_MAX: u32 = 11;

/// Maximum digits of one round.
const DIGITS_MAX: usize = 3;

/// Bits to sort by beyond those that number the records: enough to leave few runs.
const MORE_BITS: u32 = 3;

/// Memory for the digit counts.
#[derive(Debug)]
pub(super) struct Digits(Box<[[u32; 1 << DIGIT_BITS_MAX]; DIGITS_MAX]>);

impl Digits {
    pub fn new() -> Digits {
        Digits(Box::new([[0; 1 << DIGIT_BITS_MAX]; DIGITS_MAX]))
    }
}

/// Sorts records by key; equal ones keep their order. `spare` has the same length, with any content.
pub(super) fn sort<T: Copy>(
    records: &mut [T],
    spare: &mut [T],
    key: impl Fn(&T) -> u64 + Copy,
    digits: &mut Digits,
) {
    if records.len() <= INSERTION_RECORDS {
        return insert(records, key);
    }
    let Seen { min, bits, rises, falls } = look(records, key);
    if rises {
        return;
    }
    if falls {
        return records.reverse();
    }
    let telling_bits = records.len().ilog2() + MORE_BITS;
    // As many bits more as cost nothing.
    let whole_digits = telling_bits.div_ceil(DIGIT_BITS_MAX) * DIGIT_BITS_MAX;
    let sorted_bits = bits.min(whole_digits.min(telling_bits + MORE_BITS)).min(BITS_MAX);
    let rest_bits = bits - sorted_bits;
    by_digits(records, spare, |record| (key(record) - min) >> rest_bits, sorted_bits, digits);
    if rest_bits > 0 {
        sort_runs(records, spare, key, |key| (key - min) >> rest_bits, digits);
    }
}

/// Facts from one scan of the records.
struct Seen {
    /// The smallest key.
    min: u64,
    /// Bits in which keys differ from it.
    bits: u32,
    /// No key is below the one before.
    rises: bool,
    /// Every key is below the one before.
    falls: bool,
}

#[inline(always)]
fn look<T>(records: &[T], key: impl Fn(&T) -> u64 + Copy) -> Seen {
    let (mut min, mut max) = (u64::MAX, 0);
    let (mut rises, mut falls) = (true, true);
    let mut before = key(&records[0]);
    for (at, record) in records.iter().enumerate() {
        let key = key(record);
        rises &= before <= key;
        falls &= key < before || at == 0;
        before = key;
        min = min.min(key);
        max = max.max(key);
    }
    Seen { min, bits: u64::BITS - (max - min).leading_zeros(), rises, falls }
}

/// Sorts by a number of `bits` bits, from 1 to [`BITS_MAX`].
#[inline(always)]
fn by_digits<T: Copy>(
    records: &mut [T],
    spare: &mut [T],
    number: impl Fn(&T) -> u64 + Copy,
    bits: u32,
    Digits(counts): &mut Digits,
) {
    let rounds = bits.div_ceil(DIGIT_BITS_MAX);
    let digit_bits = bits.div_ceil(rounds);
    let mask = (1u64 << digit_bits) - 1;
    let digit = |record: &T, round: u32| ((number(record) >> (round * digit_bits)) & mask) as usize;
    let counts = &mut counts[..rounds as usize];
    counts.iter_mut().for_each(|counts| counts[..1 << digit_bits].fill(0));
    for record in records.iter() {
        for (round, counts) in (0..).zip(counts.iter_mut()) {
            counts[digit(record, round) & ((1 << DIGIT_BITS_MAX) - 1)] += 1;
        }
    }
    let mut is_in_spare = false;
    for (round, counts) in (0..).zip(counts.iter_mut()) {
        let counts = &mut counts[..1 << digit_bits];
        if counts.iter().any(|count| *count as usize == records.len()) {
            continue;
        }
        let mut sum = 0;
        for count in counts.iter_mut() {
            sum += std::mem::replace(count, sum);
        }
        let (from, to) = match is_in_spare {
            false => (&*records, &mut *spare),
            true => (&*spare, &mut *records),
        };
        for record in from {
            let place = &mut counts[digit(record, round)];
            to[*place as usize] = *record;
            *place += 1;
        }
        is_in_spare = !is_in_spare;
    }
    if is_in_spare {
        records.copy_from_slice(spare);
    }
}

/// Sorts the runs of equal numbers, after the records are sorted by these.
#[inline(always)]
fn sort_runs<T: Copy>(
    records: &mut [T],
    spare: &mut [T],
    key: impl Fn(&T) -> u64 + Copy,
    number: impl Fn(u64) -> u64,
    digits: &mut Digits,
) {
    let (mut at, mut before) = (1, key(&records[0]));
    while at < records.len() {
        let next = key(&records[at]);
        if before <= next {
            (at, before) = (at + 1, next);
            continue;
        }
        let is_in_run = |record: &T| number(key(record)) == number(next);
        let start =
            records[..at].iter().rposition(|record| !is_in_run(record)).map_or(0, |i| i + 1);
        let rest = records[at..].iter().position(|record| !is_in_run(record));
        let end = rest.map_or(records.len(), |more| at + more);
        match end - start {
            0..=INSERTION_RECORDS => insert(&mut records[start..end], key),
            _ => sort_run(&mut records[start..end], &mut spare[start..end], key, digits),
        }
        (at, before) = (end, key(&records[end - 1]));
    }
}

/// Prevents inlining into itself.
#[inline(never)]
fn sort_run<T: Copy>(
    records: &mut [T],
    spare: &mut [T],
    key: impl Fn(&T) -> u64 + Copy,
    digits: &mut Digits,
) {
    sort(records, spare, key, digits);
}

fn insert<T: Copy>(records: &mut [T], key: impl Fn(&T) -> u64 + Copy) {
    for end in 1..records.len() {
        let record = records[end];
        let own = key(&record);
        let mut at = end;
        while at > 0 && key(&records[at - 1]) > own {
            records[at] = records[at - 1];
            at -= 1;
        }
        records[at] = record;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_as_std_does_whatever_the_keys_are() {
        let mut digits = Digits::new();
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state.rotate_left(29) ^ state >> 17
        };
        for records in [0, 1, 2, 31, 32, 33, 34, 100, 255, 1000, 4097, 70_000] {
            for shape in 0..10 {
                let mut list: Vec<(u64, usize)> = (0..records)
                    .map(|at| {
                        let key = random();
                        let key = match shape {
                            0 => key,
                            1 => key % 3,
                            2 => key & 0xff00_ff00_0000_00ff,
                            3 => at as u64,
                            4 => u64::MAX - at as u64,
                            // Runs that agree in their leading bits, of which some are long.
                            5 => (key % 5) << 62 | (key >> 50),
                            6 => 1 << (key % 64),
                            // Falling, but for pairs that must not be turned round.
                            8 => u64::MAX - at as u64 / 2,
                            7 => {
                                if at == 0 {
                                    u64::MAX
                                } else {
                                    key % 4000
                                }
                            }
                            _ => 5,
                        };
                        (key, at)
                    })
                    .collect();
                let mut expected = list.clone();
                expected.sort_by_key(|(key, _)| *key);
                let mut spare = list.clone();
                sort(&mut list, &mut spare, |(key, _)| *key, &mut digits);
                assert!(list == expected, "{records} records of shape {shape}");
            }
        }
    }
}
