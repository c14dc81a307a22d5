//! The GPUs that are nearest to the files of a table: what comes from a drive is to cross no more of the machine than it must.
//!
//! Which GPU is how far from the storage of a file, the kernel tells ([`nearest_gpu`]); `gpu_for` overrules it. Segments of
//! a file are dealt to the nearest GPUs, and none but these takes them from each other. Files in memory, elsewhere, or on storage of which
//! nobody knows where it is are near all.

use std::collections::HashMap;
use std::path::Path;

use headrace_cuda::SegmentSource;
use headrace_io::system::{
    Distance, GpuFor, Medium, PciAddress, StorageHome, SysRoot, nearest_gpu,
};
use headrace_io::{Lanes, ReadAt};
use parking_lot::Mutex;

use crate::gpus::Gpus;

/// What is known of a filesystem, as long as the process lives: by the number of its device and the GPUs' addresses.
static KNOWN: Mutex<Vec<((u64, Vec<PciAddress>), Near)>> = Mutex::new(Vec::new());

/// Filesystems of which the distances are kept.
const KNOWN_MAX: usize = 256;

/// How near the GPUs are to some storage.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Near {
    /// The nearest.
    lanes: Lanes,
    /// Where the storage is mounted, and how far from it each is; `None`: there is nothing to tell.
    told: Option<(String, Vec<Distance>)>,
}

/// The GPUs of a run beside the files of its table.
#[derive(Debug)]
pub(crate) struct NearGpus {
    ordinals: Vec<usize>,
    /// Theirs; `None`: nobody knows.
    addresses: Option<Vec<PciAddress>>,
    gpu_for: GpuFor,
    by_file: HashMap<u32, Lanes>,
    notes: Vec<String>,
}

impl NearGpus {
    /// For GPUs by their ordinals; `None` where there is nothing to choose.
    pub fn of(gpus: &Gpus, ordinals: &[usize], gpu_for: &GpuFor) -> Option<Self> {
        let among = || Self::among(ordinals.to_vec(), gpus.addresses(ordinals), gpu_for.clone());
        (ordinals.len() > 1).then(among)
    }

    fn among(ordinals: Vec<usize>, addresses: Option<Vec<PciAddress>>, gpu_for: GpuFor) -> Self {
        Self { ordinals, addresses, gpu_for, by_file: HashMap::new(), notes: Vec::new() }
    }

    /// The segment, dealt to the nearest.
    pub fn deal(&mut self, source: SegmentSource) -> SegmentSource {
        let near = match &source.from {
            Some(from) => self.near(source.segment.file, from.as_ref()),
            None => Lanes::ALL,
        };
        SegmentSource { near, ..source }
    }

    /// What is to be said of the files so far.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn near(&mut self, number: u32, file: &dyn ReadAt) -> Lanes {
        if let Some(known) = self.by_file.get(&number) {
            return *known;
        }
        let lanes = self.look_up(file);
        self.by_file.insert(number, lanes);
        lanes
    }

    fn look_up(&mut self, file: &dyn ReadAt) -> Lanes {
        if file.is_in_memory() || file.source().is_remote() {
            return Lanes::ALL;
        }
        if let Some(gpu) = self.gpu_for.gpu(file.path()) {
            let found = self.ordinals.iter().position(|ordinal| *ordinal == gpu);
            self.note(match found {
                Some(_) => format!("GPU {gpu} takes files as headrace.gpu_for says"),
                None => format!("headrace.gpu_for names GPU {gpu}, which takes no part"),
            });
            if let Some(lane) = found {
                return Lanes::from_iter([lane]);
            }
        }
        let Some(addresses) = &self.addresses else { return Lanes::ALL };
        let key = (file.source().identity().device, addresses.clone());
        let near = near_by(key, || near_of(&SysRoot::host(), file.path(), addresses));
        if let Some((mount, distances)) = &near.told {
            let gpus = self.ordinals.iter().zip(distances);
            let gpus: Vec<_> =
                gpus.map(|(gpu, distance)| format!("GPU {gpu} ({distance})")).collect();
            self.note(format!("from {mount} to {}", gpus.join(", ")));
        }
        near.lanes
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// What is known, or what is found out now.
fn near_by(key: (u64, Vec<PciAddress>), find: impl FnOnce() -> Near) -> Near {
    if let Some((_, known)) = KNOWN.lock().iter().find(|(known, _)| *known == key) {
        return known.clone();
    }
    let near = find();
    let mut known = KNOWN.lock();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.push((key, near.clone()));
    near
}

fn near_of(root: &SysRoot, path: &Path, gpus: &[PciAddress]) -> Near {
    let home = StorageHome::of(root, path);
    let found = nearest_gpu(root, &home, gpus);
    let lanes = match found.nearest.is_empty() {
        true => Lanes::ALL,
        false => found.nearest.iter().copied().collect(),
    };
    let mount = home.mount.as_ref().map(|mount| mount.mount_point.display().to_string());
    let told = match (home.medium, mount) {
        (Ok(Medium::Memory), _) | (_, Err(_)) => None,
        (_, Ok(mount)) => Some((mount, found.distances)),
    };
    Near { lanes, told }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headrace_io::SourceFile;

    use super::*;

    #[test]
    fn files_go_to_the_gpu_that_is_named_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.arrow");
        std::fs::write(&path, "x").unwrap();
        let file = SourceFile::open(&path).unwrap();
        let of = |text: &str| NearGpus::among(vec![1, 3], None, text.parse().unwrap());
        let folder = folder.path().display();
        let mut gpus = of(&format!("{folder}=3"));
        assert_eq!(gpus.near(0, file.as_ref()), Lanes::from_iter([1]));
        assert_eq!(gpus.near(0, file.as_ref()), Lanes::from_iter([1]));
        assert_eq!(gpus.notes(), ["GPU 3 takes files as headrace.gpu_for says"]);
        let mut gpus = of(&format!("{folder}=0"));
        assert_eq!(gpus.near(0, file.as_ref()), Lanes::ALL);
        assert_eq!(gpus.notes(), ["headrace.gpu_for names GPU 0, which takes no part"]);
        assert_eq!(of("/elsewhere=1").near(0, file.as_ref()), Lanes::ALL);
    }

    #[test]
    fn a_filesystem_is_looked_at_once() {
        let near = Near { lanes: Lanes::from_iter([2]), told: None };
        let key = || (u64::MAX - 7, Vec::new());
        assert_eq!(near_by(key(), || near.clone()), near);
        assert_eq!(near_by(key(), || unreachable!()), near);
    }
}
