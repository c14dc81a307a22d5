//! The number of lines of each order, and the first row of each order.
//!
//! The counts are those of the reference generator (dbgen, stream `O_LCNT`): Park and Miller's
//! minimal standard generator, x → 16807·x mod (2^31 − 1) ("Random number generators: good ones are
//! hard to find", CACM 1988), started at 1434868289, one step per order, scaled to 1..=7. So the
//! number of rows at a scale is the known one (6,001,215 at scale 1, 600,037,902 at scale 100) and
//! the same for every seed. A power of the multiplier jumps to any order.

const MODULUS: u64 = (1 << 31) - 1;
const MULTIPLIER: u64 = 16_807;
const ORIGIN: u64 = 1_434_868_289;

/// An order has at most this many lines.
pub(crate) const LINES_MAX: u32 = 7;

/// Orders between two checkpoints of a [`RowIndex`].
const ORDERS_PER_CHECKPOINT: u64 = 4096;

/// a · b mod 2^31 − 1 for a, b below the modulus.
#[inline]
const fn multiply(a: u64, b: u64) -> u64 {
    let product = a * b;
    // 2^31 ≡ 1, so the high part may be added to the low part.
    let folded = (product & MODULUS) + (product >> 31);
    if folded >= MODULUS { folded - MODULUS } else { folded }
}

const fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, base);
        }
        base = multiply(base, base);
        exponent >>= 1;
    }
    result
}

/// The line counts of consecutive orders, without end.
#[derive(Clone, Debug)]
pub(crate) struct LineCounts {
    state: u64,
}

impl LineCounts {
    /// Starts at the order with this zero-based number.
    pub(crate) const fn starting_at(order: u64) -> Self {
        Self { state: multiply(ORIGIN, power(MULTIPLIER, order)) }
    }

    /// The next order's number of lines, 1..=7.
    #[inline]
    pub(crate) const fn next_count(&mut self) -> u32 {
        self.state = multiply(self.state, MULTIPLIER);
        1 + (self.state * LINES_MAX as u64 / MODULUS) as u32
    }
}

/// Finds the order of a row: rows before every 4096th order, and a walk from there.
#[derive(Debug)]
pub(crate) struct RowIndex {
    orders: u64,
    /// `rows_before[c]` = rows of the orders before order c · 4096; the last entry is the total.
    rows_before: Vec<u64>,
}

/// An order, and its first row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderStart {
    /// Zero-based.
    pub(crate) order: u64,
    pub(crate) row: u64,
}

impl RowIndex {
    /// Counts the lines of `orders` orders, on all cores (about 2 ns per order and core).
    pub(crate) fn new(orders: u64) -> Self {
        let checkpoints = orders.div_ceil(ORDERS_PER_CHECKPOINT) as usize;
        let mut rows = vec![0_u64; checkpoints];
        let threads = headrace_io::system::cores();
        let share = checkpoints.div_ceil(threads).max(64);
        std::thread::scope(|scope| {
            for (piece, slots) in rows.chunks_mut(share).enumerate() {
                let first = (piece * share) as u64;
                scope.spawn(move || count_lines(first, slots, orders));
            }
        });
        let mut rows_before = Vec::with_capacity(checkpoints + 1);
        let mut total = 0;
        for count in rows {
            rows_before.push(total);
            total += count;
        }
        rows_before.push(total);
        Self { orders, rows_before }
    }

    /// Rows of all orders.
    pub(crate) fn rows(&self) -> u64 {
        self.rows_before.last().copied().unwrap_or(0)
    }

    /// The order that contains `row`, which must be less than [`RowIndex::rows`].
    pub(crate) fn locate(&self, row: u64) -> OrderStart {
        assert!(row < self.rows(), "row {row} of {}", self.rows());
        let checkpoint = self.rows_before.partition_point(|&before| before <= row) - 1;
        let mut order = checkpoint as u64 * ORDERS_PER_CHECKPOINT;
        let mut start = self.rows_before[checkpoint];
        let mut counts = LineCounts::starting_at(order);
        loop {
            let next = start + u64::from(counts.next_count());
            if row < next || order + 1 >= self.orders {
                return OrderStart { order, row: start };
            }
            start = next;
            order += 1;
        }
    }
}

/// Fills `slots[i]` with the number of rows between checkpoint `first + i` and the next.
fn count_lines(first: u64, slots: &mut [u64], orders: u64) {
    let mut order = first * ORDERS_PER_CHECKPOINT;
    let mut counts = LineCounts::starting_at(order);
    for slot in slots {
        let end = orders.min(order + ORDERS_PER_CHECKPOINT);
        *slot = (order..end).map(|_| u64::from(counts.next_count())).sum();
        order = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplier_has_its_published_check_value() {
        // Park and Miller: from 1, the 10,000th number is 1043618065.
        assert_eq!(power(MULTIPLIER, 10_000), 1_043_618_065);
    }

    #[test]
    fn totals_are_those_of_the_reference_generator() {
        assert_eq!(RowIndex::new(1_500_000).rows(), 6_001_215);
        assert_eq!(RowIndex::new(15_000_000).rows(), 59_986_052);
        assert_eq!(RowIndex::new(150_000_000).rows(), 600_037_902);
    }

    #[test]
    fn jumps_agree_with_walking() {
        let mut walk = LineCounts::starting_at(0);
        for order in 0..10_000 {
            assert_eq!(walk.clone().next_count(), LineCounts::starting_at(order).next_count());
            walk.next_count();
        }
    }

    #[test]
    fn every_row_is_located() {
        let index = RowIndex::new(10_007);
        let mut counts = LineCounts::starting_at(0);
        let mut row = 0;
        for order in 0..10_007 {
            let start = OrderStart { order, row };
            for _ in 0..counts.next_count() {
                assert_eq!(index.locate(row), start);
                row += 1;
            }
        }
        assert_eq!(row, index.rows());
    }
}
