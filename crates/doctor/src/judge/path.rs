//! The meaning of the tries of all access paths of a path.

use std::collections::BTreeMap;

use crate::facts::{AccessProbe, FileFact, GpuFacts, Outcome, PathFacts, PathKind, Way};
use crate::finding::Finding;

use super::gpu::rate_text;

/// From this share of its potential on, an access path is as good as a short measurement can show.
const KEEPS_UP_SHARE: f64 = 0.8;

/// Below this share of the best comparable access path, the automatic choice was bad. Lower than
/// [`KEEPS_UP_SHARE`]: drives of virtual machines vary by that much.
const AUTOMATIC_SHARE_MIN: f64 = 0.6;

/// Rates of short runs over fewer bytes are not compared: start-up dominates them.
const JUDGED_BYTES_MIN: u64 = 64 << 20;

/// The same on the path to a GPU, which moves that much in a few hundredths of a second.
const JUDGED_GPU_BYTES_MIN: u64 = 1_000_000_000;

/// The path itself, and its access paths.
pub(crate) fn judge(path: &PathFacts, gpu: &GpuFacts) -> Vec<Finding> {
    let subject = path.path.display().to_string();
    if let Some(finding) = not_there(&subject, path) {
        return vec![finding];
    }
    let mut findings = Vec::new();
    if let Some(below) = path.below.filter(|below| below.unreadable > 0) {
        findings.push(Finding::unknown(
            &subject,
            format!("{} entries below it could not be looked at (permissions?)", below.unreadable),
        ));
    }
    match path.examined.as_result() {
        Ok(file) if file.size_bytes == 0 => findings.push(Finding::unknown(
            &subject,
            format!("{} is empty: no way could be tried", file.path.display()),
        )),
        Ok(file) => {
            findings.extend(judge_ways(&subject, path, file));
            findings.extend(judge_rates(&subject, path, file, gpu));
        }
        Err(reason)
            if path.kind == PathKind::Folder && path.below.is_some_and(|b| b.files == 0) =>
        {
            findings.push(Finding::unknown(&subject, format!("{reason}: no way could be tried")));
        }
        Err(reason) => findings.push(Finding::broken(
            &subject,
            // The reason names the file; for the path itself once is enough.
            reason.strip_prefix(&format!("{subject}: ")).unwrap_or(reason),
            "nothing can be read from it",
            "run as a user that may read it, or change its permissions (chmod, chown)",
        )),
    }
    findings.extend(path.write.as_ref().and_then(|probe| judge_write(&subject, probe)));
    findings
}

fn not_there(subject: &str, path: &PathFacts) -> Option<Finding> {
    match &path.kind {
        PathKind::Missing => Some(Finding::broken(
            subject,
            "there is no such file or folder",
            "nothing can be read from it",
            "check the spelling, and whether the filesystem is mounted: findmnt",
        )),
        PathKind::Unreachable(reason) => Some(Finding::broken(
            subject,
            reason,
            "nothing can be read from it",
            "check the permissions of the folders on the way (namei -l PATH), and for a network \
             mount whether its server answers",
        )),
        PathKind::Other => Some(Finding::broken(
            subject,
            "neither a file, nor a folder, nor a block device",
            "it cannot be read at any offset",
            "name a file, a folder of files or a block device",
        )),
        PathKind::File | PathKind::Folder | PathKind::BlockDevice => None,
    }
}

/// What worked, what did not, and whether that matters.
fn judge_ways(subject: &str, path: &PathFacts, file: &FileFact) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut host_ways = 0;
    for probe in &path.access {
        match &probe.outcome {
            Outcome::Wrong { what } => findings.push(wrong(subject, probe, what)),
            Outcome::Works { .. } => host_ways += usize::from(probe.way.gpu().is_none()),
            Outcome::NotTried { .. } => {}
            Outcome::Refused { reason, remedy } => {
                let remedy = remedy.as_deref().unwrap_or_default();
                findings.extend(refused(subject, path, file, probe.way, reason, remedy));
            }
        }
    }
    if host_ways > 0 && findings.is_empty() {
        findings
            .push(Finding::ok(subject, format!("read by {host_ways} ways with the same bytes")));
    }
    findings.extend(not_tried(subject, path));
    findings
}

/// One finding for all access paths that were not tried for the same reason.
fn not_tried(subject: &str, path: &PathFacts) -> Vec<Finding> {
    let mut ways_by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for probe in &path.access {
        if let Outcome::NotTried { reason } = &probe.outcome {
            ways_by_reason.entry(reason).or_default().push(probe.way.to_string());
        }
    }
    ways_by_reason
        .iter()
        .map(|(reason, ways)| {
            Finding::unknown(subject, format!("not tried ({}): {reason}", ways.join("; ")))
        })
        .collect()
}

fn wrong(subject: &str, probe: &AccessProbe, what: &str) -> Finding {
    Finding::broken(
        subject,
        format!("{} delivered wrong bytes: {what}", probe.way),
        "answers would be wrong",
        "do not use this storage or GPU before the cause is found: dmesg, smartctl -a, nvidia-smi -q \
         -d ECC; and make sure that nobody writes to the file meanwhile",
    )
}

fn refused(
    subject: &str,
    path: &PathFacts,
    file: &FileFact,
    way: Way,
    reason: &str,
    remedy: &str,
) -> Option<Finding> {
    let found = format!("{way}: {reason}");
    match way {
        Way::Automatic | Way::Buffered => Some(Finding::broken(
            subject,
            found,
            "the file cannot be read",
            or(remedy, "dmesg says more about a failing device or file server"),
        )),
        Way::Mapped => Some(Finding::slow(
            subject,
            found,
            "what lies in memory already is copied instead of being used in place",
            remedy,
        )),
        Way::DirectThreads if file.memory_backed => None,
        Way::DirectThreads => Some(Finding::slow(
            subject,
            found,
            "cold data passes the page cache: one more copy by the processor, and other data is \
             pushed out of memory",
            or(remedy, direct_remedy(&file.filesystem)),
        )),
        // Where O_DIRECT itself is refused, that was said; where io_uring is, the machine's
        // findings say it. Only a refusal of neither is news.
        Way::Uring | Way::GpuSlotsDirect(_) => None,
        Way::GpuSlotsBuffered(_) => {
            Some(Finding::broken(subject, found, "the file cannot be brought to the GPU", remedy))
        }
        Way::GpuRegistered(_) if file.memory_backed => Some(Finding::slow(
            subject,
            found,
            "a file in memory is copied into pinned slots before the GPU copies it again",
            remedy,
        )),
        Way::GpuRegistered(_) => None,
        Way::GpuCuFile(_) if file.memory_backed => None,
        Way::GpuCuFile(_) => cufile_refused(subject, path, &found, remedy),
        Way::Write => None,
    }
}

/// Without cuFile, bytes pass through host memory. That matters only if that path is the slower
/// one.
fn cufile_refused(subject: &str, path: &PathFacts, found: &str, remedy: &str) -> Option<Finding> {
    let host = path.best_gb_per_s_over(JUDGED_BYTES_MIN, Way::is_direct)?;
    let slots =
        path.best_gb_per_s_over(JUDGED_BYTES_MIN, |way| matches!(way, Way::GpuSlotsDirect(_)))?;
    (slots < KEEPS_UP_SHARE * host).then(|| {
        Finding::slow(
            subject,
            format!("{found}; through pinned slots {slots:.2} of {host:.2} GB/s reach the GPU"),
            "GPUDirect Storage would spare the way through host memory",
            remedy,
        )
    })
}

/// How to enable O_DIRECT, by filesystem.
fn direct_remedy(filesystem: &str) -> &'static str {
    match filesystem {
        "overlay" | "overlayfs" => {
            "keep the data outside of the container's image: a volume or bind mount (docker -v \
             /data:/data) of ext4 or xfs"
        }
        "zfs" => "OpenZFS 2.3 or later with: zfs set direct=standard DATASET",
        "btrfs" => {
            "rewrite the file uncompressed and without checksums: chattr +C on an empty folder, then \
             copy it there"
        }
        "fuse" | "fuseblk" | "virtiofs" | "9p" | "fuse.sshfs" | "fuse.s3fs" => {
            "mount the data by a filesystem of the kernel (NFS, ext4, xfs)"
        }
        "ext4" | "xfs" => {
            "look for data journaling or encryption of this file: findmnt -o OPTIONS, lsattr, dmesg"
        }
        _ => "keep the tables on ext4 or xfs",
    }
}

/// Comparison of the measured rates.
fn judge_rates(subject: &str, path: &PathFacts, file: &FileFact, gpu: &GpuFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    // O_DIRECT on a file in memory is a copy under another name: nobody takes that way.
    if !file.memory_backed {
        findings.extend(automatic(subject, path).or_else(|| ring_below_threads(subject, path)));
    }
    findings.extend(below_earlier(subject, path, file));
    for device in &gpu.devices {
        findings.extend(reaches_gpu(subject, path, file, device.ordinal, device.h2d_gb_per_s()));
    }
    findings
}

fn automatic(subject: &str, path: &PathFacts) -> Option<Finding> {
    let probe = path.access.iter().find(|probe| probe.way == Way::Automatic)?;
    let rate = path.best_gb_per_s_over(JUDGED_BYTES_MIN, |way| way == Way::Automatic)?;
    let Outcome::Works { taken, reasons, .. } = &probe.outcome else { return None };
    // Only like with like: what was in the page cache then may be faster than any drive.
    if !taken.contains("O_DIRECT") {
        return None;
    }
    let best = path.best_gb_per_s_over(JUDGED_BYTES_MIN, Way::is_direct)?;
    (rate < AUTOMATIC_SHARE_MIN * best).then(|| {
        Finding::slow(
            subject,
            format!("the automatic choice ({taken}) reached {rate:.2} of {best:.2} GB/s"),
            "queries take the automatic choice",
            match reasons.first() {
                Some(reason) => format!("it says: {reason}"),
                None => "measure longer: headrace bench io --sweep PATH; then force it with --access direct"
                    .to_string(),
            },
        )
    })
}

/// Cold queries use io_uring if it is available.
fn ring_below_threads(subject: &str, path: &PathFacts) -> Option<Finding> {
    let rate = |wanted| path.best_gb_per_s_over(JUDGED_BYTES_MIN, |way| way == wanted);
    let (ring, threads) = (rate(Way::Uring)?, rate(Way::DirectThreads)?);
    (ring < AUTOMATIC_SHARE_MIN * threads).then(|| {
        Finding::slow(
            subject,
            format!("io_uring reached {ring:.2} GB/s, threads {threads:.2} GB/s, both by O_DIRECT"),
            "cold queries read through io_uring where it can be had",
            "measure longer, and with other sizes: headrace bench io --sweep --cold --path \
             uring,direct PATH",
        )
    })
}

/// Comparison with the record of ceilings for this storage.
fn below_earlier(subject: &str, path: &PathFacts, file: &FileFact) -> Option<Finding> {
    let earlier = path.earlier_gb_per_s?;
    let now = path.best_gb_per_s_over(JUDGED_BYTES_MIN, Way::is_direct)?;
    let says_something = !file.memory_backed && !file.has_holes();
    (says_something && now < AUTOMATIC_SHARE_MIN * earlier).then(|| {
        Finding::slow(
            subject,
            format!("{now:.2} GB/s now, {earlier:.2} GB/s lately"),
            "something holds the storage up that did not before",
            "iostat -x 1 shows who else uses it; smartctl -a shows heat and wear; fstrim -v helps \
             drives that are full",
        )
    })
}

/// Whether a GPU is fed as fast as the slower of source and link allows.
fn reaches_gpu(
    subject: &str,
    path: &PathFacts,
    file: &FileFact,
    ordinal: usize,
    h2d: Option<f64>,
) -> Option<Finding> {
    let to_gpu = path.best_gb_per_s_over(JUDGED_GPU_BYTES_MIN, |way| way.gpu() == Some(ordinal))?;
    let h2d = h2d?;
    // What lies in memory is limited by the link alone; a drive by itself as well.
    let source = match file.memory_backed {
        true => f64::INFINITY,
        false => path.best_gb_per_s(|way| way.gpu().is_none())?,
    };
    let possible = h2d.min(source);
    let found = format!("{to_gpu:.2} of {possible:.2} GB/s reach gpu {ordinal}");
    if to_gpu >= KEEPS_UP_SHARE * possible {
        return Some(Finding::ok(subject, found));
    }
    Some(Finding::slow(
        subject,
        found,
        "the GPU waits although storage and link could give more",
        "find the chunk size, threads and slots that suit this machine: headrace bench io --to gpu \
         --sweep PATH",
    ))
}

fn judge_write(subject: &str, probe: &AccessProbe) -> Option<Finding> {
    match &probe.outcome {
        Outcome::Works { gb_per_s, .. } => {
            Some(Finding::ok(subject, format!("can be written: {}", rate_text(gb_per_s))))
        }
        Outcome::Wrong { what } => Some(wrong(subject, probe, what)),
        Outcome::Refused { reason, remedy } => Some(Finding::broken(
            subject,
            format!("cannot be written: {reason}"),
            "tables and spilled data cannot be kept here",
            or(
                remedy.as_deref().unwrap_or_default(),
                "check the permissions, the mount options (findmnt -T PATH) and the free space (df)",
            ),
        )),
        Outcome::NotTried { reason } => {
            Some(Finding::unknown(subject, format!("writing was not tried: {reason}")))
        }
    }
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}
