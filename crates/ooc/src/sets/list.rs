//! A sorted list of keys in files.

use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Poll, Waker};

use arrow_schema::DataType;
use headrace_flow::ReadSpec;
use headrace_format::arrow::{ArrowTable, is_table_file};
use headrace_format::{ChunkOptions, Table};
use headrace_io::ReadAt;

use crate::{Files, Number, NumberType, OocError, Result};

/// Keys by position. Their order is not known before they are read.
#[derive(Debug, Clone)]
pub struct KeyList {
    path: PathBuf,
    number: NumberType,
    files: Vec<Arc<dyn ReadAt>>,
    segments: Vec<Segment>,
    keys: u64,
}

/// Contiguous keys in a file.
#[derive(Debug, Clone, Copy)]
struct Segment {
    file: usize,
    offset: u64,
    /// Position of its first key in the list.
    first: u64,
    keys: u64,
}

impl KeyList {
    /// A file of raw keys.
    ///
    /// # Errors
    /// A file that cannot be opened, or ends within a key.
    pub fn raw(path: &Path, number: NumberType, files: &dyn Files) -> Result<KeyList> {
        let file = files.open(path)?;
        let (bytes, key_bytes) = (file.size_bytes(), number.bytes() as u64);
        if !bytes.is_multiple_of(key_bytes) {
            let what = format!("{bytes} bytes are no whole number of keys of {key_bytes} bytes");
            return Err(OocError::input(path, what, "name the type that the keys have (--type)"));
        }
        Ok(KeyList::of_extents(path, number, vec![(file, 0, bytes / key_bytes)]))
    }

    /// A column of an Arrow file or of a folder of them. Dates, times and timestamps count as their stored
    /// integers.
    ///
    /// # Errors
    /// Problems of the files; no such column; one with NULLs or of a non-numeric type.
    pub fn arrow(path: &Path, column: &str) -> Result<KeyList> {
        let table = Arc::new(ArrowTable::open(&[path.to_path_buf()]).map_err(wrong(path))?);
        let schema = Table::schema(&*table).clone();
        let names = || schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>();
        let (index, field) = schema.column_with_name(column).ok_or_else(|| {
            let remedy = format!("its columns are {}", names().join(", "));
            OocError::input(path, format!("there is no column {column:?}"), remedy)
        })?;
        let number = number_of(field.data_type()).ok_or_else(|| {
            let what = format!("column {column:?} is of type {}", field.data_type());
            OocError::input(path, what, "keys are of 32- or 64-bit integers or floats")
        })?;
        let mut feed = Table::feed(table.clone(), &[index], &[], ChunkOptions::default())
            .map_err(wrong(path))?;
        let mut extents = Vec::new();
        while let Poll::Ready(Some(fed)) = feed.poll_next(Waker::noop()) {
            let fed = fed.map_err(wrong(path))?;
            // A segment without NULLs is one extent.
            for (segment, file) in fed.payload.segments.iter().zip(fed.files) {
                let stored = &segment.columns[0];
                if stored.validity.is_some() {
                    let what = format!("column {column:?} has NULLs, which have no place in a set");
                    let remedy = "write the column without them: select ... where ... is not null";
                    return Err(OocError::input(path, what, remedy));
                }
                extents.push((file, stored.values.offset, u64::from(segment.rows)));
            }
        }
        Ok(KeyList::of_extents(path, number, extents))
    }

    /// A file of either kind, chosen by its name and the given options.
    ///
    /// # Errors
    /// Those of [`raw`](KeyList::raw) and [`arrow`](KeyList::arrow); options that contradict the file.
    pub fn open(
        path: &Path,
        number: Option<NumberType>,
        column: Option<&str>,
        files: &dyn Files,
    ) -> Result<KeyList> {
        match (path.is_dir() || is_table_file(path), number, column) {
            (true, None, Some(column)) => KeyList::arrow(path, column),
            (true, Some(_), _) => {
                let what = format!("{} says the type of its keys itself", path.display());
                Err(OocError::usage(what, "leave --type out, and name its column (--column)"))
            }
            (true, None, None) => {
                let what = format!("{} is a table: which column has the keys?", path.display());
                Err(OocError::usage(what, "name it (--column)"))
            }
            (false, _, Some(_)) => {
                let what = format!("{} is no Arrow file: it has no columns", path.display());
                Err(OocError::usage(what, "give the type of its keys (--type) instead of --column"))
            }
            (false, number, None) => KeyList::raw(path, number.unwrap_or(NumberType::I64), files),
        }
    }

    /// Keys in these extents: for each the file, the offset and the number of keys.
    pub fn of_extents(
        path: impl Into<PathBuf>,
        number: NumberType,
        extents: Vec<(Arc<dyn ReadAt>, u64, u64)>,
    ) -> KeyList {
        let mut list =
            KeyList { path: path.into(), number, files: Vec::new(), segments: Vec::new(), keys: 0 };
        for (file, offset, keys) in extents.into_iter().filter(|(_, _, keys)| *keys > 0) {
            let file = list.number_of_file(file);
            let joins = |last: &&mut Segment| {
                last.file == file && last.offset + last.keys * number.bytes() as u64 == offset
            };
            match list.segments.last_mut().filter(joins) {
                Some(last) => last.keys += keys,
                None => list.segments.push(Segment { file, offset, first: list.keys, keys }),
            }
            list.keys += keys;
        }
        list
    }

    /// The file number of an extent, mostly that of the extent before.
    fn number_of_file(&mut self, file: Arc<dyn ReadAt>) -> usize {
        if self.files.last().is_none_or(|last| !Arc::ptr_eq(last, &file)) {
            self.files.push(file);
        }
        self.files.len() - 1
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The type of its keys.
    pub fn number(&self) -> NumberType {
        self.number
    }

    /// Its number of keys.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Bytes of all keys.
    pub fn bytes(&self) -> u64 {
        self.keys * self.number.bytes() as u64
    }

    /// The files that it lies in.
    pub fn files(&self) -> &[Arc<dyn ReadAt>] {
        &self.files
    }

    /// Positions after the last key of each segment: keys on both sides of such a position are not
    /// contiguous.
    pub(super) fn segment_ends(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.iter().map(|segment| segment.first + segment.keys)
    }

    fn segment_of(&self, position: u64) -> &Segment {
        let behind = self.segments.partition_point(|segment| segment.first <= position);
        &self.segments[behind - 1]
    }

    /// The read of a range of keys, which lies in one segment; files are counted from `files_before` on.
    pub(super) fn read(&self, keys: &Range<u64>, files_before: usize) -> ReadSpec {
        if keys.is_empty() {
            return ReadSpec { file: files_before, offset: 0, bytes: 0 };
        }
        let segment = self.segment_of(keys.start);
        assert!(keys.end <= segment.first + segment.keys, "{keys:?} ends in another segment");
        let key_bytes = self.number.bytes() as u64;
        ReadSpec {
            file: files_before + segment.file,
            offset: segment.offset + (keys.start - segment.first) * key_bytes,
            bytes: (keys.end - keys.start) * key_bytes,
        }
    }

    /// The keys at a range of positions, which may span segments, read through the page cache.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn keys_at<K: Number>(&self, positions: Range<u64>) -> Result<Vec<K>> {
        let mut keys = vec![K::zeroed(); (positions.end - positions.start) as usize];
        let mut at = positions.start;
        while at < positions.end {
            let segment = *self.segment_of(at);
            let end = positions.end.min(segment.first + segment.keys);
            let read = self.read(&(at..end), 0);
            let into = &mut keys[(at - positions.start) as usize..(end - positions.start) as usize];
            self.read_exact(&read, bytemuck::cast_slice_mut(into))?;
            at = end;
        }
        Ok(keys)
    }

    fn read_exact(&self, read: &ReadSpec, into: &mut [u8]) -> Result<()> {
        let file = &self.files[read.file];
        Ok(file.read_exact_at(read.offset, into)?)
    }
}

fn wrong<E: Display>(path: &Path) -> impl Fn(E) -> OocError + '_ {
    move |error| OocError::input(path, error.to_string(), "headrace doctor looks at a file closely")
}

fn number_of(stored: &DataType) -> Option<NumberType> {
    Some(match stored {
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => NumberType::I32,
        DataType::UInt32 => NumberType::U32,
        DataType::Int64 | DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) => {
            NumberType::I64
        }
        DataType::UInt64 => NumberType::U64,
        DataType::Float32 => NumberType::F32,
        DataType::Float64 => NumberType::F64,
        _ => return None,
    })
}
