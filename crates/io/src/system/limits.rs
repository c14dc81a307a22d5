//! What this process may use: its resource limits and those of its control group.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::available_parallelism;

use serde::{Serialize, Serializer};

use super::mounts::{Mount, mounts};
use super::root::{Fact, SysRoot, Unknown, fact, parse_list};
use super::seccomp::{STATUS, status_field};

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// This much.
    At(u64),
    /// None.
    Unlimited,
}

impl Limit {
    /// Whether an amount lies within it.
    pub fn allows(&self, amount: u64) -> bool {
        match self {
            Limit::At(most) => amount <= *most,
            Limit::Unlimited => true,
        }
    }

    /// The amount; `None` if there is no limit.
    pub fn amount(&self) -> Option<u64> {
        match self {
            Limit::At(most) => Some(*most),
            Limit::Unlimited => None,
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::At(most) => serializer.serialize_u64(*most),
            Limit::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

/// What this process may use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limits {
    /// Memory that it may lock (the soft limit).
    #[serde(serialize_with = "fact")]
    pub memlock_bytes: Fact<Limit>,
    /// How far it may raise that limit itself.
    #[serde(serialize_with = "fact")]
    pub memlock_hard_bytes: Fact<Limit>,
    /// Whether the asking thread has CAP_IPC_LOCK, which overrides the limit of locked memory.
    #[serde(serialize_with = "fact")]
    pub may_lock_any: Fact<bool>,
    /// Files that it may have open (the soft limit).
    #[serde(serialize_with = "fact")]
    pub open_files: Fact<Limit>,
    /// Length of a file that it may write.
    #[serde(serialize_with = "fact")]
    pub file_bytes: Fact<Limit>,
    /// Processors on which the asking thread may run.
    #[serde(serialize_with = "fact")]
    pub cpus: Fact<u32>,
    /// Its control group; unknown without a mounted hierarchy.
    #[serde(serialize_with = "fact")]
    pub cgroup: Fact<Cgroup>,
}

/// A control group with the limits of its visible ancestors: in a container those above its own
/// root are hidden.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cgroup {
    /// Version of the hierarchy that limits memory: 1 or 2.
    pub version: u32,
    /// Its path in that hierarchy.
    pub path: String,
    /// The lowest limit of memory, page cache included.
    pub memory_max_bytes: Limit,
    /// Memory in use now, including page cache; `None` if it is not counted.
    pub memory_current_bytes: Option<u64>,
    /// Limits of block devices, each as `major:minor name=value`.
    pub io_max: Vec<String>,
    /// The lowest limit of processor time, in cores; `None` if there is none.
    pub cpu_quota_cores: Option<f64>,
}

/// Cores on which this process may run, at the first call; 1 if the system does not tell.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

/// What this process may use.
pub fn limits(root: &SysRoot) -> Limits {
    let table = root.text("/proc/self/limits");
    let limit = |name: &str, column: usize| limit_of(&table, name, column);
    let status = root.text(STATUS);
    Limits {
        memlock_bytes: limit("Max locked memory", 0),
        memlock_hard_bytes: limit("Max locked memory", 1),
        may_lock_any: status_of(&status, "CapEff", |text| {
            const CAP_IPC_LOCK: u64 = 1 << 14;
            Some(u64::from_str_radix(text, 16).ok()? & CAP_IPC_LOCK != 0)
        }),
        open_files: limit("Max open files", 0),
        file_bytes: limit("Max file size", 0),
        cpus: status_of(&status, "Cpus_allowed_list", |text| {
            u32::try_from(parse_list(text)?.len()).ok()
        }),
        cgroup: cgroup(root),
    }
}

/// Memory available without swapping and within the limit of the control group; `None` if the
/// system does not tell.
pub fn available_memory_bytes(root: &SysRoot) -> Option<u64> {
    let system = memory_line(root, "/proc/meminfo", "MemAvailable:");
    let group = memory_group(root).ok().and_then(|(group, ..)| {
        let most = group.memory_max(root).amount()?;
        let used = group.memory_current(root).unwrap_or(0);
        // The page cache of the group counts as used, but leaves when room is needed: half of
        // the limit is a fair guess at what can be had then.
        Some(most.saturating_sub(used).max(most / 2))
    });
    [system, group].into_iter().flatten().min()
}

/// All memory of the machine; `None` if the system does not tell.
pub fn memory_bytes(root: &SysRoot) -> Option<u64> {
    memory_line(root, "/proc/meminfo", "MemTotal:")
}

/// Peak resident memory of this process; `None` if the kernel does not tell. Mapped pages of files count while they
/// are mapped.
pub fn peak_memory_bytes() -> Option<u64> {
    memory_line(&SysRoot::host(), "/proc/self/status", "VmHWM:")
}

/// `VmHWM:     1234 kB`
fn memory_line(root: &SysRoot, file: &str, name: &str) -> Option<u64> {
    let text = root.text(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

/// `Max locked memory         8388608              unlimited            bytes`
fn limit_of(table: &Fact<String>, name: &str, column: usize) -> Fact<Limit> {
    let table = table.as_ref().map_err(Clone::clone)?;
    let malformed = || Unknown::malformed("/proc/self/limits", name);
    let line = table.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(malformed)?;
    match line.split_whitespace().nth(column) {
        Some("unlimited") => Ok(Limit::Unlimited),
        Some(number) => number.parse().map(Limit::At).map_err(|_| malformed()),
        None => Err(malformed()),
    }
}

fn status_of<T>(status: &Fact<String>, name: &str, parse: impl Fn(&str) -> Option<T>) -> Fact<T> {
    let status = status.as_ref().map_err(Clone::clone)?;
    let malformed = || Unknown::malformed(STATUS, name);
    status_field(status, name).and_then(parse).ok_or_else(malformed)
}

/// The hierarchy that limits memory, the groups of the process, and the mounts.
fn memory_group(root: &SysRoot) -> Fact<(Way, String, Vec<Mount>)> {
    const MEMBERSHIPS: &str = "/proc/self/cgroup";
    let memberships = root.text(MEMBERSHIPS)?;
    let table = mounts(root)?;
    let memory = Way::of(&memberships, &table, "memory").ok_or_else(|| {
        Unknown::not_published(MEMBERSHIPS, "no hierarchy of control groups is mounted")
    })?;
    Ok((memory, memberships, table))
}

fn cgroup(root: &SysRoot) -> Fact<Cgroup> {
    let (memory, memberships, table) = memory_group(root)?;
    let way = |controller: &str| Way::of(&memberships, &table, controller);
    Ok(Cgroup {
        version: memory.version,
        path: memory.path.clone(),
        memory_max_bytes: memory.memory_max(root),
        memory_current_bytes: memory.memory_current(root),
        io_max: way("blkio").map(|way| way.io_max(root)).unwrap_or_default(),
        cpu_quota_cores: way("cpu").and_then(|way| way.cpu_quota_cores(root)),
    })
}

/// Where a controller keeps the files of this process's group and its ancestors.
struct Way {
    version: u32,
    path: String,
    /// The group's own folder first.
    folders: Vec<PathBuf>,
}

impl Way {
    fn of(memberships: &str, table: &[Mount], controller: &str) -> Option<Way> {
        // `4:memory:/path` for version 1 (several controllers may share a hierarchy), `0::/path`
        // for version 2.
        let parse = |line: &'_ str| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers) = (fields.next()?, fields.next()?.to_string());
            Some((controllers, fields.next()?.to_string()))
        };
        let groups: Vec<_> = memberships.lines().filter_map(parse).collect();
        let of_version_1 = groups
            .iter()
            .find(|(controllers, _)| controllers.split(',').any(|name| name == controller));
        if let Some((_, path)) = of_version_1 {
            let mount = table
                .iter()
                .find(|mount| mount.filesystem == "cgroup" && mount.has_option(controller))?;
            return Some(Way { version: 1, path: path.clone(), folders: folders(mount, path) });
        }
        let (_, path) = groups.iter().find(|(controllers, _)| controllers.is_empty())?;
        let mount = table.iter().find(|mount| mount.filesystem == "cgroup2")?;
        Some(Way { version: 2, path: path.clone(), folders: folders(mount, path) })
    }

    fn memory_max(&self, root: &SysRoot) -> Limit {
        /// Version 1 writes the largest number of whole pages for "no limit".
        const NO_LIMIT_FROM: u64 = 1 << 62;
        let name = if self.version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
        // The root group has no such file, and "max" is no number: no limit in both cases.
        let limits = self.folders.iter().filter_map(|at| root.parsed::<u64>(at.join(name)).ok());
        let lowest = limits.filter(|limit| *limit < NO_LIMIT_FROM).min();
        lowest.map_or(Limit::Unlimited, Limit::At)
    }

    fn memory_current(&self, root: &SysRoot) -> Option<u64> {
        let name = if self.version == 1 { "memory.usage_in_bytes" } else { "memory.current" };
        root.parsed(self.folders.first()?.join(name)).ok()
    }

    fn cpu_quota_cores(&self, root: &SysRoot) -> Option<f64> {
        let quota = |at: &PathBuf| {
            let (quota, period) = match self.version {
                1 => {
                    let number = |name: &str| root.parsed::<i64>(at.join(name)).ok();
                    (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
                }
                _ => {
                    let text = root.value(at.join("cpu.max")).ok()?;
                    let (quota, period) = text.split_once(' ')?;
                    (quota.parse().ok()?, period.parse().ok()?)
                }
            };
            (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
        };
        self.folders.iter().filter_map(quota).min_by(f64::total_cmp)
    }

    /// Version 2 has one file; version 1 one for each kind of limit.
    fn io_max(&self, root: &SysRoot) -> Vec<String> {
        const VERSION_1: [(&str, &str); 4] = [
            ("blkio.throttle.read_bps_device", "rbps"),
            ("blkio.throttle.write_bps_device", "wbps"),
            ("blkio.throttle.read_iops_device", "riops"),
            ("blkio.throttle.write_iops_device", "wiops"),
        ];
        let mut found = Vec::new();
        for at in &self.folders {
            if self.version == 2 {
                let text = root.text(at.join("io.max")).unwrap_or_default();
                found.extend(text.lines().map(str::to_string));
                continue;
            }
            for (file, name) in VERSION_1 {
                let text = root.text(at.join(file)).unwrap_or_default();
                let limits = text.lines().filter_map(|line| line.split_once(' '));
                found.extend(limits.map(|(device, limit)| format!("{device} {name}={limit}")));
            }
        }
        found
    }
}

/// The folder of the group and its ancestors, up to the mount point. In a container the mount shows
/// only part of the hierarchy, whose path is removed from the front of the group's.
fn folders(mount: &Mount, path: &str) -> Vec<PathBuf> {
    let group = Path::new(path);
    let visible = group.strip_prefix(&mount.root).unwrap_or_else(|_| match mount.root.to_str() {
        Some("/") => group.strip_prefix("/").unwrap_or(group),
        // The group lies outside of what is mounted: only the mounted part can be looked at.
        _ => Path::new(""),
    });
    let outside = visible.components().any(|part| part == std::path::Component::ParentDir);
    let visible = if outside { Path::new("") } else { visible };
    visible.ancestors().map(|part| mount.mount_point.join(part)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max file size             unlimited            unlimited            bytes
Max locked memory         65536                unlimited            bytes
Max open files            1024                 524288               files
";
    const STATUS_TEXT: &str = "Name:\tx\nCapEff:\t00000000a80425fb\nCpus_allowed_list:\t0-3,8\n";

    #[test]
    fn limits_of_the_process() {
        let tree = Tree::new();
        tree.file("/proc/self/limits", LIMITS).file(STATUS, STATUS_TEXT);
        let found = limits(&tree.root());
        assert_eq!(found.memlock_bytes, Ok(Limit::At(65536)));
        assert_eq!(found.memlock_hard_bytes, Ok(Limit::Unlimited));
        assert_eq!(found.open_files, Ok(Limit::At(1024)));
        assert_eq!(found.file_bytes, Ok(Limit::Unlimited));
        // The capabilities that a container has by default do not include it.
        assert_eq!((found.may_lock_any, found.cpus), (Ok(false), Ok(5)));
        assert!(found.cgroup.unwrap_err().is_missing());
        assert!(Limit::Unlimited.allows(u64::MAX) && !Limit::At(3).allows(4));
        assert!(Limit::At(u64::MAX) < Limit::Unlimited);
    }

    #[test]
    fn nothing_known() {
        let found = limits(&Tree::new().root());
        assert!(found.memlock_bytes.unwrap_err().is_missing());
        let text = serde_json::to_value(limits(&Tree::new().root())).unwrap();
        assert_eq!(text["open_files"]["unknown"], "/proc/self/limits: no such file");
    }

    #[test]
    fn memory_to_be_had_is_what_system_and_group_both_allow() {
        let tree = Tree::new();
        assert_eq!(available_memory_bytes(&tree.root()), None);
        tree.file("/proc/meminfo", "MemTotal: 64 kB\nMemAvailable:  8 kB\n");
        assert_eq!(available_memory_bytes(&tree.root()), Some(8192));
        tree.mountinfo("30 27 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        tree.file("/proc/self/cgroup", "0::/job\n");
        tree.file("/sys/fs/cgroup/job/memory.max", "4096\n");
        tree.file("/sys/fs/cgroup/job/memory.current", "1096\n");
        assert_eq!(available_memory_bytes(&tree.root()), Some(3000));
        tree.file("/sys/fs/cgroup/job/memory.current", "4096\n");
        assert_eq!(available_memory_bytes(&tree.root()), Some(2048), "page cache can leave");
    }

    #[test]
    fn version_2_takes_the_lowest_limit_on_the_way_up() {
        let tree = Tree::new();
        tree.mountinfo("30 27 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        tree.file("/proc/self/cgroup", "0::/user.slice/job\n");
        let at = "/sys/fs/cgroup/user.slice";
        tree.file(&format!("{at}/memory.max"), "1000000\n");
        tree.file(&format!("{at}/job/memory.max"), "max\n");
        tree.file(&format!("{at}/job/memory.current"), "4096\n");
        tree.file(&format!("{at}/cpu.max"), "max 100000\n");
        tree.file(&format!("{at}/job/cpu.max"), "250000 100000\n");
        tree.file(&format!("{at}/job/io.max"), "259:0 rbps=1048576 wbps=max riops=max wiops=max\n");
        let found = cgroup(&tree.root()).unwrap();
        assert_eq!((found.version, found.path.as_str()), (2, "/user.slice/job"));
        assert_eq!(found.memory_max_bytes, Limit::At(1_000_000));
        assert_eq!(found.memory_current_bytes, Some(4096));
        assert_eq!(found.cpu_quota_cores, Some(2.5));
        assert_eq!(found.io_max, ["259:0 rbps=1048576 wbps=max riops=max wiops=max"]);
    }

    #[test]
    fn version_1_in_a_container() {
        let tree = Tree::new();
        tree.mountinfo(
            "31 27 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
             32 27 0:29 / /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
             33 27 0:30 / /sys/fs/cgroup/blkio ro - cgroup cgroup rw,blkio\n\
             34 27 0:31 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n",
        );
        tree.file(
            "/proc/self/cgroup",
            "5:cpu,cpuacct:/jobs\n4:memory:/docker/abc\n3:blkio:/\n0::/elsewhere\n",
        );
        tree.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        tree.file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "77\n");
        tree.file("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "-1\n");
        tree.file("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000\n");
        tree.file("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device", "8:0 1048576\n");
        let found = cgroup(&tree.root()).unwrap();
        assert_eq!((found.version, found.memory_max_bytes), (1, Limit::Unlimited));
        assert_eq!((found.memory_current_bytes, found.cpu_quota_cores), (Some(77), None));
        assert_eq!(found.io_max, ["8:0 rbps=1048576"]);
        tree.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
        assert_eq!(cgroup(&tree.root()).unwrap().memory_max_bytes, Limit::At(1 << 20));
    }

    #[test]
    fn a_group_outside_of_what_is_mounted() {
        let tree = Tree::new();
        tree.mountinfo("30 27 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        tree.file("/proc/self/cgroup", "0::/../other\n");
        tree.file("/sys/fs/cgroup/memory.max", "5\n").file("/sys/fs/other/memory.max", "3\n");
        assert_eq!(cgroup(&tree.root()).unwrap().memory_max_bytes, Limit::At(5));
    }

    #[test]
    fn this_process_knows_its_limits() {
        let found = limits(&SysRoot::host());
        assert!(found.cpus.unwrap() > 0);
        assert!(found.open_files.unwrap().allows(3));
        assert!(found.memlock_bytes.is_ok() && found.may_lock_any.is_ok());
    }
}
