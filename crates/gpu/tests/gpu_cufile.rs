//! cuFile on a machine with a GPU: which files it takes, and what decides that.
//!
//! `--ignored --nocapture gpu_cufile_experiments` prints a table of suspects: every line is
//! a child process with a configuration, a file and an environment of its own, since cuFile
//! reads its configuration once a process. Nothing here fails because cuFile cannot be had;
//! a file that was registered and then reads wrong bytes does.
//!
//! The experiments that write to /run/udev/data or mount need root; they put back what they
//! changed, and leave alone what is there already.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headrace_gpu::{CuFile, Device, DevicePool, probe};
use support::pattern;

const MIB: usize = 1 << 20;
/// Not a multiple of anything: reads end inside a block.
const FILE_BYTES: usize = 5 * MIB + 1234;
const CHILD_TIME_MAX: Duration = Duration::from_secs(15);
const LOG_LINES_SHOWN: usize = 14;

const FILE_VARIABLE: &str = "HEADRACE_TEST_CUFILE_FILE";
const DIRECT_VARIABLE: &str = "HEADRACE_TEST_CUFILE_DIRECT";

/// What one experiment changes, against a plain file on disk with compatibility mode
/// allowed and a tracing log.
#[derive(Default, Clone)]
struct Experiment {
    name: &'static str,
    file: Place,
    direct: bool,
    /// Without it, whatever the machine has (/etc/cufile.json or nothing).
    own_configuration: bool,
    /// Added to the `properties` of the configuration.
    properties: &'static str,
    /// Added at the top of the configuration.
    sections: &'static str,
    environment: &'static [(&'static str, &'static str)],
    udev: Udev,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Place {
    #[default]
    Disk,
    Tmpfs,
    /// The disk's device mounted a second time, by its device node.
    SecondMount,
    /// The block device itself.
    BlockDevice,
}

/// What /run/udev/data says of the disk's device.
#[derive(Default, Clone, Copy, PartialEq)]
enum Udev {
    #[default]
    AsItIs,
    EmptyFolder,
    Usage,
    UsageAndType,
    Full,
}

fn experiments() -> Vec<Experiment> {
    let plain = Experiment { own_configuration: true, ..Experiment::default() };
    let with = |name, change: &dyn Fn(&mut Experiment)| {
        let mut experiment = Experiment { name, ..plain.clone() };
        change(&mut experiment);
        experiment
    };
    vec![
        with("disk, the machine's configuration", &|e| e.own_configuration = false),
        with("disk", &|_| {}),
        with("disk, O_DIRECT", &|e| e.direct = true),
        with("tmpfs", &|e| e.file = Place::Tmpfs),
        with("disk, force_compat_mode", &|e| e.properties = r#", "force_compat_mode": true"#),
        with("disk, O_DIRECT, CUFILE_FORCE_COMPAT_MODE=true", &|e| {
            e.direct = true;
            e.environment = &[("CUFILE_FORCE_COMPAT_MODE", "true")];
        }),
        with("disk, O_DIRECT, CUFILE_ALLOW_COMPAT_MODE=true", &|e| {
            e.direct = true;
            e.environment = &[("CUFILE_ALLOW_COMPAT_MODE", "true")];
        }),
        with("disk, no topology detection", &|e| {
            e.sections = r#", "miscellaneous": {"skip_topology_detection": true}"#;
            e.environment = &[("CUFILE_SKIP_TOPOLOGY_DETECTION", "true")];
        }),
        with(
            "disk, own posix pool",
            &|e| e.properties = r#", "posix_pool_slab_size_kb": [4, 1024, 16384], "posix_pool_slab_count": [128, 64, 32]"#,
        ),
        with("disk, O_DIRECT, use_pci_p2pdma", &|e| {
            e.direct = true;
            e.properties = r#", "use_pci_p2pdma": true"#;
        }),
        with("disk, posix_unaligned_writes", &|e| {
            e.sections = r#", "fs": {"generic": {"posix_unaligned_writes": true}}"#
        }),
        with("disk, empty /run/udev/data", &|e| e.udev = Udev::EmptyFolder),
        with("disk, udev ID_FS_USAGE", &|e| e.udev = Udev::Usage),
        with("disk, udev ID_FS_USAGE and TYPE", &|e| e.udev = Udev::UsageAndType),
        with("disk, O_DIRECT, udev ID_FS_USAGE and TYPE", &|e| {
            (e.direct, e.udev) = (true, Udev::UsageAndType);
        }),
        with("disk, udev with all of a disk's lines", &|e| e.udev = Udev::Full),
        with("disk, udev USAGE and TYPE, force_compat_mode", &|e| {
            e.udev = Udev::UsageAndType;
            e.properties = r#", "force_compat_mode": true"#;
        }),
        with("second mount by device node", &|e| e.file = Place::SecondMount),
        with("second mount, udev USAGE and TYPE", &|e| {
            (e.file, e.udev) = (Place::SecondMount, Udev::UsageAndType);
        }),
        with("second mount, O_DIRECT, udev USAGE and TYPE", &|e| {
            (e.file, e.direct, e.udev) = (Place::SecondMount, true, Udev::UsageAndType);
        }),
        with("tmpfs, force_compat_mode", &|e| {
            (e.file, e.properties) = (Place::Tmpfs, r#", "force_compat_mode": true"#);
        }),
        with("tmpfs, CUFILE_EXPERIMENTAL_FS=true", &|e| {
            (e.file, e.environment) = (Place::Tmpfs, &[("CUFILE_EXPERIMENTAL_FS", "true")]);
        }),
        with("block device, O_DIRECT, udev USAGE and TYPE", &|e| {
            (e.file, e.direct, e.udev) = (Place::BlockDevice, true, Udev::UsageAndType);
        }),
    ]
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_cufile_experiments() {
    assert_eq!(probe().reason, None, "these tests need a GPU");
    let bytes = pattern(FILE_BYTES);
    let disk = disk_folder().expect("no folder on a block device; set TMPDIR to one");
    let folder = tempfile::tempdir_in(&disk).unwrap();
    let shared_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let disk_file = write_file(&folder.path().join("data"), &bytes);
    let tmpfs_file = write_file(&shared_memory.path().join("data"), &bytes);
    let device = BlockDevice::of(&disk_file);
    println!("{}", machine_facts(&disk_file, &tmpfs_file, &device));

    let mut wrong = Vec::new();
    for (number, experiment) in experiments().iter().enumerate() {
        let run = Run { number, experiment, folder: folder.path(), device: &device };
        let outcome = run.outcome(&disk_file, &tmpfs_file);
        println!("{number:2} {:<52} {}", experiment.name, outcome.shown);
        for line in &outcome.log {
            println!("       | {line}");
        }
        if outcome.read_wrong {
            wrong.push(experiment.name);
        }
    }
    assert!(wrong.is_empty(), "registered, and read wrong: {wrong:?}");
}

/// One experiment on its way.
struct Run<'a> {
    number: usize,
    experiment: &'a Experiment,
    folder: &'a Path,
    device: &'a BlockDevice,
}

struct Outcome {
    shown: String,
    log: Vec<String>,
    read_wrong: bool,
}

impl Outcome {
    fn not_tried(why: impl std::fmt::Display) -> Self {
        Self { shown: format!("not tried: {why}"), log: Vec::new(), read_wrong: false }
    }
}

impl Run<'_> {
    fn outcome(&self, disk_file: &Path, tmpfs_file: &Path) -> Outcome {
        let _udev = match UdevData::write(self.experiment.udev, self.device) {
            Ok(guard) => guard,
            Err(why) => return Outcome::not_tried(why),
        };
        match self.experiment.file {
            Place::Disk => self.child(disk_file),
            Place::Tmpfs => self.child(tmpfs_file),
            Place::BlockDevice => self.child(&self.device.node),
            Place::SecondMount => match SecondMount::of(self.device) {
                Ok(mount) => {
                    let path = mount.path_of(disk_file);
                    if path.exists() {
                        self.child(&path)
                    } else {
                        Outcome::not_tried(format!("{} is not there", path.display()))
                    }
                }
                Err(why) => Outcome::not_tried(why),
            },
        }
    }

    fn child(&self, file: &Path) -> Outcome {
        let logs = self.folder.join(format!("log-{}", self.number));
        fs::create_dir(&logs).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child_reads_one_file", "--ignored", "--nocapture"])
            .env(FILE_VARIABLE, file)
            .env(DIRECT_VARIABLE, if self.experiment.direct { "1" } else { "0" })
            .env("CUFILE_LOGGING_LEVEL", "TRACE")
            .envs(self.experiment.environment.iter().copied())
            .current_dir(&logs)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.experiment.own_configuration {
            command.env("CUFILE_ENV_PATH_JSON", self.write_configuration(&logs));
        } else {
            command.env("CUFILE_LOGFILE_PATH", logs.join("cufile.log"));
        }
        let (ended, output) = run_with_limit(command);
        let result = output.lines().find_map(|line| line.split_once("RESULT ")).map(|(_, r)| r);
        let shown = match result {
            Some(result) => result.to_string(),
            None => format!("no result; the child {ended}: {}", reason_in(&output)),
        };
        let read_wrong = shown.contains("read=wrong");
        let log = if shown.contains("read=right") { Vec::new() } else { log_tail(&logs) };
        Outcome { shown, log, read_wrong }
    }

    fn write_configuration(&self, logs: &Path) -> PathBuf {
        let path = logs.join("configuration.json");
        let text = format!(
            r#"{{"logging": {{"dir": "{}", "level": "TRACE"}},
"profile": {{"nvtx": false, "cufile_stats": 3}},
"properties": {{"allow_compat_mode": true{}}}{}}}"#,
            logs.display(),
            self.experiment.properties,
            self.experiment.sections
        );
        fs::write(&path, text).unwrap();
        path
    }
}

/// What a child process does: one file, registered and read. Told what to do by its
/// environment, so it does nothing when run by hand.
#[test]
#[ignore = "a part of gpu_cufile_experiments"]
fn child_reads_one_file() {
    let Some(path) = std::env::var_os(FILE_VARIABLE).map(PathBuf::from) else {
        println!("{FILE_VARIABLE} is unset: run gpu_cufile_experiments");
        return;
    };
    let direct = std::env::var(DIRECT_VARIABLE).is_ok_and(|value| value == "1");
    println!("RESULT {}", read_one_file(&path, direct));
}

fn read_one_file(path: &Path, direct: bool) -> String {
    let device = Device::open(0).expect("these tests need a GPU");
    let cufile = match CuFile::open() {
        Ok(cufile) => cufile,
        Err(error) => return format!("open=refused ({})", one_line(&error.reason)),
    };
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(if direct { libc::O_DIRECT } else { 0 });
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) => return format!("open=ok file=refused ({error})"),
    };
    let handle = match cufile.register(&file) {
        Ok(handle) => handle,
        Err(error) => return format!("open=ok register={} {}", error.code, error.name),
    };
    let expected = expected_bytes(path);
    let buffer = Arc::new(DevicePool::new(&device, 64 << 20).alloc(expected.len()).unwrap());
    let pinned = match cufile.register_buffer(Arc::clone(&buffer)) {
        Ok(_) => "ok".to_string(),
        Err(error) => error.code.to_string(),
    };
    let read = match handle.read_into(&buffer, 0, 0, expected.len()) {
        Ok(read) => read,
        Err(error) => return format!("open=ok register=ok read={} {}", error.code, error.name),
    };
    let mut received = vec![0u8; expected.len()];
    let stream = device.stream().unwrap();
    stream.download(&buffer, 0, &mut received).unwrap();
    let right = read == expected.len() as u64 && received == expected;
    let mode = cufile.mode();
    format!(
        "open=ok register=ok buffer={pinned} read={} mode={:?} proven={} \
         version={:?} [{}]",
        if right { "right" } else { "wrong" },
        mode.kind,
        mode.proven,
        cufile.version(),
        mode.evidence.join("; ")
    )
}

/// The file's bytes, the ordinary way; the first mebibytes of a device.
fn expected_bytes(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().take(8 * MIB as u64).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The device that a file lies on.
struct BlockDevice {
    major: u32,
    minor: u32,
    node: PathBuf,
    filesystem: String,
}

impl BlockDevice {
    fn of(file: &Path) -> Self {
        let dev = fs::metadata(file).unwrap().dev();
        let (major, minor) = (libc::major(dev), libc::minor(dev));
        let uevent = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent"))
            .unwrap_or_default();
        let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        let node = Path::new("/dev").join(name.unwrap_or("unknown"));
        let filesystem = mount_line(major, minor).map_or_else(String::new, |line| line.1);
        Self { major, minor, node, filesystem }
    }
}

/// The line of /proc/self/mountinfo of a device, and its file system.
fn mount_line(major: u32, minor: u32) -> Option<(String, String)> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = text.lines().find(|line| {
        line.split_whitespace().nth(2).is_some_and(|id| id == format!("{major}:{minor}"))
    })?;
    let filesystem = line.split_once(" - ")?.1.split_whitespace().next()?;
    Some((line.to_string(), filesystem.to_string()))
}

/// A folder whose files lie on a block device.
fn disk_folder() -> Option<PathBuf> {
    let candidates = [std::env::temp_dir(), "/var/tmp".into(), "/root".into(), ".".into()];
    candidates.into_iter().find(|folder| {
        fs::metadata(folder).is_ok_and(|metadata| {
            let dev = metadata.dev();
            Path::new(&format!("/sys/dev/block/{}:{}", libc::major(dev), libc::minor(dev))).exists()
        })
    })
}

fn write_file(path: &Path, bytes: &[u8]) -> PathBuf {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    path.to_path_buf()
}

/// /run/udev/data/b<major>:<minor> for the time of an experiment.
struct UdevData {
    created: Vec<PathBuf>,
}

impl UdevData {
    fn write(udev: Udev, device: &BlockDevice) -> Result<Self, String> {
        let mut guard = Self { created: Vec::new() };
        if udev == Udev::AsItIs {
            return Ok(guard);
        }
        let entry = PathBuf::from(format!("/run/udev/data/b{}:{}", device.major, device.minor));
        if entry.exists() {
            return Err(format!("{} is there already", entry.display()));
        }
        for folder in ["/run/udev", "/run/udev/data"] {
            if !Path::new(folder).exists() {
                fs::create_dir(folder).map_err(|error| format!("{folder}: {error}"))?;
                guard.created.push(folder.into());
            }
        }
        let text = match udev {
            Udev::AsItIs | Udev::EmptyFolder => return Ok(guard),
            Udev::Usage => "E:ID_FS_USAGE=filesystem\n".to_string(),
            Udev::UsageAndType => {
                format!("E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE={}\n", device.filesystem)
            }
            Udev::Full => format!(
                "I:1000000\nE:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE={}\n\
                 E:ID_FS_UUID=00000000-0000-4000-8000-000000000001\nE:ID_FS_VERSION=1.0\n\
                 G:systemd\nQ:systemd\nV:1\n",
                device.filesystem
            ),
        };
        fs::write(&entry, text).map_err(|error| format!("{}: {error}", entry.display()))?;
        guard.created.push(entry);
        Ok(guard)
    }
}

impl Drop for UdevData {
    fn drop(&mut self) {
        for path in self.created.iter().rev() {
            let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
            if let Err(error) = removed {
                println!("{} stays behind: {error}", path.display());
            }
        }
    }
}

/// A device mounted once more, by its node. The mount point is in no temporary folder: what
/// removes such a folder with all below it would remove what is on the device.
struct SecondMount {
    point: PathBuf,
    /// The first mount's point, whose paths are found below this one's.
    first: PathBuf,
}

impl SecondMount {
    fn of(device: &BlockDevice) -> Result<Self, String> {
        let (line, filesystem) =
            mount_line(device.major, device.minor).ok_or("the device is not in mountinfo")?;
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields[3] != "/" {
            return Err(format!("only {} of the device is mounted", fields[3]));
        }
        let point = PathBuf::from(format!("/run/headrace-mount-{}", std::process::id()));
        fs::create_dir(&point).map_err(|error| format!("{}: {error}", point.display()))?;
        let status =
            Command::new("mount").args(["-t", &filesystem]).arg(&device.node).arg(&point).output();
        if !status.as_ref().is_ok_and(|output| output.status.success()) {
            // Empty: nothing was mounted on it.
            let _ = fs::remove_dir(&point);
        }
        let status = status.map_err(|error| format!("mount: {error}"))?;
        if !status.status.success() {
            return Err(format!("mount: {}", one_line(&String::from_utf8_lossy(&status.stderr))));
        }
        Ok(Self { point, first: PathBuf::from(fields[4]) })
    }

    fn path_of(&self, file: &Path) -> PathBuf {
        let file = fs::canonicalize(file).unwrap();
        self.point.join(file.strip_prefix(&self.first).unwrap_or(&file))
    }
}

impl Drop for SecondMount {
    fn drop(&mut self) {
        let ended = Command::new("umount").arg(&self.point).status();
        if !ended.as_ref().is_ok_and(|status| status.success()) {
            println!("{} stays mounted: {ended:?}", self.point.display());
        } else if let Err(error) = fs::remove_dir(&self.point) {
            println!("{} stays behind: {error}", self.point.display());
        }
    }
}

fn machine_facts(disk_file: &Path, tmpfs_file: &Path, device: &BlockDevice) -> String {
    let mut facts = BTreeMap::new();
    let mut fact = |name: &'static str, value: String| facts.insert(name, one_line(&value));
    let text = |path: &str| fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
    let id = format!("{}:{}", device.major, device.minor);
    fact("kernel", text("/proc/sys/kernel/osrelease"));
    fact("disk file", format!("{} on {id} {}", disk_file.display(), device.node.display()));
    fact("tmpfs file", tmpfs_file.display().to_string());
    fact("device node", format!("{:?}", fs::metadata(&device.node).map(|m| m.rdev())));
    fact(
        "disk mount",
        mount_line(device.major, device.minor).map_or("none".into(), |(line, _)| line),
    );
    fact("/proc/mounts root", text("/proc/mounts").lines().take(3).collect::<Vec<_>>().join(" ; "));
    fact("uevent", text(&format!("/sys/dev/block/{id}/uevent")).replace('\n', " "));
    fact("/run/udev/data", names_in("/run/udev/data"));
    fact("/run/udev", names_in("/run/udev"));
    fact("/proc/driver/nvidia-fs", names_in("/proc/driver/nvidia-fs"));
    fact("/etc/cufile.json", Path::new("/etc/cufile.json").exists().to_string());
    for (name, library) in [("libudev", c"libudev.so.1"), ("libmount", c"libmount.so.1")] {
        // SAFETY: both libraries' initialisers may run in any process; the name is
        // NUL-terminated.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
        fact(name, if handle.is_null() { "cannot be opened" } else { "opens" }.to_string());
    }
    facts.iter().map(|(name, value)| format!("{name:<24} {value}\n")).collect()
}

fn names_in(folder: &str) -> String {
    match fs::read_dir(folder) {
        Ok(entries) => {
            let names: Vec<_> = entries
                .flatten()
                .take(20)
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            format!("[{}]", names.join(" "))
        }
        Err(error) => error.to_string(),
    }
}

/// How the child ended, and what it wrote to both outputs.
fn run_with_limit(mut command: Command) -> (String, String) {
    let mut child = command.spawn().unwrap();
    let outputs = [
        read_in_background(child.stdout.take().unwrap()),
        read_in_background(child.stderr.take().unwrap()),
    ];
    let ended = wait_with_limit(&mut child);
    let output = outputs.map(|thread| thread.join().unwrap()).concat();
    (ended, output)
}

fn read_in_background(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is still worth showing.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait_with_limit(child: &mut Child) -> String {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return format!("ended with {status}");
        }
        if begun.elapsed() > CHILD_TIME_MAX {
            child.kill().unwrap();
            child.wait().unwrap();
            return format!("was ended after {CHILD_TIME_MAX:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The lines of the child's cuFile logs that say something of files, devices or errors.
fn log_tail(folder: &Path) -> Vec<String> {
    const TELLING: [&str; 9] = [
        "ERROR", "WARN", "udev", "mount", "attribute", "HandleRegister", "compat", "cufio-fs",
        "NOTICE",
    ];
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_name().to_string_lossy().contains("json") {
            continue;
        }
        let bytes = fs::read(entry.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        lines.extend(
            text.lines()
                .filter(|line| TELLING.iter().any(|word| line.contains(word)))
                .map(|line| line.trim().to_string()),
        );
    }
    let surplus = lines.len().saturating_sub(LOG_LINES_SHOWN);
    lines.split_off(surplus)
}

/// What a panicking child said, or its last words.
fn reason_in(output: &str) -> String {
    let mut lines = output.lines().filter(|line| !line.trim().is_empty());
    let after_panic = output.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
    after_panic.or_else(|| lines.next_back()).unwrap_or("").to_string()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
