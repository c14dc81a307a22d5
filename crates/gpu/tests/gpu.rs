//! The crate against a real GPU. Run with `--ignored` and HEADRACE_NVRTC set.
//!
//! The tests share device 0 and take turns, so that times and free memory mean something.
#![allow(clippy::unwrap_used)]

mod support;

use std::thread;
use std::time::{Duration, Instant};

use headrace_gpu::{
    Compiler, Device, DevicePool, GpuError, Grid, HostAccess, HostCopies, HostPages, LaunchArgs,
    Module, PinnedBuffer, RegisteredHost, launch, page_bytes, probe,
};
use support::{Bench, KERNELS, grid, pattern, spin};

const MIB: usize = 1 << 20;

/// Nothing, borders of every alignment in play, and sizes past a huge page.
const ODD_SIZES: [usize; 12] =
    [0, 1, 3, 255, 256, 257, 4095, 4097, 65_537, MIB - 1, 2 * MIB + 13, 33 * MIB + 7];

#[test]
#[ignore = "needs a GPU"]
fn gpu_probe_describes_the_device() {
    let bench = Bench::new();
    let found = probe();
    assert_eq!(found.reason, None);
    assert_eq!(found.why_unusable(), None);
    assert!(found.driver_version.clone().unwrap() >= (12, 8), "{found:?}");
    let info = &found.devices[0];
    assert_eq!(info, bench.device.info());
    assert!(info.arch().starts_with("sm_"), "{info:?}");
    assert!(info.sm_count > 0 && info.async_engine_count > 0, "{info:?}");
    assert!(info.nominal_memory_gb_per_s() > 10.0, "{info:?}");
    assert!(info.shared_per_block_optin_bytes >= 48 << 10, "{info:?}");
    assert!(info.pcie_id.contains(':'), "{info:?}");
    println!("{found:#?}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_free_memory_shrinks_with_an_allocation() {
    let bench = Bench::new();
    let (free, total) = bench.device.free_and_total_memory().unwrap();
    assert!(free <= total && total <= bench.device.info().total_memory_bytes);
    let buffer = bench.pool.alloc(256 * MIB).unwrap();
    let (less, _) = bench.device.free_and_total_memory().unwrap();
    assert!(less + 200 * MIB as u64 <= free, "{less} after {free}");
    drop(buffer);
    bench.pool.trim();
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_copies_round_trip_over_odd_sizes() {
    let bench = Bench::new();
    for bytes in ODD_SIZES {
        let sent = pattern(bytes);
        let first = bench.pool.alloc(bytes).unwrap();
        let second = bench.pool.alloc(bytes + 3).unwrap();
        assert_eq!(first.ptr() % 256, 0);
        assert_eq!(first.bytes(), bytes);
        assert!(first.capacity_bytes() >= bytes.next_multiple_of(256) as u64);
        bench.stream.upload(&first, 0, &sent).unwrap();
        // SAFETY: both buffers live past the download below, which waits for the stream.
        unsafe { bench.stream.copy_d2d_async(&second, 3, &first, 0, bytes) }.unwrap();
        let mut received = vec![0xee; bytes];
        bench.stream.download(&second, 3, &mut received).unwrap();
        assert!(sent == received, "{bytes} bytes came back changed");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_pinned_copies_round_trip_over_odd_sizes() {
    let bench = Bench::new();
    let mut source = PinnedBuffer::new(&bench.device, 33 * MIB + 7).unwrap();
    let mut target = PinnedBuffer::new(&bench.device, 33 * MIB + 7).unwrap();
    let sent = pattern(source.bytes());
    source.as_mut_slice().copy_from_slice(&sent);
    let buffer = bench.pool.alloc(source.bytes()).unwrap();
    for bytes in ODD_SIZES {
        target.as_mut_slice().fill(0xee);
        // SAFETY: the buffers live on and are not looked at before the stream is done.
        unsafe {
            bench.stream.copy_h2d_async(&buffer, 0, &source.as_slice()[..bytes]).unwrap();
            bench.stream.copy_d2h_async(&buffer, 0, &mut target.as_mut_slice()[..bytes]).unwrap();
        }
        bench.stream.synchronize().unwrap();
        assert!(target.as_slice()[..bytes] == sent[..bytes], "{bytes} bytes");
        assert!(target.as_slice()[bytes..].iter().all(|&b| b == 0xee), "{bytes} bytes");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_batches_arrive_from_pinned_and_ordinary_memory_in_the_order_of_the_stream() {
    const PART: usize = MIB + 3;
    let bench = Bench::new();
    let sent = pattern(4 * PART);
    let mut pinned = PinnedBuffer::new(&bench.device, sent.len()).unwrap();
    pinned.as_mut_slice()[..sent.len()].copy_from_slice(&sent);
    let buffer = bench.pool.alloc(sent.len()).unwrap();
    let mut copies = HostCopies::default();
    for are_pinned in [[true; 4], [false; 4], [true, false, false, true]] {
        for (part, is_pinned) in are_pinned.into_iter().enumerate() {
            let memory = if is_pinned { pinned.as_slice() } else { &sent };
            let from = &memory[part * PART..][..PART];
            copies.push(buffer.ptr() + (part * PART) as u64, from.as_ptr(), PART);
        }
        // What overtakes this is overwritten.
        spin(&bench, &bench.stream, 20);
        // SAFETY: what is copied lives on, unwritten, past the download, which waits for the stream.
        unsafe {
            bench.stream.fill_async(&buffer, 0, sent.len(), 0xee).unwrap();
            bench.stream.copy_h2d_batch(&mut copies).unwrap();
        }
        let mut received = vec![0; sent.len()];
        bench.stream.download(&buffer, 0, &mut received).unwrap();
        assert!(received == sent, "pinned: {are_pinned:?}");
        copies.clear();
    }
    // SAFETY: there is nothing to copy.
    unsafe { bench.stream.copy_h2d_batch(&mut copies) }.unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_ranges_outside_a_buffer_are_refused() {
    let bench = Bench::new();
    let buffer = bench.pool.alloc(1000).unwrap();
    let refused = |outcome: headrace_gpu::Result<()>| {
        assert!(matches!(outcome, Err(GpuError::InvalidArgument { .. })), "{outcome:?}");
    };
    refused(bench.stream.upload(&buffer, 1, &[0; 1000]));
    refused(bench.stream.upload(&buffer, usize::MAX, &[0; 2]));
    refused(bench.stream.download(&buffer, 1001, &mut []));
    // SAFETY: nothing is queued: each call is refused.
    unsafe {
        refused(bench.stream.copy_d2d_async(&buffer, 100, &buffer, 0, 101));
        refused(bench.stream.fill_async(&buffer, 999, 2, 0));
        refused(bench.stream.fill_u32_async(&buffer, 2, 1, 0));
        refused(bench.stream.fill_u32_async(&buffer, 0, usize::MAX / 2, 0));
    }
    assert!(bench.stream.upload(&buffer, 1, &[0; 999]).is_ok());
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_fill_sets_exactly_its_range() {
    let bench = Bench::new();
    let buffer = bench.pool.alloc(1027).unwrap();
    // SAFETY: the buffer lives past the download, which waits for the stream.
    unsafe {
        bench.stream.fill_async(&buffer, 0, 1027, 0x11).unwrap();
        bench.stream.fill_async(&buffer, 5, 7, 0x22).unwrap();
        bench.stream.fill_u32_async(&buffer, 16, 3, 0x0403_0201).unwrap();
        bench.stream.fill_async(&buffer, 1027, 0, 0xff).unwrap();
    }
    let mut expected = vec![0x11; 1027];
    expected[5..12].fill(0x22);
    for word in expected[16..28].chunks_exact_mut(4) {
        word.copy_from_slice(&[1, 2, 3, 4]);
    }
    let mut received = vec![0; 1027];
    bench.stream.download(&buffer, 0, &mut received).unwrap();
    assert_eq!(received, expected);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_vector_add_is_exact() {
    let bench = Bench::new();
    let add = bench.function("add");
    for count in [1usize, 31, 256, 257, 1_000_003] {
        let a: Vec<i32> = (0..count as i32).collect();
        let b: Vec<i32> = a.iter().map(|x| x.wrapping_mul(7) - 1_000_000).collect();
        let (left, right) = (bench.upload(&a), bench.upload(&b));
        let sum = bench.pool.alloc(count * 4).unwrap();
        let mut args = LaunchArgs::new();
        args.push_ptr(left.ptr()).push_ptr(right.ptr()).push_ptr(sum.ptr());
        args.push_u64(count as u64);
        let grid = grid(count, 256);
        // SAFETY: the kernel reads and writes `count` ints of three live buffers.
        unsafe { launch(&add, grid, &bench.stream, &mut args) }.unwrap();
        let received: Vec<i32> = bench.download(&sum, count);
        let expected: Vec<i32> = a.iter().zip(&b).map(|(x, y)| x + y).collect();
        assert!(received == expected, "{count} items");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_int128_and_structs_by_value_arrive_whole() {
    let bench = Bench::new();
    let scale = bench.function("scale128");
    let values: Vec<i64> = vec![0, 1, -1, i64::MAX, i64::MIN, 1 << 40];
    let input = bench.upload(&values);
    let output = bench.pool.alloc(values.len() * 16).unwrap();
    // struct { const long long* in; __int128* out; int factor; int count; }, by value.
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&input.ptr().to_ne_bytes());
    bytes.extend_from_slice(&output.ptr().to_ne_bytes());
    bytes.extend_from_slice(&(-12_345i32).to_ne_bytes());
    bytes.extend_from_slice(&(values.len() as i32).to_ne_bytes());
    let mut args = LaunchArgs::new();
    args.push_bytes(&bytes);
    let grid = grid(values.len(), 32);
    // SAFETY: the kernel touches `count` items of two live buffers.
    unsafe { launch(&scale, grid, &bench.stream, &mut args) }.unwrap();
    let received: Vec<i128> = bench.download(&output, values.len());
    let expected: Vec<i128> = values.iter().map(|&v| i128::from(v) * -12_345).collect();
    assert_eq!(received, expected);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_timing_measures_the_device() {
    let bench = Bench::new();
    let elapsed_ms = |asked_ms: u64| {
        let (begin, end) = (bench.device.event().unwrap(), bench.device.event().unwrap());
        begin.record(&bench.stream).unwrap();
        spin(&bench, &bench.stream, asked_ms);
        end.record(&bench.stream).unwrap();
        end.synchronize().unwrap();
        begin.elapsed_ms(&end).unwrap()
    };
    elapsed_ms(1);
    for asked_ms in [5, 50] {
        let measured = elapsed_ms(asked_ms);
        assert!(
            (asked_ms as f32 * 0.95..asked_ms as f32 * 2.0).contains(&measured),
            "{measured} ms for {asked_ms}"
        );
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_events_tell_when_work_is_done() {
    let bench = Bench::new();
    let event = bench.device.event().unwrap();
    assert!(event.is_complete().unwrap(), "never recorded");
    spin(&bench, &bench.stream, 100);
    event.record(&bench.stream).unwrap();
    assert!(!event.is_complete().unwrap());
    event.synchronize().unwrap();
    assert!(event.is_complete().unwrap());
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_stream_waits_for_an_event_of_another() {
    let bench = Bench::new();
    let other = bench.device.stream().unwrap();
    let buffer = bench.pool.alloc(4).unwrap();
    bench.stream.upload(&buffer, 0, &[0; 4]).unwrap();
    let done = bench.device.event().unwrap();
    spin(&bench, &bench.stream, 50);
    // SAFETY: the buffer lives past the download; the event orders the two streams.
    unsafe { bench.stream.fill_async(&buffer, 0, 4, 0x7f) }.unwrap();
    done.record(&bench.stream).unwrap();
    other.wait_event(&done).unwrap();
    let mut received = [0; 4];
    other.download(&buffer, 0, &mut received).unwrap();
    assert_eq!(received, [0x7f; 4]);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_copies_overlap_with_kernels() {
    let bench = Bench::new();
    let bytes = 512 * MIB;
    let source = PinnedBuffer::new(&bench.device, bytes).unwrap();
    let target = bench.pool.alloc(bytes).unwrap();
    let copies = bench.device.stream().unwrap();
    let copy = || {
        // SAFETY: both buffers live until the synchronisations below.
        unsafe { copies.copy_h2d_async(&target, 0, source.as_slice()) }.unwrap();
    };
    // Once each before the clock runs: the kernel is loaded at its first launch.
    spin(&bench, &bench.stream, 0);
    copy();
    bench.stream.synchronize().unwrap();
    copies.synchronize().unwrap();
    let begun = Instant::now();
    copy();
    copies.synchronize().unwrap();
    let copy_time = begun.elapsed();

    let kernel_ms = copy_time.as_millis() as u64 + 5;
    let begun = Instant::now();
    spin(&bench, &bench.stream, kernel_ms);
    copy();
    let queued = begun.elapsed();
    copies.synchronize().unwrap();
    bench.stream.synchronize().unwrap();
    let both = begun.elapsed();
    let one_after_the_other = copy_time + Duration::from_millis(kernel_ms);
    assert!(queued < copy_time / 2, "queueing blocked for {queued:?}");
    assert!(
        both < one_after_the_other.mul_f64(0.75),
        "{both:?} together, {one_after_the_other:?} one after the other"
    );
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_pool_reuses_blocks_and_keeps_its_budget() {
    let bench = Bench::new();
    let pool = DevicePool::new(&bench.device, 64 * MIB as u64);
    let first = pool.alloc(32 * MIB).unwrap();
    let address = first.ptr();
    let error = pool.alloc(33 * MIB).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    let shown = error.to_string();
    for part in ["out of device memory", "budget", "hint: ", &(32 * MIB).to_string()] {
        assert!(shown.contains(part), "`{part}` is not in: {shown}");
    }
    drop(first);
    let again = pool.alloc(31 * MIB).unwrap();
    assert_eq!(again.ptr(), address, "the freed block serves a like request");
    assert_eq!(pool.stats().reuses, 1);
    drop(again);

    // Free blocks make room for another size.
    let _large = pool.alloc(60 * MIB).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.free_bytes, stats.in_use_bytes), (0, 60 * MIB as u64));
    assert_eq!((stats.driver_allocations, stats.refusals), (2, 1));
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_full_device_is_an_out_of_memory_error() {
    let bench = Bench::new();
    let (free, total) = bench.device.free_and_total_memory().unwrap();
    let pool = DevicePool::new(&bench.device, u64::MAX);
    let error = pool.alloc(total as usize + MIB).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert!(error.to_string().contains("bytes free"), "{error}");
    // Blocks that lie free in the pool are given back to make room.
    drop(pool.alloc(free as usize / 2).unwrap());
    let most = pool.alloc(free as usize / 4 * 3).unwrap();
    assert_eq!(pool.stats().free_bytes, 0);
    drop(most);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_callers_memory_is_registered_once() {
    let bench = Bench::new();
    let count = 5000usize;
    let mut pages = HostPages::new(count * 4).unwrap();
    for (index, bytes) in pages.as_mut_slice().chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&(index as i32).to_ne_bytes());
    }
    let register = || {
        // SAFETY: the pages outlive every registration in this test.
        unsafe {
            RegisteredHost::register(
                &bench.device,
                pages.ptr(),
                pages.bytes(),
                HostAccess::ReadWrite,
            )
        }
    };
    let registered = register().unwrap();
    assert_eq!(registered.bytes() % page_bytes(), 0);
    let error = register().unwrap_err();
    assert!(matches!(error, GpuError::Driver { code: 712, remedy: Some(_), .. }), "{error}");

    drop(registered);
    drop(register().expect("free to be registered again"));
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_wrong_launches_are_refused() {
    let bench = Bench::new();
    let function = bench.function("spin");
    assert_eq!(function.info().parameter_bytes, [8]);
    let refused = |grid: Grid, args: &mut LaunchArgs| {
        // SAFETY: every call is refused before anything is queued.
        let error = unsafe { launch(&function, grid, &bench.stream, args) }.unwrap_err();
        assert!(matches!(error, GpuError::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains("`spin`"), "{error}");
    };
    let one = grid(1, 1);
    refused(one, &mut LaunchArgs::new());
    refused(one, LaunchArgs::new().push_bytes(&[0; 4]));
    refused(one, LaunchArgs::new().push_u64(1).push_u64(1));
    refused(Grid { threads: 0, ..one }, LaunchArgs::new().push_u64(1));
    refused(Grid { threads: 1025, ..one }, LaunchArgs::new().push_u64(1));
    refused(Grid { blocks: 0, ..one }, LaunchArgs::new().push_u64(1));

    let error = bench.module.function("absent").unwrap_err();
    assert!(error.to_string().contains("`absent` of module `kernels.cu`"), "{error}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_large_dynamic_shared_memory_works_once_asked_for() {
    let bench = Bench::new();
    let function = bench.function("through_shared");
    let info = bench.device.info();
    let shared_bytes = info.shared_per_block_optin_bytes;
    assert!(shared_bytes > 48 << 10, "{info:?}");
    assert!(function.set_max_dynamic_shared_bytes(shared_bytes + 1).is_err());
    function.set_max_dynamic_shared_bytes(shared_bytes).unwrap();
    assert!(function.info().registers > 0);
    assert_eq!(function.max_active_blocks_per_sm(256, shared_bytes).unwrap(), 1);
    assert!(function.max_active_blocks_per_sm(256, 0).unwrap() > 1);

    let words = shared_bytes as usize / 4;
    let values: Vec<u32> = (0..words as u32).collect();
    let input = bench.upload(&values);
    let output = bench.pool.alloc(words * 4).unwrap();
    let mut args = LaunchArgs::new();
    args.push_ptr(input.ptr()).push_ptr(output.ptr()).push_bytes(&(words as u32).to_ne_bytes());
    let grid = Grid { blocks: 1, threads: 256, shared_bytes };
    // SAFETY: the kernel touches `words` words of both live buffers and of shared memory.
    unsafe { launch(&function, grid, &bench.stream, &mut args) }.unwrap();
    let received: Vec<u32> = bench.download(&output, words);
    assert!(received.iter().eq(values.iter().rev()));
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_cubin_for_another_architecture_is_an_error_with_a_remedy() {
    let bench = Bench::new();
    let arch = if bench.device.info().compute_capability.0 == 8 { "sm_90" } else { "sm_80" };
    let cubin = Compiler::load(None).unwrap().compile(&KERNELS, arch, &[]).unwrap();
    let error = Module::load(&bench.device, &cubin).unwrap_err();
    assert!(matches!(error, GpuError::Driver { remedy: Some(_), .. }), "{error}");
    assert!(error.to_string().contains(arch), "{error}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_any_thread_may_use_the_device() {
    let bench = Bench::new();
    thread::scope(|scope| {
        for seed in 0..8u8 {
            let bench = &bench;
            scope.spawn(move || {
                let stream = bench.device.stream().unwrap();
                for _ in 0..20 {
                    let buffer = bench.pool.alloc(100_000).unwrap();
                    stream.upload(&buffer, 0, &[seed; 100_000]).unwrap();
                    let mut received = [0xee; 100_000];
                    stream.download(&buffer, 0, &mut received).unwrap();
                    assert!(received.iter().all(|&b| b == seed));
                }
            });
        }
    });
    assert_eq!(bench.pool.stats().in_use_bytes, 0);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_device_may_be_opened_again() {
    let bench = Bench::new();
    let again = Device::open(0).unwrap();
    assert_eq!(again.info(), bench.device.info());
    drop(again);
    bench.device.stream().expect("the first opening stays valid");
}
