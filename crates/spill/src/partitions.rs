//! Rows by partition: while they arrive, and complete.

use std::mem;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use parking_lot::Mutex;

use crate::error::{Result, SpillError};
use crate::file::{self, Place, SpillFile};
use crate::folder::SpillFolder;

/// Rows that were stored together.
#[derive(Clone, Debug)]
pub struct Block(Lies);

#[derive(Clone, Debug)]
enum Lies {
    InMemory(Box<Held>),
    InFile(Filed),
}

#[derive(Clone, Debug)]
struct Held {
    batch: RecordBatch,
    keys_bytes: u64,
    _paid: Arc<Reservation>,
}

/// Compact, since lists of them are long: sizes in units, rounded up.
#[derive(Clone, Copy, Debug)]
struct Filed {
    offset: u64,
    file_units: NonZeroU32,
    rows: u32,
    memory_units: u32,
    keys_units: u32,
}

/// Size of an entry in its partition's list.
pub const LISTED_BYTES: u64 = size_of::<Block>() as u64;
const _: () = assert!(LISTED_BYTES == 24);

/// Unit of block sizes in a file.
const FILE_UNIT_BYTES: u64 = file::ALIGN_BYTES;
const MEMORY_UNIT_BYTES: u64 = 64;

impl Filed {
    fn new(place: Place, rows: usize, memory_bytes: u64, keys_bytes: u64) -> Result<Self> {
        let too_large = |_| SpillError::Internal("a block too large for its list".into());
        let units = |bytes: u64, unit| u32::try_from(bytes.div_ceil(unit)).map_err(too_large);
        let file_units = NonZeroU32::try_from(units(place.bytes, FILE_UNIT_BYTES)?);
        Ok(Self {
            offset: place.offset,
            file_units: file_units.map_err(too_large)?,
            rows: u32::try_from(rows).map_err(too_large)?,
            memory_units: units(memory_bytes, MEMORY_UNIT_BYTES)?,
            keys_units: units(keys_bytes, MEMORY_UNIT_BYTES)?,
        })
    }

    fn place(&self) -> Place {
        let bytes = u64::from(self.file_units.get()) * FILE_UNIT_BYTES;
        Place { offset: self.offset, bytes }
    }
}

impl Block {
    /// Number of rows.
    pub fn rows(&self) -> u64 {
        match &self.0 {
            Lies::InMemory(held) => held.batch.num_rows() as u64,
            Lies::InFile(filed) => u64::from(filed.rows),
        }
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> u64 {
        match &self.0 {
            Lies::InMemory(held) => batch_bytes(&held.batch),
            Lies::InFile(filed) => u64::from(filed.memory_units) * MEMORY_UNIT_BYTES,
        }
    }

    /// Bytes of their keys, if the owner makes some.
    pub fn keys_bytes(&self) -> u64 {
        match &self.0 {
            Lies::InMemory(held) => held.keys_bytes,
            Lies::InFile(filed) => u64::from(filed.keys_units) * MEMORY_UNIT_BYTES,
        }
    }

    /// Bytes in a file.
    pub fn file_bytes(&self) -> u64 {
        match &self.0 {
            Lies::InMemory(_) => 0,
            Lies::InFile(filed) => filed.place().bytes,
        }
    }

    /// Memory needed to read them back.
    pub fn needs_bytes(&self) -> u64 {
        match &self.0 {
            Lies::InMemory(_) => 0,
            Lies::InFile(_) => self.file_bytes() + self.memory_bytes(),
        }
    }
}

/// Rows by partition, added by any number of threads.
#[derive(Debug)]
pub struct Partitions {
    schema: SchemaRef,
    folder: Option<Arc<SpillFolder>>,
    /// Created with the first block.
    file: Mutex<Option<Arc<SpillFile>>>,
    parts: Vec<Mutex<Part>>,
    budget: Arc<MemoryBudget>,
    kind: MemoryUse,
    held_bytes: AtomicU64,
    held_bytes_max: u64,
}

impl Partitions {
    /// `count` empty partitions for batches of a schema. Blocks go to a file in the folder; without a folder they are
    /// held in memory. Memory comes from the budget, for `kind`.
    pub fn new(
        count: usize,
        schema: SchemaRef,
        folder: Option<Arc<SpillFolder>>,
        budget: &Arc<MemoryBudget>,
        kind: MemoryUse,
    ) -> Self {
        Self {
            schema,
            held_bytes_max: if folder.is_some() { 0 } else { u64::MAX },
            folder,
            file: Mutex::default(),
            parts: (0..count).map(|_| Mutex::default()).collect(),
            budget: Arc::clone(budget),
            kind,
            held_bytes: AtomicU64::new(0),
        }
    }

    /// Holds the first blocks in memory, up to this many bytes, as long as the budget has them.
    pub fn holding(mut self, bytes_max: u64) -> Self {
        if self.folder.is_some() {
            self.held_bytes_max = bytes_max;
        }
        self
    }

    /// How many partitions there are.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// Stores a batch, whose keys take `keys_bytes`. It belongs to no partition until it is [added](Self::add) to
    /// one.
    ///
    /// # Errors
    /// [`SpillError`]: there is neither memory nor file space for it.
    pub fn put_aside(&self, batch: RecordBatch, keys_bytes: u64) -> Result<Block> {
        if let Some(memory) = self.hold(batch.get_array_memory_size() as u64)? {
            let held = Held { batch, keys_bytes, _paid: Arc::new(memory) };
            return Ok(Block(Lies::InMemory(Box::new(held))));
        }
        let place = self.file()?.write(&batch)?;
        let filed = Filed::new(place, batch.num_rows(), batch_bytes(&batch), keys_bytes)?;
        Ok(Block(Lies::InFile(filed)))
    }

    /// Appends a block to a partition. Its place in the list is paid out of `spare`, a reservation of the same budget and
    /// use, as long as that has something: rows are put aside when memory is full, and are held until they are.
    ///
    /// # Errors
    /// Neither `spare` nor the budget has memory for the list of blocks.
    pub fn add(&self, partition: usize, block: Block, spare: &mut Reservation) -> Result<()> {
        let mut part = self.parts[partition].lock();
        let memory = part.memory.get_or_insert_with(|| self.budget.reserve_nothing(self.kind));
        let paid = spare.split(LISTED_BYTES);
        let missing_bytes = LISTED_BYTES - paid.bytes();
        memory.absorb(paid);
        memory.resize(memory.bytes() + missing_bytes)?;
        if let (Lies::InFile(_), None) = (&block.0, &part.blocks.file) {
            part.blocks.file = Some(self.file()?);
        }
        part.blocks.list.push(block);
        Ok(())
    }

    /// Stores a batch and adds it to a partition; returns its bytes in a file.
    ///
    /// # Errors
    /// Those of [`put_aside`](Self::put_aside) and [`add`](Self::add).
    pub fn push(
        &self,
        partition: usize,
        batch: RecordBatch,
        spare: &mut Reservation,
    ) -> Result<u64> {
        let block = self.put_aside(batch, 0)?;
        let file_bytes = block.file_bytes();
        self.add(partition, block, spare)?;
        Ok(file_bytes)
    }

    /// Memory for a batch, if it can be held; without a folder it must be.
    fn hold(&self, bytes: u64) -> Result<Option<Reservation>> {
        let within = |held: u64| held.checked_add(bytes).filter(|&sum| sum <= self.held_bytes_max);
        let held = self.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        if held.is_err() {
            return Ok(None);
        }
        match self.budget.reserve(self.kind, bytes) {
            Ok(memory) => Ok(Some(memory)),
            Err(refused) if self.folder.is_none() => Err(refused.into()),
            Err(_) => {
                self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    fn file(&self) -> Result<Arc<SpillFile>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let nowhere = || SpillError::Internal("rows put aside without a folder".into());
        let folder = self.folder.as_ref().ok_or_else(nowhere)?;
        Ok(Arc::clone(file.insert(Arc::new(SpillFile::create(folder, Arc::clone(&self.schema))?))))
    }

    /// Takes out a partition in its current state.
    pub fn take(&self, partition: usize) -> Part {
        mem::take(&mut *self.parts[partition].lock())
    }

    /// All partitions.
    pub fn into_parts(self) -> Vec<Part> {
        self.parts.into_iter().map(Mutex::into_inner).collect()
    }
}

/// A partition, and the memory of its list of blocks.
#[derive(Debug, Default)]
pub struct Part {
    blocks: Blocks,
    /// Created with the first block: levels of groups make many partitions that stay empty.
    memory: Option<Reservation>,
}

impl Part {
    /// Its rows, readable while it exists.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Its rows, and the memory of their list.
    pub fn into_blocks(self) -> (Blocks, Option<Reservation>) {
        (self.blocks, self.memory)
    }

    /// Delivers its batches in order of arrival and drops each after its call.
    ///
    /// # Errors
    /// The first error of reading or of `each`.
    pub fn drain<E: From<SpillError>>(
        self,
        mut each: impl FnMut(&RecordBatch) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Self { blocks: Blocks { file, list }, mut memory } = self;
        list.into_iter().try_for_each(|block| {
            each(&read(file.as_deref(), &block)?)?;
            let Some(memory) = &mut memory else { return Ok(()) };
            Ok(memory.resize(memory.bytes() - LISTED_BYTES).map_err(SpillError::from)?)
        })
    }
}

/// Blocks of a partition, in order of arrival. Clones share the blocks.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// The file of those that are not in memory.
    file: Option<Arc<SpillFile>>,
    list: Vec<Block>,
}

impl Blocks {
    /// Those of all partitions of one [`Partitions`].
    pub fn of_all(parts: &[Part]) -> Self {
        let file = parts.iter().find_map(|part| part.blocks.file.clone());
        let list = parts.iter().flat_map(|part| part.blocks.list.iter().cloned()).collect();
        Self { file, list }
    }

    /// Each of them.
    pub fn list(&self) -> &[Block] {
        &self.list
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Rows of all.
    pub fn rows(&self) -> u64 {
        self.list.iter().map(Block::rows).sum()
    }

    /// Bytes of all in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.list.iter().map(Block::memory_bytes).sum()
    }

    /// Bytes of all in a file.
    pub fn file_bytes(&self) -> u64 {
        self.list.iter().map(Block::file_bytes).sum()
    }

    /// The same rows in pieces of at most this many bytes in memory, or of one block.
    pub fn pieces(&self, bytes_max: u64) -> Vec<Self> {
        let mut pieces: Vec<Self> = Vec::new();
        let mut bytes = 0;
        for block in &self.list {
            bytes += block.memory_bytes();
            match pieces.last_mut() {
                Some(last) if bytes <= bytes_max => last.list.push(block.clone()),
                _ => {
                    bytes = block.memory_bytes();
                    pieces.push(Self { file: self.file.clone(), list: vec![block.clone()] });
                }
            }
        }
        pieces
    }

    /// One of them.
    ///
    /// # Errors
    /// [`SpillError`]: a failed device, corrupt bytes.
    pub fn read(&self, block: &Block) -> Result<RecordBatch> {
        read(self.file.as_deref(), block)
    }

    /// All batches, each read on demand.
    pub fn batches(&self) -> impl Iterator<Item = Result<RecordBatch>> + use<> {
        let Self { file, list } = self.clone();
        list.into_iter().map(move |block| read(file.as_deref(), &block))
    }
}

fn read(file: Option<&SpillFile>, block: &Block) -> Result<RecordBatch> {
    match (&block.0, file) {
        (Lies::InMemory(held), _) => Ok(held.batch.clone()),
        (Lies::InFile(filed), Some(file)) => file.read(filed.place()),
        (Lies::InFile(_), None) => Err(SpillError::Internal("a block of no file".into())),
    }
}

/// Bytes of a batch's own values; it may be a slice of something larger.
pub fn batch_bytes(batch: &RecordBatch) -> u64 {
    let of = |column: &Arc<dyn Array>| {
        let whole = column.get_array_memory_size();
        column.to_data().get_slice_memory_size().map_or(whole, |slice| slice.min(whole))
    };
    batch.columns().iter().map(of).sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::{ArrayRef, Int64Array};
    use tempfile::TempDir;

    use super::*;
    use crate::faulty::{self, Fault};

    const KIND: MemoryUse = MemoryUse::Operators;

    fn batch(first: i64, rows: i64) -> RecordBatch {
        let values = Int64Array::from_iter_values(first..first + rows);
        RecordBatch::try_from_iter([("i", Arc::new(values) as ArrayRef)]).unwrap()
    }

    fn folder() -> (TempDir, Arc<SpillFolder>) {
        let home = tempfile::tempdir().unwrap();
        let folder = SpillFolder::new(home.path(), u64::MAX, "");
        (home, folder)
    }

    fn two(folder: Option<&Arc<SpillFolder>>, budget: &Arc<MemoryBudget>) -> Partitions {
        Partitions::new(2, batch(0, 0).schema(), folder.cloned(), budget, KIND)
    }

    #[test]
    fn blocks_are_held_as_long_as_there_is_memory_and_come_back_in_order() {
        let (_home, folder) = folder();
        for held_bytes_max in [0, 3000, 12_000] {
            let budget = MemoryBudget::new(16_000);
            let partitions = two(Some(&folder), &budget).holding(held_bytes_max);
            let mut file_bytes = 0;
            for i in 0..20 {
                file_bytes += partitions
                    .push(i % 2, batch(i as i64 * 100, 100), &mut budget.reserve_nothing(KIND))
                    .unwrap();
            }
            let held = budget.uses().total_bytes();
            assert!(held <= 16_000 && file_bytes > 0, "{held} held, {file_bytes} in a file");
            assert_eq!(held_bytes_max > 0, held > 3000, "{held} held");
            assert_eq!(folder.used_bytes(), file_bytes);
            let mut parts = partitions.into_parts();
            let even = parts.remove(0);
            assert_eq!(even.blocks().rows(), 1000);
            // Rounded up to 64 bytes a block.
            assert!((8000..=8320).contains(&even.blocks().memory_bytes()));
            assert_eq!(even.blocks().pieces(2500).len(), 4);
            let mut seen = 0;
            even.drain(|some| {
                assert_eq!(*some, batch(seen, 100));
                seen += 200;
                Ok::<_, SpillError>(())
            })
            .unwrap();
            let both = Blocks::of_all(&parts);
            drop(parts);
            assert_eq!(both.batches().map(|some| some.unwrap().num_rows()).sum::<usize>(), 1000);
            drop(both);
            assert_eq!((budget.uses().total_bytes(), folder.used_bytes()), (0, 0));
        }
    }

    #[test]
    fn without_a_folder_memory_must_do() {
        let budget = MemoryBudget::new(10_000);
        let partitions = two(None, &budget);
        let mut none = budget.reserve_nothing(KIND);
        let error = (0..).find_map(|_| partitions.push(0, batch(0, 100), &mut none).err()).unwrap();
        assert!(matches!(error, SpillError::Memory(_)), "{error}");
        assert!(partitions.take(0).blocks().rows() > 0);
        assert_eq!(budget.uses().total_bytes(), 0);
    }

    #[test]
    fn the_list_of_blocks_is_paid_for() {
        let (_home, folder) = folder();
        let budget = MemoryBudget::new(1000);
        let partitions = two(Some(&folder), &budget);
        let mut none = budget.reserve_nothing(KIND);
        let error = (0..).find_map(|_| partitions.push(0, batch(0, 1), &mut none).err()).unwrap();
        assert!(matches!(error, SpillError::Memory(_)), "{error}");
    }

    #[test]
    fn what_is_held_pays_for_the_list_when_memory_is_full() {
        let (_home, folder) = folder();
        let budget = MemoryBudget::new(1000);
        let partitions = two(Some(&folder), &budget);
        // Two blocks and a half.
        let mut held = budget.reserve(KIND, 60).unwrap();
        let others = budget.reserve(KIND, 940).unwrap();
        for _ in 0..2 {
            partitions.push(0, batch(0, 1), &mut held).unwrap();
            assert_eq!(budget.uses().total_bytes(), 1000);
        }
        let error = partitions.push(0, batch(0, 1), &mut held).unwrap_err();
        assert!(matches!(error, SpillError::Memory(_)), "{error}");
        drop((held, others, partitions));
        assert_eq!(budget.uses().total_bytes(), 0);
    }

    #[test]
    fn a_device_that_fails_is_named() {
        for (fault, expected) in [
            (Fault::Create, "cannot make a temporary file in this folder: No such file"),
            (Fault::Full(0), "cannot write a temporary file in this folder: No space left"),
            (Fault::Eio(0), "cannot read back a temporary file in this folder: Input/output error"),
            (Fault::Bit(0), "is corrupt at byte 0: its checksum is not the one that was written"),
        ] {
            let home = tempfile::tempdir().unwrap();
            let folder = faulty::folder(home.path(), u64::MAX, fault);
            let budget = MemoryBudget::new(100_000);
            let partitions = two(Some(&folder), &budget);
            let through = partitions
                .push(1, batch(7, 70), &mut budget.reserve_nothing(KIND))
                .and_then(|_| partitions.take(1).drain(|_| Ok::<_, SpillError>(())));
            let error = through.unwrap_err().to_string();
            let place = home.path().to_str().unwrap();
            assert!(error.contains(place) && error.contains(expected), "{error}");
        }
    }
}
