//! Sorted files against std's stable sort of the same records, with memory for all of them and for few, and with
//! files that fail.

#![allow(clippy::unwrap_used)]

#[path = "sort/support.rs"]
mod support;

use headrace_ooc::sort::{Order, RecordLayout, sort};
use headrace_ooc::{NumberType, Options, Report};
use support::{Random, Shape, is_clean, job, on_cores, oracle, records};

const KEYS: [NumberType; 6] = [
    NumberType::I32,
    NumberType::U32,
    NumberType::I64,
    NumberType::U64,
    NumberType::F32,
    NumberType::F64,
];

/// Sorts records and compares them with the oracle's.
fn check(layout: RecordLayout, order: Order, input: &[u8], options: &Options) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path(), layout, order);
    std::fs::write(&job.input, input).unwrap();
    let report = sort(&job, options).unwrap();
    let output = std::fs::read(&job.output).unwrap();
    assert_eq!(output.len(), input.len());
    assert!(output == oracle(layout, order, input), "{layout:?} {order:?}, {} bytes", input.len());
    assert!(report.host_peak_bytes <= report.host_limit_bytes);
    assert!(is_clean(dir.path(), &["in", "out"]), "temporary files are left");
    assert_eq!((report.input_bytes, report.output_bytes), (input.len() as u64, input.len() as u64));
    report
}

fn layout(record_bytes: usize, key: NumberType, key_offset: usize) -> RecordLayout {
    RecordLayout { record_bytes, key, key_offset }
}

#[test]
fn every_width_key_order_and_shape_is_sorted_as_std_does() {
    let mut random = Random(1);
    for key in KEYS {
        let own = key.bytes();
        for (record_bytes, offset) in
            [(own, 0), (8, 8 - own), (12, 3), (16, 16 - own), (own + 1, 1), (29, 7), (100, 40)]
        {
            for shape in Shape::ALL {
                let layout = layout(record_bytes, key, offset);
                let count = 1 + random.below(3000) as usize;
                let input = records(layout, shape, count, &mut random);
                for order in [Order::Ascending, Order::Descending] {
                    check(layout, order, &input, &on_cores(2, 64 << 20));
                }
            }
        }
    }
}

#[test]
fn numbers_of_records_around_every_boundary() {
    let mut random = Random(2);
    for (record_bytes, key) in [(4, NumberType::U32), (8, NumberType::I64), (12, NumberType::F32)] {
        let layout = layout(record_bytes, key, 0);
        for bytes in [0, record_bytes, 4096, 65536, 1 << 20, 3 << 20] {
            let count = bytes / record_bytes;
            for count in [count.saturating_sub(1), count, count + 1] {
                let input = records(layout, Shape::Random, count, &mut random);
                check(layout, Order::Ascending, &input, &on_cores(3, 64 << 20));
            }
        }
    }
}

#[test]
fn a_sixteenth_of_the_memory_is_enough() {
    let mut random = Random(3);
    for (record_bytes, key) in [(8, NumberType::I64), (4, NumberType::F32), (24, NumberType::U64)] {
        let layout = layout(record_bytes, key, record_bytes - key.bytes());
        for shape in Shape::ALL {
            let input = records(layout, shape, (32 << 20) / record_bytes, &mut random);
            let report = check(layout, Order::Ascending, &input, &on_cores(2, 2 << 20));
            assert!(report.temporary_bytes >= 32 << 20, "{shape:?}: {}", report.temporary_bytes);
        }
    }
}
