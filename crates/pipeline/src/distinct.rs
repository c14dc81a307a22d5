//! About how many different hashes there were: HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog: the analysis of a
//! near-optimal cardinality estimation algorithm", 2007).

/// Bits of a hash that tell its register.
const REGISTER_BITS: u32 = 11;
const REGISTERS: usize = 1 << REGISTER_BITS;

/// A count of different hashes, with an error of about two percent.
#[derive(Debug, Default)]
pub struct DistinctCount {
    /// Of the hashes of each register, one more than the most zeros that one of them ends with.
    registers: Vec<u8>,
}

impl DistinctCount {
    /// Counts hashes. Their high bits may be equal, as those of a partition's hashes are.
    pub fn add(&mut self, hashes: &[u64]) {
        self.registers.resize(REGISTERS, 0);
        for &hash in hashes {
            let register = &mut self.registers[hash as usize % REGISTERS];
            *register = (*register).max((hash >> REGISTER_BITS).trailing_zeros() as u8 + 1);
        }
    }

    /// What both have counted.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        self.registers.resize(REGISTERS, 0);
        let pairs = self.registers.iter_mut().zip(&other.registers);
        pairs.for_each(|(own, other)| *own = (*own).max(*other));
        self
    }

    /// How many different ones there were, about.
    pub fn estimate(&self) -> f64 {
        /// For as many registers.
        const BIAS: f64 = 0.7213 / (1.0 + 1.079 / REGISTERS as f64);
        let count = REGISTERS as f64;
        let harmonic: f64 = self.registers.iter().map(|&rank| 0.5f64.powi(rank.into())).sum();
        let estimate = BIAS * count * count / harmonic;
        let empty = self.registers.iter().filter(|&&rank| rank == 0).count();
        // Few hashes are counted better by the registers that none of them hit.
        if estimate <= 2.5 * count && empty > 0 {
            count * (count / empty as f64).ln()
        } else {
            estimate
        }
    }
}

#[cfg(test)]
mod tests {
    use headrace_columns::hash::hash_keys;
    use headrace_columns::vector::{Data, Vector};

    use super::*;

    #[test]
    fn different_hashes_are_counted_once() {
        let mut distinct = DistinctCount::default();
        let mut hashes = Vec::new();
        for end in [10i64, 1_000, 20_000, 300_000, 2_000_000] {
            hash_keys(
                &[&Vector::new(Data::I64((0..end).collect::<Vec<_>>().into()))],
                end as usize,
                &mut hashes,
            );
            for _ in 0..2 {
                distinct.add(&hashes);
                let error = distinct.estimate() / end as f64 - 1.0;
                assert!(error.abs() < 0.08, "{end}: {error}");
            }
        }
    }
}
