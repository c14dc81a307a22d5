//! Device memory handed from process to process.
//!
//! The exporter owns the memory; the importer sees the same bytes at an address of its
//! own, without a copy. What crosses between them is an [`IpcHandle`]: plain bytes, to be
//! sent over a socket or written to a file.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use cudarc::driver::sys::CUipcMemHandle;

use crate::api;
use crate::device::Device;
use crate::driver::check_in_drop;
use crate::error::{GpuError, Result};
use crate::pool::DeviceBuffer;

const HANDLE_BYTES: usize = 64;

/// `GPU-` and the hexadecimal identity.
const UUID_BYTES: usize = 40;

/// Opens peer access by itself when the importer's device is another one
/// (`CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag there is).
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// What another process needs to reach a [`DeviceBuffer`] of this one.
#[derive(Clone, PartialEq, Eq)]
pub struct IpcHandle {
    raw: [u8; HANDLE_BYTES],
    /// Where the buffer begins in the allocation that the driver's handle stands for.
    offset_bytes: u64,
    bytes: u64,
    device_uuid: String,
}

impl fmt::Debug for IpcHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IpcHandle")
            .field("bytes", &self.bytes)
            .field("device_uuid", &self.device_uuid)
            .finish_non_exhaustive()
    }
}

impl IpcHandle {
    /// Bytes of an encoded handle: the driver's handle (64), offset (8) and length (8) as
    /// little-endian numbers, the device's identity as text (40).
    pub const ENCODED_BYTES: usize = HANDLE_BYTES + 16 + UUID_BYTES;

    /// Bytes of the exported buffer.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The identity of the exporter's device; see [`DeviceInfo::uuid`](crate::DeviceInfo).
    pub fn device_uuid(&self) -> &str {
        &self.device_uuid
    }

    /// The handle as bytes to send.
    pub fn to_bytes(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut encoded = [0; Self::ENCODED_BYTES];
        let (handle, rest) = encoded.split_at_mut(HANDLE_BYTES);
        handle.copy_from_slice(&self.raw);
        rest[..8].copy_from_slice(&self.offset_bytes.to_le_bytes());
        rest[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        rest[16..].copy_from_slice(self.device_uuid.as_bytes());
        encoded
    }

    /// The handle from the bytes that [`IpcHandle::to_bytes`] gave.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for bytes that are no handle.
    pub fn from_bytes(encoded: &[u8]) -> Result<Self> {
        let refused = |reason: String| GpuError::invalid("IpcHandle::from_bytes", reason);
        if encoded.len() != Self::ENCODED_BYTES {
            return Err(refused(format!(
                "{} bytes are not {}",
                encoded.len(),
                Self::ENCODED_BYTES
            )));
        }
        let (raw, rest) = encoded.split_at(HANDLE_BYTES);
        let number = |range: std::ops::Range<usize>| {
            rest[range].try_into().map(u64::from_le_bytes).expect("eight bytes")
        };
        let (offset_bytes, bytes) = (number(0..8), number(8..16));
        let device_uuid = std::str::from_utf8(&rest[16..])
            .ok()
            .filter(|uuid| uuid.starts_with("GPU-") && uuid.is_ascii())
            .ok_or_else(|| refused("they name no device".into()))?;
        if offset_bytes.checked_add(bytes).is_none() {
            return Err(refused(format!("{bytes} bytes at {offset_bytes} are no range")));
        }
        Ok(Self {
            raw: raw.try_into().expect("split at its length"),
            offset_bytes,
            bytes,
            device_uuid: device_uuid.to_string(),
        })
    }
}

/// Hexadecimal digits, for a command line or a log.
impl fmt::Display for IpcHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for IpcHandle {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self> {
        let refused =
            || GpuError::invalid("IpcHandle::from_str", "not pairs of hexadecimal digits");
        if !text.is_ascii() || !text.len().is_multiple_of(2) {
            return Err(refused());
        }
        let bytes = (0..text.len())
            .step_by(2)
            .map(|start| u8::from_str_radix(&text[start..start + 2], 16).map_err(|_| refused()))
            .collect::<Result<Vec<_>>>()?;
        Self::from_bytes(&bytes)
    }
}

impl DeviceBuffer {
    /// A handle by which other processes reach this buffer's memory.
    ///
    /// The buffer must be kept until every importer has dropped what it opened: a dropped
    /// buffer's block may be handed out again by its pool, and an importer would then see
    /// (and could change) another buffer's bytes. The driver shares whole allocations: an
    /// importer is trusted with what lies beside a small buffer, too.
    ///
    /// # Errors
    /// [`GpuError::Driver`] where the system has no such sharing (some containers and
    /// virtual GPUs).
    pub fn export(&self) -> Result<IpcHandle> {
        let device = self.device();
        device.bind()?;
        let (mut base, mut allocation_bytes) = (0, 0);
        // SAFETY: the context is current, the address is a live allocation's, and the
        // out-pointers are live.
        let code =
            unsafe { api::cuMemGetAddressRange_v2(&mut base, &mut allocation_bytes, self.ptr()) };
        device.check("cuMemGetAddressRange", code)?;
        let mut handle = CUipcMemHandle { reserved: [0; HANDLE_BYTES] };
        // SAFETY: as above.
        let code = unsafe { api::cuIpcGetMemHandle(&mut handle, base) };
        device.check("cuIpcGetMemHandle", code)?;
        Ok(IpcHandle {
            raw: handle.reserved.map(|byte| byte as u8),
            offset_bytes: self.ptr() - base,
            bytes: self.bytes() as u64,
            device_uuid: device.info().uuid.clone(),
        })
    }
}

/// Another process's device memory, reachable in this one until dropped.
pub struct ImportedBuffer {
    device: Arc<Device>,
    base: u64,
    offset_bytes: u64,
    bytes: u64,
}

impl fmt::Debug for ImportedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportedBuffer")
            .field("ptr", &format_args!("{:#x}", self.ptr()))
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl ImportedBuffer {
    /// Opens a handle that another process exported, on the same device. Not for handles
    /// of this process.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for a handle of another device and for one whose length
    /// passes the end of the exporter's allocation, [`GpuError::Driver`] when the exporter
    /// is gone or the driver refuses.
    pub fn open(device: &Arc<Device>, handle: &IpcHandle) -> Result<Self> {
        if device.info().uuid != handle.device_uuid {
            return Err(GpuError::invalid(
                "ImportedBuffer::open",
                format!(
                    "the memory is of {}, device {} is {}",
                    handle.device_uuid,
                    device.ordinal(),
                    device.info().uuid
                ),
            ));
        }
        device.bind()?;
        let raw = CUipcMemHandle { reserved: handle.raw.map(|byte| byte as _) };
        let mut base = 0;
        // SAFETY: the context is current and the out-pointer is live; a handle that is
        // none is refused.
        let code = unsafe { api::cuIpcOpenMemHandle_v2(&mut base, raw, LAZY_ENABLE_PEER_ACCESS) };
        device.check("cuIpcOpenMemHandle", code)?;
        // From here on the value's drop closes it again.
        let opened = Self {
            device: Arc::clone(device),
            base,
            offset_bytes: handle.offset_bytes,
            bytes: handle.bytes,
        };
        opened.require_inside()?;
        Ok(opened)
    }

    /// Error where the handle's numbers lead past the end of the allocation that was opened:
    /// they come from another process, and the driver has not looked at them.
    fn require_inside(&self) -> Result<()> {
        let (mut base, mut allocation_bytes) = (0, 0);
        // SAFETY: the context is current, the address is that of an open import, and the
        // out-pointers are live.
        let code =
            unsafe { api::cuMemGetAddressRange_v2(&mut base, &mut allocation_bytes, self.base) };
        self.device.check("cuMemGetAddressRange", code)?;
        if is_inside(base, allocation_bytes as u64, self.base, self.offset_bytes, self.bytes) {
            return Ok(());
        }
        Err(GpuError::invalid(
            "ImportedBuffer::open",
            format!(
                "the handle tells of {} bytes at {} of an allocation of {allocation_bytes} bytes",
                self.bytes, self.offset_bytes
            ),
        ))
    }

    /// The address of the buffer's first byte in this process.
    pub fn ptr(&self) -> u64 {
        self.base + self.offset_bytes
    }

    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device whose memory this is.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

/// Whether `bytes` bytes at `offset` from `opened` on lie in the `allocation_bytes` from `base`
/// on.
fn is_inside(base: u64, allocation_bytes: u64, opened: u64, offset: u64, bytes: u64) -> bool {
    let end = opened.checked_add(offset).and_then(|at| at.checked_add(bytes));
    let allocation_end = base.checked_add(allocation_bytes);
    opened >= base && end.zip(allocation_end).is_some_and(|(end, limit)| end <= limit)
}

impl Drop for ImportedBuffer {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: opened by `open` and closed once.
            check_in_drop("cuIpcCloseMemHandle", unsafe { api::cuIpcCloseMemHandle(self.base) });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn example() -> IpcHandle {
        IpcHandle {
            raw: std::array::from_fn(|index| index as u8),
            offset_bytes: 512,
            bytes: 1 << 33,
            device_uuid: "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f".into(),
        }
    }

    #[test]
    fn a_handle_survives_bytes_and_text() {
        let handle = example();
        assert_eq!(IpcHandle::from_bytes(&handle.to_bytes()).unwrap(), handle);
        assert_eq!(handle.to_string().parse::<IpcHandle>().unwrap(), handle);
        assert_eq!(handle.to_string().len(), 2 * IpcHandle::ENCODED_BYTES);
    }

    #[test]
    fn a_range_must_lie_in_the_allocation() {
        const BASE: u64 = 0x7f00_0000_0000;
        let inside = |offset, bytes| is_inside(BASE, 4096, BASE, offset, bytes);
        assert!(inside(0, 4096) && inside(512, 3584) && inside(4096, 0));
        assert!(!inside(0, 4097) && !inside(512, 3585) && !inside(4097, 0));
        assert!(!inside(u64::MAX, 1) && !inside(1, u64::MAX));
        // What the driver opened may begin behind the allocation's first byte.
        assert!(is_inside(BASE, 4096, BASE + 512, 0, 3584));
        assert!(!is_inside(BASE, 4096, BASE + 512, 0, 3585));
        assert!(!is_inside(BASE, 4096, BASE - 1, 0, 1));
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        let bytes = example().to_bytes();
        let refused = |bytes: &[u8]| {
            let outcome = IpcHandle::from_bytes(bytes);
            assert!(matches!(outcome, Err(GpuError::InvalidArgument { .. })), "{outcome:?}");
        };
        refused(&[]);
        refused(&bytes[1..]);
        let mut nameless = bytes;
        nameless[HANDLE_BYTES + 16] = b'X';
        refused(&nameless);
        let mut endless = bytes;
        endless[HANDLE_BYTES..HANDLE_BYTES + 8].fill(0xff);
        refused(&endless);
        assert!("abc".parse::<IpcHandle>().is_err());
        assert!("zz".parse::<IpcHandle>().is_err());
        assert!("é".parse::<IpcHandle>().is_err());
    }
}
