//! Every target over its seeds, over what was ever found, and over a fixed number of changed copies.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use headrace_fuzz::Target;

/// As the command line's main thread has it.
const STACK_BYTES: usize = 8 << 20;

/// Inputs that once were faults, by target.
fn found(target: Target) -> Vec<(String, Vec<u8>)> {
    let folder =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/found")).join(target.to_string());
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut inputs: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

/// Runs all inputs, and tells all that fail.
fn run(target: Target, inputs: impl Iterator<Item = (String, Vec<u8>)> + Send) {
    let all = || {
        let mut failed = Vec::new();
        for (name, data) in inputs {
            if catch_unwind(AssertUnwindSafe(|| target.run(&data))).is_err() {
                failed.push(format!("{name}: {:?}", String::from_utf8_lossy(&data)));
            }
        }
        failed
    };
    let failed = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, all);
        thread.unwrap().join().unwrap()
    });
    assert!(failed.is_empty(), "{} faults of {target}:\n{}", failed.len(), failed.join("\n"));
}

/// `every`: of many seeds each so-manieth runs as it is.
fn feed(target: Target, every: usize, copies: usize) {
    let seeds = target.seeds();
    assert!(seeds.len() > 15, "{} seeds", seeds.len());
    let changed = |number: usize| {
        let (name, data) = &seeds[number % seeds.len()];
        let other = &seeds[number * 7919 % seeds.len()].1;
        (format!("{name} changed by {number}"), target.mutated(data, other, number as u64))
    };
    let whole = seeds.iter().step_by(every).cloned().chain(found(target));
    run(target, whole.chain((0..copies).map(changed)));
}

#[test]
fn arrow_files() {
    feed(Target::ArrowFile, 1, 4000);
}

#[test]
fn texts() {
    feed(Target::Csv, 1, 1000);
}

#[test]
fn statements() {
    feed(Target::Sql, 20, 1000);
}
