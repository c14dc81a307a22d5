//! Results of calls, batch by batch.

use std::ops::Range;

use arrow_array::ArrayRef;

use crate::ExecError;

/// The results of calls for rows that are ready.
pub struct Results<'r> {
    /// Where their batches end.
    ends: &'r [usize],
    /// By call and batch.
    pub of_calls: Vec<Vec<ArrayRef>>,
}

impl<'r> Results<'r> {
    /// None yet, of so many calls.
    pub fn new(ends: &'r [usize], calls: usize) -> Self {
        Self { ends, of_calls: vec![Vec::new(); calls] }
    }

    /// Makes the results of some calls for each batch, of the rows that it has.
    pub fn put(
        &mut self,
        calls: &[usize],
        mut of_rows: impl FnMut(Range<usize>) -> Result<Vec<ArrayRef>, ExecError>,
    ) -> Result<(), ExecError> {
        let mut begin = 0;
        for &end in self.ends {
            for (&call, array) in calls.iter().zip(of_rows(begin..end)?) {
                self.of_calls[call].push(array);
            }
            begin = end;
        }
        Ok(())
    }
}
