//! The intersection of two sorted lists of unique int64 that share some keys.

use std::path::Path;

use headrace_flow::{BytesByPath, RaceReport};
use headrace_io::{ReadAt, SourceFile};
use headrace_ooc::generate::{KeyOrder, KeysJob, keys};
use headrace_ooc::sets::{KeyList, Repeats, SetJob, SetOperation, in_device_memory, run};
use headrace_ooc::{DeviceRoom, NumberType, OocError, Options, Pass, PlainFiles, Report};

use super::Answer;
use super::memory::{Loaded, check_fits};
use super::operator::{Again, Input, Limits, Operator, Ran, Source};

const KEY_BYTES: u64 = 8;

/// The default share of common keys.
const SELECTIVITY: f64 = 0.5;

/// See the [module](self).
pub(super) struct Intersect;

impl Operator for Intersect {
    fn name(&self) -> &'static str {
        "intersect"
    }

    fn records_name(&self) -> &'static str {
        "keys"
    }

    /// The result is at most one of two lists of equal length.
    fn input_bytes_max(&self, space_bytes: u64) -> u64 {
        space_bytes / 3 * 2
    }

    fn selectivities(&self, is_quick: bool) -> &'static [f64] {
        if is_quick { &[0.0, 0.5, 1.0] } else { &[0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0] }
    }

    fn generate(
        &self,
        folder: &Path,
        bytes: u64,
        selectivity: Option<f64>,
        options: &Options,
    ) -> Result<Input, OocError> {
        let list_keys = bytes / KEY_BYTES / 2;
        let paths = ["a.i64", "b.i64"].map(|name| folder.join(name));
        let selectivity = selectivity.unwrap_or(SELECTIVITY);
        let job = KeysJob {
            outputs: paths.iter().map(|path| (path.clone(), list_keys)).collect(),
            number: NumberType::I64,
            order: KeyOrder::Sorted,
            selectivity,
            skew: 0.0,
            repeats: 1,
            seed: 1,
        };
        keys(&job, options)?;
        Ok(Input {
            paths: paths.to_vec(),
            output: folder.join("both.i64"),
            bytes: 2 * list_keys * KEY_BYTES,
            records: 2 * list_keys,
            selectivity: Some(selectivity),
        })
    }

    fn ready<'a>(
        &'a self,
        input: &'a Input,
        source: &Source,
        limits: &Limits,
        options: &Options,
    ) -> Result<Again<'a>, OocError> {
        let loaded = || -> Result<[Loaded; 2], OocError> {
            check_fits("the lists in memory", "host memory", input.bytes, limits.host_bytes)?;
            let [a, b] = [0, 1].map(|list: usize| Loaded::read(&input.paths[list], options));
            Ok([a?, b?])
        };
        match source {
            Source::Files(_) => Ok(Box::new(|options| {
                // Opened anew: a mapping of an earlier run would keep its pages in memory.
                let list = |path: &Path| KeyList::raw(path, NumberType::I64, &PlainFiles);
                let lists = [list(&input.paths[0])?, list(&input.paths[1])?];
                intersection(lists, Some(input), options)
            })),
            Source::HostMemory => {
                let lists = loaded()?.map(|list| {
                    let extent = list.extent("a list in memory");
                    KeyList::of_extents("a list in memory", NumberType::I64, vec![extent])
                });
                Ok(Box::new(move |options| intersection(lists.clone(), None, options)))
            }
            Source::DeviceMemory => {
                let limit_bytes = limits.device_bytes.unwrap_or(0);
                // The lists, and as much again for what is put out.
                let wanted_bytes = 2 * input.bytes;
                check_fits("the lists and the result", "device memory", wanted_bytes, limit_bytes)?;
                let lists = loaded()?;
                let room = DeviceRoom::open(options)?;
                Ok(Box::new(move |_| on_device(&room, &lists)))
            }
        }
    }
}

fn intersection(
    lists: [KeyList; 2],
    written_to: Option<&Input>,
    options: &Options,
) -> Result<Ran, OocError> {
    let output = written_to.map(|input| input.output.clone());
    let job = SetJob {
        lists,
        operation: SetOperation::Intersection,
        repeats: Repeats::Refused,
        output: output.clone(),
        fence_bytes: None,
    };
    let told = run(&job, options)?;
    if let Some(path) = output {
        let bytes = SourceFile::open(&path)?.size_bytes();
        let wanted_bytes = told.keys * KEY_BYTES;
        if bytes != wanted_bytes {
            let what = format!("{bytes} bytes were written for {} keys", told.keys);
            return Err(OocError::input(path, what, "please report it"));
        }
    }
    Ok(Ran { answer: Answer::Keys(told.keys), report: told.report })
}

fn on_device(room: &DeviceRoom, lists: &[Loaded; 2]) -> Result<Ran, OocError> {
    let lists = [lists[0].numbers(), lists[1].numbers()];
    let how = (Repeats::Refused, false, 1);
    let told = in_device_memory(room, lists, SetOperation::Intersection, how)?;
    let stats = room.pool.stats();
    let kernel_ns = told.kernel_ns.iter().sum();
    let resident_device = lists.map(|list| size_of_val(list) as u64).iter().sum();
    let race = RaceReport {
        wall_ns: kernel_ns,
        chunks: 1,
        kernel_ns,
        bytes_by_path: BytesByPath { resident_device, ..BytesByPath::default() },
        ..RaceReport::default()
    };
    let report = Report {
        ran_on: room.pool.device().info().name.clone(),
        wall_ns: kernel_ns,
        passes: vec![Pass { name: "kernels", race }],
        device_limit_bytes: stats.budget_bytes,
        device_peak_bytes: stats.peak_in_use_bytes,
        ..Report::default()
    };
    Ok(Ran { answer: Answer::Keys(told.keys), report })
}
