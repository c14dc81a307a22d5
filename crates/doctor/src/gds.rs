//! What this machine has of GPUDirect Storage: a table of its conditions, by the three ways that bypass host memory.
//!
//! - `nvidia-fs`: NVIDIA's kernel module hooks into storage modules that were built with `nvfs_ops`.
//! - `P2PDMA`: the kernel's own peer transfers, with the open NVIDIA module, from NVMe drives.
//! - `NFS-RDMA`: `nvidia-fs`, hooked into `rpcrdma`.
//!
//! A way is open if nothing that it needs is missing. Whether a file goes that way is known once cuFile has read it: its
//! counters are the last row.

use headrace_io::system::PciAddress;
use serde::Serialize;

use crate::facts::{Facts, GpuFact, PathFacts};

/// How bytes go from storage to a GPU without host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GdsWay {
    /// NVIDIA's kernel module.
    NvidiaFs,
    /// The kernel's peer transfers.
    P2pdma,
    /// NVIDIA's kernel module over NFS with RDMA.
    NfsRdma,
}

impl GdsWay {
    /// All of them, in the order of the table's columns.
    pub const ALL: [GdsWay; 3] = [GdsWay::NvidiaFs, GdsWay::P2pdma, GdsWay::NfsRdma];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            GdsWay::NvidiaFs => "nvidia-fs",
            GdsWay::P2pdma => "P2PDMA",
            GdsWay::NfsRdma => "NFS-RDMA",
        }
    }
}

/// Whether a condition is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Met {
    /// It is.
    Yes,
    /// Nobody can tell.
    Unknown,
    /// It is not.
    No,
}

impl Met {
    fn of<T, E>(fact: Result<T, E>, is_met: impl FnOnce(T) -> bool) -> Met {
        match fact.map(is_met) {
            Ok(true) => Met::Yes,
            Ok(false) => Met::No,
            Err(_) => Met::Unknown,
        }
    }

    /// As the table has it.
    pub fn word(self) -> &'static str {
        match self {
            Met::Yes => "yes",
            Met::Unknown => "?",
            Met::No => "no",
        }
    }
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GdsRow {
    /// What is needed.
    pub what: String,
    /// Whether it is here, for each way that needs it.
    pub met: Vec<(GdsWay, Met)>,
    /// What is here.
    pub here: String,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gds {
    /// The conditions, from the GPU to the storage.
    pub rows: Vec<GdsRow>,
    /// Each way, and whether all that it needs is here.
    pub ways: Vec<(GdsWay, Met)>,
    /// What cuFile did, and the proof.
    pub taken: String,
}

/// The table of a machine and its paths.
pub fn gds(facts: &Facts) -> Gds {
    let mut rows = vec![gpus(facts), cufile(facts)];
    rows.extend(kernel(facts));
    rows.push(iommu(facts));
    rows.push(rdma(facts));
    let paths: Vec<GdsRow> = facts.paths.iter().map(path).collect();
    let together = |way| {
        let needed = of_way(&rows, way).max().unwrap_or(Met::Unknown);
        // One path is enough; without any the machine is judged.
        let reached = match facts.paths.is_empty() {
            true => Met::Yes,
            false => of_way(&paths, way).min().unwrap_or(Met::No),
        };
        (way, needed.max(reached))
    };
    let ways = GdsWay::ALL.map(together).to_vec();
    rows.extend(paths);
    Gds { ways, taken: taken(facts), rows }
}

fn of_way(rows: &[GdsRow], way: GdsWay) -> impl Iterator<Item = Met> {
    let met = rows.iter().flat_map(|row| &row.met).filter(move |(of, _)| *of == way);
    met.map(|(_, met)| *met)
}

fn row(what: impl Into<String>, ways: &[GdsWay], met: Met, here: impl Into<String>) -> GdsRow {
    let met = ways.iter().map(|way| (*way, met)).collect();
    GdsRow { what: what.into(), met, here: here.into() }
}

fn gpus(facts: &Facts) -> GdsRow {
    let gpu = |gpu: &GpuFact| {
        let address = gpu.address.value().map(PciAddress::to_string);
        let window = match gpu.window_bytes.as_result() {
            Ok(bytes) => format!("BAR1 {} MiB", bytes >> 20),
            Err(reason) => format!("BAR1 unknown: {reason}"),
        };
        format!("{} at {}, {window}", gpu.name, address.unwrap_or_else(|| "?".into()))
    };
    let all: Vec<String> = facts.gpu.devices.iter().map(gpu).collect();
    let none = || facts.gpu.no_device.clone().unwrap_or_else(|| "no GPU".into());
    let here = if all.is_empty() { first_line(&none()).to_string() } else { all.join("; ") };
    row("GPU", &GdsWay::ALL, if all.is_empty() { Met::No } else { Met::Yes }, here)
}

fn cufile(facts: &Facts) -> GdsRow {
    let library = facts.gpu.cufile.library.as_result();
    let here = match library {
        Ok(version) => version.clone(),
        Err(reason) => first_line(reason).to_string(),
    };
    row("cuFile", &GdsWay::ALL, if library.is_ok() { Met::Yes } else { Met::No }, here)
}

fn kernel(facts: &Facts) -> Vec<GdsRow> {
    let kernel = &facts.machine.kernel;
    let p2pdma = &kernel.p2pdma;
    let modules = kernel.nvfs.as_ref();
    let loaded = Met::of(modules, |modules| modules.nvidia_fs.is_some());
    let version = match modules {
        Ok(modules) => modules.nvidia_fs.clone().unwrap_or_else(|| "not loaded".into()),
        Err(unknown) => unknown.to_string(),
    };
    // What is built in has its hooks in the kernel itself.
    let hooks = |module: &str| {
        let met = Met::of(modules, |modules| {
            modules.has(module).or_else(|| modules.has("vmlinux")) == Some(true)
        });
        let here = match modules.map(|modules| modules.has(module)) {
            Ok(Some(true)) => "with nvfs_ops".to_string(),
            Ok(Some(false)) => "without nvfs_ops: not built for nvidia-fs".to_string(),
            Ok(None) if met == Met::Yes => "built in, with nvfs_ops".to_string(),
            Ok(None) => "not loaded".to_string(),
            Err(unknown) => unknown.to_string(),
        };
        (met, here)
    };
    let (nvme, nvme_here) = hooks("nvme");
    let (rpcrdma, rpcrdma_here) = hooks("rpcrdma");
    let in_kernel = Met::of(p2pdma.in_kernel.as_ref(), |is| *is);
    let is_open = |line: &String| line.contains("Open Kernel Module");
    let said = |fact: &Result<String, _>, empty: &str| match fact {
        Ok(text) if text.is_empty() => empty.to_string(),
        Ok(text) => text.clone(),
        Err(unknown) => ToString::to_string(unknown),
    };
    let release = kernel.release.as_ref().map_or_else(ToString::to_string, Clone::clone);
    let built = match in_kernel {
        Met::Yes => "with CONFIG_PCI_P2PDMA".to_string(),
        Met::No => "without CONFIG_PCI_P2PDMA".to_string(),
        Met::Unknown => "its symbols are hidden".to_string(),
    };
    vec![
        row("nvidia-fs", &[GdsWay::NvidiaFs, GdsWay::NfsRdma], loaded, version),
        row("module nvme", &[GdsWay::NvidiaFs], nvme, nvme_here),
        row("module rpcrdma", &[GdsWay::NfsRdma], rpcrdma, rpcrdma_here),
        row("kernel", &[GdsWay::P2pdma], in_kernel, format!("{release}, {built}")),
        row(
            "open NVIDIA module",
            &[GdsWay::P2pdma],
            Met::of(p2pdma.nvidia_module.as_ref(), is_open),
            said(&p2pdma.nvidia_module, "no version"),
        ),
        // Which settings peer transfers need depends on the driver's version.
        row("its RegistryDwords", &[], Met::Unknown, said(&p2pdma.nvidia_registry, "unset")),
    ]
}

/// Translation makes peers unreachable; passing through does not.
fn iommu(facts: &Facts) -> GdsRow {
    let iommu = &facts.machine.iommu;
    let groups = |is: fn(&str) -> bool| -> u32 {
        iommu.groups_by_kind.iter().filter(|(kind, _)| is(kind)).map(|(_, groups)| groups).sum()
    };
    let translated = groups(|kind| !matches!(kind, "identity" | "unknown"));
    let unknown = groups(|kind| kind == "unknown");
    let here = match (iommu.units.is_empty(), translated) {
        (true, _) => "off".to_string(),
        (false, 0) if unknown > 0 => format!("{unknown} groups of devices of unknown kind"),
        (false, 0) => "passes through".to_string(),
        (false, groups) => {
            format!("translates {groups} groups of devices: iommu=pt passes through")
        }
    };
    let met = match (iommu.units.is_empty(), translated, unknown) {
        (true, _, _) | (false, 0, 0) => Met::Yes,
        (false, 0, _) => Met::Unknown,
        _ => Met::No,
    };
    row("IOMMU", &[GdsWay::NvidiaFs, GdsWay::P2pdma], met, here)
}

fn rdma(facts: &Facts) -> GdsRow {
    let devices = &facts.machine.rdma_devices;
    let here = if devices.is_empty() { "none".to_string() } else { devices.join(", ") };
    row(
        "RDMA devices",
        &[GdsWay::NfsRdma],
        if devices.is_empty() { Met::No } else { Met::Yes },
        here,
    )
}

/// Filesystems that cuFile reads from past host memory, from local drives.
const FILESYSTEMS: [&str; 2] = ["ext4", "xfs"];

fn path(path: &PathFacts) -> GdsRow {
    let home = &path.home;
    let what = format!("path {}", path.path.display());
    let Ok(mount) = &home.mount else {
        return row(what, &GdsWay::ALL, Met::Unknown, "its mount is not known");
    };
    if let Some(nfs) = &home.nfs {
        let proto = nfs.proto.as_deref().unwrap_or("?");
        let met = if proto.starts_with("rdma") { Met::Yes } else { Met::No };
        return row(what, &[GdsWay::NfsRdma], met, format!("{}, proto={proto}", mount.filesystem));
    }
    let drives: Vec<&str> = home.devices.iter().map(|device| device.name.as_str()).collect();
    let are_nvme = !drives.is_empty() && drives.iter().all(|name| name.starts_with("nvme"));
    let is_known = FILESYSTEMS.contains(&mount.filesystem.as_str());
    let met = if are_nvme && is_known { Met::Yes } else { Met::No };
    let on = if drives.is_empty() { "no drive".to_string() } else { drives.join(", ") };
    row(what, &[GdsWay::NvidiaFs, GdsWay::P2pdma], met, format!("{} on {on}", mount.filesystem))
}

fn taken(facts: &Facts) -> String {
    let cufile = &facts.gpu.cufile;
    match cufile.mode.as_result() {
        Err(reason) => format!("cuFile read nothing: {}", first_line(reason)),
        Ok(mode) if cufile.proven => format!("{mode} ({})", cufile.evidence.join(", ")),
        Ok(mode) => format!("{mode}, as far as its driver says; name a path to have it proven"),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The table in lines.
pub fn render_gds(gds: &Gds) -> String {
    let width = gds.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0).max(12);
    let line = |what: &str, words: [&str; 3], here: &str| {
        let [first, second, third] = words;
        let text = format!("{what:<width$}  {first:<9}  {second:<6}  {third:<8}  {here}");
        format!("{}\n", text.trim_end())
    };
    let word = |met: &[(GdsWay, Met)], way| {
        met.iter().find(|(of, _)| *of == way).map_or("-", |(_, met)| met.word())
    };
    let words = |met: &[(GdsWay, Met)]| GdsWay::ALL.map(|way| word(met, way));
    let mut out = line("", GdsWay::ALL.map(GdsWay::name), "here");
    for row in &gds.rows {
        out += &line(&row.what, words(&row.met), &row.here);
    }
    out += &line("all together", words(&gds.ways), "");
    out + &format!("\n{:<width$}  {}\n", "taken", gds.taken)
}
