//! Texts as codes of a dictionary of the whole table.
//!
//! A column whose pages hold codes alone has few texts, and the dictionary of each of its column chunks lies at the front
//! of it. They are read when a table is opened: pipelines then compare and group codes. A file that has other pages than
//! it says is read all the same, text by text, if its dictionaries have these texts; else it is corrupt.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, StringArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType};
use headrace_io::ReadAt;
use headrace_ir::Encoding as Lying;
use parquet::basic::Encoding;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use super::bad::Bad;
use super::codec::Codec;
use super::encodings;
use super::fixed::{Fixed, Stored, place};
use super::header::{PageHeader, PageKind};
use super::texts::Texts;
use super::values::Values;

/// Bytes of the dictionary of a column chunk at most, as it lies in the file.
const DICTIONARY_BYTES_MAX: u64 = 64 << 10;
/// The same when it is decompressed.
const PLAIN_BYTES_MAX: usize = 1 << 20;
/// Column chunks of a table at most whose dictionaries are read before the first row.
const CHUNKS_MAX: usize = 4096;
/// Texts of a table at most.
pub(super) const TEXTS_MAX: usize = 1 << 14;

/// The texts of those columns of a file that were asked for. They are kept with the file's metadata.
#[derive(Debug, Default)]
pub struct KnownTexts(Mutex<HashMap<usize, Option<Texted>>>);

type Texted = Arc<BTreeSet<String>>;

/// A column of a file.
pub(super) struct TextColumn<'a> {
    pub file: &'a dyn ReadAt,
    pub metadata: &'a ParquetMetaData,
    pub leaf: usize,
    pub known: &'a KnownTexts,
}

impl TextColumn<'_> {
    fn chunks(&self) -> impl Iterator<Item = &ColumnChunkMetaData> {
        self.metadata.row_groups().iter().map(|group| group.column(self.leaf))
    }

    /// All of its texts; `None`: there may be more than its dictionaries have, or too many.
    fn texts(&self) -> Option<Texted> {
        let mut known = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(self.leaf).or_insert_with(|| self.read().map(Arc::new)).clone()
    }

    fn read(&self) -> Option<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for chunk in self.chunks() {
            let (from, bytes) = dictionary_bytes(chunk)?;
            let mut page = vec![0; bytes];
            self.file.read_exact_at(from, &mut page).ok()?;
            // What is wrong with a dictionary is told when the column is read.
            for text in dictionary(chunk, &page).ok()?.known() {
                let text = std::str::from_utf8(text).ok()?;
                if !all.contains(text) {
                    all.insert(text.to_string());
                }
            }
            if all.len() > TEXTS_MAX {
                return None;
            }
        }
        Some(all)
    }
}

/// Where the dictionary of a column chunk lies, if it is small and all of the pages are said to hold codes.
fn dictionary_bytes(chunk: &ColumnChunkMetaData) -> Option<(u64, usize)> {
    let mut encodings = chunk.encodings();
    let are_codes = match chunk.page_encoding_stats_mask() {
        Some(mask) => {
            mask.is_only(Encoding::PLAIN_DICTIONARY) || mask.is_only(Encoding::RLE_DICTIONARY)
        }
        // The dictionary itself may be what is plain.
        None => !encodings.any(|it| {
            !matches!(it, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY | Encoding::RLE)
        }),
    };
    let from = u64::try_from(chunk.dictionary_page_offset()?).ok()?;
    let bytes = u64::try_from(chunk.data_page_offset()).ok()?.checked_sub(from)?;
    let is_small = (1..=DICTIONARY_BYTES_MAX).contains(&bytes);
    (are_codes && is_small).then_some((from, bytes as usize))
}

fn dictionary(chunk: &ColumnChunkMetaData, page: &[u8]) -> Result<Texts, Bad> {
    let header = PageHeader::read(page)?;
    let is_dictionary = matches!(
        header.kind,
        PageKind::Dictionary { encoding: encodings::PLAIN | encodings::PLAIN_DICTIONARY }
    );
    let stored = page.get(header.header_bytes..).and_then(|rest| rest.get(..header.stored_bytes));
    let (Some(stored), true) = (stored, is_dictionary && header.plain_bytes <= PLAIN_BYTES_MAX)
    else {
        return Err(Bad::new("no small dictionary"));
    };
    let mut plain = vec![0; header.plain_bytes];
    Codec::new(chunk.compression())?.decompress(stored, &mut plain)?;
    let mut texts = Texts::new(true);
    texts.set_dictionary(&plain, header.values)?;
    Ok(texts)
}

/// The texts of a column of a table, sorted, and the code of each.
#[derive(Debug)]
pub(super) struct Dictionary {
    pub values: Arc<StringArray>,
    codes: HashMap<Vec<u8>, i32>,
}

impl Dictionary {
    /// What tells it from dictionaries of other texts, as far as 128 bits of hashes do.
    pub fn digest(&self) -> u128 {
        let hash = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            (seed, self.values.len()).hash(&mut hasher);
            self.values.iter().for_each(|text| text.hash(&mut hasher));
            u128::from(hasher.finish())
        };
        hash(0) << 64 | hash(1)
    }

    /// Of a column in all files of a table; `None`: its texts are not known, or there are too many.
    pub fn of(columns: &[TextColumn<'_>]) -> Option<Self> {
        let chunks = || columns.iter().flat_map(TextColumn::chunks);
        let is_told = chunks().all(|chunk| dictionary_bytes(chunk).is_some());
        if !is_told || chunks().count() > CHUNKS_MAX {
            return None;
        }
        let mut all = BTreeSet::new();
        for column in columns {
            for text in column.texts()?.iter() {
                if !all.contains(text) {
                    all.insert(text.clone());
                }
            }
            // Before the next file is read.
            if all.len() > TEXTS_MAX {
                return None;
            }
        }
        let values = Arc::new(StringArray::from_iter_values(&all));
        let codes = all.into_iter().map(String::into_bytes).zip(0..).collect();
        Some(Self { values, codes })
    }

    fn code(&self, text: &[u8]) -> Result<i32, Bad> {
        let missing = || {
            Bad::new(format!("{:?} is in none of the dictionaries", String::from_utf8_lossy(text)))
        };
        self.codes.get(text).copied().ok_or_else(missing)
    }
}

/// A column of codes.
pub(super) struct Codes {
    dictionary: Arc<Dictionary>,
    codes: Fixed<i32>,
    texts: Texts,
    /// Whether the page is none of codes.
    is_plain: bool,
}

impl Codes {
    pub fn new(dictionary: Arc<Dictionary>) -> Self {
        let codes = Fixed::new(Stored::Four, DataType::Int32);
        Self { dictionary, codes, texts: Texts::new(true), is_plain: false }
    }
}

impl Values for Codes {
    fn begin(&mut self) {
        self.texts.begin();
        self.codes.begin();
    }

    fn set_dictionary(&mut self, page: &[u8], values: usize) -> Result<(), Bad> {
        self.texts.set_dictionary(page, values)?;
        let codes = self.texts.known().map(|text| self.dictionary.code(text));
        let codes = codes.collect::<Result<Vec<_>, Bad>>()?;
        self.codes.set_values(codes);
        Ok(())
    }

    fn begin_page(
        &mut self,
        encoding: i32,
        page: &[u8],
        at: usize,
        values: usize,
    ) -> Result<(), Bad> {
        self.is_plain =
            !matches!(encoding, encodings::PLAIN_DICTIONARY | encodings::RLE_DICTIONARY);
        match self.is_plain {
            true => self.texts.begin_page(encoding, page, at, values),
            false => self.codes.begin_page(encoding, page, at, values),
        }
    }

    fn append(&mut self, page: &[u8], count: usize) -> Result<(), Bad> {
        if !self.is_plain {
            return self.codes.append(page, count);
        }
        self.texts.append(page, count)?;
        for text in self.texts.appended() {
            self.codes.push(self.dictionary.code(text)?);
        }
        self.texts.clear();
        Ok(())
    }

    fn append_nulls(&mut self, count: usize) {
        self.codes.append_nulls(count);
    }

    fn spread(&mut self, levels: &[u32], there: usize) {
        self.codes.spread(levels, there);
    }

    fn clear(&mut self) {
        self.codes.clear();
    }

    fn put(&mut self, encoding: &Lying, row: usize, into: &mut [u8]) -> Result<(), Bad> {
        let Lying::Dictionary { code_bytes } = encoding else {
            return Err(Bad::new("codes that lie otherwise"));
        };
        let (codes, width) = (self.codes.appended(), usize::from(*code_bytes));
        let bytes = place(into, row * width, codes.len() * width)?;
        match width {
            1 => bytes.iter_mut().zip(codes).for_each(|(byte, code)| *byte = *code as u8),
            _ => {
                let bytes = bytes.as_chunks_mut().0.iter_mut();
                bytes.zip(codes).for_each(|(two, code)| *two = (*code as u16).to_le_bytes());
            }
        }
        self.codes.clear();
        Ok(())
    }

    fn finish(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let codes = self.codes.finish(nulls)?;
        let values = Arc::clone(&self.dictionary.values);
        let keys = codes.to_data().into();
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, values)?))
    }
}
