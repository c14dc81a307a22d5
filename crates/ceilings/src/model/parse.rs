//! Rates, sizes and devices in command line syntax.

use std::str::FromStr;

use super::known::{KnownGpu, known_gpus, known_nics, known_ssds};
use super::{Gpu, PcieGeneration, Placement, StorageDevice, Topology, pcie_gb_per_s};

/// Maximum devices in one text.
const DEVICES_MAX: usize = 4096;

/// An invalid text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {wanted}\nhint: {remedy}")]
pub struct ParseError {
    /// The text.
    pub text: String,
    /// The expected form.
    pub wanted: &'static str,
    /// An example.
    pub remedy: String,
}

fn error<T>(text: &str, wanted: &'static str, remedy: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError { text: text.trim().to_string(), wanted, remedy: remedy.into() })
}

/// GB/s (10^9 bytes) of `2.5GB/s`, `800 MB/s`, `4.8TB/s`, `2GiB/s` or `100Gbit/s`.
///
/// # Errors
/// [`ParseError`]: no number above zero, or no unit.
pub fn parse_gb_per_s(text: &str) -> Result<f64, ParseError> {
    const UNITS: [(&str, f64); 9] = [
        ("TB/s", 1e3),
        ("GB/s", 1.0),
        ("MB/s", 1e-3),
        ("KB/s", 1e-6),
        ("GiB/s", 1.073_741_824),
        ("MiB/s", 1.048_576e-3),
        ("TiB/s", 1_099.511_627_776),
        ("Gbit/s", 0.125),
        ("Mbit/s", 0.125e-3),
    ];
    let wanted = "a rate";
    let remedy = "a number and its unit: 2.5GB/s, 800MB/s, 4.8TB/s, 2GiB/s, 100Gbit/s";
    let (number, unit) = number_and_unit(text);
    // The case of a letter tells bits from bytes: only spelled-out units are taken in any case.
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
        return error(text, wanted, remedy);
    };
    if unit.starts_with(['G', 'M', 'T', 'K', 'g', 'm', 't', 'k']) && unit.contains("b/") {
        let bits = "bits are written Gbit/s, bytes GB/s";
        return error(text, wanted, bits);
    }
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value * scale),
        _ => error(text, wanted, remedy),
    }
}

/// Bytes of `4096`, `8MiB`, `64 KiB`, `100GB` or `1.5TB`.
///
/// # Errors
/// [`ParseError`]: not a whole number of bytes, or an unknown unit.
pub fn parse_bytes(text: &str) -> Result<u64, ParseError> {
    const UNITS: [(&str, f64); 15] = [
        ("", 1.0),
        ("B", 1.0),
        ("K", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("PB", 1e15),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
    ];
    let (number, unit) = number_and_unit(text);
    let scale = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    match (number.parse::<f64>(), scale) {
        (Ok(value), Some((_, scale))) if value >= 0.0 && value * scale < 9e18 => {
            Ok((value * scale).round() as u64)
        }
        _ => error(text, "a size", "a number, and a unit if they are not bytes: 8MiB, 100GB"),
    }
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

/// Devices of `4x 3.5GB/s`, `24x pm1733`, `2x 100gbe` or several of them with commas between.
///
/// # Errors
/// [`ParseError`], with the known names.
pub fn parse_storage(text: &str) -> Result<Vec<StorageDevice>, ParseError> {
    parse_list(text, |name| {
        if name.starts_with(|c: char| c.is_ascii_digit()) && name.contains('/') {
            let read_gb_per_s = parse_gb_per_s(name)?;
            let name = "stated".to_string();
            return Ok(StorageDevice { name, read_gb_per_s, write_gb_per_s: None });
        }
        if let Some(ssd) = known_ssds().iter().find(|ssd| same_name(ssd.name, name)) {
            return Ok(StorageDevice {
                name: ssd.name.to_string(),
                read_gb_per_s: ssd.read_gb_per_s,
                write_gb_per_s: Some(ssd.write_gb_per_s),
            });
        }
        if let Some(nic) = known_nics().iter().find(|nic| same_name(nic.name, name)) {
            return Ok(StorageDevice {
                name: nic.name.to_string(),
                read_gb_per_s: nic.gb_per_s,
                write_gb_per_s: Some(nic.gb_per_s),
            });
        }
        let known = known_ssds().iter().map(|s| s.name).chain(known_nics().iter().map(|n| n.name));
        error(name, "a drive, a port or a rate", known_names("3.5GB/s", known))
    })
}

/// GPUs of `h200` or `2x a100`, with their native links.
///
/// # Errors
/// [`ParseError`], with the known names.
pub fn parse_gpus(text: &str) -> Result<Vec<Gpu>, ParseError> {
    parse_list(text, |name| {
        let Some(gpu) = known_gpus().iter().find(|gpu| same_name(gpu.name, name)) else {
            let known = known_gpus().iter().map(|gpu| gpu.name);
            return error(name, "a known GPU", known_names("h200", known));
        };
        Ok(gpu_of(gpu))
    })
}

fn gpu_of(gpu: &KnownGpu) -> Gpu {
    Gpu {
        name: gpu.name.to_string(),
        h2d_gb_per_s: gpu.link_gb_per_s(),
        d2h_gb_per_s: Some(gpu.link_gb_per_s()),
        memory_gb_per_s: Some(gpu.memory_gb_per_s),
    }
}

/// Copy rate of `pcie5x16`, `pcie4 x8`, or a rate. GB/s.
///
/// # Errors
/// [`ParseError`]: neither of them.
pub fn parse_link_gb_per_s(text: &str) -> Result<f64, ParseError> {
    let name: String = text.to_ascii_lowercase().split_whitespace().collect();
    let Some(link) = name.strip_prefix("pcie") else {
        return parse_gb_per_s(text);
    };
    let parsed = link.trim_start_matches("gen").split_once('x').and_then(|(generation, width)| {
        let generation = generation.strip_suffix(".0").unwrap_or(generation).parse().ok()?;
        let width: u32 = width.parse().ok()?;
        let known = [1, 2, 4, 8, 16].contains(&width);
        known.then_some((PcieGeneration::new(generation)?, width))
    });
    match parsed {
        Some((generation, width)) => Ok(pcie_gb_per_s(generation, width).0),
        None => error(text, "a link", "pcie1x1 to pcie6x16, or a rate such as 55.5GB/s"),
    }
}

impl FromStr for Topology {
    type Err = ParseError;

    /// `direct`, `shared:28GB/s`, `shared:2x 28GB/s` or `local:12.5GB/s`.
    fn from_str(text: &str) -> Result<Topology, ParseError> {
        let (kind, rate) = text.split_once(':').unwrap_or((text, ""));
        match kind.trim().to_ascii_lowercase().as_str() {
            "direct" if rate.is_empty() => Ok(Topology::Direct),
            "shared" => {
                let (uplinks, rate) = count_and_name(rate)?;
                let gb_per_s = parse_gb_per_s(rate)?;
                Ok(Topology::Shared { uplinks: uplinks as u32, gb_per_s })
            }
            "local" => Ok(Topology::Local { gb_per_s: parse_gb_per_s(rate)? }),
            _ => {
                error(text, "a topology", "direct, shared:28GB/s, shared:2x 28GB/s, local:12.5GB/s")
            }
        }
    }
}

impl FromStr for Placement {
    type Err = ParseError;

    /// `striped`, `even` or `proportional`.
    fn from_str(text: &str) -> Result<Placement, ParseError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "striped" => Ok(Placement::Striped),
            "even" => Ok(Placement::Even),
            "proportional" => Ok(Placement::Proportional),
            _ => error(text, "a placement", "striped, even, proportional"),
        }
    }
}

fn parse_list<T: Clone>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, ParseError>,
) -> Result<Vec<T>, ParseError> {
    let mut devices = Vec::new();
    for part in text.split(',') {
        let (count, name) = count_and_name(part)?;
        let device = parse(name)?;
        if devices.len() + count > DEVICES_MAX {
            return error(text, "a list of devices", format!("at most {DEVICES_MAX} of them"));
        }
        devices.extend(std::iter::repeat_n(device, count));
    }
    Ok(devices)
}

/// `4x name` or `name`.
fn count_and_name(text: &str) -> Result<(usize, &str), ParseError> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let Some(name) = rest.strip_prefix(['x', 'X']).filter(|_| digits > 0) else {
        return Ok((1, text));
    };
    match count.parse() {
        Ok(count) if (1..=DEVICES_MAX).contains(&count) => Ok((count, name.trim())),
        _ => error(text, "a number of devices", format!("1x to {DEVICES_MAX}x")),
    }
}

/// Whether two names differ only in case, blanks and hyphens.
fn same_name(a: &str, b: &str) -> bool {
    let plain = |name: &str| {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        letters.map(|c| c.to_ascii_lowercase()).collect::<String>()
    };
    plain(a) == plain(b)
}

fn known_names<'a>(example: &str, names: impl Iterator<Item = &'a str>) -> String {
    format!("{example}, or one of {}", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs()
    }

    #[test]
    fn rates_have_units() {
        for (text, gb_per_s) in [
            ("3.5GB/s", 3.5),
            (" 800 MB/s ", 0.8),
            ("4.8TB/s", 4800.0),
            ("1GiB/s", 1.073_741_824),
            ("100Gbit/s", 12.5),
        ] {
            assert!(near(parse_gb_per_s(text).unwrap(), gb_per_s), "{text}");
        }
        for text in ["28", "", "GB/s", "-1GB/s", "0GB/s", "1.2.3GB/s", "1e3GB/s", "3 GBps"] {
            let error = parse_gb_per_s(text).unwrap_err().to_string();
            assert!(error.contains("hint:"), "{text}: {error}");
        }
        // Whether this is bits or bytes, nobody can say.
        assert!(parse_gb_per_s("10Gb/s").unwrap_err().to_string().contains("Gbit/s"));
    }

    #[test]
    fn sizes_are_decimal_or_binary_as_written() {
        assert_eq!(parse_bytes("4096").unwrap(), 4096);
        assert_eq!(parse_bytes("8MiB").unwrap(), 8 << 20);
        assert_eq!(parse_bytes("4g").unwrap(), 4_000_000_000);
        assert_eq!(parse_bytes("1.5 GB").unwrap(), 1_500_000_000);
        assert_eq!(parse_bytes("0").unwrap(), 0);
        assert!(parse_bytes("8 apples").is_err());
        assert!(parse_bytes("99999999TB").is_err());
        assert!(parse_bytes("-1").is_err());
    }

    #[test]
    fn storage_is_counted_named_or_stated() {
        let devices = parse_storage("4x 3.5GB/s").unwrap();
        assert_eq!((devices.len(), devices[3].read_gb_per_s), (4, 3.5));
        let devices = parse_storage("24x pm1733").unwrap();
        assert_eq!((devices.len(), devices[0].read_gb_per_s), (24, 7.0));
        let devices = parse_storage("2x PM1733, 1 x 2.4 GB/s,100GbE").unwrap();
        let rates: Vec<f64> = devices.iter().map(|device| device.read_gb_per_s).collect();
        assert_eq!(rates, [7.0, 7.0, 2.4, 12.5]);
        assert_eq!(parse_storage("970 EVO Plus").unwrap()[0].name, "970-evo-plus");
        let unknown = parse_storage("3x floppy").unwrap_err().to_string();
        assert!(unknown.contains("'floppy'") && unknown.contains("pm1733"), "{unknown}");
        for text in ["", "0x pm1733", "99999x pm1733", "4096x pm1733, pm1733", "4x", "4x ,"] {
            assert!(parse_storage(text).is_err(), "{text}");
        }
    }

    #[test]
    fn gpus_and_links_are_known_by_name() {
        let gpus = parse_gpus("2x A100").unwrap();
        assert_eq!((gpus.len(), gpus[1].memory_gb_per_s), (2, Some(1555.0)));
        let h200 = &parse_gpus("h200").unwrap()[0];
        assert!((h200.h2d_gb_per_s - 55.5).abs() < 0.05, "{}", h200.h2d_gb_per_s);
        assert!(parse_gpus("abacus").unwrap_err().remedy.contains("h100"));
        let link = |text| parse_link_gb_per_s(text).unwrap();
        assert!(near(link("pcie5x16"), h200.h2d_gb_per_s));
        assert!(near(link("PCIe 5.0 x8"), h200.h2d_gb_per_s / 2.0));
        assert!(near(link("28GB/s"), 28.0));
        for text in ["pcie7x16", "pcie5", "pcie5x3", "pcie", "wire"] {
            assert!(parse_link_gb_per_s(text).is_err(), "{text}");
        }
    }

    #[test]
    fn topologies_are_written_with_their_rates() {
        let topology = |text: &str| text.parse::<Topology>();
        assert_eq!(topology("direct").unwrap(), Topology::Direct);
        let one = Topology::Shared { uplinks: 1, gb_per_s: 28.0 };
        assert_eq!(topology("shared:28GB/s").unwrap(), one);
        let two = Topology::Shared { uplinks: 2, gb_per_s: 28.0 };
        assert_eq!(topology("shared: 2x 28GB/s").unwrap(), two);
        assert_eq!(topology("local:12.5GB/s").unwrap(), Topology::Local { gb_per_s: 12.5 });
        for text in ["", "shared", "shared:", "direct:1GB/s", "ring:1GB/s", "local"] {
            assert!(topology(text).is_err(), "{text}");
        }
        assert_eq!("even".parse::<Placement>().unwrap(), Placement::Even);
        assert!("odd".parse::<Placement>().is_err());
    }

    #[test]
    fn every_known_figure_is_a_rate_under_a_name_of_its_own() {
        let names: Vec<&str> = known_ssds()
            .iter()
            .map(|ssd| ssd.name)
            .chain(known_nics().iter().map(|nic| nic.name))
            .chain(known_gpus().iter().map(|gpu| gpu.name))
            .collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].iter().any(|other| same_name(other, name)), "{name}");
        }
        for ssd in known_ssds() {
            assert_eq!(parse_storage(ssd.name).unwrap()[0].read_gb_per_s, ssd.read_gb_per_s);
            // No drive is faster than its interface.
            let lanes = |number| PcieGeneration::new(number).unwrap().line_gb_per_s(4);
            let interface = match ssd.interface {
                "PCIe 3.0 x4" => lanes(3),
                "PCIe 4.0 x4" => lanes(4),
                "PCIe 5.0 x4" => lanes(5),
                "PCIe 6.0 x4" => lanes(6),
                _ => 0.6,
            };
            assert!(ssd.read_gb_per_s < interface, "{}", ssd.name);
        }
    }
}
