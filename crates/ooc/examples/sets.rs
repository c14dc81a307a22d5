//! Set operations from the command line, for measuring without the planner's crates.
//!
//!     cargo run --release -p headrace-ooc --example sets -- generate A B MILLION_KEYS
//!     cargo run --release -p headrace-ooc --example sets -- OPERATION A B [OUT|-] [cpu|cuda]

use headrace_ooc::generate::{self, KeyOrder, KeysJob};
use headrace_ooc::sets::{KeyList, Repeats, SetJob, SetOperation, run};
use headrace_ooc::{NumberType, Options, PlainFiles};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, a, b, millions] = &arguments[..]
        && command == "generate"
    {
        let keys = millions.parse::<u64>()? * 1_000_000;
        let job = KeysJob {
            outputs: vec![(a.into(), keys), (b.into(), keys)],
            number: NumberType::I64,
            order: KeyOrder::Sorted,
            selectivity: 0.5,
            skew: 0.0,
            repeats: 1,
            seed: 42,
        };
        generate::keys(&job, &Options::default())?
            .lines()
            .iter()
            .for_each(|line| println!("{line}"));
        return Ok(());
    }
    let operation = SetOperation::ALL
        .into_iter()
        .find(|operation| Some(&operation.to_string()) == arguments.first())
        .ok_or("OPERATION A B [OUT] [cpu|cuda]")?;
    let list = |index: usize| KeyList::raw(arguments[index].as_ref(), NumberType::I64, &PlainFiles);
    let output = arguments.get(3).filter(|name| *name != "-").map(Into::into);
    let job = SetJob {
        lists: [list(1)?, list(2)?],
        operation,
        repeats: Repeats::Refused,
        output,
        fence_bytes: None,
    };
    let processor = arguments.get(4).map_or(Ok(Default::default()), |name| name.parse())?;
    for _ in 0..3 {
        let told = run(&job, &Options { processor, ..Options::default() })?;
        println!("{} keys; plan {:.1} ms", told.keys, told.report.plan_ns as f64 / 1e6);
        told.report.lines().iter().for_each(|line| println!("  {line}"));
    }
    Ok(())
}
