//! What libFuzzer drives: `HEADRACE_FUZZ_TARGET=sql headrace-fuzz CORPUS -max_total_time=60`. With `HEADRACE_FUZZ_SEEDS`
//! it writes the inputs to begin with into that folder, and ends.

#![no_main]

use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::OnceLock;

use headrace_fuzz::Target;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

static TARGET: OnceLock<Target> = OnceLock::new();

fn target() -> Target {
    *TARGET.get_or_init(|| {
        let name = std::env::var("HEADRACE_FUZZ_TARGET").unwrap_or_default();
        Target::named(&name).unwrap_or_else(|| {
            let names = Target::ALL.map(|target| target.to_string()).join(", ");
            eprintln!("error: no target '{name}'\nhint: HEADRACE_FUZZ_TARGET is one of {names}");
            exit(2)
        })
    })
}

fn write_seeds(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, bytes) in target().seeds() {
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

fn start() {
    // Panics are counted, not fatal at once: those that are caught as they should be are no fault.
    drop(std::panic::take_hook());
    target();
    if let Some(folder) = std::env::var_os("HEADRACE_FUZZ_SEEDS").map(PathBuf::from) {
        match write_seeds(&folder) {
            Ok(()) => exit(0),
            Err(error) => {
                eprintln!("error: {}: {error}", folder.display());
                exit(2)
            }
        }
    }
}

fuzz_target!(init: start(), |data: &[u8]| {
    let _ = target().run(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    // Half of the changes are libFuzzer's own, which know what comparisons have seen.
    if seed.is_multiple_of(2) {
        return fuzzer_mutate(data, size, max_size);
    }
    let input = data[..size].to_vec();
    let changed = target().mutated(&input, &input, u64::from(seed));
    let size = changed.len().min(max_size);
    data[..size].copy_from_slice(&changed[..size]);
    size
});
