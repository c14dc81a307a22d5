//! What a thread or a kernel found to be wrong with a matrix, as an error with the file and the place.

use headrace_flow::BoxError;
use parking_lot::Mutex;

use super::chunk::Fault;
use super::csr::Csr;
use crate::OocError;

/// The first fault that a thread found.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Option<Fault>>);

impl Faults {
    /// Notes a fault; the error ends the race.
    pub fn note(&self, fault: Fault) -> BoxError {
        self.0.lock().get_or_insert(fault);
        "the matrix is damaged".into()
    }

    /// Whether one was found.
    pub fn are_any(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The cause of a failed race: the fault, if one was seen.
    pub fn explain(&self, error: OocError, csr: &Csr) -> OocError {
        match error {
            OocError::Race(_) => self.found(csr).unwrap_or(error),
            error => error,
        }
    }

    /// The fault, in words.
    pub fn found(&self, csr: &Csr) -> Option<OocError> {
        Some(match self.0.lock().take()? {
            Fault::Indptr { row } => {
                let what = format!(
                    "indptr at row {row} is below the row before, or beyond the last entry"
                );
                let remedy =
                    "it never decreases, from 0 to the number of indices: write the matrix anew";
                OocError::input(csr.indptr.file.path(), what, remedy)
            }
            Fault::Index { entry, column } => {
                let columns = csr.columns;
                let what = format!(
                    "entry {entry} is in column {column}, there are {columns}, counted from 0"
                );
                let remedy =
                    "a matrix that is not square has its shape in shape.npy: rows, columns";
                OocError::input(csr.indices.file.path(), what, remedy)
            }
        })
    }
}
