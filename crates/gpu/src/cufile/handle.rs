//! Files and buffers known to cuFile, and the transfers between them.

use std::ffi::c_void;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

use cudarc::cufile::sys::{self, CUfileFileHandleType};

use super::CuFile;
use super::error::{CuFileError, FIRST_CODE};
use crate::device::Device;
use crate::pool::DeviceBuffer;

/// Where cuFile's codes lie, with room for those of later versions.
const CODES: RangeInclusive<u64> = FIRST_CODE as u64..=5100;

impl CuFile {
    /// Registers `file` with cuFile. The handle keeps a duplicate of its descriptor, so `file` may
    /// be closed. For direct access the file must have been opened with `O_DIRECT`, and for writing
    /// if it is to be written.
    ///
    /// # Errors
    /// [`CuFileError`] when the library refuses the file; the remedy says what is known
    /// to help.
    pub fn register(self: &Arc<Self>, file: &File) -> Result<CuFileHandle, CuFileError> {
        const OPERATION: &str = "cuFileHandleRegister";
        let place = path_of(file);
        let file = file
            .try_clone()
            .map_err(|error| CuFileError::of_code(OPERATION, errno_of(&error), place.clone()))?;
        let mut descriptor = sys::CUfileDescr_t {
            type_: CUfileFileHandleType::CU_FILE_HANDLE_TYPE_OPAQUE_FD,
            handle: sys::CUfileDescr_t__bindgen_ty_1 { handle: ptr::null_mut() },
            fs_ops: ptr::null(),
        };
        descriptor.handle.fd = file.as_raw_fd();
        let mut raw = ptr::null_mut();
        // SAFETY: the driver is open, both pointers are live, and the descriptor is that
        // of an open file, which the handle keeps open.
        let status =
            unsafe { (self.library.functions.cuFileHandleRegister)(&mut raw, &mut descriptor) };
        status.check(OPERATION, || place.clone())?;
        Ok(CuFileHandle { cufile: Arc::clone(self), raw, place, file })
    }

    /// Pins a device buffer for direct access, so that reads into it need no bounce buffer
    /// and no pinning of their own. Optional: every read works without.
    ///
    /// # Errors
    /// [`CuFileError`] when the library or the GPU refuses.
    pub fn register_buffer(
        self: &Arc<Self>,
        buffer: Arc<DeviceBuffer>,
    ) -> Result<RegisteredDeviceBuffer, CuFileError> {
        const OPERATION: &str = "cuFileBufRegister";
        bind(OPERATION, buffer.device())?;
        let base = buffer.ptr() as *const c_void;
        // SAFETY: the range is live device memory that the result keeps alive; the device's
        // context is current.
        let status = unsafe { (self.library.functions.cuFileBufRegister)(base, buffer.bytes(), 0) };
        status.check(OPERATION, || format!("{} bytes of device memory", buffer.bytes()))?;
        Ok(RegisteredDeviceBuffer { cufile: Arc::clone(self), buffer })
    }
}

/// A file registered with cuFile; unregistered on drop. Any number of threads may read and write.
pub struct CuFileHandle {
    cufile: Arc<CuFile>,
    raw: sys::CUfileHandle_t,
    place: String,
    /// Keeps the registered descriptor open.
    file: File,
}

// SAFETY: cuFile's functions may be called from any thread at a time, with one handle too.
unsafe impl Send for CuFileHandle {}
// SAFETY: as above; no method writes to the handle.
unsafe impl Sync for CuFileHandle {}

impl fmt::Debug for CuFileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuFileHandle").field("file", &self.place).finish_non_exhaustive()
    }
}

impl CuFileHandle {
    /// Reads into `buffer` from its byte `buffer_offset` on, and waits. The bytes read:
    /// fewer than `bytes` only at the end of the file.
    ///
    /// The read belongs to no stream: queued work on the same range may run before, after or during
    /// it. Wait for such work first, otherwise the range holds the bytes of either.
    ///
    /// # Errors
    /// [`CuFileError`] for a range outside the buffer, and for what the library reports.
    pub fn read_into(
        &self,
        buffer: &DeviceBuffer,
        buffer_offset: usize,
        file_offset: u64,
        bytes: usize,
    ) -> Result<u64, CuFileError> {
        self.require_inside("cuFileRead", buffer, buffer_offset, bytes)?;
        // SAFETY: the range is inside a live buffer, and the call waits for the bytes.
        unsafe {
            self.read(
                buffer.device(),
                buffer.ptr(),
                buffer_offset as u64,
                file_offset,
                bytes as u64,
            )
        }
    }

    /// Reads `bytes` bytes of the file from `file_offset` on to `device_offset` bytes
    /// behind `device_address`, and waits. The bytes read: fewer than asked for only at
    /// the end of the file. `device_address` should be the start of an allocation (of a
    /// registered buffer, where it is one): cuFile looks it up by that. Queued work that
    /// touches the range must be waited for, as with [`CuFileHandle::read_into`].
    ///
    /// # Errors
    /// [`CuFileError`] with the system's `errno` or cuFile's code; EIO for a read that stops
    /// before the end of the file.
    ///
    /// # Safety
    /// The range must be device memory of `device`, alive through the call.
    pub unsafe fn read(
        &self,
        device: &Device,
        device_address: u64,
        device_offset: u64,
        file_offset: u64,
        bytes: u64,
    ) -> Result<u64, CuFileError> {
        const OPERATION: &str = "cuFileRead";
        let read = self.cufile.library.functions.cuFileRead;
        let extent = Extent { device_offset, file_offset, bytes };
        let is_end = |position| self.end_bytes().is_ok_and(|end| end == position);
        let done = self.repeat(OPERATION, device, &extent, is_end, |part| {
            // SAFETY: this function's contract; `part` lies inside the range.
            unsafe {
                read(
                    self.raw, device_address as *mut c_void, part.bytes, part.file_offset,
                    part.device_offset,
                )
            }
        })?;
        if done < bytes {
            self.require_end(OPERATION, file_offset + done, bytes - done)?;
        }
        Ok(done)
    }

    /// Writes device memory to the file; otherwise as [`CuFileHandle::read`]. A write that
    /// makes no progress is an error.
    ///
    /// # Errors
    /// As [`CuFileHandle::read`].
    ///
    /// # Safety
    /// As [`CuFileHandle::read`].
    pub unsafe fn write(
        &self,
        device: &Device,
        device_address: u64,
        device_offset: u64,
        file_offset: u64,
        bytes: u64,
    ) -> Result<u64, CuFileError> {
        const OPERATION: &str = "cuFileWrite";
        let write = self.cufile.library.functions.cuFileWrite;
        let extent = Extent { device_offset, file_offset, bytes };
        // No end stops a write.
        let done = self.repeat(
            OPERATION,
            device,
            &extent,
            |_| false,
            |part| {
                // SAFETY: this function's contract; `part` lies inside the range.
                unsafe {
                    write(
                        self.raw,
                        device_address as *const c_void,
                        part.bytes,
                        part.file_offset,
                        part.device_offset,
                    )
                }
            },
        )?;
        if done < bytes {
            let place = self.range(file_offset + done, bytes - done);
            return Err(CuFileError::of_code(OPERATION, i64::from(libc::EIO), place));
        }
        Ok(done)
    }

    /// Calls `transfer` until everything is moved or no progress is made: it may move less than
    /// requested. `is_end` says whether a position is where the file ends for such a transfer.
    fn repeat(
        &self,
        operation: &'static str,
        device: &Device,
        extent: &Extent,
        is_end: impl Fn(u64) -> bool,
        transfer: impl Fn(Part) -> isize,
    ) -> Result<u64, CuFileError> {
        bind(operation, device)?;
        let Extent { file_offset, bytes, .. } = *extent;
        let mut done = 0u64;
        while done < bytes {
            let part = extent.part(done).ok_or_else(|| {
                let place = self.range(file_offset, bytes);
                CuFileError::of_code(operation, i64::from(libc::EINVAL), place)
            })?;
            let asked = part.bytes;
            let moved = transfer(part);
            // Before anything else can change errno.
            let errno = io::Error::last_os_error();
            match outcome_of(moved, asked, &errno, |moved| is_end(file_offset + done + moved)) {
                Ok(0) => break,
                Ok(moved) => done += moved,
                Err(code) => {
                    let place = self.range(file_offset + done, bytes - done);
                    let mut error = CuFileError::of_code(operation, code, place);
                    if moved > 0 {
                        error.text.push_str("; told without a sign, as a count of bytes");
                    }
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    /// Error unless the file ends at or before `position`, where a read of `missing` bytes returned
    /// nothing: a gap in a file's middle must not pass for its end.
    fn require_end(
        &self,
        operation: &'static str,
        position: u64,
        missing: u64,
    ) -> Result<(), CuFileError> {
        let failed = |code| CuFileError::of_code(operation, code, self.range(position, missing));
        match self.end_bytes() {
            Ok(end) if end <= position => Ok(()),
            Ok(end) => {
                let mut error = failed(i64::from(libc::EIO));
                error.text = format!("nothing was read, but the file ends at {end}");
                Err(error)
            }
            Err(error) => {
                let mut failed = failed(errno_of(&error));
                failed.text = format!("nothing was read, and where the file ends: {error}");
                Err(failed)
            }
        }
    }

    /// Where the file, or the block device, ends now.
    fn end_bytes(&self) -> io::Result<u64> {
        end_bytes(&self.file)
    }

    fn require_inside(
        &self,
        operation: &'static str,
        buffer: &DeviceBuffer,
        offset: usize,
        bytes: usize,
    ) -> Result<(), CuFileError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= buffer.bytes() => Ok(()),
            _ => Err(CuFileError::of_code(
                operation,
                i64::from(libc::EINVAL),
                format!(
                    "{}: {bytes} bytes at {offset} of a buffer of {} bytes",
                    self.place,
                    buffer.bytes()
                ),
            )),
        }
    }

    fn range(&self, file_offset: u64, bytes: u64) -> String {
        format!("{}, {bytes} bytes at {file_offset}", self.place)
    }
}

impl Drop for CuFileHandle {
    fn drop(&mut self) {
        // SAFETY: registered by `register` and forgotten once; every call with it borrowed
        // the handle and has returned.
        unsafe { (self.cufile.library.functions.cuFileHandleDeregister)(self.raw) };
    }
}

/// A device buffer pinned for direct access until it is dropped.
pub struct RegisteredDeviceBuffer {
    cufile: Arc<CuFile>,
    buffer: Arc<DeviceBuffer>,
}

impl fmt::Debug for RegisteredDeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegisteredDeviceBuffer").field(&self.buffer).finish()
    }
}

impl Drop for RegisteredDeviceBuffer {
    fn drop(&mut self) {
        if self.buffer.device().bind().is_ok() {
            let base = self.buffer.ptr() as *const c_void;
            // SAFETY: registered by `register_buffer` and forgotten once.
            let status = unsafe { (self.cufile.library.functions.cuFileBufDeregister)(base) };
            if status.code != 0 {
                tracing::warn!(code = status.code, "cuFileBufDeregister failed");
            }
        }
    }
}

/// A transfer as requested.
struct Extent {
    device_offset: u64,
    file_offset: u64,
    bytes: u64,
}

/// One call's share of a transfer, in the types of the call.
struct Part {
    bytes: usize,
    file_offset: i64,
    device_offset: i64,
}

impl Extent {
    /// What is left after `done` bytes; `None` for numbers that the call cannot take.
    fn part(&self, done: u64) -> Option<Part> {
        let left = usize::try_from(self.bytes - done).ok()?;
        isize::try_from(left).ok()?;
        Some(Part {
            bytes: left,
            file_offset: i64::try_from(self.file_offset.checked_add(done)?).ok()?,
            device_offset: i64::try_from(self.device_offset.checked_add(done)?).ok()?,
        })
    }
}

/// What a read or write returned: bytes, or the code of its failure. -1 puts the code into
/// `errno` (the system's, or cuFile's own); other negative numbers are cuFile's codes. That
/// is what is documented; but the macros of cufile.h take codes of either sign. So what
/// cannot be a count (more than was asked for), or need not be one (a short count that is a
/// code, and not where the file ends, as `is_end` tells), is an error too: taken for bytes,
/// it would leave a hole.
fn outcome_of(
    moved: isize,
    asked: usize,
    errno: &io::Error,
    is_end: impl FnOnce(u64) -> bool,
) -> Result<u64, i64> {
    match u64::try_from(moved) {
        Ok(moved) if moved == asked as u64 => Ok(moved),
        Ok(code) if code > asked as u64 => Err(i64::try_from(code).unwrap_or(i64::MAX)),
        Ok(moved) if CODES.contains(&moved) && !is_end(moved) => Err(moved as i64),
        Ok(moved) => Ok(moved),
        Err(_) if moved == -1 => Err(errno_of(errno)),
        Err(_) => Err((moved as i64).saturating_neg()),
    }
}

/// Where a regular file or a block device ends; an error for anything else.
fn end_bytes(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    // Opened anew, because the position belongs to whoever registered the descriptor too.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.seek(SeekFrom::End(0))
}

fn errno_of(error: &io::Error) -> i64 {
    i64::from(error.raw_os_error().unwrap_or(libc::EIO))
}

fn bind(operation: &'static str, device: &Device) -> Result<(), CuFileError> {
    device.bind().map_err(|error| {
        let mut failed =
            CuFileError::of_code(operation, 5011, format!("device {}", device.ordinal()));
        failed.text = error.to_string();
        failed
    })
}

/// The file's path, for messages.
fn path_of(file: &File) -> String {
    let fd = file.as_raw_fd();
    match fs::read_link(format!("/proc/self/fd/{fd}")) {
        Ok(path) => format!("`{}`", path.display()),
        Err(_) => format!("descriptor {fd}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_transfer_returns_is_read_right() {
        let outcome = |moved, asked, errno| {
            outcome_of(moved, asked, &io::Error::from_raw_os_error(errno), |_| false)
        };
        assert_eq!(outcome(4096, 4096, 0), Ok(4096));
        assert_eq!(outcome(512, 4096, 0), Ok(512));
        assert_eq!(outcome(0, 4096, 0), Ok(0));
        assert_eq!(outcome(-1, 4096, libc::EIO), Err(i64::from(libc::EIO)));
        assert_eq!(outcome(-1, 4096, 5027), Err(5027));
        assert_eq!(outcome(-5011, 4096, 0), Err(5011));
        assert_eq!(outcome(isize::MIN, 4096, 0), Err(i64::MAX));
        assert_eq!(outcome(5006, 4096, 0), Err(5006));
    }

    #[test]
    fn a_short_count_that_may_be_a_code_is_one_except_at_the_end_of_the_file() {
        const END: u64 = 1_005_006;
        let outcome = |moved, asked, at: u64| {
            outcome_of(moved, asked, &io::Error::from_raw_os_error(0), |moved| at + moved == END)
        };
        for code in [5001, 5006, 5100] {
            assert_eq!(outcome(code, 1 << 20, 0), Err(code as i64));
            assert_eq!(outcome(code, code as usize, 0), Ok(code as u64), "all of it");
        }
        assert_eq!(outcome(5006, 1 << 20, 1_000_000), Ok(5006));
        assert_eq!(outcome(5007, 1 << 20, 1_000_000), Err(5007));
        assert_eq!(outcome(5000, 1 << 20, 0), Ok(5000));
        assert_eq!(outcome(5101, 1 << 20, 0), Ok(5101));
    }

    #[test]
    fn the_end_of_a_file_is_where_it_is_now() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(5006).unwrap();
        assert_eq!(end_bytes(file.as_file()).unwrap(), 5006);
        file.as_file().set_len(10).unwrap();
        assert_eq!(end_bytes(file.as_file()).unwrap(), 10);
    }

    #[test]
    fn parts_move_on_and_refuse_what_the_call_cannot_take() {
        let extent =
            |device_offset, file_offset, bytes| Extent { device_offset, file_offset, bytes };
        let part = extent(100, 1 << 40, 4096).part(50).unwrap();
        assert_eq!((part.bytes, part.file_offset, part.device_offset), (4046, (1 << 40) + 50, 150));
        assert!(extent(0, u64::MAX, 2).part(1).is_none());
        assert!(extent(0, 1 << 63, 2).part(0).is_none());
        assert!(extent(u64::MAX, 0, 2).part(0).is_none());
    }

    #[test]
    fn a_file_is_named_by_its_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let shown = path_of(file.as_file());
        assert!(shown.contains(&*file.path().file_name().unwrap().to_string_lossy()), "{shown}");
    }
}
