//! Tables as other machines open them.

use super::table::ArrowTable;
use crate::description::Constants;
use crate::error::{FormatError, Result};
use crate::portable::{PortableConstants, PortableFormat, PortableTable};

impl ArrowTable {
    /// How a process of another machine opens the same table. Reads the footers of its files.
    ///
    /// # Errors
    /// Why none can.
    pub fn portable(&self) -> std::result::Result<PortableTable, String> {
        if let Some(file) = self.files.iter().find(|file| file.is_remote()) {
            return Err(format!("{} is not a local file", file.path().display()));
        }
        let named = self.schema.fields().iter().zip(&self.columns);
        let constants = named.filter_map(|(field, column)| {
            Some((field.name().clone(), Constants::of(column, field.data_type())?))
        });
        let format = PortableFormat::Arrow { constants: PortableConstants(constants.collect()) };
        let files = self.files.iter().map(|file| (file.path(), file.identity(), file.batches()));
        PortableTable::of(files, &self.schema, format)
    }

    /// Opens a table that another machine described.
    ///
    /// # Errors
    /// A file is another one than that machine saw, or cannot be read. It is a table of another format.
    pub fn open_portable(portable: &PortableTable) -> Result<ArrowTable> {
        let PortableFormat::Arrow { constants: PortableConstants(constants) } = &portable.format
        else {
            return Err(FormatError::Argument("its files are no Arrow files".into()));
        };
        let table = ArrowTable::open_sources(&portable.open_files()?, None)?;
        if table.files().len() != portable.files.len() {
            let cause = "some of its files are no longer part of the table";
            return Err(FormatError::Argument(cause.into()));
        }
        let constants = constants.iter().map(|(name, values)| Ok((name.clone(), values.array()?)));
        let table = table.with_constants(&constants.collect::<Result<Vec<_>>>()?)?;
        portable.check(table.schema())?;
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::{File, FileTimes};
    use std::path::Path;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, RecordBatch};
    use headrace_io::IoError;

    use super::*;
    use crate::arrow::{ArrowWriter, WriterOptions};
    use crate::{BatchRanges, ChunkOptions, Feed, Table, TablePart};

    fn write(path: &Path, batches: &[&[i32]]) {
        let batch = |values: &[i32]| {
            let values: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
            RecordBatch::try_from_iter([("a", values)]).unwrap()
        };
        let schema = batch(&[]).schema();
        let options = WriterOptions { rows_per_batch: 2, ..WriterOptions::default() };
        let mut writer = ArrowWriter::create(path, &schema, options).unwrap();
        batches.iter().for_each(|values| writer.write(&batch(values)).unwrap());
        writer.finish().unwrap();
    }

    fn rows(feed: Box<dyn Feed>) -> u64 {
        let (mut feed, mut rows) = (feed, 0);
        let waker = std::task::Waker::noop();
        while let std::task::Poll::Ready(Some(chunk)) = feed.poll_next(waker) {
            let segments = chunk.unwrap().payload.segments;
            rows += segments.iter().map(|segment| u64::from(segment.rows)).sum::<u64>();
        }
        rows
    }

    #[test]
    fn parts_of_a_table_are_all_of_its_rows_once() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["x.arrow", "y.arrow"].map(|name| folder.path().join(name));
        write(&paths[0], &[&[1, 2], &[3, 4], &[5]]);
        write(&paths[1], &[&[6, 7]]);
        let portable = ArrowTable::open(&paths).unwrap().portable().unwrap();
        assert_eq!(portable.files.iter().map(|file| file.batches).collect::<Vec<_>>(), [3, 1]);
        let text = serde_json::to_string(&portable).unwrap();
        let portable: PortableTable = serde_json::from_str(&text).unwrap();
        let table: Arc<dyn Table> = Arc::new(ArrowTable::open_portable(&portable).unwrap());
        let of = |batches: &[(usize, std::ops::Range<u32>)]| {
            let mut ranges = BatchRanges::default();
            batches.iter().for_each(|(file, batches)| ranges.add(*file, batches.clone()));
            let part = Arc::new(TablePart::new(Arc::clone(&table), ranges));
            rows(part.feed(&[0], &[], ChunkOptions::default()).unwrap())
        };
        assert_eq!(of(&[(0, 0..1)]), 2);
        assert_eq!(of(&[(0, 1..3), (1, 0..1)]), 5);
        assert_eq!(of(&[(0, 0..2), (0, 2..3), (1, 0..9)]), 7);
        assert_eq!(of(&[]), 0);
    }

    #[test]
    fn a_file_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.arrow");
        write(&path, &[&[1, 2]]);
        let portable = ArrowTable::open(std::slice::from_ref(&path)).unwrap().portable().unwrap();
        let written = File::open(&path).unwrap().metadata().unwrap().modified().unwrap();
        let error = || ArrowTable::open_portable(&portable).unwrap_err();

        // The same bytes, put there anew with their time: the same version, wherever they lie.
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert!(matches!(error(), FormatError::Io(IoError::Changed { .. })));
        let touch = || {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_times(FileTimes::new().set_modified(written)).unwrap();
        };
        touch();
        ArrowTable::open_portable(&portable).unwrap();

        let mut other = bytes.clone();
        let last = other.len() - 20;
        other[last] ^= 1;
        std::fs::write(&path, &other).unwrap();
        touch();
        assert!(error().to_string().contains("footer"), "{}", error());
        std::fs::write(&path, &bytes[1..]).unwrap();
        assert!(error().to_string().contains("bytes"), "{}", error());
    }
}
