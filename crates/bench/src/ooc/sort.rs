//! The sort of randomly ordered int64 into another file.

use std::path::Path;
use std::sync::Arc;

use headrace_flow::WriteAccess;
use headrace_io::{AlignedBuffer, ReadAt, SourceFile};
use headrace_ooc::generate::{KeyOrder, KeysJob, keys};
use headrace_ooc::sort::{Order, RecordLayout, SortJob, sort};
use headrace_ooc::{NumberType, OocError, Options};

use super::Answer;
use super::memory::{Loaded, WithLoaded, check_fits};
use super::operator::{Again, Input, Limits, Operator, Ran, Source};

const KEY_BYTES: u64 = 8;

/// Bytes per step of checking that a result is in order.
const PIECE_BYTES: usize = 16 << 20;

/// See the [module](self).
pub(super) struct Sort;

impl Operator for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn records_name(&self) -> &'static str {
        "records"
    }

    /// Input, result, and temporary files of the same size, whose pieces start at whole blocks.
    fn input_bytes_max(&self, space_bytes: u64) -> u64 {
        space_bytes / 13 * 4
    }

    fn generate(
        &self,
        folder: &Path,
        bytes: u64,
        _selectivity: Option<f64>,
        options: &Options,
    ) -> Result<Input, OocError> {
        let (path, records) = (folder.join("random.i64"), bytes / KEY_BYTES);
        let job = KeysJob {
            outputs: vec![(path.clone(), records)],
            number: NumberType::I64,
            order: KeyOrder::Random,
            selectivity: 0.0,
            skew: 0.0,
            repeats: 1,
            seed: 1,
        };
        keys(&job, options)?;
        Ok(Input {
            paths: vec![path],
            output: folder.join("sorted.i64"),
            bytes: records * KEY_BYTES,
            records,
            selectivity: None,
        })
    }

    fn ready<'a>(
        &'a self,
        input: &'a Input,
        source: &Source,
        limits: &Limits,
        options: &Options,
    ) -> Result<Again<'a>, OocError> {
        match source {
            Source::Files(_) => Ok(Box::new(|options| sorted(input, options))),
            Source::HostMemory => {
                let bytes = input.bytes;
                check_fits("the records in memory", "host memory", bytes, limits.host_bytes)?;
                let files = Arc::new(WithLoaded(Loaded::read(&input.paths[0], options)?));
                Ok(Box::new(move |options| {
                    // What is written stays in the page cache.
                    let write_access = WriteAccess::Buffered;
                    let files = files.clone();
                    let mut ran =
                        sorted(input, &Options { files, write_access, ..options.clone() })?;
                    ran.report.notes.push("the result goes to the page cache".to_string());
                    Ok(ran)
                }))
            }
            Source::DeviceMemory => Err(OocError::usage(
                "the sort takes its records from files, also where device memory holds all of them",
                "the other variants",
            )),
        }
    }
}

fn sorted(input: &Input, options: &Options) -> Result<Ran, OocError> {
    let job = SortJob {
        input: input.paths[0].clone(),
        output: input.output.clone(),
        layout: RecordLayout::keys(NumberType::I64),
        order: Order::Ascending,
        temporary_folder: None,
        temporary_limit_bytes: None,
    };
    let report = sort(&job, options)?;
    let answer = look_at(&input.output, options)?;
    Ok(Ran { answer, report })
}

/// # Errors
/// A result that is not in order; errors of reading it.
fn look_at(path: &Path, options: &Options) -> Result<Answer, OocError> {
    let file = SourceFile::open(path)?;
    let mut buffer = AlignedBuffer::allocate(PIECE_BYTES)?;
    let (mut last, mut digest, mut offset) = (i64::MIN, 0u64, 0);
    while offset < file.size_bytes() {
        if options.token.is_cancelled() {
            return Err(OocError::Cancelled);
        }
        let bytes = (file.size_bytes() - offset).min(PIECE_BYTES as u64) as usize;
        let piece = &mut buffer.as_mut_slice()[..bytes];
        file.read_exact_at(offset, piece)?;
        for key in bytemuck::cast_slice::<u8, i64>(piece) {
            if *key < last {
                let what = format!("{key} behind {last}, before byte {}", offset + bytes as u64);
                return Err(OocError::input(path, what, "please report it"));
            }
            last = *key;
            digest =
                (digest ^ key.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        offset += bytes as u64;
    }
    Ok(Answer::Sorted { records: offset / KEY_BYTES, digest })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(keys: &[i64]) -> Result<Answer, OocError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        std::fs::write(&path, bytemuck::cast_slice::<i64, u8>(keys)).unwrap();
        look_at(&path, &Options::default())
    }

    #[test]
    fn results_are_looked_at() {
        let sorted = told(&[-3, 1, 1, 9]).unwrap();
        assert!(matches!(sorted, Answer::Sorted { records: 4, .. }), "{sorted}");
        assert_eq!(sorted, told(&[-3, 1, 1, 9]).unwrap());
        assert_ne!(sorted, told(&[-3, 1, 2, 9]).unwrap());
        assert!(told(&[1, 0]).unwrap_err().to_string().contains("0 behind 1"));
    }
}
