//! The GPUs of this machine, with their properties and the content of their memory.

use std::fmt::Write;
use std::path::PathBuf;

use headrace_gpu::{CubinCache, Device, DeviceInfo, Property};
use headrace_io::system::{PciAddress, SysRoot};
use serde::{Serialize, Serializer};

use crate::facts::{CuFileFact, DeviceMemoryFact, Known};
use crate::gpu::{cufile_fact, device_memory_fact, driver_fact, nvrtc_fact};
use crate::system::{PciLink, pci_link};

/// The facts.
#[derive(Debug, Clone, Serialize)]
pub struct GpusReport {
    /// The CUDA version that the driver supports.
    pub driver: Known<String>,
    /// Version and file of the run-time compiler.
    pub nvrtc: Known<String>,
    /// cuFile.
    pub cufile: CuFileFact,
    /// Why no device can be used; absent if one can.
    pub no_device: Option<String>,
    /// The devices.
    pub devices: Vec<GpuEntry>,
    /// Cached compiled kernels.
    pub kernels: CubinFolder,
}

/// A device.
#[derive(Debug, Clone, Serialize)]
pub struct GpuEntry {
    /// Position among the devices visible to this process.
    pub ordinal: usize,
    /// The product's name.
    pub name: String,
    /// Its current link to the port above it: idle devices slow theirs down.
    pub link: Known<PciLink>,
    /// Current device memory. Used memory is other processes' use, plus the context of this query
    /// (some hundreds of megabytes). Columns stay resident only while the process that streamed
    /// them lives, so none of them are this process's.
    pub memory: Known<DeviceMemoryFact>,
    /// All of the driver's properties.
    pub properties: Vec<Property>,
}

/// The folder of compiled kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CubinFolder {
    /// The folder; absent if kernels cannot be cached.
    #[serde(serialize_with = "lossy")]
    pub folder: Option<PathBuf>,
    /// Kernels in it.
    pub kernels: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Queries the driver and its devices; opens each of them briefly.
pub fn look() -> GpusReport {
    let root = SysRoot::host();
    let probe = headrace_gpu::probe();
    GpusReport {
        driver: driver_fact(&probe),
        nvrtc: nvrtc_fact(&probe),
        cufile: cufile_fact(),
        devices: probe.devices.iter().map(|info| entry(&root, info)).collect(),
        no_device: probe.reason,
        kernels: kernels(CubinCache::open_default().folder().map(PathBuf::from)),
    }
}

fn entry(root: &SysRoot, info: &DeviceInfo) -> GpuEntry {
    let link = match info.pcie_id.parse::<PciAddress>() {
        Ok(address) => pci_link(root, &address).into(),
        Err(error) => Known::unknown(error),
    };
    GpuEntry {
        ordinal: info.ordinal,
        name: info.name.clone(),
        link,
        memory: match Device::open(info.ordinal) {
            Ok(device) => device_memory_fact(&device),
            Err(error) => Known::unknown(error),
        },
        properties: info.properties(),
    }
}

/// Counts the kernels of a folder; a missing folder has none.
fn kernels(folder: Option<PathBuf>) -> CubinFolder {
    let entries = folder.as_ref().and_then(|folder| std::fs::read_dir(folder).ok());
    let sizes = entries
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "cubin"))
        .filter_map(|entry| Some(entry.metadata().ok()?.len()));
    let (kernels, bytes) = sizes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
    CubinFolder { folder, kernels, bytes }
}

/// The readable report.
pub fn render(report: &GpusReport) -> String {
    let mut out = String::new();
    line(&mut out, "driver", &said(&report.driver));
    line(&mut out, "nvrtc", &said(&report.nvrtc));
    let cufile = match (&report.cufile.library, &report.cufile.mode) {
        (Known::Value(version), Known::Value(mode)) => format!("{version}, {mode}"),
        (library, _) => said(library),
    };
    line(&mut out, "cufile", &cufile);
    let kept = &report.kernels;
    let kernels = match &kept.folder {
        Some(folder) => format!(
            "{} kept, {:.1} MB in {}",
            kept.kernels,
            kept.bytes as f64 / 1e6,
            folder.display()
        ),
        None => "none kept: HEADRACE_CACHE, XDG_CACHE_HOME and HOME are unset".to_string(),
    };
    line(&mut out, "kernels", &kernels);
    if let Some(reason) = &report.no_device {
        line(&mut out, "gpu", &format!("none: {}", first_line(reason)));
        if let Some((_, hint)) = reason.split_once("hint: ") {
            line(&mut out, "", &format!("hint: {}", hint.trim()));
        }
    }
    for device in &report.devices {
        render_device(&mut out, device);
    }
    out
}

fn render_device(out: &mut String, device: &GpuEntry) {
    line(out, "", "");
    line(out, &format!("gpu {}", device.ordinal), &device.name);
    let memory = match device.memory.as_result() {
        Ok(memory) => format!(
            "{:.2} of {:.2} GB in use, this process's context included; no column resident (they \
             live as long as the process that streams them)",
            (memory.total_bytes - memory.free_bytes.min(memory.total_bytes)) as f64 / 1e9,
            memory.total_bytes as f64 / 1e9
        ),
        Err(reason) => format!("unknown: {}", first_line(reason)),
    };
    let link = match device.link.as_result() {
        Ok(link) => format!(
            "PCIe {} x{} now, {} x{} at best",
            link.generation().map_or_else(|| "?".to_string(), |number| number.to_string()),
            link.width,
            link.max_generation().map_or_else(|| "?".to_string(), |number| number.to_string()),
            link.max_width
        ),
        Err(reason) => format!("unknown: {reason}"),
    };
    let mut rows = vec![("memory", memory), ("link", link)];
    rows.extend(device.properties.iter().map(|property| (property.name, property.value.clone())));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {name:<width$}  {value}");
    }
}

fn said(fact: &Known<String>) -> String {
    match fact.as_result() {
        Ok(text) => text.clone(),
        Err(reason) => first_line(reason).to_string(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn line(out: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}", format!("{name:<8} {value}").trim_end());
}

fn lossy<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.collect_str(&path.display()),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn without_a_gpu_the_report_says_why() {
        let report = look();
        let text = render(&report);
        match &report.no_device {
            Some(reason) => assert!(text.contains(first_line(reason)), "{text}"),
            None => assert!(text.contains(&report.devices[0].name), "{text}"),
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["devices"].as_array().unwrap().len(), report.devices.len());
        assert!(json["kernels"]["kernels"].is_u64());
    }

    #[test]
    fn only_whole_kernels_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.cubin"), [0u8; 10]).unwrap();
        std::fs::write(dir.path().join("b.cubin"), [0u8; 30]).unwrap();
        std::fs::write(dir.path().join(".c.1.tmp"), [0u8; 500]).unwrap();
        let found = kernels(Some(dir.path().to_path_buf()));
        assert_eq!((found.kernels, found.bytes), (2, 40));
        let none = kernels(Some(dir.path().join("none")));
        assert_eq!((none.kernels, none.bytes), (0, 0));
    }
}
