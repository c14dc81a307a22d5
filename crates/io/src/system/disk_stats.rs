//! The activity of each block device between two samples, as iostat shows it.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use super::nvme::hidden_paths;
use super::root::{Fact, SysRoot};

const TABLE: &str = "/proc/diskstats";

/// The activity of one device between two samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskRates {
    /// Name of the device.
    pub name: String,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Reads that it completed.
    pub reads: u64,
    /// Writes that it completed.
    pub writes: u64,
    /// Sum of the times that its reads took.
    pub read_wait_ns: u64,
    /// Sum of the times that its writes took.
    pub write_wait_ns: u64,
    /// Time during which it was busy.
    pub busy_ns: u64,
    /// Time between the samples.
    pub elapsed_ns: u64,
    /// Requests in flight at the second sample.
    pub in_flight: u64,
}

impl DiskRates {
    /// Read speed in 10^9 bytes per second; 0 for a sample of no duration.
    pub fn read_gb_per_s(&self) -> f64 {
        ratio(self.read_bytes, self.elapsed_ns)
    }

    /// Write speed in 10^9 bytes per second; 0 for a sample of no duration.
    pub fn written_gb_per_s(&self) -> f64 {
        ratio(self.written_bytes, self.elapsed_ns)
    }

    /// Share of time during which it was busy, 0 to 1. A drive with parallel requests can do more
    /// even at 1.
    pub fn busy_share(&self) -> f64 {
        ratio(self.busy_ns, self.elapsed_ns).min(1.0)
    }

    /// Two paths to one device together. They work in parallel: the busier one is a lower bound of
    /// how busy the device is.
    fn beside(self, other: DiskRates) -> DiskRates {
        DiskRates {
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            written_bytes: self.written_bytes.saturating_add(other.written_bytes),
            reads: self.reads.saturating_add(other.reads),
            writes: self.writes.saturating_add(other.writes),
            read_wait_ns: self.read_wait_ns.saturating_add(other.read_wait_ns),
            write_wait_ns: self.write_wait_ns.saturating_add(other.write_wait_ns),
            busy_ns: self.busy_ns.max(other.busy_ns),
            in_flight: self.in_flight.saturating_add(other.in_flight),
            ..self
        }
    }
}

fn ratio(amount: u64, per: u64) -> f64 {
    if per == 0 { 0.0 } else { amount as f64 / per as f64 }
}

/// Counters of one device since the machine started (Documentation/admin-guide/iostats.rst).
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    reads: u64,
    read_sectors: u64,
    read_ms: u64,
    writes: u64,
    written_sectors: u64,
    write_ms: u64,
    in_flight: u64,
    busy_ms: u64,
}

/// Watches some block devices.
#[derive(Debug)]
pub struct DiskSampler {
    root: SysRoot,
    watched: Vec<Watched>,
    last: Moment,
}

#[derive(Debug)]
struct Watched {
    name: String,
    /// The lines of the table that count its activity: its own, or those of the paths to an NVMe
    /// namespace joined by multipath.
    counted_as: Vec<String>,
}

#[derive(Debug)]
struct Moment {
    at: Instant,
    /// By line of the table.
    counters: BTreeMap<String, Counters>,
}

impl DiskSampler {
    /// Starts to watch the devices with these names (`nvme0n1`).
    ///
    /// # Errors
    /// [`Unknown`](super::Unknown) if the kernel's counters cannot be read.
    pub fn start(root: &SysRoot, names: &[impl AsRef<str>]) -> Fact<DiskSampler> {
        let watched: Vec<Watched> = names.iter().map(|it| watch(root, it.as_ref())).collect();
        let last = moment(root, &watched)?;
        Ok(DiskSampler { root: root.clone(), watched, last })
    }

    /// Activity of the devices since the last sample or the start. Devices without counters at
    /// either end are omitted.
    ///
    /// # Errors
    /// [`Unknown`](super::Unknown) if the kernel's counters cannot be read.
    pub fn sample(&mut self) -> Fact<Vec<DiskRates>> {
        let now = moment(&self.root, &self.watched)?;
        let before = std::mem::replace(&mut self.last, now);
        Ok(self.between(&before))
    }

    fn between(&self, before: &Moment) -> Vec<DiskRates> {
        let elapsed = self.last.at.saturating_duration_since(before.at);
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let rates = |device: &Watched| {
            let by_line = device.counted_as.iter().map(|line| {
                let (old, new) = (before.counters.get(line)?, self.last.counters.get(line)?);
                Some(rates_between(&device.name, old, new, elapsed_ns))
            });
            let by_line: Vec<DiskRates> = by_line.collect::<Option<_>>()?;
            by_line.into_iter().reduce(DiskRates::beside)
        };
        self.watched.iter().filter_map(rates).collect()
    }
}

fn rates_between(name: &str, old: &Counters, new: &Counters, elapsed_ns: u64) -> DiskRates {
    /// Sectors in these counters are 512 bytes, whatever the block size.
    const SECTOR_BYTES: u64 = 512;
    // A counter that went back belongs to a device that was removed and came again.
    let grown = |old: u64, new: u64| new.saturating_sub(old);
    DiskRates {
        name: name.to_string(),
        read_bytes: grown(old.read_sectors, new.read_sectors).saturating_mul(SECTOR_BYTES),
        written_bytes: grown(old.written_sectors, new.written_sectors).saturating_mul(SECTOR_BYTES),
        reads: grown(old.reads, new.reads),
        writes: grown(old.writes, new.writes),
        read_wait_ns: grown_ns(old.read_ms, new.read_ms),
        write_wait_ns: grown_ns(old.write_ms, new.write_ms),
        busy_ns: grown_ns(old.busy_ms, new.busy_ms),
        elapsed_ns,
        in_flight: new.in_flight,
    }
}

/// The kernel prints milliseconds with 32 bits: they wrap after 50 days.
fn grown_ns(old_ms: u64, new_ms: u64) -> u64 {
    let grown_ms = (new_ms as u32).wrapping_sub(old_ms as u32);
    u64::from(grown_ms) * 1_000_000
}

fn watch(root: &SysRoot, name: &str) -> Watched {
    let paths = hidden_paths(root, name);
    let counted_as = if paths.is_empty() { vec![name.to_string()] } else { paths };
    Watched { name: name.to_string(), counted_as }
}

fn moment(root: &SysRoot, watched: &[Watched]) -> Fact<Moment> {
    let table = root.text(TABLE)?;
    let at = Instant::now();
    let is_watched = |line: &String| watched.iter().any(|device| device.counted_as.contains(line));
    let counters = table.lines().filter_map(parse_line).filter(|(line, _)| is_watched(line));
    Ok(Moment { at, counters: counters.collect() })
}

/// `major minor name`, then reads, reads merged, sectors read, ms reading, writes, writes merged,
/// sectors written, ms writing, requests in flight, ms busy, and more on newer kernels.
fn parse_line(line: &str) -> Option<(String, Counters)> {
    let mut fields = line.split_whitespace().skip(2);
    let name = fields.next()?.to_string();
    let numbers: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let number = |at: usize| numbers.get(at).copied();
    let counters = Counters {
        reads: number(0)?,
        read_sectors: number(2)?,
        read_ms: number(3)?,
        writes: number(4)?,
        written_sectors: number(6)?,
        write_ms: number(7)?,
        in_flight: number(8)?,
        busy_ms: number(9)?,
    };
    Some((name, counters))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    const BEFORE: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0
 259       0 nvme0n1 100 1 8000 50 10 2 800 5 3 4294967290 60 0 0 0 0 0 0
 259       1 nvme0n1p1 100 1 8000 50 10 2 800 5 3 40 60 0 0 0 0 0 0
 odd line
";
    const AFTER: &str = " 259       0 nvme0n1 104 1 16192 70 11 2 808 6 1 4 60 0 0 0 0 0 0\n";

    #[test]
    fn what_happened_between_two_samples() {
        let tree = Tree::new();
        tree.file(TABLE, BEFORE);
        let mut sampler = DiskSampler::start(&tree.root(), &["nvme0n1", "sdz", "loop0"]).unwrap();
        tree.file(TABLE, AFTER);
        let rates = sampler.sample().unwrap();
        // loop0 is gone, so nothing can be said of it.
        assert_eq!(rates.len(), 1);
        let disk = &rates[0];
        assert_eq!((disk.reads, disk.read_bytes), (4, 8192 * 512));
        assert_eq!((disk.writes, disk.written_bytes), (1, 8 * 512));
        assert_eq!((disk.read_wait_ns, disk.write_wait_ns), (20_000_000, 1_000_000));
        // The counter of milliseconds went through 2^32.
        assert_eq!((disk.busy_ns, disk.in_flight), (10_000_000, 1));
        assert!(disk.elapsed_ns > 0 && disk.read_gb_per_s() > 0.0);
        let idle = sampler.sample().unwrap();
        assert_eq!((idle[0].read_bytes, idle[0].busy_ns), (0, 0));
    }

    #[test]
    fn the_paths_of_a_multipath_namespace_count_together() {
        let tree = Tree::new();
        let plain = tree.nvme("pci0000:80/0000:80:01.0", "0000:81:00.0", 1, 0);
        let controller = plain.trim_end_matches("/nvme0n1");
        let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys9";
        tree.link_to(&format!("{subsystem}/nvme0"), controller);
        tree.block(&format!("{subsystem}/nvme9n1"), "259:90", 4096);
        tree.link(&format!("{subsystem}/nvme9n1/device"), "../../nvme-subsys9");
        tree.folder(&format!("{controller}/nvme9c0n1")).folder(&format!("{controller}/nvme9c1n1"));
        tree.file(
            TABLE,
            "259 90 nvme9n1 0 0 0 0 0 0 0 0 0 0 0\n\
             259 91 nvme9c0n1 1 0 8 1 0 0 0 0 0 5 1\n259 92 nvme9c1n1 1 0 8 1 0 0 0 0 0 9 1\n",
        );
        let mut sampler = DiskSampler::start(&tree.root(), &["nvme9n1"]).unwrap();
        tree.file(
            TABLE,
            "259 90 nvme9n1 0 0 0 0 0 0 0 0 0 0 0\n\
             259 91 nvme9c0n1 3 0 24 1 0 0 0 0 1 7 1\n259 92 nvme9c1n1 2 0 16 1 0 0 0 0 1 10 1\n",
        );
        let rates = sampler.sample().unwrap();
        assert_eq!((rates.len(), rates[0].name.as_str()), (1, "nvme9n1"));
        assert_eq!((rates[0].reads, rates[0].read_bytes, rates[0].in_flight), (3, 24 * 512, 2));
        assert_eq!(rates[0].busy_ns, 2_000_000);
    }

    #[test]
    fn no_counters_and_no_time() {
        let tree = Tree::new();
        assert!(DiskSampler::start(&tree.root(), &["a"]).unwrap_err().is_missing());
        let none = rates_between("a", &Counters::default(), &Counters::default(), 0);
        assert_eq!((none.read_gb_per_s(), none.busy_share()), (0.0, 0.0));
        let back = Counters { reads: 5, ..Counters::default() };
        assert_eq!(rates_between("a", &back, &Counters::default(), 1).reads, 0);
    }

    #[test]
    fn this_machine_counts_what_it_has() {
        let mut sampler = DiskSampler::start(&SysRoot::host(), &["no such disk"]).unwrap();
        assert!(sampler.sample().unwrap().is_empty());
    }
}
