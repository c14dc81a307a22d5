//! Which path the bytes really take, and how that is known.
//!
//! cuFile takes one of three paths and does not say which: nvidia-fs moves the bytes from the drive
//! into the GPU (GPUDirect Storage), the kernel's PCI peer-to-peer DMA does so for NVMe drives
//! without nvidia-fs, or the library reads into host memory and copies (compatibility mode).
//! Observable from outside:
//!
//! | fact | where |
//! |---|---|
//! | nvidia-fs is loaded | `/proc/driver/nvidia-fs/version`; the driver's version in cuFile's properties |
//! | it moved something | the `Reads`/`Writes` lines of `/proc/driver/nvidia-fs/stats`; compatibility mode and peer-to-peer DMA are not counted there |
//! | what kinds of storage are supported | status flags in cuFile's properties |
//! | compatibility mode is forced, peer-to-peer DMA switched on | cuFile's parameters |
//! | how many reads and writes went each way | cuFile's statistics of level 3 |
//!
//! Counted operations prove a mode; everything else only shows what is possible.
//!
//! Compatibility mode is a copy through host memory, slower than the ring, so Headrace takes it only when it is
//! forced.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// The path of bytes between storage and the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum CuFileModeKind {
    /// nvidia-fs: from the drive straight into the GPU.
    Gds,
    /// PCI peer-to-peer DMA of the kernel: from an NVMe drive straight into the GPU.
    P2pDma,
    /// Compatibility mode: read into host memory by the CPU, then copied.
    Compatibility,
    /// More than one of them was used.
    Mixed,
}

/// A mode and how it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CuFileMode {
    /// The mode.
    pub kind: CuFileModeKind,
    /// Whether operations on this path were counted. Otherwise the mode is what the driver's state
    /// makes possible.
    pub proven: bool,
    /// The observations, one sentence each.
    pub evidence: Vec<String>,
}

/// Reads and writes by path, since counting began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CuFileCounts {
    /// Through nvidia-fs.
    pub gds: u64,
    /// Through peer-to-peer DMA.
    pub p2p: u64,
    /// Through host memory.
    pub posix: u64,
}

/// nvidia-fs as /proc shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NvidiaFs {
    /// The module's version line.
    pub version: String,
    /// Device nodes that the module asks for (`devcount`).
    pub device_count: u64,
    /// Reads since the module was loaded, of all processes.
    pub reads: u64,
    /// Writes since the module was loaded, of all processes.
    pub writes: u64,
}

impl NvidiaFs {
    /// What `folder` (normally `/proc/driver/nvidia-fs`) shows; `None` without the module.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let text = |name| fs::read_to_string(folder.join(name)).ok();
        let version = text("version")?.lines().next().unwrap_or_default().trim().to_string();
        let stats = text("stats").unwrap_or_default();
        Some(Self {
            version,
            device_count: text("devcount").and_then(|t| t.trim().parse().ok()).unwrap_or(0),
            reads: operations(&stats, "Reads"),
            writes: operations(&stats, "Writes"),
        })
    }
}

/// The `n=` of the first line of nvidia-fs's statistics that begins with `label`.
fn operations(stats: &str, label: &str) -> u64 {
    stats
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.trim() == label)
        .flat_map(|(_, values)| values.split_whitespace())
        .find_map(|word| word.strip_prefix("n=").and_then(|number| number.parse().ok()))
        .unwrap_or(0)
}

/// The facts when a mode is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// nvidia-fs's version in cuFile's properties; (0, 0) without the module.
    pub(crate) driver_version: (u32, u32),
    /// Names of the supported kinds of storage, from the status flags.
    pub(crate) supported: Vec<&'static str>,
    /// Whether NVMe peer-to-peer DMA is among them.
    pub(crate) p2p_supported: bool,
    /// cuFile's parameter, if available.
    pub(crate) forced_compatibility: Option<bool>,
    /// cuFile's parameter, if available.
    pub(crate) p2p_switched_on: Option<bool>,
    /// Operations counted by cuFile, where it counts.
    pub(crate) counts: Option<CuFileCounts>,
}

impl Facts {
    pub(crate) fn judge(&self) -> CuFileMode {
        let evidence = self.evidence();
        if let Some(kind) = self.counts.and_then(counted_kind) {
            return CuFileMode { kind, proven: true, evidence };
        }
        let kind = if self.forced_compatibility == Some(true) {
            CuFileModeKind::Compatibility
        } else if self.driver_version != (0, 0) {
            CuFileModeKind::Gds
        } else if self.p2p_supported && self.p2p_switched_on != Some(false) {
            CuFileModeKind::P2pDma
        } else {
            CuFileModeKind::Compatibility
        };
        CuFileMode { kind, proven: false, evidence }
    }

    fn evidence(&self) -> Vec<String> {
        let mut evidence = Vec::new();
        match self.driver_version {
            (0, 0) => evidence.push("cuFile reports no nvidia-fs driver".to_string()),
            (major, minor) => evidence.push(format!("cuFile reports nvidia-fs {major}.{minor}")),
        }
        if self.supported.is_empty() {
            evidence.push("cuFile reports no kind of storage with direct access".to_string());
        } else {
            evidence.push(format!("direct access is supported for {}", self.supported.join(", ")));
        }
        if self.forced_compatibility == Some(true) {
            evidence.push("force_compat_mode is on".to_string());
        }
        if self.p2p_switched_on == Some(true) {
            evidence.push("use_pci_p2pdma is on".to_string());
        }
        evidence.push(match self.counts {
            Some(CuFileCounts { gds, p2p, posix }) => format!(
                "cuFile counted {gds} operations through nvidia-fs, {p2p} by peer-to-peer DMA, \
                 {posix} through host memory"
            ),
            None => "cuFile does not count operations by way".to_string(),
        });
        evidence
    }
}

/// The only path that was counted; `None` when nothing was.
fn counted_kind(counts: CuFileCounts) -> Option<CuFileModeKind> {
    let ways = [
        (counts.gds, CuFileModeKind::Gds),
        (counts.p2p, CuFileModeKind::P2pDma),
        (counts.posix, CuFileModeKind::Compatibility),
    ];
    let used: Vec<_> = ways.iter().filter(|(count, _)| *count > 0).collect();
    match used.as_slice() {
        [] => None,
        [(_, kind)] => Some(*kind),
        _ => Some(CuFileModeKind::Mixed),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const STATS: &str = "GDS Version: 1.10.0.4 \n\
        NVFS statistics(ver: 4.0)\n\
        Active Process: 0\n\
        Reads\t\t\t\t: n=12 ok=12 err=0 readMiB=24 io_state_err=0\n\
        Reads\t\t\t\t: Bandwidth(MiB/s)=0 Avg-Latency(usec)=0\n\
        Sparse Reads\t\t        : n=99 io=0 holes=0 pages=0 \n\
        Writes\t\t\t\t: n=3 ok=3 err=0 writeMiB=1\n";

    #[test]
    fn counted_operations_prove_a_mode() {
        let facts = |gds, p2p, posix| Facts {
            counts: Some(CuFileCounts { gds, p2p, posix }),
            driver_version: (2, 26),
            ..Facts::default()
        };
        let kind = |facts: Facts| {
            let mode = facts.judge();
            (mode.kind, mode.proven)
        };
        assert_eq!(kind(facts(5, 0, 0)), (CuFileModeKind::Gds, true));
        assert_eq!(kind(facts(0, 1, 0)), (CuFileModeKind::P2pDma, true));
        // A driver that could do better does not mean that it did.
        assert_eq!(kind(facts(0, 0, 7)), (CuFileModeKind::Compatibility, true));
        assert_eq!(kind(facts(1, 0, 7)), (CuFileModeKind::Mixed, true));
        assert_eq!(kind(facts(0, 0, 0)), (CuFileModeKind::Gds, false));
    }

    #[test]
    fn without_counts_the_drivers_state_says_what_is_possible() {
        let mode = Facts::default().judge();
        assert_eq!((mode.kind, mode.proven), (CuFileModeKind::Compatibility, false));
        let p2p = Facts { p2p_supported: true, supported: vec!["NVMe P2P"], ..Facts::default() };
        assert_eq!(p2p.judge().kind, CuFileModeKind::P2pDma);
        assert!(p2p.judge().evidence.iter().any(|fact| fact.contains("NVMe P2P")));
        let off = Facts { p2p_switched_on: Some(false), ..p2p };
        assert_eq!(off.judge().kind, CuFileModeKind::Compatibility);
        let forced =
            Facts { driver_version: (2, 26), forced_compatibility: Some(true), ..Facts::default() };
        assert_eq!(forced.judge().kind, CuFileModeKind::Compatibility);
    }

    #[test]
    fn the_modules_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(NvidiaFs::read(folder.path()), None);
        fs::write(folder.path().join("version"), "version: 2.26\n").unwrap();
        fs::write(folder.path().join("devcount"), "16\n").unwrap();
        fs::write(folder.path().join("stats"), STATS).unwrap();
        let found = NvidiaFs::read(folder.path()).unwrap();
        assert_eq!(found.version, "version: 2.26");
        assert_eq!((found.device_count, found.reads, found.writes), (16, 12, 3));
    }
}
