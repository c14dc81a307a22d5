//! The GPUs that are nearest to the files of a table: what comes from a drive is to cross no more of the machine than it must.
//!
//! Which GPU is how far from the storage of a file, the kernel tells ([`nearest_gpu`]); `gpu_for` overrules it. Segments of
//! a file are dealt to the nearest GPUs, and none but these takes them from each other. Files in memory, elsewhere, or on
//! storage of which nobody knows where it is are near all. Where the nearest have no room for the columns of a table, all
//! are as near.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headrace_cuda::SegmentSource;
use headrace_io::system::{
    Distance, GpuFor, Medium, PciAddress, StorageHome, SysRoot, Taker, nearest_gpu,
};
use headrace_io::{Lanes, ReadAt};
use parking_lot::Mutex;

use crate::gpus::Gpus;

/// A folder: the number of its filesystem, its path, and the GPUs.
type Folder = (u64, PathBuf, Vec<PciAddress>);

/// What is known of folders, as long as the process lives.
static KNOWN: Mutex<Vec<(Folder, Near)>> = Mutex::new(Vec::new());

/// Folders of which the distances are kept.
const KNOWN_MAX: usize = 256;

/// How near the GPUs are to some storage.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Near {
    /// The nearest.
    lanes: Lanes,
    /// Where the storage is mounted, and how far from it each is, or why nobody knows; `None`: it is memory.
    told: Option<(String, Result<Vec<Distance>, String>)>,
}

/// The GPUs of a run beside the files of its table.
#[derive(Debug)]
pub(crate) struct NearGpus {
    ordinals: Vec<usize>,
    /// Theirs; `None`: nobody knows, or wants to.
    addresses: Option<Vec<PciAddress>>,
    gpu_for: GpuFor,
    by_file: HashMap<u32, Lanes>,
    /// Of files that are nearer to some than to others, the GPUs that are nearest to any.
    nearest: Option<Lanes>,
    notes: Notes,
}

/// What is to be said of the files so far.
pub(crate) type Notes = Arc<Mutex<Vec<String>>>;

impl NearGpus {
    /// For GPUs by their ordinals; `None` where there is nothing to choose.
    pub fn of(gpus: &Gpus, ordinals: &[usize], gpu_for: &GpuFor) -> Option<Self> {
        let among = || Self::among(ordinals.to_vec(), gpus.addresses(ordinals), gpu_for.clone());
        (ordinals.len() > 1).then(among)
    }

    fn among(ordinals: Vec<usize>, addresses: Option<Vec<PciAddress>>, gpu_for: GpuFor) -> Self {
        let (by_file, nearest, notes) = Default::default();
        Self { ordinals, addresses, gpu_for, by_file, nearest, notes }
    }

    /// Of the files so far that are nearer to some GPUs than to others, those that are nearest to any.
    pub fn nearest(&self) -> Option<Lanes> {
        self.nearest
    }

    /// Takes all for as near, but for files that the setting names.
    pub fn spread(&mut self) {
        (self.addresses, self.nearest) = (None, None);
        self.by_file.clear();
        self.note("the GPUs nearest to the files have no room for the table: all take part".into());
    }

    fn dealt(&mut self, source: SegmentSource) -> SegmentSource {
        let near = match &source.from {
            Some(from) => self.near(source.segment.file, from.as_ref()),
            None => Lanes::ALL,
        };
        SegmentSource { near, ..source }
    }

    /// The segments, dealt to the nearest.
    pub fn deal(&mut self, sources: impl IntoIterator<Item = SegmentSource>) -> Vec<SegmentSource> {
        sources.into_iter().map(|source| self.dealt(source)).collect()
    }

    /// What is to be said; files that come later add to it.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    fn near(&mut self, number: u32, file: &dyn ReadAt) -> Lanes {
        if let Some(known) = self.by_file.get(&number) {
            return *known;
        }
        let lanes = self.look_up(file).among(self.ordinals.len());
        self.by_file.insert(number, lanes);
        lanes
    }

    fn look_up(&mut self, file: &dyn ReadAt) -> Lanes {
        if file.is_in_memory() || file.source().is_remote() {
            return Lanes::ALL;
        }
        match self.gpu_for.taker(file.path()) {
            Some(Taker::All) => return Lanes::ALL,
            Some(Taker::Gpu(gpu)) => match self.ordinals.iter().position(|own| *own == gpu) {
                Some(lane) => {
                    self.note(format!("GPU {gpu} takes files as headrace.gpu_for says"));
                    return Lanes::from_iter([lane]);
                }
                None => self.note(format!("headrace.gpu_for names GPU {gpu}, which takes no part")),
            },
            None => {}
        }
        let Some(addresses) = &self.addresses else { return Lanes::ALL };
        let folder = file.path().parent().unwrap_or(file.path()).to_path_buf();
        let key = (file.source().identity().device, folder, addresses.clone());
        let near = near_by(key, || near_of(&SysRoot::host(), file.path(), addresses));
        match &near.told {
            Some((mount, Ok(distances))) => {
                let gpus = self.ordinals.iter().zip(distances);
                let gpus: Vec<_> =
                    gpus.map(|(gpu, distance)| format!("GPU {gpu} ({distance})")).collect();
                self.note(format!("from {mount} to {}", gpus.join(", ")));
            }
            Some((mount, Err(unknown))) => self.note(format!("from {mount}: {unknown}")),
            None => {}
        }
        if near.lanes.among(self.ordinals.len()) != Lanes::ALL {
            self.nearest = Some(self.nearest.unwrap_or(Lanes::NONE).or(near.lanes));
        }
        near.lanes
    }

    fn note(&self, note: String) {
        let mut notes = self.notes.lock();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// What is known, or what is found out now.
fn near_by(key: Folder, find: impl FnOnce() -> Near) -> Near {
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
    let distances = match found.distances.contains(&Distance::Unknown) {
        true => Err(found.reason),
        false => Ok(found.distances),
    };
    let lanes = distances.as_ref().map_or(Lanes::ALL, |all| nearest(all));
    let told = match (home.medium, home.mount) {
        (Ok(Medium::Memory), _) | (_, Err(_)) => None,
        (_, Ok(mount)) => Some((mount.mount_point.display().to_string(), distances)),
    };
    Near { lanes, told }
}

/// Of several drives the farthest counts.
fn nearest(distances: &[Distance]) -> Lanes {
    let best = distances.iter().min();
    (0..distances.len()).filter(|&lane| distances.get(lane) == best).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headrace_io::SourceFile;

    use super::*;

    /// A file in a folder of its own.
    fn file() -> (tempfile::TempDir, Arc<SourceFile>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.arrow");
        std::fs::write(&path, "x").unwrap();
        (folder, SourceFile::open(&path).unwrap())
    }

    #[test]
    fn files_go_to_the_gpu_that_is_named_for_them() {
        let (folder, file) = file();
        let of = |text: &str| NearGpus::among(vec![1, 3], None, text.parse().unwrap());
        let folder = folder.path().display();
        let mut gpus = of(&format!("{folder}=3"));
        assert_eq!(gpus.near(0, file.as_ref()), Lanes::from_iter([1]));
        assert_eq!(gpus.near(0, file.as_ref()), Lanes::from_iter([1]));
        assert_eq!(*gpus.notes().lock(), ["GPU 3 takes files as headrace.gpu_for says"]);
        let mut gpus = of(&format!("{folder}=0"));
        assert_eq!(gpus.near(0, file.as_ref()), Lanes::ALL);
        assert_eq!(*gpus.notes().lock(), ["headrace.gpu_for names GPU 0, which takes no part"]);
        for text in [format!("{folder}=all"), "/elsewhere=1".to_string()] {
            assert_eq!(of(&text).near(0, file.as_ref()), Lanes::ALL);
        }
    }

    #[test]
    fn where_the_nearest_have_no_room_all_take_part() {
        let (folder, file) = file();
        let addresses: Vec<PciAddress> =
            ["0000:01:00.0", "0000:02:00.0"].map(|address| address.parse().unwrap()).into();
        let key = (file.identity().device, folder.path().to_path_buf(), addresses.clone());
        let told = Some(("/a".to_string(), Ok(vec![Distance::OtherNode, Distance::SameNode])));
        near_by(key, || Near { lanes: Lanes::from_iter([1]), told });
        let mut gpus = NearGpus::among(vec![0, 1], Some(addresses), GpuFor::default());
        assert_eq!((gpus.near(0, file.as_ref()), gpus.nearest()), {
            let second = Lanes::from_iter([1]);
            (second, Some(second))
        });
        let told = "from /a to GPU 0 (another NUMA node), GPU 1 (same NUMA node)";
        assert_eq!(*gpus.notes().lock(), [told]);
        gpus.spread();
        assert_eq!((gpus.near(0, file.as_ref()), gpus.nearest()), (Lanes::ALL, None));
        assert!(gpus.notes().lock().iter().any(|note| note.contains("no room")));
    }

    #[test]
    fn the_nearest_are_those_whose_farthest_drive_is_nearest() {
        use Distance::{OtherNode, SameNode, SameSwitch};
        assert_eq!(nearest(&[OtherNode, SameSwitch(2), SameNode]), Lanes::from_iter([1]));
        let two = nearest(&[SameNode, OtherNode, SameNode]);
        assert_eq!((two, two.among(3)), (Lanes::from_iter([0, 2]), Lanes::from_iter([0, 2])));
        assert_eq!(nearest(&[OtherNode, OtherNode]).among(2), Lanes::ALL);
    }

    #[test]
    fn a_folder_is_looked_at_once() {
        let near = Near { lanes: Lanes::from_iter([2]), told: None };
        let key = || (u64::MAX - 7, PathBuf::from("/a"), Vec::new());
        assert_eq!(near_by(key(), || near.clone()), near);
        assert_eq!(near_by(key(), || unreachable!()), near);
    }
}
