//! Points of a scripted operator, and the records of such points.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use headrace_flow::{AccessPath, BytesByPath, RaceError, RaceReport};
use headrace_ooc::{OocError, Options, Processor, Report};

use super::error::Unmeasured;
use super::measure::{Measured, Setup, Subject};
use super::operator::{Again, Input, Limits, Operator, Ran};
use super::record::Figure;
use super::roofline::{Links, judge};
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
        runs: OocPlan::usual_runs(is_quick),
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

/// A variant that reads 1 GB by io_uring, and what else a record has.
fn measured_point(name: &str, cache: CacheState, races: usize) -> Measured {
    let uring = setup(&[PathChoice::Uring], cache);
    let setup = Setup { variant: Variant { name: name.to_string(), ..uring.variant }, ..uring };
    let operator = Counting { is_constant: true, ..Counting::default() };
    let direct = BytesByPath { direct: 1_000_000_000, ..BytesByPath::default() };
    let race = RaceReport { bytes_by_path: direct, chunks: 100, ..RaceReport::default() };
    let pread =
        Setup { variant: Variant { source: Source::Files(&WAYS[1..]), ..setup.variant }, ..setup };
    let mut found = measured(&operator, true, |subject| subject.measure(&pread)).unwrap();
    (found.point.input_bytes, found.point.gb_per_s) = (1_000_000_000, 1.5);
    found.races = vec![race; races];
    found
}

fn plain(operation: &'static str, target: &str, cache: CacheState, gb_per_s: f64) -> PlainRead {
    let (target, memory) = (target.to_string(), None);
    let (way, input_bytes, notes) = ("uring", 1_000_000_000, Vec::new());
    PlainRead { operation, input_bytes, target, memory, cache, way, gb_per_s, notes }
}

#[test]
fn points_are_set_beside_plain_reads_of_the_same_kind_and_the_model() {
    let reads = [
        plain("read", "host", CacheState::Cold, 1.0),
        plain("read", "host", CacheState::Cold, 2.0),
        plain("read", "host", CacheState::Hot, 50.0),
        plain("read", "gpu:0", CacheState::Cold, 7.0),
        PlainRead { input_bytes: 5, ..plain("read", "host", CacheState::Cold, 9.0) },
        plain("write", "host", CacheState::Cold, 8.0),
    ];
    let mut in_core = measured_point("in-core cpu", CacheState::Cold, 1);
    (in_core.point.way, in_core.point.cache, in_core.point.gb_per_s) = (None, None, 0.8);
    let mut all = [
        in_core,
        measured_point("one race", CacheState::Cold, 1),
        measured_point("two races", CacheState::Cold, 2),
        measured_point("hot", CacheState::Hot, 1),
    ];
    judge(&reads, &Links::default(), &mut all);
    let [in_core, one, two, hot] = all.map(|one| one.point);
    assert_eq!((in_core.roofline, in_core.predicted), (None, None));
    let roof = one.roofline.unwrap();
    assert_eq!((roof.gb_per_s, roof.share, roof.way), (2.0, 0.75, "uring"));
    assert_eq!(hot.roofline.unwrap().share, 0.03);
    // The work in memory is the limit; two races share it, and each then waits for storage.
    let one = one.predicted.unwrap();
    assert!((1.25..1.28).contains(&one.seconds) && one.bottleneck == "cpu", "{one:?}");
    let two = two.predicted.unwrap();
    assert!((1.25..1.30).contains(&two.seconds) && two.bottleneck == "cpu", "{two:?}");
}

fn record(points: Vec<Point>, missing: Vec<Missing>) -> OocRecord {
    OocRecord {
        command: "headrace bench ooc".to_string(),
        versions: Versions { headrace: "1", driver: String::new(), nvrtc: String::new() },
        folder: "/data".to_string(),
        max_bytes: 1 << 30,
        runs: 1,
        limits: Limits { host_bytes: 1 << 30, device_bytes: Some(1 << 40) },
        no_gpu: None,
        operators: vec![OperatorRecord {
            operator: "count",
            records_name: "calls",
            sizes_bytes: vec![1_000_000_000],
            detail_bytes: 1_000_000_000,
            has_selectivities: true,
            plain: Vec::new(),
            points,
            missing,
        }],
        partial: None,
    }
}

#[test]
fn a_comparison_without_points_says_why() {
    let empty = record(Vec::new(), Vec::new());
    let text = render::text(&empty);
    // Throughput, stages, chunks, plain, two of ways, selectivity.
    assert_eq!(text.matches("not measured: it ended before").count(), 7, "{text}");
    assert!(text.contains("has a plain read to compare with"), "{text}");
}

#[test]
fn what_is_missing_and_what_failed_are_told_apart() {
    let missing = |figure, variant: &str, bytes, is_failure| Missing {
        figure,
        variant: variant.to_string(),
        input_bytes: bytes,
        reason: format!("reason {is_failure}"),
        is_failure,
    };
    let all = vec![
        missing(Figure::Throughput, "gpu", None, false),
        missing(Figure::Throughput, "other gpu", None, false),
        missing(Figure::Throughput, "broken", Some(2_000_000), true),
        missing(Figure::Methods, "cufile", Some(1_000_000_000), false),
    ];
    let point = measured_point("cpu", CacheState::Cold, 1).point;
    let record = record(vec![point], all);
    assert_eq!(record.failures().map(|one| one.variant.as_str()).collect::<Vec<_>>(), ["broken"]);
    let text = render::text(&record);
    assert!(text.contains("not measured: gpu; other gpu: reason false"), "{text}");
    assert!(text.contains("failed: broken of 2.0 MB: reason true"), "{text}");
    assert!(text.contains("not measured: cufile of 1.000 GB: reason false"), "{text}");
}
