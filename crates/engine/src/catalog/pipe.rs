//! Pipes as files: what comes out of one is kept in a temporary file without a name, since a table is looked at before it
//! is read. A pipe is read once, to its end; later queries of this process see the same rows.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// What came out of a pipe.
struct Kept {
    /// Device and inode of the pipe.
    pipe: (u64, u64),
    /// What it was called.
    name: PathBuf,
    file: File,
}

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// Whether something is read once, from front to back.
pub fn is_pipe(metadata: &Metadata) -> bool {
    metadata.file_type().is_fifo()
}

/// The file with what comes out of a pipe.
///
/// # Errors
/// A pipe that cannot be read, a disk that is full.
pub fn kept(path: &Path, metadata: &Metadata) -> io::Result<(PathBuf, Metadata)> {
    let pipe = (metadata.dev(), metadata.ino());
    let mut all = KEPT.lock();
    let place = match all.iter().position(|kept| kept.pipe == pipe) {
        Some(place) => place,
        None => {
            let mut file = tempfile::tempfile()?;
            io::copy(&mut File::open(path)?, &mut file)?;
            all.push(Kept { pipe, name: path.to_path_buf(), file });
            all.len() - 1
        }
    };
    let file = &all[place].file;
    Ok((descriptor_path(file), file.metadata()?))
}

/// What the pipe was called whose bytes a file has; other files are called as they are.
pub fn shown(path: &Path) -> PathBuf {
    let all = KEPT.lock();
    let known = all.iter().find(|kept| descriptor_path(&kept.file) == path);
    known.map_or(path, |kept| kept.name.as_path()).to_path_buf()
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
