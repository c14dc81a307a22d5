//! Record batches in a temporary file.
//!
//! ```text
//! block: checksum (XXH64 of the rest, u64), bytes of the metadata (u64),
//!        metadata (an IPC message), body (LZ4 where that is smaller), zeros up to a multiple of 8
//! ```
//!
//! Blocks are found by the positions that [`SpillFile::write`] returns. The file contains no schema, because its writer
//! reads it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_ipc::{CompressionType, MetadataVersion, root_as_message};
use arrow_schema::{ArrowError, SchemaRef};
use twox_hash::XxHash64;

use crate::error::{Result, SpillError};
use crate::folder::{SpillFolder, TemporaryFile};

/// Checksum and length before a block's metadata.
const HEADER_BYTES: usize = 16;

/// Block sizes are multiples of this.
pub(crate) const ALIGN_BYTES: u64 = 8;

/// The position of a block in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A temporary file of record batches. Threads may write and read at the same time.
pub struct SpillFile {
    file: Box<dyn TemporaryFile>,
    schema: SchemaRef,
    folder: Arc<SpillFolder>,
    options: IpcWriteOptions,
    end: AtomicU64,
}

impl fmt::Debug for SpillFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpillFile({} bytes in {:?})", self.end.load(Ordering::Relaxed), self.folder)
    }
}

impl SpillFile {
    /// An empty one in a folder, for batches of a schema.
    ///
    /// # Errors
    /// No file can be created in the folder.
    pub fn create(folder: &Arc<SpillFolder>, schema: SchemaRef) -> Result<Self> {
        Self::over(folder.make()?, schema, Arc::clone(folder))
    }

    fn over(
        file: Box<dyn TemporaryFile>,
        schema: SchemaRef,
        folder: Arc<SpillFolder>,
    ) -> Result<Self> {
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::LZ4_FRAME))
            .map_err(|e| SpillError::arrow("preparing a spill", e))?;
        Ok(Self { file, schema, folder, options, end: AtomicU64::new(0) })
    }

    /// Appends a batch and returns the position of its block.
    ///
    /// # Errors
    /// The batch has another schema, the limit of the folder, the file system.
    pub fn write(&self, batch: &RecordBatch) -> Result<Place> {
        if batch.schema_ref() != &self.schema {
            return Err(SpillError::Internal("a spilled batch of another schema".into()));
        }
        let block = self.encode(batch)?;
        let bytes = block.len() as u64;
        self.folder.take(bytes)?;
        let offset = self.end.fetch_add(bytes, Ordering::Relaxed);
        let written = self.file.write_all_at(&block, offset);
        written.map_err(|cause| self.folder.failed("write a temporary file", cause))?;
        self.folder.count_written(bytes);
        Ok(Place { offset, bytes })
    }

    fn encode(&self, batch: &RecordBatch) -> Result<Vec<u8>> {
        let mut dictionaries = DictionaryTracker::new(true);
        let mut context = IpcWriteContext::default();
        let encoded = IpcDataGenerator::default()
            .encode(batch, &mut dictionaries, &self.options, &mut context)
            .map_err(|e| SpillError::arrow("encoding a spilled batch", e))?;
        let (dictionaries, data) = encoded;
        if !dictionaries.is_empty() {
            return Err(SpillError::Internal("dictionaries are not spilled".into()));
        }
        let bytes = HEADER_BYTES + data.ipc_message.len() + data.arrow_data.len();
        let bytes = bytes.next_multiple_of(ALIGN_BYTES as usize);
        let mut block = Vec::with_capacity(bytes);
        block.extend([0; 8]);
        block.extend((data.ipc_message.len() as u64).to_le_bytes());
        block.extend(data.ipc_message);
        block.extend(data.arrow_data);
        block.resize(bytes, 0);
        let checksum = XxHash64::oneshot(0, &block[8..]);
        block[..8].copy_from_slice(&checksum.to_le_bytes());
        Ok(block)
    }

    /// The batch of a block that [`Self::write`] returned.
    ///
    /// # Errors
    /// The file system; [`SpillError::Corrupt`] for bytes that differ from those that were written.
    pub fn read(&self, place: Place) -> Result<RecordBatch> {
        let Place { offset, bytes } = place;
        let end = self.end.load(Ordering::Relaxed);
        if bytes < HEADER_BYTES as u64 || offset.checked_add(bytes).is_none_or(|last| last > end) {
            return Err(SpillError::Internal(format!("no block of {bytes} bytes at {offset}")));
        }
        let mut block = vec![0; bytes as usize];
        let read = self.file.read_exact_at(&mut block, offset);
        read.map_err(|cause| self.folder.failed("read back a temporary file", cause))?;
        let corrupt = |cause: String| self.folder.corrupt(offset, cause);
        let (head, rest) = block.split_at(8);
        if XxHash64::oneshot(0, rest).to_le_bytes() != *head {
            return Err(corrupt("its checksum is not the one that was written".into()));
        }
        self.folder.count_read(bytes);
        self.decode(Buffer::from_vec(block)).map_err(|cause| corrupt(cause.to_string()))
    }

    /// The batch of a block whose checksum is right.
    fn decode(&self, block: Buffer) -> std::result::Result<RecordBatch, ArrowError> {
        let broken = |cause: String| ArrowError::IpcError(cause);
        let length = block.get(8..HEADER_BYTES).and_then(|bytes| bytes.first_chunk::<8>());
        let metadata_bytes = u64::from_le_bytes(*length.unwrap_or(&[0; 8])) as usize;
        let body_at = HEADER_BYTES.saturating_add(metadata_bytes);
        let metadata = block.get(HEADER_BYTES..body_at).ok_or_else(|| broken("cut off".into()))?;
        let message = root_as_message(metadata).map_err(|e| broken(e.to_string()))?;
        let batch = message.header_as_record_batch();
        let batch = batch.ok_or_else(|| broken("not a record batch".into()))?;
        let (schema, none) = (Arc::clone(&self.schema), HashMap::new());
        let body = block.slice(body_at);
        arrow_ipc::reader::read_record_batch(
            &body,
            batch,
            schema,
            &none,
            None,
            &MetadataVersion::V5,
        )
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        let taken = *self.end.get_mut();
        self.folder.give_back(taken);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::OpenOptions;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::sync::Mutex;

    use arrow_array::{FixedSizeBinaryArray, Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;
    use crate::SpillCounters;

    fn batch(rows: i64) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("i", DataType::Int64, false),
            Field::new("t", DataType::Utf8, true),
            Field::new("w", DataType::FixedSizeBinary(24), false),
        ]);
        let texts = (0..rows).map(|i| (i % 3 != 0).then(|| format!("text {i}")));
        let wide: Vec<u8> = (0..rows * 24).map(|i| (i % 251) as u8).collect();
        RecordBatch::try_new(
            Arc::new(schema),
            vec![
                Arc::new(Int64Array::from_iter_values(0..rows)),
                Arc::new(texts.collect::<StringArray>()),
                Arc::new(FixedSizeBinaryArray::new(24, wide.into(), None)),
            ],
        )
        .unwrap()
    }

    fn folder(limit_bytes: u64) -> (tempfile::TempDir, Arc<SpillFolder>) {
        let home = tempfile::tempdir().unwrap();
        let folder = SpillFolder::new(home.path(), limit_bytes, "raise the spill limit");
        (home, folder)
    }

    fn is_empty(home: &tempfile::TempDir) -> bool {
        std::fs::read_dir(home.path()).unwrap().next().is_none()
    }

    #[test]
    fn batches_come_back_as_they_were_and_no_file_has_a_name() {
        let (home, folder) = folder(u64::MAX);
        let file = SpillFile::create(&folder, batch(0).schema()).unwrap();
        let batches: Vec<_> = [0, 1, 5, 10_000].map(batch).into();
        let blocks: Vec<_> = batches.iter().map(|batch| file.write(batch).unwrap()).collect();
        assert!(is_empty(&home));
        for (batch, place) in batches.iter().zip(blocks).rev() {
            assert_eq!(file.read(place).unwrap(), *batch);
        }
        assert!(folder.used_bytes() > 0);
        let written = SpillCounters {
            written_blocks: 4,
            written_bytes: folder.used_bytes(),
            ..Default::default()
        };
        let both = SpillCounters { read_blocks: 4, read_bytes: folder.used_bytes(), ..written };
        assert_eq!(folder.counters(), both);
        drop(file);
        assert_eq!(folder.used_bytes(), 0);
    }

    #[test]
    fn a_full_folder_names_its_limit_and_the_lever() {
        let (home, folder) = folder(10_000);
        let file = SpillFile::create(&folder, batch(0).schema()).unwrap();
        let error = (0..).find_map(|_| file.write(&batch(50)).err()).unwrap().to_string();
        assert!(error.contains("10000") && error.contains("raise the spill limit"), "{error}");
        assert!(error.contains(home.path().to_str().unwrap()), "{error}");
        assert!(folder.used_bytes() <= 10_000);
    }

    #[test]
    fn spoilt_bytes_are_found_wherever_they_are() {
        let (_home, folder) = folder(u64::MAX);
        let file = SpillFile::create(&folder, batch(0).schema()).unwrap();
        file.write(&batch(3)).unwrap();
        let place = file.write(&batch(20)).unwrap();
        let Place { offset, bytes } = place;
        for at in offset..offset + bytes {
            let mut byte = [0];
            file.file.read_exact_at(&mut byte, at).unwrap();
            file.file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            let error = file.read(place).unwrap_err();
            assert!(matches!(error, SpillError::Corrupt { .. }), "{error}");
            assert!(error.to_string().contains("checksum"), "{error}");
            file.file.write_all_at(&byte, at).unwrap();
        }
        file.read(place).unwrap();
        assert!(file.read(Place { offset, bytes: bytes + 1 }).is_err());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = SpillFolder::new("/nowhere/at all", 1, "");
        let error = SpillFile::create(&folder, batch(0).schema());
        assert!(error.unwrap_err().to_string().contains("/nowhere/at all"));
    }

    #[test]
    fn a_full_device_is_an_error_of_the_write() {
        let (_home, folder) = folder(u64::MAX);
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let file = SpillFile::over(Box::new(full), batch(0).schema(), Arc::clone(&folder)).unwrap();
        let error = file.write(&batch(9)).unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
        drop(file);
        assert_eq!(folder.used_bytes(), 0);
    }

    /// Transfers a few bytes at a time, and is interrupted in between.
    struct Short(Mutex<(Vec<u8>, u32)>);

    impl FileExt for Short {
        fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
            let state = self.0.lock().unwrap();
            let count = into.len().min(7).min(state.0.len() - offset as usize);
            into[..count].copy_from_slice(&state.0[offset as usize..][..count]);
            Ok(count)
        }

        fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
            let mut state = self.0.lock().unwrap();
            state.1 += 1;
            if state.1.is_multiple_of(3) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = from.len().min(11);
            let end = offset as usize + count;
            let length = state.0.len().max(end);
            state.0.resize(length, 0);
            state.0[offset as usize..end].copy_from_slice(&from[..count]);
            Ok(count)
        }
    }

    #[test]
    fn short_transfers_are_continued() {
        let (_home, folder) = folder(u64::MAX);
        let short = Short(Mutex::default());
        let file = SpillFile::over(Box::new(short), batch(0).schema(), folder).unwrap();
        let blocks = [40, 7].map(|rows| (rows, file.write(&batch(rows)).unwrap()));
        for (rows, place) in blocks {
            assert_eq!(file.read(place).unwrap(), batch(rows));
        }
    }
}
