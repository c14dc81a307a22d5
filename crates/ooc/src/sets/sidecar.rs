//! Fences cached beside a list, finer than is worth reading each time.
//!
//! A line of JSON that identifies the list, then the last keys of the blocks, consecutively. They are valid
//! as long as the list is the file that they were read from: device, inode, size and times.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use headrace_io::random::drawn_at;
use headrace_io::{FileIdentity, MemoryBudget, MemoryUse, Reservation};
use serde::{Deserialize, Serialize};

use super::Repeats;
use super::fences::{Fence, Fenced, PLAN_READERS};
use super::list::KeyList;
use crate::files::write_all;
use crate::{Number, NumberType, OocError, Options, Processor, Result, Room};

/// The list of the fences.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    version: u32,
    number: NumberType,
    keys: u64,
    block_keys: u64,
    device: u64,
    inode: u64,
    size_bytes: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    checksum: u64,
}

const VERSION: u32 = 2;

impl Head {
    /// For a list that is one stretch of a file.
    fn of(list: &KeyList, block_keys: u64, checksum: u64) -> Option<Head> {
        let [file] = list.files() else { return None };
        if list.segment_ends().count() != 1 || block_keys == 0 {
            return None;
        }
        let FileIdentity { device, inode, size_bytes, mtime_ns, ctime_ns } = file.identity();
        let (version, number, keys) = (VERSION, list.number(), list.keys());
        Some(Head {
            version,
            number,
            keys,
            block_keys,
            device,
            inode,
            size_bytes,
            mtime_ns,
            ctime_ns,
            checksum,
        })
    }
}

/// The path of a list's fences: beside it, with `.fences` appended to its name.
pub fn fences_path(list: &Path) -> PathBuf {
    let mut name: OsString = list.as_os_str().to_owned();
    name.push(".fences");
    name.into()
}

/// The written sidecar.
#[derive(Debug, Clone, Serialize)]
pub struct FencesReport {
    /// The file.
    pub path: PathBuf,
    /// Blocks of the list.
    pub blocks: u64,
    /// Keys of a block.
    pub block_keys: u64,
    /// From the call to the return.
    pub wall_ns: u64,
}

/// Reads the last key of each block of a list, and stores them beside it.
///
/// # Errors
/// A list that is not a single file, or is found out of order; errors of reading and writing.
pub fn keep_fences(list: &KeyList, block_bytes: u64, options: &Options) -> Result<FencesReport> {
    match list.number() {
        NumberType::I32 => keep::<i32>(list, block_bytes, options),
        NumberType::U32 => keep::<u32>(list, block_bytes, options),
        NumberType::I64 => keep::<i64>(list, block_bytes, options),
        NumberType::U64 => keep::<u64>(list, block_bytes, options),
        NumberType::F32 => keep::<f32>(list, block_bytes, options),
        NumberType::F64 => keep::<f64>(list, block_bytes, options),
        NumberType::Bf16 => Err(OocError::usage("bf16 is no type of keys", "name another type")),
    }
}

fn keep<K: Number>(list: &KeyList, block_bytes: u64, options: &Options) -> Result<FencesReport> {
    let start = Instant::now();
    let block_keys = (block_bytes / size_of::<K>() as u64).max(1);
    if list.keys() == 0 {
        let what = format!("{} has no keys", list.path().display());
        return Err(OocError::usage(what, "an empty list needs no fences"));
    }
    let room = Room::new(&Options { processor: Processor::Cpu, ..options.clone() }, None)?;
    let fenced =
        Fenced::<K>::read(list, block_keys, Repeats::Allowed, (PLAN_READERS, &room.memory))?;
    let last: Vec<K::Ordered> = fenced.fences.iter().map(|fence| fence.last).collect();
    let head = Head::of(list, block_keys, checksum::<K>(block_keys, &last)).ok_or_else(|| {
        let what = format!("{} is not one stretch of a file", list.path().display());
        OocError::usage(what, "fences are kept of files of keys, not of tables")
    })?;
    let path = fences_path(list.path());
    let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend_from_slice(bytemuck::cast_slice(&last));
    let sink = options.files.create(&path, bytes.len() as u64)?;
    write_all(&*sink, 0, &bytes)?;
    sink.commit(options.sync)?;
    list.files()[0].check_unchanged()?;
    let wall_ns = start.elapsed().as_nanos() as u64;
    Ok(FencesReport { path, blocks: last.len() as u64, block_keys, wall_ns })
}

/// A consistency check of data that cannot be compared with the list itself: block ends and keys.
fn checksum<K: Number>(block_keys: u64, last: &[K::Ordered]) -> u64 {
    let mix = |sum: u64, (at, key): (usize, &K::Ordered)| {
        sum.wrapping_add(drawn_at((*key).into(), at as u64))
    };
    last.iter().enumerate().fold(drawn_at(block_keys, last.len() as u64), mix)
}

/// Fences, and the memory that they take.
type Kept<K> = (Vec<Fence<<K as Number>::Ordered>>, Reservation);

/// The fences cached beside a list, or else those of blocks of up to this many keys, read with this many
/// concurrent reads.
///
/// # Errors
/// Those of [`Fenced::read`].
pub(super) fn fenced<'a, K: Number>(
    list: &'a KeyList,
    block_keys: u64,
    repeats: Repeats,
    (readers, memory): (usize, &Arc<MemoryBudget>),
) -> Result<Fenced<'a, K>> {
    match kept::<K>(list, block_keys, memory) {
        Ok((fences, reserved)) => Fenced::new(list, fences, repeats, reserved),
        Err(note) => {
            let mut fenced = Fenced::read(list, block_keys, repeats, (readers, memory))?;
            fenced.note = note;
            Ok(fenced)
        }
    }
}

/// The cached fences, if they belong to this list and are finer than blocks of this many keys; the reason if
/// there are others.
fn kept<K: Number>(
    list: &KeyList,
    block_keys: u64,
    memory: &Arc<MemoryBudget>,
) -> std::result::Result<Kept<K>, Option<String>> {
    /// Bytes of memory per fence in the file: fences, and the plan at some of them.
    const GROWTH: u64 = 16;
    let path = fences_path(list.path());
    let not = |why: &str| Some(format!("{} was left aside: {why}", path.display()));
    let Ok(metadata) = std::fs::metadata(&path) else { return Err(None) };
    if !metadata.is_file() {
        return Err(not("it is no file"));
    }
    let reserved = memory
        .reserve(MemoryUse::Operators, metadata.len() * GROWTH)
        .map_err(|error| not(&error.to_string()))?;
    let bytes = std::fs::read(&path).map_err(|error| not(&error.to_string()))?;
    let line = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| not("it is damaged"))?;
    let head: Head = serde_json::from_slice(&bytes[..line])
        .map_err(|error| not(&format!("its first line is damaged: {error}")))?;
    let stored = &bytes[line + 1..];
    if !stored.len().is_multiple_of(size_of::<K::Ordered>()) {
        return Err(not("it is damaged: it ends within a key"));
    }
    let last: Vec<K::Ordered> = bytemuck::pod_collect_to_vec(stored);
    let wanted = Head::of(list, head.block_keys, head.checksum);
    if wanted.as_ref() != Some(&head) {
        return Err(not("it is of another file, or of an older version of this one"));
    }
    if head.block_keys > block_keys {
        return Err(not("its blocks are larger than an eighth of a chunk"));
    }
    let blocks = head.keys.div_ceil(head.block_keys.max(1));
    if last.len() as u64 != blocks || checksum::<K>(head.block_keys, &last) != head.checksum {
        return Err(not("it is damaged: its checksum is wrong"));
    }
    let end = |block: usize| ((block as u64 + 1) * head.block_keys).min(head.keys);
    let fences = last.iter().enumerate();
    let fences = fences.map(|(block, last)| Fence { end: end(block), last: *last }).collect();
    Ok((fences, reserved))
}
