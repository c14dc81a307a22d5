//! Figures of devices on the market, for sizing a machine that has not been measured.
//!
//! Drives: sequential rates and random 4 KiB reads as stated by their makers, for the fastest
//! capacity; writes are those of an empty drive. GPUs: stated memory bandwidth, not the reached one
//! (kernels get some 90% of it: 4.24 of 4.8 TB/s by a device copy on an H200). Links: from the
//! standard, times the share of it that copies reached in measurements. Measure before you trust
//! them.

use serde::Serialize;

/// The source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureSource {
    /// The maker's data sheet or product page: "up to".
    VendorDatasheet,
    /// An interface standard, without any deduction.
    Standard,
    /// Our own measurement.
    Measured,
    /// A typical rate of such links; no single source.
    RuleOfThumb,
}

/// A drive.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KnownSsd {
    /// Name on the command line.
    pub name: &'static str,
    /// Maker.
    pub vendor: &'static str,
    /// Interface.
    pub interface: &'static str,
    /// Sequential reads, GB/s.
    pub read_gb_per_s: f64,
    /// Sequential writes, GB/s.
    pub write_gb_per_s: f64,
    /// Random reads of 4 KiB a second, in thousands.
    pub random_read_kiops: f64,
    /// Source of the figures.
    pub source: FigureSource,
}

/// A network or fabric port: its rate in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KnownNic {
    /// Name on the command line.
    pub name: &'static str,
    /// Line rate in one direction, GB/s, before protocols.
    pub gb_per_s: f64,
    /// Source of the figure.
    pub source: FigureSource,
}

/// A GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KnownGpu {
    /// Name on the command line.
    pub name: &'static str,
    /// Memory, GB.
    pub memory_gb: f64,
    /// Memory bandwidth, GB/s.
    pub memory_gb_per_s: f64,
    /// Link to the host.
    pub link: PcieGeneration,
    /// Source of the figures.
    pub source: FigureSource,
}

/// A generation of PCI Express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PcieGeneration(u8);

impl PcieGeneration {
    /// The newest known generation.
    pub const MAX: u8 = 6;

    /// Generation 1 to [`PcieGeneration::MAX`].
    pub fn new(generation: u8) -> Option<PcieGeneration> {
        (1..=Self::MAX).contains(&generation).then_some(PcieGeneration(generation))
    }

    /// The number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// GB/s of `width` lanes in one direction after line coding: 8b/10b up to generation 2,
    /// 128b/130b up to 5, 242 of 256 bytes of a flit in 6.
    pub fn line_gb_per_s(self, width: u32) -> f64 {
        let (gt_per_s, coding) = match self.0 {
            1 => (2.5, 0.8),
            2 => (5.0, 0.8),
            3 => (8.0, 128.0 / 130.0),
            4 => (16.0, 128.0 / 130.0),
            5 => (32.0, 128.0 / 130.0),
            _ => (64.0, 242.0 / 256.0),
        };
        gt_per_s * coding * f64::from(width) / 8.0
    }
}

/// GB/s that large copies reach over a link, after packet headers and flow control. Generation 5 as
/// measured from pinned memory (55.5 of 63.0 GB/s), others by a rule of thumb.
pub fn pcie_gb_per_s(generation: PcieGeneration, width: u32) -> (f64, FigureSource) {
    let (share, source) = match generation.number() {
        5 => (0.881, FigureSource::Measured),
        6 => (0.88, FigureSource::RuleOfThumb),
        _ => (0.84, FigureSource::RuleOfThumb),
    };
    (generation.line_gb_per_s(width) * share, source)
}

impl KnownGpu {
    /// GB/s of its link, all 16 lanes.
    pub fn link_gb_per_s(&self) -> f64 {
        pcie_gb_per_s(self.link, LANES).0
    }
}

const LANES: u32 = 16;

/// Drives, oldest generation first.
pub fn known_ssds() -> &'static [KnownSsd] {
    SSDS
}

/// Ports.
pub fn known_nics() -> &'static [KnownNic] {
    NICS
}

/// GPUs, oldest first.
pub fn known_gpus() -> &'static [KnownGpu] {
    GPUS
}

const fn ssd(
    name: &'static str,
    vendor: &'static str,
    interface: &'static str,
    (read_gb_per_s, write_gb_per_s, random_read_kiops): (f64, f64, f64),
) -> KnownSsd {
    let source = FigureSource::VendorDatasheet;
    KnownSsd { name, vendor, interface, read_gb_per_s, write_gb_per_s, random_read_kiops, source }
}

const SSDS: &[KnownSsd] = &[
    ssd("m550", "Crucial", "SATA 6 Gbit/s", (0.55, 0.50, 95.0)),
    ssd("860-pro", "Samsung", "SATA 6 Gbit/s", (0.56, 0.53, 100.0)),
    ssd("intel-750", "Intel", "PCIe 3.0 x4", (2.4, 1.2, 440.0)),
    ssd("p4800x", "Intel", "PCIe 3.0 x4", (2.4, 2.0, 550.0)),
    ssd("p4510", "Intel", "PCIe 3.0 x4", (3.2, 3.0, 641.0)),
    ssd("970-evo-plus", "Samsung", "PCIe 3.0 x4", (3.5, 3.3, 620.0)),
    ssd("p5510", "Intel", "PCIe 4.0 x4", (7.0, 4.2, 930.0)),
    ssd("p5800x", "Intel", "PCIe 4.0 x4", (7.2, 6.2, 1500.0)),
    ssd("pm1733", "Samsung", "PCIe 4.0 x4", (7.0, 3.8, 1500.0)),
    ssd("bm1743", "Samsung", "PCIe 4.0 x4", (7.2, 2.0, 1600.0)),
    ssd("980-pro", "Samsung", "PCIe 4.0 x4", (7.0, 5.0, 1000.0)),
    ssd("990-pro", "Samsung", "PCIe 4.0 x4", (7.45, 6.9, 1400.0)),
    ssd("9400-pro", "Micron", "PCIe 4.0 x4", (7.0, 7.0, 1600.0)),
    ssd("pm1743", "Samsung", "PCIe 5.0 x4", (14.0, 6.0, 2500.0)),
    ssd("pm9d3a", "Samsung", "PCIe 5.0 x4", (12.0, 6.8, 2000.0)),
    ssd("cm7-r", "Kioxia", "PCIe 5.0 x4", (14.0, 6.75, 2450.0)),
    ssd("7600-max", "Micron", "PCIe 5.0 x4", (12.0, 7.0, 2100.0)),
    ssd("9550-max", "Micron", "PCIe 5.0 x4", (14.0, 10.0, 3300.0)),
    ssd("9550-pro", "Micron", "PCIe 5.0 x4", (14.0, 10.0, 3300.0)),
    ssd("9650", "Micron", "PCIe 6.0 x4", (28.0, 14.0, 5500.0)),
];

const fn nic(name: &'static str, gb_per_s: f64) -> KnownNic {
    KnownNic { name, gb_per_s, source: FigureSource::Standard }
}

const NICS: &[KnownNic] = &[
    nic("10gbe", 1.25),
    nic("25gbe", 3.125),
    nic("40gbe", 5.0),
    nic("50gbe", 6.25),
    nic("100gbe", 12.5),
    nic("200gbe", 25.0),
    nic("400gbe", 50.0),
    nic("800gbe", 100.0),
    nic("ib-edr", 12.5),
    nic("ib-hdr", 25.0),
    nic("ib-ndr", 50.0),
    nic("ib-xdr", 100.0),
];

const fn gpu(name: &'static str, memory_gb: f64, memory_gb_per_s: f64, pcie: u8) -> KnownGpu {
    let source = FigureSource::VendorDatasheet;
    KnownGpu { name, memory_gb, memory_gb_per_s, link: PcieGeneration(pcie), source }
}

const GPUS: &[KnownGpu] = &[
    gpu("v100", 16.0, 900.0, 3),
    gpu("v100-32gb", 32.0, 900.0, 3),
    gpu("t4", 16.0, 320.0, 3),
    gpu("rtx-3090", 24.0, 936.0, 4),
    gpu("a10", 24.0, 600.0, 4),
    gpu("a30", 24.0, 933.0, 4),
    gpu("a100", 40.0, 1555.0, 4),
    gpu("a100-80gb-pcie", 80.0, 1935.0, 4),
    gpu("a100-80gb", 80.0, 2039.0, 4),
    gpu("rtx-4090", 24.0, 1008.0, 4),
    gpu("l4", 24.0, 300.0, 4),
    gpu("l40s", 48.0, 864.0, 4),
    gpu("h100-pcie", 80.0, 2000.0, 5),
    gpu("h100", 80.0, 3350.0, 5),
    gpu("h100-nvl", 94.0, 3900.0, 5),
    gpu("h200", 141.0, 4800.0, 5),
    gpu("rtx-5090", 32.0, 1792.0, 5),
    gpu("b200", 180.0, 8000.0, 5),
];
