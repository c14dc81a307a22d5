//! A simulated device: a copy thread and a compute thread with latencies, and faults at any stage.
//!
//! It checks what a real device would silently get wrong: that host memory does not change
//! between the enqueuing of a copy and the end of the slot's execution, and that the calls for a
//! slot come in the promised order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use headrace_flow::{
    BoxError, CancelToken, DEVICE_ALIGN_BYTES, DeviceLane, DeviceRange, DeviceReader, DeviceTimes,
    HostRegistrar, OutputSpec, Verdict,
};
use headrace_io::{AlignedBuffer, Window};

use crate::ways::{Reader, Registrar};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Copy,
    Launch,
    Output,
    Return,
    Execute,
    Retire,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Fail,
    Panic,
    Enough,
}

pub type Appends = Arc<dyn Fn(&[Vec<u8>]) -> Vec<(usize, Vec<u8>)> + Send + Sync>;

#[derive(Clone, Default)]
pub struct Plan {
    pub copy_latency: Duration,
    pub kernel_latency: Duration,
    /// Stage and chunk at which something happens.
    pub happen: Option<(At, usize, What)>,
    /// Stage and chunk at which the token is cancelled.
    pub cancel: Option<(At, usize, CancelToken)>,
    /// Chunks and buffers that count as resident.
    pub resident: Vec<(usize, usize)>,
    /// Where the output of each chunk goes: every byte of its buffers, plus one.
    pub outputs: Vec<OutputSpec>,
    /// What a chunk of these buffers appends: sinks and bytes.
    pub appends: Option<Appends>,
    pub return_latency: Duration,
    /// Slots that are ready at first; one more at each question.
    pub ready_at_first: Option<usize>,
    pub registrar: Option<Arc<Registrar>>,
    pub reader: Option<Arc<Reader>>,
}

/// State of a slot, as the driver's thread sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Filling,
    Copied,
    Launched,
    Executing,
}

pub struct Device {
    pub memory: Vec<parking_lot::Mutex<Vec<u8>>>,
    /// Finished executions, and copies back, by slot.
    done: Vec<AtomicBool>,
    returned: Vec<AtomicBool>,
    results: parking_lot::Mutex<Vec<(usize, Vec<Vec<u8>>)>>,
    pending: AtomicUsize,
    copy_ns: AtomicUsize,
    kernel_ns: AtomicUsize,
    return_ns: AtomicUsize,
    registrar: Option<Arc<Registrar>>,
    /// Address ranges of the slots' host memory.
    host: Vec<(usize, usize)>,
}

enum Job {
    Copy { slot: usize, offset: usize, from: Window, latency: Duration },
    Kernel { slot: usize, chunk: usize, buffers: Vec<DeviceRange>, latency: Duration },
    Executed { slot: usize },
    Return { slot: usize, buffers: Vec<DeviceRange>, into: Window, latency: Duration },
    Append { slot: usize, pieces: Vec<(Vec<u8>, Window)>, latency: Duration },
}

pub struct SimulatedLane {
    pub plan: Plan,
    host: Vec<AlignedBuffer>,
    device_slot_bytes: usize,
    device: Arc<Device>,
    slots: Vec<Slot>,
    chunk_of: Vec<usize>,
    ranges: Vec<Vec<DeviceRange>>,
    returning: Vec<bool>,
    /// What the slot's chunk appends.
    pieces: Vec<Vec<Vec<u8>>>,
    ready: usize,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    copies: usize,
    pub synchronized: usize,
    pub retired: Vec<usize>,
    /// Most slots that were with the device at once.
    pub executing_max: usize,
}

impl SimulatedLane {
    pub fn new(slots: usize, slot_bytes: usize, plan: Plan) -> SimulatedLane {
        let host: Vec<AlignedBuffer> =
            (0..slots).map(|_| AlignedBuffer::allocate(slot_bytes).unwrap()).collect();
        let device = Arc::new(Device {
            memory: (0..slots).map(|_| parking_lot::Mutex::new(vec![0; slot_bytes])).collect(),
            done: (0..slots).map(|_| AtomicBool::new(false)).collect(),
            results: parking_lot::Mutex::new(Vec::new()),
            pending: AtomicUsize::new(0),
            copy_ns: AtomicUsize::new(0),
            kernel_ns: AtomicUsize::new(0),
            returned: (0..slots).map(|_| AtomicBool::new(false)).collect(),
            return_ns: AtomicUsize::new(0),
            registrar: plan.registrar.clone(),
            host: host.iter().map(|h| (h.as_ptr().addr(), h.len())).collect(),
        });
        if let Some(reader) = &plan.reader {
            *reader.device.lock() = Some(device.clone());
        }
        let (jobs, queue) = channel();
        let worker = device.clone();
        // One queue for copies and kernels: the order in which they were enqueued is an order
        // that two streams with events between them may take.
        let thread = std::thread::spawn(move || {
            for job in queue {
                worker.carry_out(job);
                worker.pending.fetch_sub(1, Ordering::SeqCst);
            }
        });
        SimulatedLane {
            ready: plan.ready_at_first.unwrap_or(slots),
            plan,
            host,
            ranges: vec![Vec::new(); slots],
            returning: vec![false; slots],
            pieces: vec![Vec::new(); slots],
            device_slot_bytes: slot_bytes,
            device,
            slots: vec![Slot::Filling; slots],
            chunk_of: vec![usize::MAX; slots],
            jobs: Some(jobs),
            thread: Some(thread),
            copies: 0,
            synchronized: 0,
            retired: Vec::new(),
            executing_max: 0,
        }
    }

    pub fn with_device_bytes(mut self, bytes: usize) -> Self {
        self.device_slot_bytes = bytes;
        self
    }

    /// Device memory that is larger than the host's.
    pub fn with_large_memory(mut self, bytes: usize) -> Self {
        self.device_slot_bytes = bytes;
        self.device.memory.iter().for_each(|slot| slot.lock().resize(bytes, 0));
        self
    }

    pub fn take_results(&self) -> Vec<(usize, Vec<Vec<u8>>)> {
        std::mem::take(&mut *self.device.results.lock())
    }

    pub fn is_idle(&self) -> bool {
        self.device.pending.load(Ordering::SeqCst) == 0
    }

    fn enqueue(&self, job: Job) {
        self.device.pending.fetch_add(1, Ordering::SeqCst);
        self.jobs.as_ref().unwrap().send(job).unwrap();
    }

    /// What is planned for this stage of this chunk.
    fn event(&self, at: At, chunk: usize) -> Result<Verdict, BoxError> {
        if let Some((stage, victim, token)) = &self.plan.cancel
            && (*stage, *victim) == (at, chunk)
        {
            token.cancel();
        }
        match self.plan.happen {
            Some((stage, victim, what)) if (stage, victim) == (at, chunk) => match what {
                What::Fail => Err(format!("{at:?} failed by order").into()),
                What::Panic => panic!("{at:?} panics by order"),
                What::Enough => Ok(Verdict::Enough),
            },
            _ => Ok(Verdict::Continue),
        }
    }
}

impl Device {
    fn carry_out(&self, job: Job) {
        match job {
            Job::Copy { slot, offset, from, latency } => {
                let registered = self.check_reachable(from);
                let before = dma(from);
                std::thread::sleep(latency);
                // A file may change under its mapping; that is for the race to find out.
                assert!(registered || dma(from) == before, "host memory changed under a copy");
                self.check_reachable(from);
                self.memory[slot].lock()[offset..offset + before.len()].copy_from_slice(&before);
                self.copy_ns.fetch_add(latency.as_nanos() as usize + 1, Ordering::SeqCst);
            }
            Job::Kernel { slot, chunk, buffers, latency } => {
                std::thread::sleep(latency);
                let memory = self.memory[slot].lock();
                let copies =
                    buffers.iter().map(|b| memory[b.offset..b.offset + b.bytes].to_vec()).collect();
                self.results.lock().push((chunk, copies));
                self.kernel_ns.fetch_add(latency.as_nanos() as usize + 1, Ordering::SeqCst);
            }
            Job::Append { slot, pieces, latency } => self.append(slot, &pieces, latency),
            Job::Executed { slot } => self.done[slot].store(true, Ordering::SeqCst),
            Job::Return { slot, buffers, into, latency } => {
                std::thread::sleep(latency);
                let memory = self.memory[slot].lock();
                let bytes: Vec<u8> = buffers
                    .iter()
                    .flat_map(|b| &memory[b.offset..b.offset + b.bytes])
                    .map(|byte| byte.wrapping_add(1))
                    .collect();
                assert_eq!(bytes.len(), into.bytes());
                // SAFETY: the race leaves the slot's output window alone until the copy is done.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.as_ptr(), bytes.len());
                }
                self.return_ns.fetch_add(latency.as_nanos() as usize + 1, Ordering::SeqCst);
                self.returned[slot].store(true, Ordering::SeqCst);
            }
        }
    }

    /// As a copy to the host.
    fn append(&self, slot: usize, pieces: &[(Vec<u8>, Window)], latency: Duration) {
        std::thread::sleep(latency);
        for (bytes, into) in pieces {
            // SAFETY: the race leaves the slot's output window alone until the copy is done.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.as_ptr(), bytes.len()) };
        }
        self.return_ns.fetch_add(latency.as_nanos() as usize + 1, Ordering::SeqCst);
        self.returned[slot].store(true, Ordering::SeqCst);
    }

    /// A copy may come from a slot's host memory, or from memory that is registered: whether it
    /// is the latter.
    fn check_reachable(&self, from: Window) -> bool {
        let (start, end) = (from.as_ptr().addr(), from.as_ptr().addr() + from.bytes());
        let inside = |(base, bytes): &(usize, usize)| *base <= start && end <= base + bytes;
        let registered = self.registrar.as_ref().is_some_and(|r| r.covers(start, end));
        assert!(
            from.bytes() == 0 || self.host.iter().any(inside) || registered,
            "a copy from memory that is neither pinned nor registered"
        );
        registered
    }
}

/// Reads memory as a device does: without a signal where a page has gone. Such a page was pinned,
/// and the device would have found what lay there; here it reads as zeros.
fn dma(from: Window) -> Vec<u8> {
    let mut bytes = vec![0u8; from.bytes()];
    let mut done = 0;
    while done < bytes.len() {
        let part = (bytes.len() - done).min(4096 - (from.as_ptr().addr() + done) % 4096);
        let local = libc::iovec { iov_base: bytes[done..].as_mut_ptr().cast(), iov_len: part };
        let remote =
            libc::iovec { iov_base: from.as_ptr().wrapping_add(done).cast(), iov_len: part };
        // SAFETY: the local range is ours; what is wrong with the other is an error of the call.
        unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        done += part;
    }
    bytes
}

// SAFETY: each window is a page-aligned, initialised buffer of its own, owned by the lane, and
// touched only by the copy thread after a copy was enqueued.
unsafe impl DeviceLane for SimulatedLane {
    fn slots(&self) -> usize {
        self.host.len()
    }

    fn host_window(&self, slot: usize) -> Window {
        Window::new(self.host[slot].as_ptr(), self.host[slot].len())
    }

    fn device_slot_bytes(&self) -> usize {
        self.device_slot_bytes
    }

    fn slots_ready(&mut self) -> Result<usize, BoxError> {
        let ready = self.ready;
        self.ready = (ready + 1).min(self.host.len());
        Ok(ready)
    }

    fn host_slot_bytes(&self) -> usize {
        self.host[0].len()
    }

    fn registrar(&self) -> Option<Arc<dyn HostRegistrar>> {
        self.plan.registrar.clone().map(|registrar| registrar as Arc<dyn HostRegistrar>)
    }

    fn device_reader(&self, forced: bool) -> Result<Arc<dyn DeviceReader>, String> {
        match &self.plan.reader {
            Some(reader) if forced || reader.direct => Ok(reader.clone()),
            _ => Err("the simulated device has no reader".to_string()),
        }
    }

    fn is_resident(&mut self, chunk: usize, buffer: usize) -> bool {
        self.plan.resident.contains(&(chunk, buffer))
    }

    unsafe fn copy_to_device(
        &mut self,
        slot: usize,
        offset: usize,
        from: Window,
    ) -> Result<(), BoxError> {
        assert_eq!(self.slots[slot], Slot::Filling, "a copy into a slot that is in use");
        assert!(self.plan.registrar.is_some() || offset.is_multiple_of(DEVICE_ALIGN_BYTES));
        self.copies += 1;
        // By number of the copy: which chunk it belongs to is not told.
        self.event(At::Copy, self.copies - 1)?;
        self.enqueue(Job::Copy { slot, offset, from, latency: self.plan.copy_latency });
        Ok(())
    }

    fn mark_copied(&mut self, slot: usize) -> Result<(), BoxError> {
        assert_eq!(self.slots[slot], Slot::Filling);
        self.slots[slot] = Slot::Copied;
        Ok(())
    }

    fn launch(
        &mut self,
        slot: usize,
        chunk: usize,
        buffers: &[DeviceRange],
    ) -> Result<(), BoxError> {
        assert_eq!(self.slots[slot], Slot::Copied);
        self.slots[slot] = Slot::Launched;
        self.chunk_of[slot] = chunk;
        self.event(At::Launch, chunk)?;
        self.ranges[slot] = buffers.to_vec();
        let latency = self.plan.kernel_latency;
        self.enqueue(Job::Kernel { slot, chunk, buffers: buffers.to_vec(), latency });
        Ok(())
    }

    fn output(&mut self, slot: usize, chunk: usize) -> Result<Option<OutputSpec>, BoxError> {
        assert_eq!(self.slots[slot], Slot::Launched);
        self.event(At::Output, chunk)?;
        Ok(self.plan.outputs.get(chunk).copied())
    }

    unsafe fn copy_to_host(
        &mut self,
        slot: usize,
        window_offset: usize,
        bytes: usize,
    ) -> Result<(), BoxError> {
        assert_eq!(self.slots[slot], Slot::Executing);
        self.event(At::Return, self.chunk_of[slot])?;
        let window = self.output_window(slot);
        assert!(window_offset + bytes <= window.bytes());
        self.returning[slot] = true;
        self.device.returned[slot].store(false, Ordering::SeqCst);
        self.enqueue(Job::Return {
            slot,
            buffers: self.ranges[slot].clone(),
            into: Window::new(window.as_ptr().wrapping_add(window_offset), bytes),
            latency: self.plan.return_latency,
        });
        Ok(())
    }

    fn appended(&mut self, slot: usize, chunk: usize) -> Result<Vec<(usize, usize)>, BoxError> {
        assert_eq!((self.slots[slot], self.chunk_of[slot]), (Slot::Executing, chunk));
        assert!(self.device.done[slot].load(Ordering::SeqCst), "asked before it was done");
        self.event(At::Output, chunk)?;
        let Some(appends) = &self.plan.appends else { return Ok(Vec::new()) };
        let memory = self.device.memory[slot].lock();
        let buffers =
            self.ranges[slot].iter().map(|b| memory[b.offset..b.offset + b.bytes].to_vec());
        let pieces = appends(&buffers.collect::<Vec<_>>());
        self.pieces[slot] = pieces.iter().map(|(_, bytes)| bytes.clone()).collect();
        Ok(pieces.into_iter().map(|(sink, bytes)| (sink, bytes.len())).collect())
    }

    unsafe fn copy_appended(&mut self, slot: usize, places: &[usize]) -> Result<(), BoxError> {
        assert_eq!((self.slots[slot], self.returning[slot]), (Slot::Executing, false));
        self.event(At::Return, self.chunk_of[slot])?;
        let (window, pieces) = (self.output_window(slot), std::mem::take(&mut self.pieces[slot]));
        assert_eq!(pieces.len(), places.len());
        let placed = pieces.into_iter().zip(places).map(|(bytes, &place)| {
            assert!(place + bytes.len() <= window.bytes());
            let into = Window::new(window.as_ptr().wrapping_add(place), bytes.len());
            (bytes, into)
        });
        let (pieces, latency) = (placed.collect(), self.plan.return_latency);
        self.returning[slot] = true;
        self.device.returned[slot].store(false, Ordering::SeqCst);
        self.enqueue(Job::Append { slot, pieces, latency });
        Ok(())
    }

    fn mark_executed(&mut self, slot: usize) -> Result<(), BoxError> {
        assert_eq!(self.slots[slot], Slot::Launched);
        self.slots[slot] = Slot::Executing;
        self.device.done[slot].store(false, Ordering::SeqCst);
        self.enqueue(Job::Executed { slot });
        let executing = self.slots.iter().filter(|slot| **slot == Slot::Executing).count();
        self.executing_max = self.executing_max.max(executing);
        Ok(())
    }

    fn poll(&mut self, slot: usize) -> Result<bool, BoxError> {
        assert_eq!(self.slots[slot], Slot::Executing);
        self.event(At::Execute, self.chunk_of[slot])?;
        Ok(self.device.done[slot].load(Ordering::SeqCst)
            && (!self.returning[slot] || self.device.returned[slot].load(Ordering::SeqCst)))
    }

    fn wait(&mut self, slot: usize) -> Result<(), BoxError> {
        while !self.poll(slot)? {
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    fn retire(&mut self, slot: usize, chunk: usize) -> Result<Verdict, BoxError> {
        assert_eq!(self.slots[slot], Slot::Executing);
        assert!(self.device.done[slot].load(Ordering::SeqCst), "retired before it was done");
        assert_eq!(self.chunk_of[slot], chunk);
        self.slots[slot] = Slot::Filling;
        self.returning[slot] = false;
        self.retired.push(chunk);
        self.event(At::Retire, chunk)
    }

    fn synchronize(&mut self) -> Result<(), BoxError> {
        while !self.is_idle() {
            let thread = self.thread.as_ref();
            assert!(thread.is_some_and(|t| !t.is_finished()), "the simulated device has died");
            std::thread::sleep(Duration::from_micros(50));
        }
        self.slots.fill(Slot::Filling);
        self.returning.fill(false);
        self.synchronized += 1;
        Ok(())
    }

    fn times(&mut self) -> DeviceTimes {
        DeviceTimes {
            h2d_ns: self.device.copy_ns.load(Ordering::SeqCst) as u64,
            kernel_ns: self.device.kernel_ns.load(Ordering::SeqCst) as u64,
            d2h_ns: self.device.return_ns.load(Ordering::SeqCst) as u64,
        }
    }
}

impl Drop for SimulatedLane {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}
