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
    BoxError, CancelToken, DEVICE_ALIGN_BYTES, DeviceLane, DeviceRange, DeviceTimes, Verdict,
};
use headrace_io::{AlignedBuffer, Window};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Copy,
    Launch,
    Execute,
    Retire,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Fail,
    Panic,
    Enough,
}

#[derive(Clone, Default)]
pub struct Plan {
    pub copy_latency: Duration,
    pub kernel_latency: Duration,
    /// Stage and chunk at which something happens.
    pub happen: Option<(At, usize, What)>,
    /// Stage and chunk at which the token is cancelled.
    pub cancel: Option<(At, usize, CancelToken)>,
    /// Chunks that count as resident, with their bytes.
    pub resident: Vec<(usize, u64)>,
}

/// State of a slot, as the driver's thread sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Filling,
    Copied,
    Launched,
    Executing,
}

struct Device {
    memory: Vec<parking_lot::Mutex<Vec<u8>>>,
    /// Finished executions, by slot.
    done: Vec<AtomicBool>,
    results: parking_lot::Mutex<Vec<(usize, Vec<Vec<u8>>)>>,
    pending: AtomicUsize,
    copy_ns: AtomicUsize,
    kernel_ns: AtomicUsize,
}

enum Job {
    Copy { slot: usize, offset: usize, from: Window, latency: Duration },
    Kernel { slot: usize, chunk: usize, buffers: Vec<DeviceRange>, latency: Duration },
    Executed { slot: usize },
}

pub struct SimulatedLane {
    pub plan: Plan,
    host: Vec<AlignedBuffer>,
    device_slot_bytes: usize,
    device: Arc<Device>,
    slots: Vec<Slot>,
    chunk_of: Vec<usize>,
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
        let device = Arc::new(Device {
            memory: (0..slots).map(|_| parking_lot::Mutex::new(vec![0; slot_bytes])).collect(),
            done: (0..slots).map(|_| AtomicBool::new(false)).collect(),
            results: parking_lot::Mutex::new(Vec::new()),
            pending: AtomicUsize::new(0),
            copy_ns: AtomicUsize::new(0),
            kernel_ns: AtomicUsize::new(0),
        });
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
            plan,
            host: (0..slots).map(|_| AlignedBuffer::allocate(slot_bytes).unwrap()).collect(),
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
                // SAFETY: the race promised that the source stays valid and unchanged until the
                // slot's execution was seen to be done.
                let bytes = unsafe { std::slice::from_raw_parts(from.as_ptr(), from.bytes()) };
                let before = bytes.to_vec();
                std::thread::sleep(latency);
                assert!(bytes == before, "host memory changed under a copy");
                self.memory[slot].lock()[offset..offset + bytes.len()].copy_from_slice(bytes);
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
            Job::Executed { slot } => self.done[slot].store(true, Ordering::SeqCst),
        }
    }
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

    fn resident_bytes(&mut self, chunk: usize) -> Option<u64> {
        self.plan.resident.iter().find(|(resident, _)| *resident == chunk).map(|(_, bytes)| *bytes)
    }

    unsafe fn copy_to_device(
        &mut self,
        slot: usize,
        offset: usize,
        from: &[u8],
    ) -> Result<(), BoxError> {
        assert_eq!(self.slots[slot], Slot::Filling, "a copy into a slot that is in use");
        assert_eq!(offset % DEVICE_ALIGN_BYTES, 0);
        self.copies += 1;
        // By number of the copy: which chunk it belongs to is not told.
        self.event(At::Copy, self.copies - 1)?;
        let from = Window::new(from.as_ptr().cast_mut(), from.len());
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
        let latency = self.plan.kernel_latency;
        self.enqueue(Job::Kernel { slot, chunk, buffers: buffers.to_vec(), latency });
        Ok(())
    }

    fn launch_resident(&mut self, slot: usize, chunk: usize) -> Result<(), BoxError> {
        assert_eq!(self.slots[slot], Slot::Filling);
        assert!(self.resident_bytes(chunk).is_some());
        self.slots[slot] = Slot::Copied;
        self.launch(slot, chunk, &[])
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
        Ok(self.device.done[slot].load(Ordering::SeqCst))
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
        self.retired.push(chunk);
        self.event(At::Retire, chunk)
    }

    fn synchronize(&mut self) -> Result<(), BoxError> {
        while !self.is_idle() {
            std::thread::sleep(Duration::from_micros(50));
        }
        self.slots.fill(Slot::Filling);
        self.synchronized += 1;
        Ok(())
    }

    fn times(&mut self) -> DeviceTimes {
        DeviceTimes {
            h2d_ns: self.device.copy_ns.load(Ordering::SeqCst) as u64,
            kernel_ns: self.device.kernel_ns.load(Ordering::SeqCst) as u64,
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
