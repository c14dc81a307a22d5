//! What the machine can do, against a real GPU: copy speeds, registration of mappings,
//! pinned slots in the background, memory shared with another process and other devices.
//!
//! Run with `--ignored --nocapture` to see the figures.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::ptr::{self, NonNull};
use std::time::Instant;

use headrace_gpu::{
    Device, DevicePool, GpuError, HostAccess, ImportedBuffer, IpcHandle, PinnedSlots,
    RegisteredHost, RegisteredPieces, measure, probe,
};
use support::{Bench, pattern};

const MIB: usize = 1 << 20;

#[test]
#[ignore = "needs a GPU"]
fn gpu_properties_are_whole() {
    let bench = Bench::new();
    let info = bench.device.info();
    for property in info.properties() {
        println!("{:<44} {}", property.name, property.value);
    }
    let of = |name: &str| {
        let properties = info.properties();
        let found = properties.iter().find(|property| property.name == name);
        found.unwrap_or_else(|| panic!("{name} is missing")).number
    };
    assert_eq!(of("warp size"), Some(32.0));
    assert_eq!(of("unified addressing"), Some(1.0));
    assert!(of("threads per block, maximum") >= Some(1024.0));
    assert!(info.uuid.starts_with("GPU-") && info.uuid.len() == 40, "{}", info.uuid);
    let sysfs = format!("/sys/bus/pci/devices/{}", info.pcie_id);
    println!("{sysfs} exists: {}", std::path::Path::new(&sysfs).exists());
    let memory = bench.device.memory_in_use().unwrap();
    assert!(memory.used_bytes() > 0 && memory.total_bytes <= info.total_memory_bytes, "{memory:?}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_copy_speeds_are_plausible() {
    let bench = Bench::new();
    let device = &bench.device;
    let h2d = measure::h2d(device).unwrap();
    let d2h = measure::d2h(device).unwrap();
    let pageable = measure::h2d_pageable(device).unwrap();
    let both = measure::both_ways(device).unwrap();
    let memory = measure::device_memory(device).unwrap();
    println!("h2d {h2d:?}\nd2h {d2h:?}\npageable {pageable:?}\nboth {both:?}\nmemory {memory:?}");
    for threads in [1, 4, 8, 16] {
        println!("host {:?}", measure::host_copy(threads).unwrap());
    }
    assert!(h2d.gb_per_s > pageable.gb_per_s);
    assert!(both.total_gb_per_s > h2d.gb_per_s.min(d2h.gb_per_s));
    assert!(both.h2d_gb_per_s < 1.1 * h2d.gb_per_s, "one direction cannot gain from two");
    let nominal = device.info().nominal_memory_gb_per_s();
    assert!(memory.gb_per_s > 0.3 * nominal && memory.gb_per_s < 1.05 * nominal, "{nominal}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_all_devices_at_once() {
    let _bench = Bench::new();
    let devices: Vec<_> =
        probe().devices.iter().map(|info| Device::open(info.ordinal).unwrap()).collect();
    for count in 1..=devices.len() {
        let all = measure::h2d_all(&devices[..count]).unwrap();
        println!("{count} devices: {all:?}");
        assert_eq!(all.per_device_gb_per_s.len(), count);
        let sum: f64 = all.per_device_gb_per_s.iter().sum();
        assert!(all.total_gb_per_s <= 1.01 * sum && all.total_gb_per_s > 0.0, "{all:?}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_peers_copy_to_each_other() {
    let bench = Bench::new();
    assert!(!bench.device.can_access_peer(&bench.device).unwrap());
    let refused = bench.device.enable_peer_access(&bench.device);
    assert!(matches!(refused, Err(GpuError::InvalidArgument { .. })), "{refused:?}");
    let bytes = 33 * MIB + 7;
    let sent = pattern(bytes);
    let source = bench.pool.alloc(bytes).unwrap();
    bench.stream.upload(&source, 0, &sent).unwrap();
    // On a machine of one device the copy is within it; with more, to each of the others,
    // without and with direct access.
    for ordinal in 0..probe().devices.len() {
        let other = Device::open(ordinal).unwrap();
        let pool = DevicePool::new(&other, 64 * MIB as u64);
        for direct in [false, true] {
            if direct && !other.can_access_peer(&bench.device).unwrap() {
                println!("device {ordinal} has no direct access to device 0");
                continue;
            }
            if direct {
                other.enable_peer_access(&bench.device).unwrap();
                other.enable_peer_access(&bench.device).expect("a second time changes nothing");
            }
            let target = pool.alloc(bytes).unwrap();
            let begun = Instant::now();
            // SAFETY: both buffers live past the wait.
            unsafe { bench.stream.copy_peer_async(&target, 0, &source, 0, bytes) }.unwrap();
            bench.stream.synchronize().unwrap();
            println!("to device {ordinal}, direct {direct}: {:?}", begun.elapsed());
            let mut received = vec![0; bytes];
            other.stream().unwrap().download(&target, 0, &mut received).unwrap();
            assert!(received == sent, "device {ordinal}, direct {direct}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_slots_are_usable_before_all_are_ready() {
    let bench = Bench::new();
    let (count, slot_bytes) = (64, 8 * MIB);
    let begun = Instant::now();
    let slots = PinnedSlots::start(&bench.device, count, slot_bytes).unwrap();
    slots.wait_first().unwrap();
    let first = begun.elapsed();
    let ready_then = slots.ready();
    slots.wait(count).unwrap();
    let all = begun.elapsed();
    println!("first of {count} slots after {first:?} ({ready_then} ready), all after {all:?}");
    assert!(first.as_millis() < 100, "{first:?}");
    assert_eq!(slots.poll_ready().unwrap(), count);

    let target = bench.pool.alloc(slot_bytes).unwrap();
    for index in [0, count / 2, count - 1] {
        let slot = slots.slot(index).unwrap();
        assert!(slot.bytes() >= slot_bytes);
        bench.stream.upload(&target, 0, &slot.as_slice()[..slot_bytes]).unwrap();
    }
    assert!(slots.slot(count).is_none());
    // Ended in the middle: nothing hangs and nothing leaks a registration.
    drop(PinnedSlots::start(&bench.device, 1000, slot_bytes).unwrap());
}

/// A file of /dev/shm, mapped.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    _file: tempfile::NamedTempFile,
}

impl Mapping {
    fn new(bytes: usize, writable: bool) -> Self {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let mut writer = OpenOptions::new().write(true).open(file.path()).unwrap();
        let block = pattern(4 * MIB);
        for _ in 0..bytes / block.len() {
            writer.write_all(&block).unwrap();
        }
        writer.write_all(&block[..bytes % block.len()]).unwrap();
        let protection =
            if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let fd = file.as_file().as_raw_fd();
        // SAFETY: a fresh shared mapping of a file that lives as long as it.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
        assert_ne!(address, libc::MAP_FAILED);
        Self { start: NonNull::new(address.cast()).unwrap(), bytes, _file: file }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once; registrations are gone before.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_mappings_of_files_are_registered_and_copied_from() {
    let bench = Bench::new();
    println!("read-only register: {}", bench.device.info().read_only_host_register);
    let bytes = 64 * MIB;
    for writable in [false, true] {
        let mapping = Mapping::new(bytes, writable);
        for access in [HostAccess::ReadOnly, HostAccess::ReadWrite] {
            // SAFETY: the mapping outlives the registration.
            let outcome =
                unsafe { RegisteredHost::register(&bench.device, mapping.start, bytes, access) };
            match outcome {
                Ok(_) => println!("tmpfs, writable {writable}, {access:?}: registered"),
                Err(error) => println!("tmpfs, writable {writable}, {access:?}: {error}"),
            }
        }
        // SAFETY: as above.
        let outcome =
            unsafe { RegisteredHost::register_mapping(&bench.device, mapping.start, bytes) };
        let (registered, access) = match outcome {
            Ok(registered) => registered,
            // A read-only mapping on a device without read-only registration.
            Err(error) => {
                assert!(!writable, "a writable mapping of tmpfs must register: {error}");
                continue;
            }
        };
        println!("tmpfs, writable {writable}: register_mapping chose {access:?}");
        let target = bench.pool.alloc(bytes).unwrap();
        let source = registered.ptr().as_ptr();
        // SAFETY: the mapping and the target live past the wait.
        unsafe { bench.stream.copy_h2d_raw(target.ptr(), source, bytes) }.unwrap();
        bench.stream.synchronize().unwrap();
        let mut received = vec![0; bytes];
        bench.stream.download(&target, 0, &mut received).unwrap();
        // SAFETY: the mapping is readable for `bytes` and nobody writes to it.
        let expected = unsafe { std::slice::from_raw_parts(source, bytes) };
        assert!(received == expected, "{access:?}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_registration_speed_by_threads() {
    let bench = Bench::new();
    let bytes = 4096 * MIB;
    let mapping = Mapping::new(bytes, true);
    let time = |piece_bytes: usize, threads: usize| {
        let begun = Instant::now();
        // SAFETY: the mapping outlives the registration.
        let pieces = unsafe {
            RegisteredPieces::register(
                &bench.device,
                mapping.start,
                bytes,
                HostAccess::ReadWrite,
                piece_bytes,
                threads,
            )
        }
        .unwrap();
        let elapsed = begun.elapsed();
        assert_eq!(pieces.pieces().iter().map(RegisteredHost::bytes).sum::<usize>(), bytes);
        let begun = Instant::now();
        drop(pieces);
        println!(
            "{threads} threads, pieces of {} MiB: {:.1} GB/s to register, {:.1} GB/s to release",
            piece_bytes / MIB,
            bytes as f64 / 1e9 / elapsed.as_secs_f64(),
            bytes as f64 / 1e9 / begun.elapsed().as_secs_f64()
        );
    };
    time(bytes, 1);
    for threads in [1, 2, 4, 8] {
        time(256 * MIB, threads);
    }
    time(32 * MIB, 4);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_copy_across_registrations_is_split() {
    let bench = Bench::new();
    let bytes = 3 * MIB;
    let mapping = Mapping::new(bytes, true);
    // SAFETY: the mapping outlives the registration.
    let pieces = unsafe {
        RegisteredPieces::register(
            &bench.device,
            mapping.start,
            bytes,
            HostAccess::ReadWrite,
            MIB,
            2,
        )
    }
    .unwrap();
    let target = bench.pool.alloc(bytes).unwrap();
    let source = mapping.start.as_ptr();
    // SAFETY: the mapping and the target live past the wait; a refusal queues nothing.
    let whole = unsafe { bench.stream.copy_h2d_raw(target.ptr(), source, bytes) };
    println!("one copy across three registrations: {whole:?}");
    bench.stream.synchronize().unwrap();
    let (offset, length) = (MIB / 2, 2 * MIB);
    assert!(pieces.split(offset, bytes).is_err());
    for (at, part) in pieces.split(offset, length).unwrap() {
        // SAFETY: the part lies inside the mapping and the target, which live past the wait.
        unsafe {
            bench.stream.copy_h2d_raw(target.ptr() + at as u64, source.add(at), part).unwrap();
        }
    }
    bench.stream.synchronize().unwrap();
    let mut received = vec![0; length];
    bench.stream.download(&target, offset, &mut received).unwrap();
    // SAFETY: inside the mapping, which nobody writes to.
    let expected = unsafe { std::slice::from_raw_parts(source.add(offset), length) };
    assert!(received == expected);
}

const HANDLE_VARIABLE: &str = "HEADRACE_TEST_IPC_HANDLE";
/// Offset and length in an encoded handle, behind the driver's own.
const NUMBERS_AT: usize = 64;
/// Two small buffers share one allocation of the driver's; a large one has its own.
const SHARED_SIZES: [usize; 3] = [1000, 5000, 33 * MIB + 7];

/// The importer's side of the test below: reads what was shared, writes its complement. What
/// claims more than the exporter's allocation is refused, and spoils nothing.
#[test]
#[ignore = "a part of gpu_memory_is_shared_with_another_process"]
fn child_imports_memory() {
    let Ok(handle) = std::env::var(HANDLE_VARIABLE) else {
        println!("{HANDLE_VARIABLE} is unset: run gpu_memory_is_shared_with_another_process");
        return;
    };
    let device = Device::open(0).unwrap();
    let handle: IpcHandle = handle.parse().unwrap();
    for number in [NUMBERS_AT, NUMBERS_AT + 8] {
        let mut encoded = handle.to_bytes();
        // 1 TiB more, in the offset or in the length.
        encoded[number + 5] |= 1;
        let beyond = IpcHandle::from_bytes(&encoded).unwrap();
        let refused = ImportedBuffer::open(&device, &beyond);
        assert!(matches!(refused, Err(GpuError::InvalidArgument { .. })), "{refused:?}");
    }
    let imported = ImportedBuffer::open(&device, &handle).unwrap();
    let bytes = usize::try_from(imported.bytes()).unwrap();
    let stream = device.stream().unwrap();
    let mut received = vec![0u8; bytes];
    // SAFETY: the exporter keeps the memory until this process ends; the host's side lives
    // past the wait.
    unsafe { stream.copy_d2h_raw(received.as_mut_ptr(), imported.ptr(), bytes) }.unwrap();
    stream.synchronize().unwrap();
    let right = received == pattern(bytes);
    received.iter_mut().for_each(|byte| *byte = !*byte);
    // SAFETY: as above.
    unsafe { stream.copy_h2d_raw(imported.ptr(), received.as_ptr(), bytes) }.unwrap();
    stream.synchronize().unwrap();
    println!("IMPORTED {bytes} {right}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_memory_is_shared_with_another_process() {
    let bench = Bench::new();
    let buffers: Vec<_> = SHARED_SIZES.map(|bytes| bench.pool.alloc(bytes).unwrap()).into();
    for buffer in &buffers {
        bench.stream.upload(buffer, 0, &pattern(buffer.bytes())).unwrap();
    }
    for buffer in &buffers {
        let handle = match buffer.export() {
            Ok(handle) => handle,
            Err(error) => panic!("this machine does not share device memory: {error}"),
        };
        assert_eq!(handle.device_uuid(), bench.device.info().uuid);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_imports_memory", "--ignored", "--nocapture"])
            .env(HANDLE_VARIABLE, handle.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
        assert!(child.wait().unwrap().success(), "{lines:?}");
        let expected = format!("IMPORTED {} true", buffer.bytes());
        assert!(lines.iter().any(|line| line.contains(&expected)), "{lines:?}");
    }
    for buffer in &buffers {
        let mut received = vec![0; buffer.bytes()];
        bench.stream.download(buffer, 0, &mut received).unwrap();
        let expected: Vec<u8> = pattern(buffer.bytes()).iter().map(|byte| !byte).collect();
        assert!(received == expected, "{} bytes", buffer.bytes());
    }
    let mut foreign = buffers[0].export().unwrap().to_bytes();
    let last = foreign.len() - 1;
    foreign[last] = if foreign[last] == b'0' { b'1' } else { b'0' };
    let refused = ImportedBuffer::open(&bench.device, &IpcHandle::from_bytes(&foreign).unwrap());
    assert!(matches!(refused, Err(GpuError::InvalidArgument { .. })), "{refused:?}");
}
