//! Hidden temporaries: the files beside a target until it is complete.
//!
//! The creator holds a lock that the kernel drops when the process ends in any way. So the next writer in the
//! folder recognises files without an owner and removes them. The process also lists its own files, so that a
//! process that must end at once can remove them with [`remove_all`].
//!
//! It must never know what is written.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// How many names are tried: without locks, files of killed processes may be in the way.
const NAMES_MAX: usize = 1000;

/// Replaced targets that are remembered: the last ones.
const WHOLE_MAX: usize = 1000;

/// The files that this process has created and not removed.
static OWNED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The targets that were replaced since the last query.
static WHOLE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A hidden file or folder; dropped, it is removed with its contents.
#[derive(Debug)]
pub struct Hidden {
    path: PathBuf,
    /// Holds the lock.
    _lock: Option<File>,
}

impl Hidden {
    /// A new file in `folder`, which others may open as `mode` says. The descriptor holds the lock.
    ///
    /// # Errors
    /// Why it cannot be created.
    pub fn file(folder: &Path, mode: u32) -> io::Result<(File, Self)> {
        let (file, path) = made(folder, |path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(mode).open(path)
        })?;
        Ok((file, Self { path, _lock: None }))
    }

    /// A new folder in `folder`.
    ///
    /// # Errors
    /// Why it cannot be created.
    pub fn folder(folder: &Path) -> io::Result<Self> {
        let (lock, path) = made(folder, |path| {
            std::fs::create_dir(path)?;
            File::open(path)
        })?;
        Ok(Self { path, _lock: Some(lock) })
    }

    /// A file at this path that another component creates and that is obsolete when this is dropped.
    pub fn owned(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        OWNED.lock().push(path.clone());
        Self { path, _lock: None }
    }

    /// It stays where it is.
    pub fn keep(mut self) {
        OWNED.lock().retain(|owned| *owned != self.path);
        self.path.clear();
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if self.path.as_os_str().is_empty() {
            return;
        }
        // What took its target's place is not there any more.
        remove(&self.path);
        OWNED.lock().retain(|owned| *owned != self.path);
    }
}

/// Records that a file or folder has replaced its target, unless the target is inside something
/// hidden.
pub fn is_whole(target: &Path) {
    if !target.iter().any(is_hidden_name) {
        let mut whole = WHOLE.lock();
        // A process that stays writes many, and nobody asks.
        if whole.len() == WHOLE_MAX {
            whole.remove(0);
        }
        whole.push(target.to_path_buf());
    }
}

/// The targets that were replaced since the last call.
pub fn take_whole() -> Vec<PathBuf> {
    std::mem::take(&mut *WHOLE.lock())
}

/// Removes all files of this process before it ends. None can be created or dropped while the guard lives.
pub fn remove_all() -> MutexGuard<'static, Vec<PathBuf>> {
    let mut owned = OWNED.lock();
    owned.drain(..).for_each(|path| remove(&path));
    owned
}

/// Files that cannot be removed have a recognisable name.
fn remove(path: &Path) {
    let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let _ = if is_folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
}

/// A new, locked file or folder with a unique name. It lies in the target's folder, because a rename works only
/// inside one file system.
fn made(folder: &Path, make: impl Fn(&Path) -> io::Result<File>) -> io::Result<(File, PathBuf)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    remove_abandoned(folder);
    for _ in 0..NAMES_MAX {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".headrace-{}-{number}.partial", std::process::id()));
        // One that is listed before it is made is never forgotten.
        let mut owned = OWNED.lock();
        match make(&path) {
            // Somebody has taken it for abandoned before it was locked.
            Ok(file) if !is_kept(&file) => remove(&path),
            Ok(file) => {
                owned.push(path.clone());
                return Ok((file, path));
            }
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            // Another writer took it for abandoned before it was opened.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && folder.is_dir() => {}
            Err(cause) => return Err(cause),
        }
    }
    Err(io::Error::other(
        "killed processes have left files of all names: remove .headrace-*.partial",
    ))
}

/// Locks what was just created and returns whether it still exists. Where there are no locks, nothing is
/// locked.
fn is_kept(file: &File) -> bool {
    let is_held = !lock(file) && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
    !is_held && file.metadata().is_ok_and(|found| found.nlink() > 0)
}

fn lock(file: &File) -> bool {
    // SAFETY: a plain call with an open descriptor.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Removes what killed processes left in a folder. What cannot be examined or locked stays.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_hidden_name(&entry.file_name())) {
        let (path, kind) = (entry.path(), entry.file_type());
        if !kind.is_ok_and(|kind| kind.is_file() || kind.is_dir()) {
            continue;
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        // Somebody may have removed it since, and made one of that name.
        let is_there = |file: &File| match (file.metadata(), path.symlink_metadata()) {
            (Ok(opened), Ok(there)) => (opened.dev(), opened.ino()) == (there.dev(), there.ino()),
            _ => false,
        };
        if let Ok(file) = options.open(&path)
            && lock(&file)
            && is_there(&file)
        {
            remove(&path);
        }
    }
}

/// `.headrace-<process>-<number>.partial`
fn is_hidden_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let numbers = name.strip_prefix(b".headrace-").and_then(|name| name.strip_suffix(b".partial"));
    numbers.is_some_and(|numbers| {
        let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        let mut parts = numbers.split(|&byte| byte == b'-');
        parts.by_ref().take(2).filter(|part| is_number(part)).count() == 2 && parts.next().is_none()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Whoever is about to make one takes others for abandoned that are made and not locked yet.
    #[test]
    fn many_are_made_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let folder = Hidden::folder(dir.path()).unwrap();
                        std::fs::write(folder.path().join("data"), "x").unwrap();
                    }
                });
            }
        });
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn what_nobody_owns_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (_file, ours) = Hidden::file(dir.path(), 0o600).unwrap();
        let folder = Hidden::folder(dir.path()).unwrap();
        std::fs::write(folder.path().join("data"), "x").unwrap();
        std::fs::write(dir.path().join(".headrace-1-0.partial"), "left").unwrap();
        std::fs::create_dir_all(dir.path().join(".headrace-1-1.partial/data")).unwrap();
        std::os::unix::fs::symlink("kept", dir.path().join(".headrace-1-2.partial")).unwrap();
        for other in [".headrace-x.partial", ".headrace-1-2-3.partial", ".other-1-0.partial"] {
            std::fs::write(dir.path().join(other), "").unwrap();
        }
        let next = Hidden::folder(dir.path()).unwrap();
        let mut wanted = [&ours, &folder, &next]
            .map(|hidden| hidden.path().file_name().unwrap().to_str().unwrap().to_string())
            .to_vec();
        wanted.extend(
            [".headrace-1-2-3.partial", ".headrace-1-2.partial", ".headrace-x.partial"]
                .map(String::from),
        );
        wanted.push(".other-1-0.partial".to_string());
        wanted.sort();
        assert_eq!(names(dir.path()), wanted);
        assert!(folder.path().join("data").exists());
        drop((ours, folder, next));
        assert_eq!(names(dir.path()).len(), 4);
    }

    #[test]
    fn what_took_its_targets_place_stays() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a");
        let (_file, hidden) = Hidden::file(dir.path(), 0o600).unwrap();
        std::fs::rename(hidden.path(), &target).unwrap();
        drop(hidden);
        assert!(target.is_file());
    }
}
