//! The device's paths that bypass the slots' host memory: registered mappings and cuFile.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use headrace_gpu::cufile::{CuFileModeKind, RegisteredDeviceBuffer};
use headrace_gpu::{CuFile, CuFileHandle, Device, DeviceBuffer, HostAccess, RegisteredHost};
use headrace_io::{FileIdentity, ReadAt, ReadMode};
use parking_lot::Mutex;

use crate::BoxError;
use crate::lane::{DeviceReader, HostRegistrar, Registration};

/// Files that are kept open with cuFile; all are forgotten when there are more.
const HANDLES_MAX: usize = 256;

/// Pins mappings of files for all devices of the process.
#[derive(Debug)]
pub struct CudaRegistrar {
    device: Arc<Device>,
}

impl CudaRegistrar {
    /// Through the driver of this device.
    pub fn new(device: &Arc<Device>) -> CudaRegistrar {
        CudaRegistrar { device: device.clone() }
    }
}

impl HostRegistrar for CudaRegistrar {
    /// For reading only: pinning the pages of a file for writing counts as a write, which would
    /// change the file's times and thus its identity.
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<Registration, BoxError> {
        // SAFETY: the caller's promise. A file that is truncated meanwhile takes nothing from under
        // the device: it copies from the pages that were pinned, and nobody else reads the mapping.
        let registered =
            unsafe { RegisteredHost::register(&self.device, start, bytes, HostAccess::ReadOnly) };
        match registered {
            Ok(registered) => Ok(Box::new(registered)),
            Err(error) if !self.device.info().read_only_host_register => Err(format!(
                "this device and driver register no read-only memory \
                 (CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED): {error}"
            )
            .into()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads by cuFile into the slots of one lane.
#[derive(Debug)]
pub(super) struct CuFileReader {
    // First: handles and registrations end before the memory.
    handles: Mutex<HashMap<FileIdentity, Arc<CuFileHandle>>>,
    registered: Vec<RegisteredDeviceBuffer>,
    refused: Option<String>,
    cufile: Arc<CuFile>,
    slots: Vec<Arc<DeviceBuffer>>,
}

impl CuFileReader {
    pub fn open(slots: Vec<Arc<DeviceBuffer>>) -> Result<CuFileReader, String> {
        let cufile = CuFile::open().map_err(|unavailable| unavailable.to_string())?;
        let (mut registered, mut refused) = (Vec::new(), None);
        for slot in &slots {
            match cufile.register_buffer(slot.clone()) {
                Ok(buffer) => registered.push(buffer),
                // Reads work all the same, through a buffer of the library's.
                Err(error) => {
                    refused = Some(error.to_string());
                    break;
                }
            }
        }
        let handles = Mutex::new(HashMap::new());
        Ok(CuFileReader { handles, registered, refused, cufile, slots })
    }

    fn handle(&self, file: &Arc<dyn ReadAt>) -> Result<Arc<CuFileHandle>, BoxError> {
        let identity = file.identity();
        if let Some(handle) = self.handles.lock().get(&identity) {
            return Ok(handle.clone());
        }
        let source = file.source();
        // The way past host memory asks for O_DIRECT; where it cannot be had, the library's own
        // bounce works without.
        let direct = source.descriptor(ReadMode::Direct);
        let file = direct.or_else(|_| source.descriptor(ReadMode::Buffered))?;
        let handle = Arc::new(self.cufile.register(&file)?);
        let mut handles = self.handles.lock();
        if handles.len() >= HANDLES_MAX {
            handles.clear();
        }
        handles.insert(identity, handle.clone());
        Ok(handle)
    }
}

impl DeviceReader for CuFileReader {
    fn describe(&self) -> String {
        let mode = self.cufile.mode();
        let slots = match (&self.refused, self.registered.len()) {
            (None, _) => "slots registered".to_string(),
            (Some(reason), 0) => format!("slots not registered: {reason}"),
            (Some(reason), some) => format!("{some} slots registered, then {reason}"),
        };
        format!("cuFile, {:?}, {slots}", mode.kind)
    }

    fn is_direct(&self) -> bool {
        matches!(self.cufile.mode().kind, CuFileModeKind::Gds | CuFileModeKind::P2pDma)
    }

    fn detour(&self, file: &Arc<dyn ReadAt>) -> Option<String> {
        let possible = self.cufile.possible_mode();
        if possible.kind == CuFileModeKind::Compatibility {
            let evidence = possible.evidence.join("; ");
            return Some(format!(
                "cuFile works in compatibility mode, which copies through host memory: {evidence}"
            ));
        }
        let refused = file.source().descriptor(ReadMode::Direct).err()?;
        Some(format!("cuFile copies through host memory without O_DIRECT: {refused}"))
    }

    fn detours(&self) -> Option<u64> {
        self.cufile.counts().map(|counts| counts.posix)
    }

    fn open(&self, file: &Arc<dyn ReadAt>) -> Result<(), BoxError> {
        self.handle(file).map(|_| ())
    }

    unsafe fn read(
        &self,
        file: &Arc<dyn ReadAt>,
        file_offset: u64,
        bytes: usize,
        slot: usize,
        slot_offset: usize,
    ) -> Result<usize, BoxError> {
        let handle = self.handle(file)?;
        let read = handle.read_into(&self.slots[slot], slot_offset, file_offset, bytes)?;
        Ok(usize::try_from(read)?)
    }
}
