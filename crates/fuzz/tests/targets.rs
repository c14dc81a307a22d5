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

/// Runs all inputs, and tells all that fail; how many were answered.
fn run(target: Target, inputs: impl Iterator<Item = (String, Vec<u8>)> + Send) -> usize {
    let all = || {
        let (mut failed, mut answered) = (Vec::new(), 0);
        for (name, data) in inputs {
            match catch_unwind(AssertUnwindSafe(|| target.run(&data))) {
                Ok(is_answered) => answered += usize::from(is_answered),
                Err(_) => failed.push(format!("{name}: {:?}", String::from_utf8_lossy(&data))),
            }
        }
        (failed, answered)
    };
    let (failed, answered) = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, all);
        thread.unwrap().join().unwrap()
    });
    assert!(failed.is_empty(), "{} faults of {target}:\n{}", failed.len(), failed.join("\n"));
    answered
}

/// `answers_min`: inputs that must have an answer; of fewer, targets would learn nothing. `every`: of many seeds each so-manieth runs as it is.
fn feed(target: Target, every: usize, copies: usize, answers_min: usize) {
    let seeds = target.seeds();
    assert!(seeds.len() > 15, "{} seeds", seeds.len());
    let changed = |number: usize| {
        let (name, data) = &seeds[number % seeds.len()];
        let other = &seeds[number * 7919 % seeds.len()].1;
        (format!("{name} changed by {number}"), target.mutated(data, other, number as u64))
    };
    let whole = seeds.iter().step_by(every).cloned().chain(found(target));
    let answered = run(target, whole.chain((0..copies).map(changed)));
    assert!(answered >= answers_min, "{answered} inputs of {target} were answered");
}

#[test]
fn arrow_files() {
    feed(Target::ArrowFile, 1, 3000, 300);
}

#[test]
fn texts() {
    feed(Target::Csv, 1, 1000, 100);
}

#[test]
fn statements() {
    feed(Target::Sql, 20, 1000, 150);
}
