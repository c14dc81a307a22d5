//! The interface of a measured operator, and the variants of all measurements.

use std::fmt;
use std::path::{Path, PathBuf};

use headrace_ooc::{OocError, Options, Processor, Report};
use serde::Serialize;

use crate::transfer::PathChoice;

/// Memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Host memory for an operator: half of what is free.
    pub host_bytes: u64,
    /// Device memory for an operator, if there is a device.
    pub device_bytes: Option<u64>,
}

/// Input files.
#[derive(Debug, Clone)]
pub(super) struct Input {
    /// The files to read completely.
    pub paths: Vec<PathBuf>,
    /// A possible path for a result.
    pub output: PathBuf,
    /// Bytes of all of `paths`.
    pub bytes: u64,
    /// Keys, records or values in them.
    pub records: u64,
    /// Share of common keys, if applicable.
    pub selectivity: Option<f64>,
}

/// The location of a variant's input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// In files, read by the first available of these access paths; results go to a file.
    Files(&'static [PathChoice]),
    /// In host memory; results are counted and discarded.
    HostMemory,
    /// In device memory; only the kernels are timed.
    DeviceMemory,
}

/// A way to run an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// The processor: [`Processor::Cpu`] or [`Processor::Cuda`].
    pub processor: Processor,
    /// The location of the input.
    pub source: Source,
}

/// O_DIRECT by threads, or the page cache if a folder refuses it.
const PSYNC: &[PathChoice] = &[PathChoice::Direct, PathChoice::Pread];

/// O_DIRECT by io_uring.
const ASYNC: &[PathChoice] = &[PathChoice::Uring];

/// The variants, as in the figures of the papers.
pub(super) fn variants(threads: usize) -> Vec<Variant> {
    let of = |name: String, processor, source| Variant { name, processor, source };
    let (cpu, gpu) = (format!("cpu({threads})"), "gpu");
    vec![
        of("in-core gpu".to_string(), Processor::Cuda, Source::DeviceMemory),
        of(format!("in-core {cpu}"), Processor::Cpu, Source::HostMemory),
        of("gpu without I/O".to_string(), Processor::Cuda, Source::HostMemory),
        of(format!("{cpu} + psync"), Processor::Cpu, Source::Files(PSYNC)),
        of(format!("{cpu} + async"), Processor::Cpu, Source::Files(ASYNC)),
        of(format!("{gpu} + psync"), Processor::Cuda, Source::Files(PSYNC)),
        of(format!("{gpu} + async"), Processor::Cuda, Source::Files(ASYNC)),
    ]
}

/// The result of a run, for comparison between variants.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A number of keys.
    Keys(u64),
    /// Records in this order, as a digest.
    Sorted {
        /// Their number.
        records: u64,
        /// A digest of their order and values.
        digest: u64,
    },
    /// A vector.
    Vector {
        /// Its Euclidean norm.
        norm: f64,
        /// Processors sum in different orders: the maximum distance between two of them.
        distance_max: f64,
        /// Its values.
        #[serde(skip)]
        values: Vec<f64>,
    },
}

impl Answer {
    /// Whether both may be correct.
    pub(super) fn agrees(&self, other: &Answer) -> bool {
        match (self, other) {
            (
                Self::Vector { values, distance_max, .. },
                Self::Vector { values: others, distance_max: other_max, .. },
            ) => {
                let distance_max = distance_max.max(*other_max);
                // Not a number is near to nothing.
                let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= distance_max;
                values.len() == others.len() && values.iter().zip(others).all(is_near)
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(keys) => write!(f, "{keys} keys"),
            Self::Sorted { records, digest } => write!(f, "{records} records ({digest:016x})"),
            Self::Vector { norm, values, .. } => {
                write!(f, "a vector of {} values and norm {norm}", values.len())
            }
        }
    }
}

/// One run.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    pub answer: Answer,
    /// The operator's own report.
    pub report: Report,
}

/// Runs the prepared variant again.
pub(super) type Again<'a> = Box<dyn FnMut(&Options) -> Result<Ran, OocError> + 'a>;

/// An operator of this benchmark.
pub(super) trait Operator {
    /// The name on the command line and in JSON.
    fn name(&self) -> &'static str;

    /// The items of its input: "keys".
    fn records_name(&self) -> &'static str;

    /// The largest input whose inputs, outputs and temporary files fit this space.
    fn input_bytes_max(&self, space_bytes: u64) -> u64;

    /// Shares of common keys to compare; empty if not applicable.
    fn selectivities(&self, _is_quick: bool) -> &'static [f64] {
        &[]
    }

    /// Generates an input.
    ///
    /// # Errors
    /// Those of writing.
    fn generate(
        &self,
        folder: &Path,
        bytes: u64,
        selectivity: Option<f64>,
        options: &Options,
    ) -> Result<Input, OocError>;

    /// Prepares the input for the variant.
    ///
    /// # Errors
    /// [`OocError::Usage`] if the operator does not have the variant; [`OocError::Memory`] if the
    /// input does not fit.
    fn ready<'a>(
        &'a self,
        input: &'a Input,
        source: &Source,
        limits: &Limits,
        options: &Options,
    ) -> Result<Again<'a>, OocError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(values: &[f64]) -> Answer {
        Answer::Vector { norm: 1.0, distance_max: 0.01, values: values.to_vec() }
    }

    #[test]
    fn vectors_agree_as_far_as_sums_may_differ() {
        assert!(vector(&[1.0, 2.0]).agrees(&vector(&[1.005, 2.0])));
        assert!(!vector(&[1.0, 2.0]).agrees(&vector(&[1.02, 2.0])));
        assert!(!vector(&[1.0, 2.0]).agrees(&vector(&[1.0])));
        assert!(!vector(&[f64::NAN]).agrees(&vector(&[f64::NAN])));
        assert!(
            !vector(&[1.0]).agrees(&Answer::Keys(1)) && Answer::Keys(1).agrees(&Answer::Keys(1))
        );
    }
}
