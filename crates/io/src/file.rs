//! An opened file, and the trait that every reader reads through.

use std::fmt::Debug;
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::handles::{self, Handle};
use crate::segment::{EXTENT_ALIGN_BYTES, ReadMode};
use crate::{AlignedBuffer, FileIdentity, IoError, RemoteBytes, Result};
use crate::{probe, read};

/// A file that can be read at any offset: the seam where [`FaultyFile`](crate::FaultyFile) replaces
/// a [`SourceFile`].
///
/// An engine reads either by [`read_at`](ReadAt::read_at) or by handing the
/// [descriptor](SourceFile::descriptor) of [`source`](ReadAt::source) to the kernel and passing the outcome through
/// [`intercept`](ReadAt::intercept); mappings are made from the descriptor and passed through
/// [`prepare_mapping`](ReadAt::prepare_mapping).
pub trait ReadAt: Send + Sync + Debug {
    /// The file itself: path, identity, descriptors.
    fn source(&self) -> &SourceFile;

    /// One attempt to read. It may return fewer bytes than requested, and 0 at the end of the file.
    ///
    /// In [`ReadMode::Direct`] offset, length and address must be aligned to
    /// [`EXTENT_ALIGN_BYTES`].
    fn read_at(&self, mode: ReadMode, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let outcome = self.source().read_once(mode, offset, into);
        self.intercept(mode, offset, into, outcome)
    }

    /// The outcome that an engine which reads by descriptor must use for a read of `into` at
    /// `offset`.
    fn intercept(
        &self,
        _mode: ReadMode,
        _offset: u64,
        _into: &mut [u8],
        outcome: io::Result<usize>,
    ) -> io::Result<usize> {
        outcome
    }

    /// Called once for each mapping of the file, before anything is read from it.
    ///
    /// # Safety
    /// `base` must be the start of a private mapping of `bytes` bytes of this file from offset 0
    /// that nobody else uses yet. The pages may be replaced, never unmapped.
    unsafe fn prepare_mapping(&self, _base: *mut u8, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    /// Whether this is memory instead of a file: [`bytes_in_memory`](Self::bytes_in_memory) returns
    /// the bytes.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// Whether reads make its bytes, of another file's: whatever else is known of that file, nothing of this one can be
    /// mapped, read by its descriptor or found in a cache.
    fn is_made(&self) -> bool {
        false
    }

    /// Bytes that need no reading; `None` if they must be read or do not exist.
    fn bytes_in_memory(&self, _offset: u64, _bytes: u64) -> Option<&[u8]> {
        None
    }

    /// Error if the path no longer names exactly the file that was opened, unless this check is
    /// disabled.
    fn check_unchanged(&self) -> Result<()> {
        let source = self.source();
        if source.is_checked && !source.is_remote() {
            source.identity.check_unchanged(&source.path)
        } else {
            Ok(())
        }
    }

    /// Path under which the file was opened.
    fn path(&self) -> &Path {
        &self.source().path
    }

    /// Identity at the time of opening.
    fn identity(&self) -> FileIdentity {
        self.source().identity
    }

    /// Size at the time of opening.
    fn size_bytes(&self) -> u64 {
        self.source().identity.size_bytes
    }

    /// Fills `into` from `offset` on through the page cache; interrupted and short reads are
    /// resumed.
    ///
    /// # Errors
    /// [`IoError::OutOfRange`] if the extent does not lie inside the file,
    /// [`IoError::UnexpectedEnd`] if the file became shorter, [`IoError::Read`] otherwise.
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        read::read_exact(self, offset, into)
    }
}

/// The reason why no descriptor is available.
const ELSEWHERE: &str = "it does not lie on this machine";

/// The O_DIRECT requirements of a file for which a probing transfer succeeded.
#[derive(Debug, Clone, Copy)]
pub struct DirectIo {
    /// Required memory alignment.
    pub memory_align_bytes: usize,
    /// Required alignment of offsets and lengths.
    pub offset_align_bytes: usize,
}

impl DirectIo {
    /// Opens `path` once more, with O_DIRECT, and carries out a real transfer of one aligned
    /// block: some filesystems open a file with O_DIRECT and then refuse to use it.
    ///
    /// `options` select reading or writing; `identity` is that of the first opening; `probe` is
    /// called with the file and a zeroed block. Returns the opened file too.
    ///
    /// # Errors
    /// The reason why O_DIRECT is not available, in words.
    pub(crate) fn open(
        options: &mut OpenOptions,
        path: &Path,
        identity: &FileIdentity,
        mut probe: impl FnMut(&File, &mut [u8]) -> io::Result<usize>,
    ) -> std::result::Result<(File, DirectIo), String> {
        let file = handles::open_with_room(|| open_at_once(options, path, libc::O_DIRECT))
            .map_err(|cause| format!("opening with O_DIRECT failed: {cause}"))?;
        let reopened = FileIdentity::of_file(&file, path).map_err(|e| e.to_string())?;
        if (reopened.device, reopened.inode) != (identity.device, identity.inode) {
            return Err("the path names another file now".to_string());
        }
        let (memory_align_bytes, offset_align_bytes) = probe::direct_alignment(&file)
            .unwrap_or(Ok((EXTENT_ALIGN_BYTES, EXTENT_ALIGN_BYTES)))?;
        let fits = |align: usize| align != 0 && EXTENT_ALIGN_BYTES.is_multiple_of(align);
        if !fits(memory_align_bytes) || !fits(offset_align_bytes) {
            return Err(format!(
                "O_DIRECT needs an alignment of {memory_align_bytes} bytes in memory and \
                 {offset_align_bytes} in the file; extents are aligned to {EXTENT_ALIGN_BYTES}"
            ));
        }
        let mut block =
            AlignedBuffer::allocate(EXTENT_ALIGN_BYTES).map_err(|error| error.to_string())?;
        loop {
            match probe(&file, block.as_mut_slice()) {
                Ok(0) => return Err("the probing O_DIRECT transfer moved no data".to_string()),
                Ok(_) => return Ok((file, DirectIo { memory_align_bytes, offset_align_bytes })),
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
                Err(cause) => return Err(format!("the probing O_DIRECT transfer failed: {cause}")),
            }
        }
    }
}

/// Opens without waiting: a pipe would block until its other end is opened.
fn open_at_once(options: &mut OpenOptions, path: &Path, flags: libc::c_int) -> io::Result<File> {
    let file = options.custom_flags(flags | libc::O_NONBLOCK).open(path)?;
    // Only the opening: older kernels answer a ring's reads from such a file with EAGAIN where
    // they would have to wait.
    // SAFETY: plain calls with an open descriptor.
    let rc = unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_GETFL) {
            -1 => -1,
            set => libc::fcntl(file.as_raw_fd(), libc::F_SETFL, set & !libc::O_NONBLOCK),
        }
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}

/// A regular file, or a block device, with its exact identity; or a remote file, whose path is its
/// address and which is always fetched in one version.
///
/// It need not be open: descriptors come from a bounded pool, which opens them on demand and may
/// close them. Each opening checks that it is still the same file; if not, the read fails with
/// [`IoError::Changed`].
#[derive(Debug)]
pub struct SourceFile {
    path: PathBuf,
    identity: FileIdentity,
    is_checked: bool,
    buffered: Arc<Handle>,
    block_device: bool,
    direct: OnceLock<std::result::Result<DirectIo, String>>,
    unbuffered: OnceLock<Arc<Handle>>,
    memory_backed: OnceLock<bool>,
    remote: Option<Arc<dyn RemoteBytes>>,
}

impl SourceFile {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// [`IoError::NotAFile`] for folders, pipes and devices; [`IoError::Open`] otherwise.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<SourceFile>> {
        Self::open_if(path.as_ref(), |kind| kind.is_file())
    }

    /// Opens a regular file or a block device for reading; the contents of a device are all of its
    /// bytes.
    ///
    /// # Errors
    /// [`IoError::NotAFile`] for folders, pipes and character devices; [`IoError::Open`]
    /// otherwise.
    pub fn open_storage(path: impl AsRef<Path>) -> Result<Arc<SourceFile>> {
        Self::open_if(path.as_ref(), |kind| kind.is_file() || kind.is_block_device())
    }

    fn open_if(path: &Path, wanted: impl Fn(FileType) -> bool) -> Result<Arc<SourceFile>> {
        // Examined before it is opened, because opening some devices does something; and once more
        // below, because the path may name something else by then.
        let metadata = std::fs::metadata(path)
            .map_err(|cause| IoError::open(path, "examine the file", cause))?;
        if !wanted(metadata.file_type()) {
            return Err(IoError::NotAFile { path: path.to_path_buf() });
        }
        Self::open_checked(path, wanted)
    }

    /// Opens whatever the path names and keeps it if it is `wanted`.
    fn open_checked(path: &Path, wanted: impl Fn(FileType) -> bool) -> Result<Arc<SourceFile>> {
        let open = || open_at_once(OpenOptions::new().read(true), path, 0);
        let buffered = handles::open_with_room(open)
            .map_err(|cause| IoError::open(path, "open the file", cause))?;
        let metadata =
            buffered.metadata().map_err(|cause| IoError::open(path, "examine the file", cause))?;
        if !wanted(metadata.file_type()) {
            return Err(IoError::NotAFile { path: path.to_path_buf() });
        }
        let identity = FileIdentity::of_file(&buffered, path)?;
        Ok(Arc::new(SourceFile {
            path: path.to_path_buf(),
            identity,
            is_checked: true,
            buffered: Handle::of(buffered),
            block_device: metadata.file_type().is_block_device(),
            direct: OnceLock::new(),
            unbuffered: OnceLock::new(),
            memory_backed: OnceLock::new(),
            remote: None,
        }))
    }

    /// A regular file that was examined before. It is opened when it is first read, and only if it
    /// is still that file.
    pub fn known(path: impl Into<PathBuf>, identity: FileIdentity) -> Arc<SourceFile> {
        Self::known_as(path, identity, true)
    }

    /// Like [`known`](Self::known); without the check the file may have been written since, and
    /// only must not be a different file.
    pub fn known_as(
        path: impl Into<PathBuf>,
        identity: FileIdentity,
        is_checked: bool,
    ) -> Arc<SourceFile> {
        Arc::new(Self::unopened(path.into(), identity, is_checked, None))
    }

    /// A remote file. It has no descriptor: its bytes are fetched.
    pub fn remote(
        address: impl Into<PathBuf>,
        identity: FileIdentity,
        bytes: Arc<dyn RemoteBytes>,
    ) -> Arc<SourceFile> {
        Arc::new(Self::unopened(address.into(), identity, true, Some(bytes)))
    }

    fn unopened(
        path: PathBuf,
        identity: FileIdentity,
        is_checked: bool,
        remote: Option<Arc<dyn RemoteBytes>>,
    ) -> SourceFile {
        SourceFile {
            path,
            identity,
            is_checked,
            buffered: Arc::default(),
            block_device: false,
            direct: OnceLock::new(),
            unbuffered: OnceLock::new(),
            memory_backed: OnceLock::new(),
            remote,
        }
    }

    /// The fetcher of its bytes, if it is remote.
    pub fn remote_bytes(&self) -> Option<&Arc<dyn RemoteBytes>> {
        self.remote.as_ref()
    }

    /// Whether it is remote.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// O_DIRECT access, opened and tried with a real read at the first call; the reason if it is
    /// not available. Some filesystems open a file with O_DIRECT and then refuse to read it.
    pub fn direct(&self) -> std::result::Result<&DirectIo, &str> {
        self.direct.get_or_init(|| self.open_direct()).as_ref().map_err(String::as_str)
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Whether the file lies in memory (tmpfs, ramfs): a mapping of it is never cold. Unknown for a
    /// file that cannot be opened.
    pub fn is_memory_backed(&self) -> bool {
        if let Some(known) = self.memory_backed.get() {
            return *known;
        }
        let Ok(file) = self.descriptor(ReadMode::Buffered) else { return false };
        // The node of a device lies in memory; what it names does not.
        let in_memory = || !self.block_device && probe::is_memory_backed(&file);
        *self.memory_backed.get_or_init(in_memory)
    }

    /// The descriptor for a mode, opened if it is not open. It stays open as long as the result
    /// lives; afterwards the pool may close it.
    ///
    /// # Errors
    /// `Unsupported` with the reason if O_DIRECT is not available; an [`IoError::Changed`] inside
    /// if the path now names another file; any error of opening.
    pub fn descriptor(&self, mode: ReadMode) -> io::Result<Arc<File>> {
        if self.is_remote() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, ELSEWHERE));
        }
        match mode {
            ReadMode::Buffered => self.buffered.get(|| self.reopen(0)),
            ReadMode::Direct => match (self.direct(), self.unbuffered.get()) {
                (Ok(_), Some(handle)) => handle.get(|| self.reopen(libc::O_DIRECT)),
                (Err(reason), _) => Err(io::Error::new(io::ErrorKind::Unsupported, reason)),
                (Ok(_), None) => Err(io::Error::other("O_DIRECT was not opened")),
            },
        }
    }

    /// Opens the file; an error if it is another one now.
    fn reopen(&self, flags: libc::c_int) -> io::Result<File> {
        let file = open_at_once(OpenOptions::new().read(true), &self.path, flags)?;
        let identity = FileIdentity::of_file(&file, &self.path).map_err(io::Error::other)?;
        let is_same = match self.is_checked {
            true => identity == self.identity,
            false => identity.is_same_file(&self.identity),
        };
        if !is_same {
            let changed = self.identity.changed(&self.path, &identity);
            return Err(io::Error::other(changed));
        }
        Ok(file)
    }

    /// One system call of reading.
    fn read_once(&self, mode: ReadMode, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let Some(remote) = &self.remote else {
            return self.descriptor(mode)?.read_at(into, offset);
        };
        remote.fill(offset, into)?;
        Ok(into.len())
    }

    fn open_direct(&self) -> std::result::Result<DirectIo, String> {
        if self.is_remote() {
            return Err(ELSEWHERE.to_string());
        }
        if self.identity.size_bytes == 0 {
            return Err("an empty file has nothing to read with O_DIRECT".to_string());
        }
        let probe = |file: &File, block: &mut [u8]| file.read_at(block, 0);
        let options = &mut OpenOptions::new();
        let (file, direct) = DirectIo::open(options.read(true), &self.path, &self.identity, probe)?;
        self.unbuffered.get_or_init(|| Handle::of(file));
        Ok(direct)
    }
}

impl ReadAt for SourceFile {
    fn source(&self) -> &SourceFile {
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Every byte is the lowest one of its offset.
    #[derive(Debug)]
    struct Counted;

    impl RemoteBytes for Counted {
        fn fill(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            into.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = at as u8);
            Ok(())
        }

        fn stream(&self, _: u64) -> io::Result<Box<dyn io::Read + Send>> {
            Err(io::Error::other("nobody asks"))
        }
    }

    #[test]
    fn what_lies_elsewhere_is_read_and_never_opened() {
        let identity =
            FileIdentity { device: 1, inode: 2, size_bytes: 300, mtime_ns: 0, ctime_ns: 0 };
        let file = SourceFile::remote("s3://bucket/a.bin", identity, Arc::new(Counted));
        let mut into = [0; 4];
        file.read_exact_at(254, &mut into).unwrap();
        assert_eq!(into, [254, 255, 0, 1]);
        assert!(matches!(file.read_exact_at(298, &mut into), Err(IoError::OutOfRange { .. })));
        file.check_unchanged().unwrap();
        assert!(file.is_remote() && !file.is_memory_backed());
        assert_eq!(file.direct().unwrap_err(), ELSEWHERE);
        assert!(file.descriptor(ReadMode::Buffered).is_err());
        assert!(crate::MappedFile::map(file).is_err());
    }

    /// As if a pipe had replaced a file between examining and opening it.
    #[test]
    fn a_pipe_is_refused_without_waiting_for_its_other_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a plain call with a terminated string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let (told, outcome) = crossbeam_channel::bounded(1);
        std::thread::spawn(move || {
            told.send(SourceFile::open_checked(&path, |kind| kind.is_file())).unwrap();
        });
        let outcome = outcome.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert!(matches!(outcome, Err(IoError::NotAFile { .. })), "{outcome:?}");
    }

    #[test]
    fn reads_of_an_opened_file_wait_for_the_storage() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let source = SourceFile::open(file.path()).unwrap();
        for mode in [ReadMode::Buffered, ReadMode::Direct] {
            let Ok(file) = source.descriptor(mode) else {
                // A temporary folder may lie in memory, where there is no O_DIRECT.
                assert_eq!(mode, ReadMode::Direct);
                continue;
            };
            // SAFETY: a plain call with an open descriptor.
            let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
            assert!(flags >= 0 && flags & libc::O_NONBLOCK == 0, "{mode:?}: {flags:#x}");
            assert_eq!(flags & libc::O_DIRECT != 0, mode == ReadMode::Direct);
        }
    }
}
