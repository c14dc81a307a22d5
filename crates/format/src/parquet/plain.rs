//! Column chunks as a device takes them: they are decoded when they are read.
//!
//! ```text
//! segment: where values and validity would lie in a file of plain columns ──► a reader's thread ──► its slot
//!                                                                              reads the pages, decodes them there
//! ```
//!
//! A race reads, pins, copies and keeps these columns as it does those of an Arrow file. Text without a dictionary of
//! the table has no place in such a file, since its bytes are not known before it is read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use arrow_array::Array;
use arrow_schema::DataType;
use headrace_io::{ReadAt, ReadMode, SourceFile};
use headrace_ir::layout::ROW_ALIGNMENT;
use headrace_ir::{ColumnExtents, Encoding, Extent};

use super::codes::TEXTS_MAX;
use super::column::ColumnReader;
use super::decoder::{chunk_facts, corrupt};
use super::fixed::Stored;
use super::table::{KnownFile, ParquetTable, chunk_bytes};
use super::target::Target;
use crate::arrow::encoding;
use crate::error::Result;

/// Rows that are decoded together: a core's own cache.
const BATCH_ROWS: usize = 16 << 10;
const _: () = assert!(BATCH_ROWS.is_multiple_of(ROW_ALIGNMENT as usize));

/// Memory for a decompressed page that a reader's thread keeps.
const ROOM_KEPT_BYTES: usize = 4 << 20;

/// The offsets of a column chunk's values, and those of its validity: as many as the values of any row group take.
const SPAN_BYTES: u64 = 1 << 35;
/// So many of them are offsets of files.
const SPANS_MAX: u64 = 1 << 27;

/// How a column lies when it is decoded; `None`: its bytes are not known before.
fn lies(table: &ParquetTable, file: &KnownFile, column: usize) -> Option<Encoding> {
    if let Some(dictionary) = table.texts_of(column) {
        const { assert!(TEXTS_MAX <= 1 << 15, "codes of two bytes") };
        let code_bytes = if dictionary.values.len() <= 1 << 7 { 1 } else { 2 };
        return Some(Encoding::Dictionary { code_bytes });
    }
    match &file.columns[column].target {
        Target::Bytes { .. } => None,
        Target::Fixed { stored: Stored::Bit, .. } => Some(Encoding::Bits),
        Target::Fixed { bytes, data_type, .. }
            if let Some((base, delta_bytes)) = deltas(table, column, data_type)
                && usize::from(delta_bytes) < *bytes =>
        {
            Some(Encoding::Deltas { base, delta_bytes })
        }
        Target::Fixed { data_type: DataType::Decimal32(..), .. } => {
            Some(Encoding::Narrow { value_bytes: 4 })
        }
        Target::Fixed { data_type: DataType::Decimal64(..), .. } => {
            Some(Encoding::Narrow { value_bytes: 8 })
        }
        Target::Fixed { data_type, .. } => encoding(data_type).filter(|it| *it == Encoding::Plain),
    }
}

/// What values of a column are told from, and the bytes of a difference: what the files claim of them, which is checked
/// where they are decoded.
fn deltas(table: &ParquetTable, column: usize, data_type: &DataType) -> Option<(i64, u8)> {
    let is_whole =
        data_type.is_signed_integer() || data_type.is_decimal() || *data_type == DataType::Date32;
    let claims = table.columns.get(column).filter(|_| is_whole)?;
    let (min, max) = claims.min.zip(claims.max)?;
    let span = max.checked_sub(min).and_then(|span| u64::try_from(span).ok())?;
    let delta_bytes = [1, 2, 4].into_iter().find(|bytes| span >> (8 * bytes) == 0)?;
    Some((min, delta_bytes))
}

/// Bits of a value.
fn value_bits(file: &KnownFile, column: usize, encoding: &Encoding) -> u64 {
    match (encoding, &file.columns[column].target) {
        (Encoding::Bits, _) => 1,
        (
            Encoding::Dictionary { code_bytes: bytes }
            | Encoding::Narrow { value_bytes: bytes }
            | Encoding::Deltas { delta_bytes: bytes, .. },
            _,
        ) => 8 * u64::from(*bytes),
        (_, Target::Fixed { bytes, .. }) => 8 * *bytes as u64,
        (_, Target::Bytes { .. }) => 0,
    }
}

impl ParquetTable {
    /// Whether columns have a place in a file of plain ones.
    pub(super) fn has_plain(&self, columns: &[usize]) -> bool {
        self.files.iter().all(|file| {
            let spans = 2 * (self.columns.len() * file.metadata.num_row_groups()) as u64;
            let lie = |&column: &usize| lies(self, file, column).is_some();
            spans <= SPANS_MAX && columns.iter().all(lie)
        })
    }

    /// How a column lies in a file of plain ones.
    pub(super) fn plain_encoding(&self, file: u32, column: usize) -> Encoding {
        let known = self.files.get(file as usize).and_then(|file| lies(self, file, column));
        known.unwrap_or(Encoding::Plain)
    }

    /// Where rows of a row group's column lie in a file of plain ones. The first is a multiple of [`ROW_ALIGNMENT`].
    pub(super) fn plain_extents(
        &self,
        (file, group): (u32, u32),
        column: usize,
        (first_row, rows): (u64, u64),
    ) -> ColumnExtents {
        let encoding = self.plain_encoding(file, column);
        let known = &self.files[file as usize];
        let place = Place { group, column, first_row };
        let extent = |bits: u64, is_validity| Extent {
            offset: place.offset(bits, is_validity, self.columns.len()),
            bytes: (rows * bits).div_ceil(8),
        };
        ColumnExtents {
            values: extent(value_bits(known, column, &encoding), false),
            encoding,
            offsets: None,
            offsets_base: 0,
            validity: (!known.is_required(column)).then(|| extent(1, true)),
            remap: None,
        }
    }
}

/// Rows of a column chunk, from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    group: u32,
    column: usize,
    first_row: u64,
}

impl Place {
    fn offset(self, bits: u64, is_validity: bool, columns: usize) -> u64 {
        let chunk = u64::from(self.group) * columns as u64 + self.column as u64;
        (2 * chunk + u64::from(is_validity)) * SPAN_BYTES + self.first_row * bits / 8
    }
}

/// The validity of rows whose values are read.
enum Validity {
    /// The reader of the values is at it.
    Decoding,
    Known(Vec<u8>),
    /// Its reader has failed.
    Failed,
}

/// Plain columns as a file. It exists only as reads of it.
pub(super) struct PlainFile {
    table: Arc<ParquetTable>,
    number: usize,
    /// Values and validity are two reads. The reader of the values decodes both, and keeps the validity here for the other
    /// reader. If the validity is read first, its reader decodes the pages too, and the entry stays until the feed ends.
    validities: Mutex<HashMap<Place, Validity>>,
    known: Condvar,
}

impl std::fmt::Debug for PlainFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PlainFile({})", self.source().path().display())
    }
}

/// What waits for a validity goes on, whatever becomes of its reader.
struct Promise<'a> {
    file: &'a PlainFile,
    place: Place,
    made: Validity,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let made = std::mem::replace(&mut self.made, Validity::Failed);
        self.file.lock().insert(self.place, made);
        self.file.known.notify_all();
    }
}

thread_local! {
    /// The pages of the column chunk that this thread decodes, and one of them, decompressed.
    static PAGES: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl PlainFile {
    pub fn new(table: Arc<ParquetTable>, number: usize) -> Self {
        Self { table, number, validities: Mutex::default(), known: Condvar::new() }
    }

    fn file(&self) -> &KnownFile {
        &self.table.files[self.number]
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Place, Validity>> {
        self.validities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `into` from an offset on.
    fn fill(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (span, byte) = (offset / SPAN_BYTES, offset % SPAN_BYTES);
        let (chunk, is_validity) = (span / 2, span % 2 == 1);
        let columns = self.table.columns.len() as u64;
        let (group, column) = ((chunk / columns.max(1)) as u32, (chunk % columns.max(1)) as usize);
        let file = self.file();
        let encoding = lies(&self.table, file, column);
        let there = encoding.filter(|_| (group as usize) < file.metadata.num_row_groups());
        let Some(encoding) = there else { return Err(outside()) };
        let bits = if is_validity { 1 } else { value_bits(file, column, &encoding) };
        let first_row = byte * 8 / bits;
        let rows = (into.len() as u64 * 8 / bits)
            .min((file.group(group).num_rows() as u64).saturating_sub(first_row));
        if !first_row.is_multiple_of(ROW_ALIGNMENT)
            || (rows * bits).div_ceil(8) != into.len() as u64
        {
            return Err(outside());
        }
        let place = Place { group, column, first_row };
        match is_validity {
            true => self.fill_validity(place, rows, into),
            false => self.fill_values(place, rows, (&encoding, into)),
        }
    }

    fn fill_values(
        &self,
        place: Place,
        rows: u64,
        (encoding, into): (&Encoding, &mut [u8]),
    ) -> io::Result<()> {
        let values = Some((encoding, into));
        if self.file().is_required(place.column) {
            return self.decode(place, rows, values, None).map_err(io::Error::other);
        }
        self.lock().insert(place, Validity::Decoding);
        let mut promise = Promise { file: self, place, made: Validity::Failed };
        let mut bitmap = vec![0; (rows as usize).div_ceil(8)];
        self.decode(place, rows, values, Some(&mut bitmap)).map_err(io::Error::other)?;
        promise.made = Validity::Known(bitmap);
        Ok(())
    }

    fn fill_validity(&self, place: Place, rows: u64, into: &mut [u8]) -> io::Result<()> {
        let mut validities = self.lock();
        while let Some(Validity::Decoding) = validities.get(&place) {
            validities = self.known.wait(validities).unwrap_or_else(PoisonError::into_inner);
        }
        let known = validities.remove(&place);
        drop(validities);
        match known {
            Some(Validity::Known(bitmap)) if bitmap.len() == into.len() => {
                into.copy_from_slice(&bitmap);
                Ok(())
            }
            _ => self.decode(place, rows, None, Some(into)).map_err(io::Error::other),
        }
    }

    /// Decodes rows to where values and validity lie, as far as they are wanted.
    fn decode(
        &self,
        place: Place,
        rows: u64,
        mut values: Option<(&Encoding, &mut [u8])>,
        mut validity: Option<&mut [u8]>,
    ) -> Result<()> {
        let (file, Place { group, column, first_row }) = (self.file(), place);
        let facts = chunk_facts(file, group, column)?;
        let target = &file.columns[column].target;
        let of_target = match lies(&self.table, file, column) {
            Some(Encoding::Deltas { base, delta_bytes }) => target.deltas(base, delta_bytes),
            _ => target.values(self.table.texts_of(column)),
        };
        let bytes = chunk_bytes(file.chunk(group, column)).unwrap_or(0..0);
        PAGES.with_borrow_mut(|(pages, room)| {
            pages.resize((bytes.end - bytes.start) as usize, 0);
            file.source.read_exact_at(bytes.start, pages)?;
            let mut reader = ColumnReader::with_room(of_target, std::mem::take(room));
            reader.begin(facts, first_row as usize);
            for at in (0..rows as usize).step_by(BATCH_ROWS) {
                let rows = BATCH_ROWS.min(rows as usize - at);
                let made = reader.read(pages, rows).and_then(|()| {
                    let values = values.as_mut().map(|(encoding, into)| (*encoding, &mut **into));
                    reader.put(at, values, validity.as_deref_mut())
                });
                made.map_err(|bad| corrupt(file, group, column, reader.at(), bad))?;
            }
            *room = reader.into_room();
            room.shrink_to(ROOM_KEPT_BYTES);
            Ok(())
        })
    }
}

fn outside() -> io::Error {
    io::Error::other("the extent is not one of the columns")
}

impl ReadAt for PlainFile {
    fn source(&self) -> &SourceFile {
        &self.file().source
    }

    fn is_made(&self) -> bool {
        true
    }

    fn read_at(&self, _mode: ReadMode, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.fill(offset, into)?;
        Ok(into.len())
    }

    /// Each column chunk has offsets of its own.
    fn size_bytes(&self) -> u64 {
        u64::MAX
    }
}
