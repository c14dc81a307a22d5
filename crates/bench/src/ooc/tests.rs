//! Points of an operator that answers what it is told to.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use headrace_flow::{AccessPath, RaceError};
use headrace_ooc::{OocError, Options, Processor, Report};

use super::error::Unmeasured;
use super::measure::{Setup, Subject};
use super::operator::{Again, Input, Operator, Ran};
use super::record::{Figure, Limits};
use super::*;
use crate::transfer::{CacheState, PathChoice};

/// Answers with the number of the call, from a way that is not O_DIRECT.
#[derive(Default)]
struct Counting {
    calls: AtomicUsize,
    /// All calls find the same.
    is_constant: bool,
}

impl Operator for Counting {
    fn name(&self) -> &'static str {
        "count"
    }

    fn records_name(&self) -> &'static str {
        "calls"
    }

    fn input_bytes_max(&self, space_bytes: u64) -> u64 {
        space_bytes
    }

    fn generate(
        &self,
        folder: &Path,
        bytes: u64,
        _selectivity: Option<f64>,
        _options: &Options,
    ) -> Result<Input, OocError> {
        let path = folder.join("in");
        std::fs::write(&path, vec![1; bytes as usize]).unwrap();
        let output = folder.join("out");
        Ok(Input { paths: vec![path], output, bytes, records: bytes, selectivity: None })
    }

    fn ready<'a>(
        &'a self,
        input: &'a Input,
        _source: &Source,
        _limits: &Limits,
        _options: &Options,
    ) -> Result<Again<'a>, OocError> {
        Ok(Box::new(|options| {
            if options.access == AccessPath::Direct {
                let (access, file) = (options.access, "in".to_string());
                let reason = "it is refused".to_string();
                return Err(RaceError::PathUnavailable { access, file, reason }.into());
            }
            assert!(!input.output.exists(), "the output of the run before is there");
            std::fs::write(&input.output, "out").unwrap();
            let call = self.calls.fetch_add(1, Relaxed) as u64;
            let keys = if self.is_constant { 7 } else { call };
            // The first call is the slowest.
            let wall_ns = 5000 - 1000 * call;
            let report = Report { wall_ns, plan_ns: 3, ..Report::default() };
            Ok(Ran { answer: Answer::Keys(keys), report })
        }))
    }
}

fn setup(ways: &'static [PathChoice], cache: CacheState) -> Setup {
    let name = "cpu + psync".to_string();
    let variant = Variant { name, processor: Processor::Cpu, source: Source::Files(ways) };
    Setup { cache, ..Setup::of(Figure::Throughput, &variant) }
}

fn measured<T>(operator: &Counting, is_quick: bool, look: impl FnOnce(&mut Subject<'_>) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let plan = OocPlan {
        benchmarks: Vec::new(),
        folder: folder.path().to_path_buf(),
        max_bytes: 1 << 20,
        is_quick,
        command: String::new(),
        cancel: Arc::default(),
    };
    let input = operator.generate(folder.path(), 10_000, None, &Options::default()).unwrap();
    let limits = Limits::default();
    look(&mut Subject::new((&plan, operator), limits, Some("there is none"), &input))
}

const WAYS: &[PathChoice] = &[PathChoice::Direct, PathChoice::Pread];

#[test]
fn the_median_and_the_best_are_those_of_the_runs_after_the_warm_up() {
    let operator = Counting { is_constant: true, ..Counting::default() };
    let hot = setup(WAYS, CacheState::Hot);
    let point = measured(&operator, false, |subject| subject.measure(&hot)).unwrap().point;
    assert_eq!(operator.calls.load(Relaxed), 4);
    assert_eq!(point.runs_s, [4e-6, 3e-6, 2e-6]);
    assert_eq!((point.best_s, point.median_s, point.gb_per_s), (2e-6, 3e-6, 10.0 / 3.0));
    assert_eq!((point.stages.plan_ns, point.answer), (3, Answer::Keys(7)));
    assert!(point.cache.unwrap().resident_share_before.is_some_and(|share| share > 0.9));
}

#[test]
fn the_next_way_is_taken_and_that_is_said() {
    let operator = Counting::default();
    let cold = setup(WAYS, CacheState::Cold);
    let point = measured(&operator, true, |subject| subject.measure(&cold)).unwrap().point;
    assert_eq!((point.way, point.runs_s.len()), (Some("pread"), 1));
    let note = &point.notes[0];
    assert!(note.starts_with("not by direct: ") && note.contains("it is refused"), "{note}");
    let only_direct = setup(&WAYS[..1], CacheState::Cold);
    let told = measured(&operator, true, |subject| subject.measure(&only_direct)).unwrap_err();
    assert!(matches!(told, Unmeasured::Unavailable(why) if why.contains("it is refused")));
}

#[test]
fn answers_that_differ_end_everything() {
    let cold = setup(WAYS, CacheState::Cold);
    let told = measured(&Counting::default(), true, |subject| {
        subject.measure(&cold).unwrap();
        subject.measure(&cold).unwrap_err()
    });
    let Unmeasured::Ended(error) = told else { panic!("{told:?}") };
    assert!(matches!(*error, OocBenchError::Answers { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("found 0 keys") && text.contains("found 1 keys"), "{text}");
}

#[test]
fn without_a_gpu_its_variants_have_the_reason() {
    let mut gpu = setup(WAYS, CacheState::Cold);
    gpu.variant.processor = Processor::Cuda;
    let operator = Counting::default();
    let told = measured(&operator, true, |subject| subject.measure(&gpu)).unwrap_err();
    assert!(matches!(told, Unmeasured::Unavailable(why) if why == "there is none"));
    assert_eq!(operator.calls.load(Relaxed), 0);
}
