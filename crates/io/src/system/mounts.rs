//! The mount table, and which mount a path lies on.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::root::{Fact, SysRoot, Unknown, UnknownCause, lossy};

const TABLE: &str = "/proc/self/mountinfo";

/// One line of the mount table as this process sees it (proc_pid_mountinfo(5)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Number of the mount.
    pub id: u64,
    /// Number of the mount on which it is mounted.
    pub parent_id: u64,
    /// Device number of the filesystem. Major 0 is an anonymous number: the filesystem has no
    /// block device of its own (tmpfs, NFS, overlay) or several of them (btrfs, ZFS).
    pub device: (u32, u32),
    /// The mounted folder inside the filesystem: not `/` for bind mounts and subvolumes.
    #[serde(serialize_with = "lossy")]
    pub root: PathBuf,
    /// Where it is mounted.
    #[serde(serialize_with = "lossy")]
    pub mount_point: PathBuf,
    /// Type: `ext4`, `xfs`, `nfs4`, `tmpfs`, `overlay`.
    pub filesystem: String,
    /// The mounted source: a device file, `server:/export`, a pool, or just a word.
    pub source: String,
    /// Options of the mount, then those of the filesystem, without repeats. If mount and filesystem
    /// differ in `ro`/`rw`, only the mount's counts.
    pub options: Vec<String>,
}

impl Mount {
    /// The value of an option of the form `name=value`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether a plain option such as `noatime` is set.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.iter().any(|option| option == name)
    }

    /// Whether the filesystem keeps its files in memory.
    pub fn is_memory(&self) -> bool {
        matches!(self.filesystem.as_str(), "tmpfs" | "ramfs" | "hugetlbfs" | "devtmpfs")
    }

    /// Whether it is an NFS mount.
    pub fn is_nfs(&self) -> bool {
        matches!(self.filesystem.as_str(), "nfs" | "nfs4")
    }
}

/// The mount table of this process.
///
/// # Errors
/// [`Unknown`] if it cannot be read. Malformed lines are skipped.
pub fn mounts(root: &SysRoot) -> Fact<Vec<Mount>> {
    let table = root.bytes(TABLE)?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
}

/// The mount of a path. Symbolic links are followed; a path that does not exist yet belongs to the
/// mount of its nearest existing folder.
///
/// # Errors
/// [`Unknown`] if the mount table cannot be read or covers no such path.
pub fn mount_of(root: &SysRoot, path: &Path) -> Fact<Mount> {
    let path = location(root, path);
    let table = mounts(root)?;
    covering(&table, &path).cloned().ok_or_else(|| {
        Unknown::not_published(TABLE, format!("no mount in it covers {}", path.display()))
    })
}

/// The mount of an open file, whatever its path is now.
pub(crate) fn mount_of_descriptor(fd: RawFd) -> Fact<Mount> {
    let root = SysRoot::host();
    let place = format!("/proc/self/fdinfo/{fd}");
    let text = root.text(&place)?;
    let id: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
        .ok_or_else(|| {
        Unknown::new(&place, UnknownCause::Malformed("no mnt_id".to_string()))
    })?;
    mounts(&root)?.into_iter().find(|mount| mount.id == id).ok_or_else(|| {
        Unknown::not_published(TABLE, format!("mount {id} belongs to another mount namespace"))
    })
}

/// The absolute path without symbolic links, as far as it exists.
pub(super) fn location(root: &SysRoot, path: &Path) -> PathBuf {
    let absolute = match root.is_host() {
        // Where there is no current folder any more, nothing relative to it can be found.
        true => std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
        false => Path::new("/").join(path),
    };
    // Examined first: that is what makes an automounter mount it.
    let _ = std::fs::metadata(root.resolve(&absolute));
    root.canonical_as_far_as_it_exists(&absolute)
}

/// Walks down the path like the kernel: at each folder it takes the mount on top of the mount
/// reached so far, so mounts hidden below later ones do not count.
pub(super) fn covering<'a>(table: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let mut prefixes: Vec<&Path> = path.ancestors().collect();
    prefixes.reverse();
    let mut reached: Option<&Mount> = None;
    for prefix in prefixes {
        // Several may be stacked on one folder; a table without end is not followed for ever.
        for _ in 0..table.len() {
            match mounted_on(table, reached, prefix) {
                Some(mount) => reached = Some(mount),
                None => break,
            }
        }
    }
    reached
}

fn mounted_on<'a>(table: &'a [Mount], on: Option<&Mount>, at: &Path) -> Option<&'a Mount> {
    let is_top = |mount: &Mount| {
        mount.parent_id == mount.id || !table.iter().any(|other| other.id == mount.parent_id)
    };
    table.iter().rev().find(|mount| {
        mount.mount_point == at
            && match on {
                Some(on) => mount.parent_id == on.id && mount.id != on.id,
                None => is_top(mount),
            }
    })
}

/// `36 35 98:0 /root /point options [optional …] - type source superoptions`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = || fields.next();
    let id = text(next()?).parse().ok()?;
    let parent_id = text(next()?).parse().ok()?;
    let device = parse_number(&text(next()?))?;
    let root = path(next()?);
    let mount_point = path(next()?);
    let own_options = text(next()?);
    while next()? != b"-" {}
    let filesystem = text(next()?);
    let source = String::from_utf8_lossy(&unescape(next()?)).into_owned();
    let super_options = next().map(text).unwrap_or_default();
    let options = merge_options(&own_options, &super_options);
    Some(Mount { id, parent_id, device, root, mount_point, filesystem, source, options })
}

fn merge_options(own: &str, of_filesystem: &str) -> Vec<String> {
    let mut merged: Vec<String> = Vec::new();
    let both = own.split(',').chain(of_filesystem.split(','));
    for option in both.filter(|option| !option.is_empty()) {
        let option = String::from_utf8_lossy(&unescape(option.as_bytes())).into_owned();
        if !merged.contains(&option) {
            merged.push(option);
        }
    }
    if merged.iter().any(|option| option == "ro") {
        merged.retain(|option| option != "rw");
    }
    merged
}

/// `8:1` as (major, minor).
pub(super) fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Blanks, line ends, backslashes and hashes are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        match (first, octal(after)) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                rest = &after[3..];
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

fn octal(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..3)?;
    digits.iter().try_fold(0u8, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    const NESTED: &str = "\
27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
30 27 0:25 / /run rw,nosuid - tmpfs tmpfs rw,size=3282216k,mode=755
40 27 9:0 / /data ro,noatime shared:20 master:3 - xfs /dev/md0 rw,attr2,inode64,sunit=1024
41 40 259:9 / /data/my\\040fast\\134disk rw - ext4 /dev/nvme9n1 rw
42 27 259:2 /home/me/tables /srv/tables rw,relatime - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
50 27 259:5 / /mnt rw - ext4 /dev/nvme5n1 rw
51 50 259:6 / /mnt/inner rw - ext4 /dev/nvme6n1 rw
52 50 0:60 / /mnt rw - tmpfs over rw
this line says nothing
60 27 0:70 / /empty rw - tmpfs  rw
";

    fn nested() -> (Tree, SysRoot) {
        let tree = Tree::new();
        tree.mountinfo(NESTED);
        let root = tree.root();
        (tree, root)
    }

    fn mount_id(root: &SysRoot, path: &str) -> u64 {
        mount_of(root, Path::new(path)).unwrap().id
    }

    #[test]
    fn the_deepest_mount_that_is_not_hidden() {
        let (_tree, root) = nested();
        assert_eq!(mount_id(&root, "/etc/passwd"), 27);
        assert_eq!(mount_id(&root, "/run/user/1"), 30);
        assert_eq!(mount_id(&root, "/running"), 27);
        assert_eq!(mount_id(&root, "/data/x"), 40);
        assert_eq!(mount_id(&root, "/data/my fast\\disk/x"), 41);
        // 52 was mounted over 50, so 51 cannot be reached any more.
        assert_eq!(mount_id(&root, "/mnt/inner/x"), 52);
    }

    #[test]
    fn a_bind_mount_keeps_the_device() {
        let (_tree, root) = nested();
        let bind = mount_of(&root, Path::new("/srv/tables/a.arrow")).unwrap();
        assert_eq!(bind.device, (259, 2));
        assert_eq!(bind.root, Path::new("/home/me/tables"));
    }

    #[test]
    fn options_of_mount_and_filesystem() {
        let (_tree, root) = nested();
        let data = mount_of(&root, Path::new("/data")).unwrap();
        assert_eq!(data.options, ["ro", "noatime", "attr2", "inode64", "sunit=1024"]);
        assert!(data.has_option("ro"));
        assert_eq!(data.option("sunit"), Some("1024"));
        assert_eq!(data.option("sun"), None);
        let empty = mount_of(&root, Path::new("/empty")).unwrap();
        assert_eq!((empty.source.as_str(), empty.is_memory()), ("", true));
    }

    #[test]
    fn links_are_followed_before_the_table_is_asked() {
        let (tree, root) = nested();
        tree.folder("/data/tables").link("/home/shortcut", "../data/tables");
        assert_eq!(mount_id(&root, "/home/shortcut/not/yet/there"), 40);
    }

    #[test]
    fn no_table_and_an_endless_table() {
        let tree = Tree::new();
        assert!(mounts(&tree.root()).unwrap_err().is_missing());
        tree.mountinfo("1 2 0:1 / / rw - a a rw\n2 1 0:2 / / rw - b b rw\n");
        assert!(mount_of(&tree.root(), Path::new("/x")).is_err());
        tree.mountinfo(
            "1 9 0:1 / / rw - a a rw\n2 1 0:2 / / rw - b b rw\n1 2 0:2 / / rw - c c rw\n",
        );
        assert!(mount_of(&tree.root(), Path::new("/x")).is_ok());
    }

    #[test]
    fn this_machine_agrees_with_itself() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let by_descriptor = mount_of_descriptor(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
        let exe = std::env::current_exe().unwrap();
        assert_eq!(mount_of(&SysRoot::host(), &exe).unwrap(), by_descriptor);
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(b"a\\040b\\134"), b"a b\\");
        assert_eq!(unescape(b"a\\04"), b"a\\04");
        assert_eq!(unescape(b"\\777\\9"), b"\\777\\9");
    }
}
