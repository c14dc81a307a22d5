//! The same on a GPU.

use headrace_io::FaultPlan;

use headrace_ooc::sort::Order;
use headrace_ooc::{NumberType, Options, Processor};

use crate::support::{FaultyFiles, Random, Shape, on_cores, records};
use crate::{KEYS, check, fails, layout};

fn on_gpu(device_bytes: u64) -> Options {
    Options {
        processor: Processor::Cuda,
        device_limit_bytes: Some(device_bytes),
        chunk_bytes: Some(1 << 20),
        ..on_cores(2, 64 << 20)
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_sorts_every_width_key_order_and_shape_as_std_does() {
    let mut random = Random(21);
    for key in KEYS {
        let own = key.bytes();
        for (record_bytes, offset) in [
            (own, 0),
            (8, 8 - own),
            (12, 3),
            (16, 16 - own),
            (16, 5),
            (own + 1, 1),
            (29, 7),
            (100, 40),
        ] {
            if offset + own > record_bytes {
                continue;
            }
            for shape in Shape::ALL {
                let layout = layout(record_bytes, key, offset);
                let count = 1 + random.below(60_000) as usize;
                let input = records(layout, shape, count, &mut random);
                let order = if random.below(2) == 0 { Order::Ascending } else { Order::Descending };
                let report = check(layout, order, &input, &on_gpu(1 << 30));
                assert!(report.why_not_cuda.is_none());
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_sorts_numbers_of_records_around_every_tile_and_chunk() {
    let mut random = Random(22);
    for (record_bytes, tile) in [(4, 8192), (8, 5632), (12, 4096), (16, 3584), (20, 3584)] {
        let layout = layout(record_bytes, NumberType::I32, 0);
        let chunk = (1 << 20) / record_bytes;
        for count in [1, 31, 33, tile, 2 * tile, 3 * tile + 5, 257 * tile, chunk, 3 * chunk] {
            for count in [count - 1, count, count + 1] {
                let input = records(layout, Shape::Random, count, &mut random);
                check(layout, Order::Ascending, &input, &on_gpu(1 << 30));
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_sorts_what_does_not_fit_it() {
    let mut random = Random(23);
    for (record_bytes, key) in [(8, NumberType::I64), (4, NumberType::F32), (40, NumberType::F64)] {
        let layout = layout(record_bytes, key, 0);
        for shape in Shape::ALL {
            let input = records(layout, shape, (64 << 20) / record_bytes, &mut random);
            let report = check(layout, Order::Ascending, &input, &on_gpu(90 << 20));
            assert!(report.temporary_bytes > 0 && report.why_not_cuda.is_none());
            assert!(report.device_peak_bytes <= report.device_limit_bytes);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_faults_and_cancellation_leave_nothing() {
    let lost = || FaultPlan { io_error_at: Some(3_000_000), ..FaultPlan::default() };
    let broken = || FaultPlan { io_error_at: Some(3_000_000), ..FaultPlan::default() };
    let none = FaultyFiles::default;
    for device_bytes in [1 << 30, 40 << 20] {
        let options = on_gpu(device_bytes);
        fails(options.clone(), FaultyFiles { input: lost(), ..none() }, "/in: reading");
        fails(options.clone(), FaultyFiles { output: broken(), ..none() }, "/out: writing");
        options.token.cancel();
        fails(options, none(), "interrupted");
    }
}
