//! Points in a stream's work that can be waited for and timed.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::api;
use crate::device::Device;
use crate::driver::check_in_drop;
use crate::error::{GpuError, Result};
use crate::stream::Stream;

/// A point in a stream's work. Recording again moves it; an event that was never
/// recorded counts as passed.
pub struct Event {
    device: Arc<Device>,
    raw: sys::CUevent,
}

// SAFETY: event handles may be used from any thread; the driver locks inside.
unsafe impl Send for Event {}
// SAFETY: as above; no method writes to the handle.
unsafe impl Sync for Event {}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").field("device", &self.device.ordinal()).finish_non_exhaustive()
    }
}

impl Device {
    /// A new event.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses.
    pub fn event(self: &Arc<Self>) -> Result<Event> {
        Event::new(self)
    }
}

impl Stream {
    /// Makes work that is queued here after this call wait until the device has passed `event`, as
    /// recorded now. The host does not wait. The event may belong to another device.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        self.device().bind()?;
        // SAFETY: both handles are alive; 0 is the default flag.
        let code = unsafe { api::cuStreamWaitEvent(self.raw(), event.raw, 0) };
        self.device().check("cuStreamWaitEvent", code)
    }
}

impl Event {
    fn new(device: &Arc<Device>) -> Result<Self> {
        device.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current and the out-pointer is live; 0: it keeps the time, and
        // whoever waits for it spins.
        let code = unsafe { api::cuEventCreate(&mut raw, 0) };
        device.check("cuEventCreate", code)?;
        Ok(Self { device: Arc::clone(device), raw })
    }

    /// Puts the event behind all work that `stream` holds now.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when stream and event are of different devices,
    /// [`GpuError::Driver`] when the driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        if stream.device().ordinal() != self.device.ordinal() {
            return Err(GpuError::invalid(
                "Event::record",
                format!(
                    "an event of device {} cannot be recorded in a stream of device {}",
                    self.device.ordinal(),
                    stream.device().ordinal()
                ),
            ));
        }
        self.device.bind()?;
        // SAFETY: both handles are alive and of the current context.
        let code = unsafe { api::cuEventRecord(self.raw, stream.raw()) };
        self.device.check("cuEventRecord", code)
    }

    /// Whether the device has passed the event.
    ///
    /// # Errors
    /// [`GpuError::Driver`] with the fault of earlier asynchronous work.
    pub fn is_complete(&self) -> Result<bool> {
        self.device.bind()?;
        // SAFETY: the handle is alive and the context is current.
        match unsafe { api::cuEventQuery(self.raw) } {
            api::NOT_READY => Ok(false),
            code => self.device.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits on the host until the device has passed the event.
    ///
    /// # Errors
    /// [`GpuError::Driver`] with the fault of earlier asynchronous work.
    pub fn synchronize(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the handle is alive and the context is current.
        let code = unsafe { api::cuEventSynchronize(self.raw) };
        self.device.check("cuEventSynchronize", code)
    }

    /// Milliseconds on the device from this event to `later`. Both must have been
    /// recorded and passed: wait for `later` first.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when one was not recorded or not passed yet.
    pub fn elapsed_ms(&self, later: &Event) -> Result<f32> {
        self.device.bind()?;
        let mut elapsed_ms = 0.0;
        // SAFETY: both handles are alive and the out-pointer is live.
        let code = unsafe { api::cuEventElapsedTime_v2(&mut elapsed_ms, self.raw, later.raw) };
        self.device.check("cuEventElapsedTime", code)?;
        Ok(elapsed_ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: the handle is alive and dropped once. The driver keeps what it
            // needs of an event that is still ahead of the device.
            check_in_drop("cuEventDestroy", unsafe { api::cuEventDestroy_v2(self.raw) });
        }
    }
}
