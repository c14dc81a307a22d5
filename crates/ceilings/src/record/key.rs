//! The keys of a measurement: the machine, and the storage of a path.

use std::fmt::{self, Write as _};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use headrace_io::system::{Fact, StorageHome, SysRoot};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A storage: everything on it shares its ceilings. The source of a mount and its filesystem, such
/// as `/dev/nvme0n1p1 (ext4)` or `server:/export (nfs4)`, or a block device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreKey(String);

impl StoreKey {
    /// The key of a mounted filesystem.
    pub fn of_mount(source: &str, filesystem: &str) -> StoreKey {
        StoreKey(format!("{source} ({filesystem})"))
    }

    /// The key of a block device that is used without a filesystem.
    pub fn of_block_device(device: &Path) -> StoreKey {
        StoreKey(format!("{} (block device)", device.display()))
    }

    /// The key of the storage that `path` (symbolic links are followed) lies on, or is. A path that
    /// does not exist yet has the storage of its nearest existing folder.
    ///
    /// # Errors
    /// The mounts of this machine cannot be read or do not cover the path.
    pub fn of_path(path: &Path) -> std::io::Result<StoreKey> {
        let home = StorageHome::of(&SysRoot::host(), path);
        key_of(&home).map_err(|unknown| std::io::Error::other(unknown.to_string()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// For files on an overlay, the key is that of the lowest mount.
fn key_of(home: &StorageHome) -> Fact<StoreKey> {
    if home.path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        return Ok(StoreKey::of_block_device(&home.path));
    }
    let mount = home.below.last().map_or(home.mount.as_ref(), Ok);
    mount.map(|mount| StoreKey::of_mount(&mount.source, &mount.filesystem)).map_err(Clone::clone)
}

/// Host name and eight hexadecimal digits that distinguish machines of one name. The machine id is
/// hashed, because it is confidential.
pub(super) fn this_machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    machine_name(&read("/proc/sys/kernel/hostname"), &read("/etc/machine-id"))
}

fn machine_name(host: &str, machine_id: &str) -> String {
    let digest = Sha256::digest(format!("headrace ceilings\0{host}\0{machine_id}"));
    let host = if host.is_empty() { "host" } else { host };
    digest[..4].iter().fold(format!("{host}-"), |mut name, byte| {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MOUNTS: &str = "\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
30 22 0:26 / /dev/shm rw - tmpfs tmpfs rw
31 22 259:3 / /big\\040data rw - xfs /dev/md0 rw
33 22 0:50 / /nfs rw - nfs4 server:/export/data rw,proto=rdma
";

    #[test]
    fn a_path_is_kept_under_the_source_of_its_mount() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("proc/self")).unwrap();
        std::fs::write(tree.path().join("proc/self/mountinfo"), MOUNTS).unwrap();
        let root = SysRoot::at(tree.path());
        for (path, key) in [
            ("/home/a", "/dev/nvme0n1p2 (ext4)"),
            ("/dev/shm/x", "tmpfs (tmpfs)"),
            ("/big data/t.arrow", "/dev/md0 (xfs)"),
            ("/nfs/t", "server:/export/data (nfs4)"),
        ] {
            let home = StorageHome::of(&root, Path::new(path));
            assert_eq!(key_of(&home).unwrap().as_str(), key, "{path}");
        }
        std::fs::remove_file(tree.path().join("proc/self/mountinfo")).unwrap();
        assert!(key_of(&StorageHome::of(&root, Path::new("/home/a"))).is_err());
    }

    #[test]
    fn files_of_one_folder_share_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, b"x").unwrap();
        let key = StoreKey::of_path(&file).unwrap();
        assert_eq!(key, StoreKey::of_path(folder.path()).unwrap());
        assert_eq!(key, StoreKey::of_path(&folder.path().join("not/written/yet")).unwrap());
    }

    #[test]
    fn machines_are_told_apart_by_id_and_by_name() {
        let names = ["a", "b"].map(|host| ["1", "2"].map(|id| machine_name(host, id)));
        let mut flat: Vec<&String> = names.iter().flatten().collect();
        flat.sort();
        flat.dedup();
        assert_eq!(flat.len(), 4);
        assert!(machine_name("a", "secret").starts_with("a-"));
        assert!(!machine_name("a", "secret").contains("secret"));
    }
}
