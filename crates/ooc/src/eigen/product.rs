//! A square matrix in files, as that what a block of vectors is multiplied with: sparse or dense.

use headrace_flow::RaceReport;
use headrace_io::Reservation;

use crate::Result;
use crate::matvec::{Operands, Passes as DensePasses};
use crate::sparse::{Passes as SparsePasses, Sums};
use crate::vectors::Vectors;

/// Products of one matrix, which goes by once for all vectors of a block.
pub(super) trait Product {
    /// The product, vector after vector, with the memory that is reserved for it.
    ///
    /// # Errors
    /// Those of the race, the files and the memory.
    fn of(&mut self, x: &Vectors) -> Result<(Vec<f64>, Reservation, RaceReport)>;
}

impl Product for SparsePasses<'_> {
    fn of(&mut self, x: &Vectors) -> Result<(Vec<f64>, Reservation, RaceReport)> {
        let shape = (self.csr.rows, self.csr.entries);
        let mut sums = Sums::zero(self.memory(), shape, x.count)?;
        let race = self.multiply(x, &mut sums)?;
        let (values, memory) = sums.into_parts();
        Ok((values, memory, race))
    }
}

impl Product for DensePasses<'_> {
    fn of(&mut self, x: &Vectors) -> Result<(Vec<f64>, Reservation, RaceReport)> {
        let operands = match self.is_transposed() {
            false => Operands { forward: Some(x), transposed: None },
            true => Operands { forward: None, transposed: Some(x) },
        };
        let (results, race) = self.run(operands)?;
        let (values, memory) = results.into_parts();
        Ok((values, memory, race))
    }
}
