//! How fast the kernels are on keys in device memory.
//!
//!     cargo run --release -p headrace-ooc --example in_memory -- [MILLION_KEYS_PER_LIST]

use headrace_ooc::sets::{Repeats, SetOperation, in_device_memory};
use headrace_ooc::{DeviceRoom, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let millions: usize = std::env::args().nth(1).map_or(Ok(64), |text| text.parse())?;
    let list = |seed: u64| -> Vec<i64> {
        let mut state = seed;
        let mut key = 0;
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            key += 1 + (state >> 62) as i64 % 3;
            key
        };
        (0..millions * 1_000_000).map(next).collect()
    };
    let (a, b) = (list(1), list(2));
    let room = DeviceRoom::open(&Options::default())?;
    for operation in SetOperation::ALL {
        for (repeats, counts_only) in
            [(Repeats::Refused, true), (Repeats::Refused, false), (Repeats::Allowed, false)]
        {
            let told = in_device_memory(&room, [&a, &b], operation, (repeats, counts_only, 5))?;
            let best_ns = told.kernel_ns.iter().min().copied().unwrap_or(1);
            println!(
                "{operation}, {repeats:?}, {}: {} keys, {:.1} G records/s",
                if counts_only { "counted" } else { "written" },
                told.keys,
                (a.len() + b.len()) as f64 / best_ns as f64,
            );
        }
    }
    Ok(())
}
