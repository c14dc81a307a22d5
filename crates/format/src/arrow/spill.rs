//! Record batches that wait on disk for a moment, for whoever is short of memory.
//!
//! ```text
//! block: checksum (XXH64 of the rest, u64), bytes of the metadata (u64),
//!        metadata (an IPC message), body (LZ4 where that is smaller)
//! ```
//!
//! A spill has no name: it is unlinked when it is made, so that nothing is left of it however
//! the process ends. Blocks are found by the offsets that [`SpillFile::write`] answers; there is
//! no schema in the file, because its writer reads it.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_ipc::{CompressionType, MetadataVersion, root_as_message};
use arrow_schema::SchemaRef;
use twox_hash::XxHash64;

use crate::{FormatError, Result};

/// Checksum and length before a block's metadata.
const HEADER_BYTES: usize = 16;

/// Where spills are made, and how much they may take.
#[derive(Debug)]
pub struct SpillFolder {
    path: PathBuf,
    limit_bytes: u64,
    lever: String,
    used_bytes: AtomicU64,
}

impl SpillFolder {
    /// Spills in the folder `path` that take `limit_bytes` at most together. `lever` is what
    /// somebody does who wants more: "raise headrace.spill_limit".
    pub fn new(path: impl Into<PathBuf>, limit_bytes: u64, lever: impl Into<String>) -> Arc<Self> {
        let (path, lever) = (path.into(), lever.into());
        Arc::new(Self { path, limit_bytes, lever, used_bytes: AtomicU64::new(0) })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that its spills take now.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// An empty spill for batches of a schema.
    ///
    /// # Errors
    /// No file can be made in the folder.
    pub fn create(self: &Arc<Self>, schema: SchemaRef) -> Result<SpillFile> {
        let file = tempfile::tempfile_in(&self.path).map_err(|cause| FormatError::Write {
            path: self.path.clone(),
            action: "make a temporary file in this folder",
            cause,
        })?;
        SpillFile::over(file, schema, Arc::clone(self))
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit_bytes);
        let taken = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        taken.map(|_| ()).map_err(|used| FormatError::SpillLimit {
            folder: self.path.clone(),
            needed_bytes: used.saturating_add(bytes),
            limit_bytes: self.limit_bytes,
            lever: self.lever.clone(),
        })
    }
}

/// A temporary file of record batches. Threads may write and read at the same time.
#[derive(Debug)]
pub struct SpillFile<F: FileExt = File> {
    file: F,
    schema: SchemaRef,
    folder: Arc<SpillFolder>,
    options: IpcWriteOptions,
    end: AtomicU64,
}

impl<F: FileExt> SpillFile<F> {
    fn over(file: F, schema: SchemaRef, folder: Arc<SpillFolder>) -> Result<Self> {
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::LZ4_FRAME))
            .map_err(|e| FormatError::arrow("preparing a spill", e))?;
        Ok(Self { file, schema, folder, options, end: AtomicU64::new(0) })
    }

    /// Appends a batch; answers the offset and the bytes of its block.
    ///
    /// # Errors
    /// The batch has another schema, the limit of the folder, the file system.
    pub fn write(&self, batch: &RecordBatch) -> Result<(u64, u64)> {
        if batch.schema_ref() != &self.schema {
            return Err(FormatError::Argument("a spilled batch of another schema".into()));
        }
        let block = self.encode(batch)?;
        let bytes = block.len() as u64;
        self.folder.take(bytes)?;
        let offset = self.end.fetch_add(bytes, Ordering::Relaxed);
        self.file.write_all_at(&block, offset).map_err(|cause| self.failed("write", cause))?;
        Ok((offset, bytes))
    }

    fn encode(&self, batch: &RecordBatch) -> Result<Vec<u8>> {
        let mut dictionaries = DictionaryTracker::new(true);
        let mut context = IpcWriteContext::default();
        let encoded = IpcDataGenerator::default()
            .encode(batch, &mut dictionaries, &self.options, &mut context)
            .map_err(|e| FormatError::arrow("encoding a spilled batch", e))?;
        let (dictionaries, data) = encoded;
        if !dictionaries.is_empty() {
            return Err(FormatError::Argument("dictionaries are not spilled".into()));
        }
        let bytes = HEADER_BYTES + data.ipc_message.len() + data.arrow_data.len();
        let mut block = Vec::with_capacity(bytes);
        block.extend([0; 8]);
        block.extend((data.ipc_message.len() as u64).to_le_bytes());
        block.extend(data.ipc_message);
        block.extend(data.arrow_data);
        let checksum = XxHash64::oneshot(0, &block[8..]);
        block[..8].copy_from_slice(&checksum.to_le_bytes());
        Ok(block)
    }

    /// The batch of a block that [`Self::write`] answered.
    ///
    /// # Errors
    /// The file system; [`FormatError::Corrupt`] for bytes that are not those that were
    /// written.
    pub fn read(&self, offset: u64, bytes: u64) -> Result<RecordBatch> {
        let end = self.end.load(Ordering::Relaxed);
        if bytes < HEADER_BYTES as u64 || offset.checked_add(bytes).is_none_or(|last| last > end) {
            return Err(FormatError::Argument(format!("no block of {bytes} bytes at {offset}")));
        }
        let mut block = vec![0; bytes as usize];
        self.file.read_exact_at(&mut block, offset).map_err(|cause| self.failed("read", cause))?;
        let corrupt = |cause: String| {
            FormatError::corrupt(&self.folder.path, offset, "a temporary file", cause)
        };
        let (head, rest) = block.split_at(8);
        if XxHash64::oneshot(0, rest).to_le_bytes() != *head {
            return Err(corrupt("its checksum is not the one that was written".into()));
        }
        self.decode(Buffer::from_vec(block)).map_err(|cause| corrupt(cause.to_string()))
    }

    /// The batch of a block whose checksum is right.
    fn decode(&self, block: Buffer) -> std::result::Result<RecordBatch, arrow_schema::ArrowError> {
        let broken = |cause: String| arrow_schema::ArrowError::IpcError(cause);
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

    fn failed(&self, verb: &str, cause: std::io::Error) -> FormatError {
        let action = match verb {
            "write" => "write a temporary file in this folder",
            _ => "read back a temporary file in this folder",
        };
        FormatError::Write { path: self.folder.path.clone(), action, cause }
    }
}

impl<F: FileExt> Drop for SpillFile<F> {
    fn drop(&mut self) {
        let taken = *self.end.get_mut();
        self.folder.used_bytes.fetch_sub(taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::OpenOptions;
    use std::io;
    use std::sync::Mutex;

    use arrow_array::{FixedSizeBinaryArray, Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

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
        let file = folder.create(batch(0).schema()).unwrap();
        let batches: Vec<_> = [0, 1, 5, 10_000].map(batch).into();
        let blocks: Vec<_> = batches.iter().map(|batch| file.write(batch).unwrap()).collect();
        assert!(is_empty(&home));
        for (batch, (offset, bytes)) in batches.iter().zip(blocks).rev() {
            assert_eq!(file.read(offset, bytes).unwrap(), *batch);
        }
        assert!(folder.used_bytes() > 0);
        drop(file);
        assert_eq!(folder.used_bytes(), 0);
    }

    #[test]
    fn a_full_folder_names_its_limit_and_the_lever() {
        let (home, folder) = folder(10_000);
        let file = folder.create(batch(0).schema()).unwrap();
        let error = (0..).find_map(|_| file.write(&batch(50)).err()).unwrap().to_string();
        assert!(error.contains("10000") && error.contains("raise the spill limit"), "{error}");
        assert!(error.contains(home.path().to_str().unwrap()), "{error}");
        assert!(folder.used_bytes() <= 10_000);
    }

    #[test]
    fn spoilt_bytes_are_found_wherever_they_are() {
        let (_home, folder) = folder(u64::MAX);
        let file = folder.create(batch(0).schema()).unwrap();
        file.write(&batch(3)).unwrap();
        let (offset, bytes) = file.write(&batch(20)).unwrap();
        for at in offset..offset + bytes {
            let mut byte = [0];
            file.file.read_exact_at(&mut byte, at).unwrap();
            file.file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            let error = file.read(offset, bytes).unwrap_err();
            assert!(matches!(error, FormatError::Corrupt { .. }), "{error}");
            assert!(error.to_string().contains("checksum"), "{error}");
            file.file.write_all_at(&byte, at).unwrap();
        }
        file.read(offset, bytes).unwrap();
        assert!(file.read(offset, bytes + 1).is_err());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = SpillFolder::new("/nowhere/at all", 1, "").create(batch(0).schema());
        assert!(error.unwrap_err().to_string().contains("/nowhere/at all"));
    }

    #[test]
    fn a_full_device_is_an_error_of_the_write() {
        let (_home, folder) = folder(u64::MAX);
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let file = SpillFile::over(full, batch(0).schema(), Arc::clone(&folder)).unwrap();
        let error = file.write(&batch(9)).unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
        drop(file);
        assert_eq!(folder.used_bytes(), 0);
    }

    /// Takes and gives a few bytes at a time, and is interrupted in between.
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
        let file = SpillFile::over(short, batch(0).schema(), folder).unwrap();
        let blocks = [40, 7].map(|rows| (rows, file.write(&batch(rows)).unwrap()));
        for (rows, (offset, bytes)) in blocks {
            assert_eq!(file.read(offset, bytes).unwrap(), batch(rows));
        }
    }
}
