//! What the simulated device offers besides its slots: registration of mappings and a reader of
//! its own.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headrace_flow::{BoxError, DeviceReader, HostRegistrar, Registration};
use headrace_io::{ReadAt, ReadMode};
use parking_lot::Mutex;

use crate::lane::Device;

/// Keeps the ranges that are registered.
#[derive(Default)]
pub struct Registrar {
    pub live: Arc<Mutex<Vec<(usize, usize)>>>,
    /// Registrations that have succeeded.
    pub count: AtomicUsize,
    pub latency: Duration,
    /// All after so many fail.
    pub fail_after: Option<usize>,
}

struct Live {
    range: (usize, usize),
    all: Arc<Mutex<Vec<(usize, usize)>>>,
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let index = all.iter().position(|range| *range == self.range).unwrap();
        all.swap_remove(index);
    }
}

impl std::fmt::Debug for Registrar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registrar")
    }
}

impl Registrar {
    pub fn covers(&self, start: usize, end: usize) -> bool {
        self.live.lock().iter().any(|(from, to)| *from <= start && end <= *to)
    }

    pub fn live_bytes(&self) -> usize {
        self.live.lock().iter().map(|(from, to)| to - from).sum()
    }
}

impl HostRegistrar for Registrar {
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<Registration, BoxError> {
        assert!(start.addr().get().is_multiple_of(4096) && bytes.is_multiple_of(4096));
        std::thread::sleep(self.latency);
        if self.fail_after.is_some_and(|limit| self.count.load(Ordering::SeqCst) >= limit) {
            return Err("registration fails by order".into());
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        let range = (start.addr().get(), start.addr().get() + bytes);
        let mut live = self.live.lock();
        assert!(
            live.iter().all(|(from, to)| range.1 <= *from || *to <= range.0),
            "registered twice"
        );
        live.push(range);
        Ok(Box::new(Live { range, all: self.live.clone() }))
    }
}

/// Reads by plain calls into the simulated device's memory.
#[derive(Default)]
pub struct Reader {
    pub device: Mutex<Option<Arc<Device>>>,
    pub direct: bool,
    /// Says of all calls that they passed host memory.
    pub counts_detours: bool,
    /// No call brings more than this.
    pub longest: Option<usize>,
    /// Calls for a later byte than this fail.
    pub fail_from: Option<u64>,
    pub panics: bool,
    pub refuses_files: bool,
    pub latency: Duration,
    pub calls: AtomicUsize,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

impl DeviceReader for Reader {
    fn describe(&self) -> String {
        "simulated reader".to_string()
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn detours(&self) -> Option<u64> {
        self.counts_detours.then(|| self.calls.load(Ordering::SeqCst) as u64)
    }

    fn open(&self, _file: &Arc<dyn ReadAt>) -> Result<(), BoxError> {
        if self.refuses_files { Err("not this file, by order".into()) } else { Ok(()) }
    }

    unsafe fn read(
        &self,
        file: &Arc<dyn ReadAt>,
        file_offset: u64,
        bytes: usize,
        slot: usize,
        slot_offset: usize,
    ) -> Result<usize, BoxError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.latency);
        assert!(!self.panics, "the reader panics by order");
        if self.fail_from.is_some_and(|from| file_offset + bytes as u64 > from) {
            return Err("the reader fails by order".into());
        }
        let mut buffer = vec![0; bytes.min(self.longest.unwrap_or(usize::MAX))];
        let count = file.read_at(ReadMode::Buffered, file_offset, &mut buffer)?;
        let device = self.device.lock().clone().unwrap();
        device.memory[slot].lock()[slot_offset..slot_offset + count]
            .copy_from_slice(&buffer[..count]);
        Ok(count)
    }
}
