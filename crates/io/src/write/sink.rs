//! A file being written, and the trait that every writer writes through.

use std::fmt::Debug;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::hidden::{Hidden, is_whole};
use super::size_limit;
use crate::file::DirectIo;
use crate::identity::device_size_bytes;
use crate::{EXTENT_ALIGN_BYTES, FileIdentity, IoError, ReadMode, Result, SourceFile};

/// The size of a file whose size is not known yet: no write ends after it.
const GROWING: u64 = i64::MAX as u64 / EXTENT_ALIGN_BYTES as u64 * EXTENT_ALIGN_BYTES as u64;

/// A file that can be written at any offset: the seam where [`FaultySink`](super::FaultySink)
/// replaces a [`SinkFile`].
///
/// An engine writes either by [`write_at`](WriteAt::write_at) or by handing the descriptor of
/// [`sink`](WriteAt::sink) to the kernel and passing the outcome through
/// [`intercept`](WriteAt::intercept). A [`ReadMode`] says here too whether bytes go through the
/// page cache or past it.
pub trait WriteAt: Send + Sync + Debug {
    /// The file itself: path, size, descriptors.
    fn sink(&self) -> &SinkFile;

    /// One attempt to write. It may take fewer bytes than given.
    ///
    /// In [`ReadMode::Direct`] offset, length and address must be aligned to
    /// [`EXTENT_ALIGN_BYTES`](crate::EXTENT_ALIGN_BYTES).
    fn write_at(&self, mode: ReadMode, offset: u64, from: &[u8]) -> io::Result<usize> {
        let outcome = self.sink().write_once(mode, offset, from);
        self.intercept(mode, offset, from, outcome)
    }

    /// The outcome that an engine which writes by descriptor must use for a write of `from` at
    /// `offset`.
    fn intercept(
        &self,
        _mode: ReadMode,
        _offset: u64,
        _from: &[u8],
        outcome: io::Result<usize>,
    ) -> io::Result<usize> {
        outcome
    }

    /// Completes the file: see [`SinkFile::commit`].
    fn commit(&self, sync: bool) -> Result<()> {
        self.sink().commit(sync)
    }

    /// Final path of the file.
    fn path(&self) -> &Path {
        self.sink().path()
    }

    /// Final size of the file.
    fn size_bytes(&self) -> u64 {
        self.sink().size_bytes()
    }
}

/// A file being written.
///
/// Until [`commit`](SinkFile::commit) the bytes lie in a hidden temporary file beside the target
/// (`.headrace-<process>-<number>.partial`). Dropped without a commit, the temporary file is removed and
/// the target is unchanged. A killed process leaves one behind, until the next write in that folder.
///
/// A block device ([`block_device`](SinkFile::block_device)) is an exception: it is written in
/// place. So is an [unnamed](SinkFile::unnamed) file, which has no target.
#[derive(Debug)]
pub struct SinkFile {
    path: PathBuf,
    /// [`GROWING`] until the size is known.
    size_bytes: AtomicU64,
    /// Whether its size is set at the end.
    grows: bool,
    buffered: File,
    direct: std::result::Result<(File, DirectIo), String>,
    place: Place,
    closed: AtomicBool,
}

#[derive(Debug)]
enum Place {
    /// The temporary file that becomes the target. The target may differ from the requested path,
    /// which may be a symbolic link.
    Temporary { hidden: Hidden, target: PathBuf },
    /// An unnamed file, which vanishes when it is closed.
    Unnamed,
    /// The device itself.
    Device,
}

impl SinkFile {
    /// Begins a file of `size_bytes` at `path` that replaces any regular file there and inherits
    /// its permissions. Symbolic links are followed.
    ///
    /// All of its space is reserved now, if the file system can: a full disk is an error here, not
    /// in the middle of the work. O_DIRECT is tried with a real write. It writes whole blocks, so
    /// it is ruled out by a limit of file sizes between the size and the next whole block.
    ///
    /// # Errors
    /// [`IoError::NotAFile`] if something else than a regular file lies there, or the path ends
    /// like a folder's; [`IoError::Sink`] otherwise, with the cause and what helps: no such
    /// folder, a symbolic link to nothing, no permission, no room, a limit of file sizes.
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Arc<SinkFile>> {
        let path = path.as_ref();
        size_limit::without_signal(|| Self::create_beside(path, size_bytes)).map(Arc::new)
    }

    /// Like [`create`](SinkFile::create), for a file whose size is known after writing:
    /// [`end_at`](SinkFile::end_at) sets it before the commit. No space is reserved: a full disk is an
    /// error of the write that hits it.
    ///
    /// # Errors
    /// As [`create`](SinkFile::create).
    pub fn growing(path: impl AsRef<Path>) -> Result<Arc<SinkFile>> {
        let path = path.as_ref();
        size_limit::without_signal(|| Self::create_growing(path)).map(Arc::new)
    }

    /// Like [`create`](SinkFile::create), for a file in `folder` that never gets a name, so the process leaves
    /// nothing behind however it ends. [`read_back`](SinkFile::read_back) reads what was written.
    ///
    /// # Errors
    /// Like [`create`](SinkFile::create), with a path inside the folder.
    pub fn unnamed(folder: impl AsRef<Path>, size_bytes: u64) -> Result<Arc<SinkFile>> {
        let path = folder.as_ref().join(".headrace-temporary");
        let mut sink = size_limit::without_signal(|| Self::create_beside(&path, size_bytes))?;
        if let Place::Temporary { hidden, .. } = &sink.place {
            std::fs::remove_file(hidden.path())
                .map_err(|cause| IoError::sink(&path, "remove its name", cause))?;
        }
        sink.place = Place::Unnamed;
        Ok(Arc::new(sink))
    }

    /// The [unnamed](SinkFile::unnamed) file, readable as long as this value lives. All writes must have completed.
    ///
    /// # Errors
    /// [`IoError::Open`], or [`IoError::NotAFile`] of a device.
    pub fn read_back(&self) -> Result<Arc<SourceFile>> {
        // The descriptor's name leads to the file whether or not that has another.
        SourceFile::open(format!("/proc/self/fd/{}", self.buffered.as_raw_fd()))
    }

    fn create_growing(path: &Path) -> Result<SinkFile> {
        let (mut sink, permissions) = Self::temporary(path)?;
        (sink.size_bytes, sink.grows) = (GROWING.into(), true);
        sink.direct = match size_limit::check(GROWING) {
            Ok(()) => sink.open_direct(),
            Err(_) => {
                Err("O_DIRECT writes whole blocks, and file sizes are limited (ulimit -f)".into())
            }
        };
        sink.set_permissions(permissions)?;
        Ok(sink)
    }

    fn create_beside(path: &Path, size_bytes: u64) -> Result<SinkFile> {
        // Whole blocks: O_DIRECT writes the last one padded, and `commit` cuts it.
        let padded_bytes = size_bytes.checked_next_multiple_of(EXTENT_ALIGN_BYTES as u64);
        let padded_bytes =
            padded_bytes.filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or_else(|| {
                let cause = io::Error::from_raw_os_error(libc::EFBIG);
                IoError::sink(path, format!("make a file of {size_bytes} bytes"), cause)
            })?;
        let may_pad = size_limit::check(padded_bytes).is_ok();
        let written_bytes = if may_pad { padded_bytes } else { size_bytes };
        let reserve = || format!("reserve {written_bytes} bytes");
        size_limit::check(written_bytes).map_err(|cause| IoError::sink(path, reserve(), cause))?;
        let (mut sink, permissions) = Self::temporary(path)?;
        sink.size_bytes = size_bytes.into();
        if size_bytes > 0 {
            reserve_room(&sink.buffered, written_bytes)
                .map_err(|cause| IoError::sink(path, reserve(), cause))?;
            sink.direct = if may_pad {
                sink.open_direct()
            } else {
                Err(format!(
                    "O_DIRECT writes whole blocks, {padded_bytes} bytes in all, and the limit of \
                     file sizes (ulimit -f) is below that"
                ))
            };
        }
        sink.set_permissions(permissions)?;
        Ok(sink)
    }

    /// An empty file beside the target, and its future permissions.
    fn temporary(path: &Path) -> Result<(SinkFile, Option<Permissions>)> {
        let (target, permissions) = resolve(path)?;
        // What will be replaced may be closed to others: then the file is so from the beginning.
        let mode = if permissions.is_some() { 0o600 } else { 0o666 };
        let (buffered, hidden) = Hidden::file(folder_of(&target), mode)
            .map_err(|cause| IoError::sink(path, "make a file in its folder", cause))?;
        // From here on the value's drop removes the temporary file.
        let sink = SinkFile {
            path: path.to_path_buf(),
            size_bytes: 0.into(),
            grows: false,
            buffered,
            direct: Err("an empty file has nothing to write with O_DIRECT".to_string()),
            place: Place::Temporary { hidden, target },
            closed: AtomicBool::new(false),
        };
        Ok((sink, permissions))
    }

    /// Comes last: permissions may forbid reopening the file for O_DIRECT.
    fn set_permissions(&self, permissions: Option<Permissions>) -> Result<()> {
        let Some(permissions) = permissions else { return Ok(()) };
        let set = self.buffered.set_permissions(permissions);
        set.map_err(|cause| IoError::sink(&self.path, "set its permissions", cause))
    }

    /// Begins to overwrite the first `size_bytes` of a block device, **in place**: the old contents
    /// are lost from the first write on, with or without a [`commit`](SinkFile::commit). Refused
    /// unless `overwrite_device` is true, and while the device is mounted or otherwise in use.
    ///
    /// # Errors
    /// [`IoError::Sink`] with the cause, and what helps.
    pub fn block_device(
        path: impl AsRef<Path>,
        size_bytes: u64,
        overwrite_device: bool,
    ) -> Result<Arc<SinkFile>> {
        let path = path.as_ref();
        let fail = |action: &str, cause| IoError::sink(path, action, cause);
        let metadata =
            std::fs::metadata(path).map_err(|cause| fail("examine the device", cause))?;
        if !metadata.file_type().is_block_device() {
            return Err(fail(
                "write to it as a device",
                io::Error::other("it is not a block device"),
            ));
        }
        if !overwrite_device {
            let cause = io::Error::other(
                "it is a block device, and all that lies on it would be lost; say that it may be \
                 overwritten if that is what you want",
            );
            return Err(fail("write to it", cause));
        }
        // O_EXCL on a block device: not while it is mounted, or a member of an array.
        let buffered = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_EXCL)
            .open(path)
            .map_err(|cause| fail("open the device for itself", cause))?;
        let device_bytes =
            device_size_bytes(&buffered).map_err(|cause| fail("ask for its size", cause))?;
        if size_bytes > device_bytes {
            let action = format!("write {size_bytes} bytes to a device of {device_bytes} bytes");
            return Err(fail(&action, io::Error::from_raw_os_error(libc::ENOSPC)));
        }
        let mut sink = SinkFile {
            path: path.to_path_buf(),
            size_bytes: size_bytes.into(),
            grows: false,
            buffered,
            direct: Err(String::new()),
            place: Place::Device,
            closed: AtomicBool::new(false),
        };
        sink.direct = sink.open_direct();
        Ok(Arc::new(sink))
    }

    /// O_DIRECT access, tried with a real write; the reason if it is not available.
    pub fn direct(&self) -> std::result::Result<&DirectIo, &str> {
        self.direct.as_ref().map(|(_, direct)| direct).map_err(String::as_str)
    }

    /// Final path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Final size of the file; for a growing one whose end is unknown, its maximum.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// Sets the size of a [growing](SinkFile::growing) file. No effect on other files.
    pub fn end_at(&self, size_bytes: u64) {
        if self.grows {
            self.size_bytes.store(size_bytes, Ordering::Release);
        }
    }

    /// Restarts a growing file from its beginning, with an unknown end.
    pub fn grow(&self) {
        self.end_at(GROWING);
    }

    /// Whether writes may go past the end, up to a whole block: `commit` cuts them.
    pub(super) fn is_cut_by_commit(&self) -> bool {
        matches!(self.place, Place::Temporary { .. } | Place::Unnamed)
    }

    /// Cuts the file to its size and puts it in place atomically. With `sync` its bytes and its
    /// name are on stable storage afterwards; without, a crash of the machine may lose either.
    ///
    /// All writes must have completed; later ones fail. Unwritten parts read as zeros.
    ///
    /// # Errors
    /// [`IoError::Sink`]: the target is unchanged and the temporary file is gone. Exception: if the
    /// last step failed, syncing the folder, the file is in place but may not survive a crash.
    pub fn commit(&self, sync: bool) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(IoError::sink(&self.path, "commit the file", closed()));
        }
        let outcome = size_limit::without_signal(|| self.put_in_place(sync));
        if outcome.is_err() {
            self.remove_temporary();
        }
        outcome
    }

    /// Like a commit that fails with `cause`.
    pub(super) fn abandon(&self, action: &str, cause: io::Error) -> IoError {
        self.closed.store(true, Ordering::Release);
        self.remove_temporary();
        IoError::sink(&self.path, action, cause)
    }

    fn put_in_place(&self, sync: bool) -> Result<()> {
        let fail = |action: &str, cause| IoError::sink(&self.path, action, cause);
        if self.grows && self.size_bytes() == GROWING {
            let cause = io::Error::other("nobody has said where it ends");
            return Err(fail("commit the file", cause));
        }
        if self.is_cut_by_commit() {
            let cut = self.buffered.set_len(self.size_bytes());
            cut.map_err(|cause| fail("cut the file to its size", cause))?;
        }
        if sync {
            self.buffered.sync_all().map_err(|cause| fail("sync the file", cause))?;
        }
        let Place::Temporary { hidden, target } = &self.place else {
            return Ok(());
        };
        std::fs::rename(hidden.path(), target)
            .map_err(|cause| fail("put the file in its place", cause))?;
        is_whole(&self.path);
        if sync {
            sync_folder(folder_of(target)).map_err(|cause| fail("sync its folder", cause))?;
        }
        Ok(())
    }

    fn remove_temporary(&self) {
        if let Place::Temporary { hidden, .. } = &self.place {
            // After a rename there is none; other errors leave a file whose name tells what it is.
            let _ = std::fs::remove_file(hidden.path());
        }
    }

    /// The descriptor for a mode.
    ///
    /// # Errors
    /// `Unsupported` with the reason if O_DIRECT is not available; an error after the commit.
    pub fn raw_fd(&self, mode: ReadMode) -> io::Result<RawFd> {
        Ok(self.file(mode)?.as_raw_fd())
    }

    /// One system call of writing.
    pub(super) fn write_once(&self, mode: ReadMode, offset: u64, from: &[u8]) -> io::Result<usize> {
        let file = self.file(mode)?;
        size_limit::without_signal(|| file.write_at(from, offset))
    }

    fn file(&self, mode: ReadMode) -> io::Result<&File> {
        if self.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        match mode {
            ReadMode::Buffered => Ok(&self.buffered),
            ReadMode::Direct => match &self.direct {
                Ok((file, _)) => Ok(file),
                Err(reason) => Err(io::Error::new(io::ErrorKind::Unsupported, reason.clone())),
            },
        }
    }

    /// Rewrites the first block unchanged: on a device it may be all that the caller wants to keep.
    fn open_direct(&self) -> std::result::Result<(File, DirectIo), String> {
        let path = match &self.place {
            Place::Temporary { hidden, .. } => hidden.path(),
            Place::Unnamed | Place::Device => &self.path,
        };
        let identity =
            FileIdentity::of_file(&self.buffered, path).map_err(|error| error.to_string())?;
        DirectIo::open(OpenOptions::new().read(true).write(true), path, &identity, |file, block| {
            // A file for which no room could be reserved has no first block: zeros then.
            file.read_at(block, 0)?;
            file.write_at(block, 0)
        })
    }
}

impl WriteAt for SinkFile {
    fn sink(&self) -> &SinkFile {
        self
    }
}

impl Drop for SinkFile {
    fn drop(&mut self) {
        if !*self.closed.get_mut() {
            self.remove_temporary();
        }
    }
}

fn closed() -> io::Error {
    io::Error::other("it was committed already")
}

/// Where the file will really lie, and the permissions of the file there now.
fn resolve(path: &Path) -> Result<(PathBuf, Option<Permissions>)> {
    let not_a_file = || IoError::NotAFile { path: path.to_path_buf() };
    let fail = |cause| IoError::sink(path, "examine what lies there", cause);
    // `a/` and `a/.` name a folder, whether or not there is one; `file_name` does not tell.
    let text = path.as_os_str().as_bytes();
    if path.file_name().is_none() || text.ends_with(b"/") || text.ends_with(b"/.") {
        return Err(not_a_file());
    }
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            return Ok((path.to_path_buf(), None));
        }
        Err(cause) => return Err(fail(cause)),
    };
    let (target, metadata) = if metadata.is_symlink() {
        let target = std::fs::canonicalize(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => fail(dangling(path)),
            _ => fail(cause),
        })?;
        let metadata = std::fs::metadata(&target).map_err(fail)?;
        (target, metadata)
    } else {
        (path.to_path_buf(), metadata)
    };
    if !metadata.is_file() {
        return Err(not_a_file());
    }
    Ok((target, Some(metadata.permissions())))
}

/// The description of a dangling symbolic link, and the remedy.
fn dangling(link: &Path) -> io::Error {
    let target = std::fs::read_link(link).unwrap_or_default();
    io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "it is a symbolic link to `{}`, which does not exist: remove the link, or make that \
             file first",
            target.display()
        ),
    )
}

/// The folder of a file.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the file `bytes` long (at most `i64::MAX`), with all of its space reserved; the inner
/// error says why the file system only recorded the length.
fn reserve_room(file: &File, bytes: u64) -> io::Result<()> {
    // Asked first: a reservation that fails half-way has filled the file system for a while.
    if free_bytes(file)?.is_some_and(|free| free < bytes) {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    loop {
        // SAFETY: a plain call with an open descriptor.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) } == 0 {
            return Ok(());
        }
        let cause = io::Error::last_os_error();
        match cause.raw_os_error() {
            Some(libc::EINTR) => {}
            // The file system reserves no room.
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return file.set_len(bytes),
            _ => return Err(cause),
        }
    }
}

/// Free space for users in the file system of a file or folder; `None` if unlimited.
///
/// # Errors
/// Those of the operating system.
pub fn free_bytes(file: &File) -> io::Result<Option<u64>> {
    // SAFETY: `statvfs` is plain data that the call fills in; the descriptor is open.
    let (rc, found) = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::fstatvfs(file.as_raw_fd(), &mut found), found)
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(clippy::unnecessary_cast)] // the members' types differ by architecture
    Ok((found.f_blocks > 0).then(|| (found.f_bavail as u64).saturating_mul(found.f_frsize as u64)))
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // File systems that have no such operation keep names safe in their own way.
        Err(cause) if matches!(cause.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            Ok(())
        }
        outcome => outcome,
    }
}
