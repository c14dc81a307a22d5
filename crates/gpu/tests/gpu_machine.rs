//! What the machine can do, against a real GPU: copy speeds, registration of mappings,
//! pinned slots in the background.
//!
//! Run with `--ignored --nocapture` to see the figures.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::time::Instant;

use headrace_gpu::{Device, HostAccess, PinnedSlots, RegisteredHost, measure, probe};
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
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_copy_speeds_are_plausible() {
    let bench = Bench::new();
    let device = &bench.device;
    let h2d = measure::h2d(device).unwrap();
    let d2h = measure::d2h(device).unwrap();
    let memory = measure::device_memory(device).unwrap();
    println!("h2d {h2d:?}\nd2h {d2h:?}\nmemory {memory:?}");
    for threads in [1, 4, 8, 16] {
        println!("host {:?}", measure::host_copy(threads).unwrap());
    }
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
        if !writable {
            continue;
        }
        // SAFETY: as above.
        let _registered = unsafe {
            RegisteredHost::register(&bench.device, mapping.start, bytes, HostAccess::ReadWrite)
        }
        .unwrap();
        let target = bench.pool.alloc(bytes).unwrap();
        let source = mapping.start.as_ptr();
        // SAFETY: the mapping and the target live past the wait.
        unsafe { bench.stream.copy_h2d_raw(target.ptr(), source, bytes) }.unwrap();
        bench.stream.synchronize().unwrap();
        let mut received = vec![0; bytes];
        bench.stream.download(&target, 0, &mut received).unwrap();
        // SAFETY: the mapping is readable for `bytes` and nobody writes to it.
        let expected = unsafe { std::slice::from_raw_parts(source, bytes) };
        assert!(received == expected);
    }
}
