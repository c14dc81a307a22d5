//! A table: one file or many, with one set of columns.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use headrace_io::{InputPolicy, MappingPool, ReadAt, SourceFile, try_map};
use headrace_ir::Encoding;

use super::dictionary::{self, TableDictionary};
use super::fields::FileField;
use super::file::{ArrowFile, Bounds, Opened};
use super::growing::code_capacity;
use super::kept::KeptMetadata;
use super::message::METADATA_THREADS_MAX;
use super::schema::{FileSchema, Shared};
use super::types::{encoding, ir_type, is_text, without_table_type};
use crate::ColumnStats;
use crate::error::{FormatError, Result};

/// Suffixes of the files of a folder.
const EXTENSIONS: [&str; 3] = ["arrow", "feather", "ipc"];

/// Minimum of files that one thread opens.
const FILES_PER_THREAD_MIN: usize = 4;

/// Mappings that a table keeps for its batches. A process may have 16,384.
const MAPPINGS_MAX: usize = 1024;

/// A table of Arrow files.
///
/// All files have the same columns, by name and type; their order may differ. Columns of
/// dictionary-encoded text may have codes of different width and dictionaries of different values
/// in each file: the table's type is a dictionary of `Utf8` with signed codes as wide as the widest
/// (wider if all values together need it), and [`dictionary`](Self::dictionary) is sorted, so that
/// codes compare like their texts. A column is nullable in the table if it is so in one of the
/// files, or has NULLs although the file's schema denies it.
#[derive(Debug)]
pub struct ArrowTable {
    pub(super) schema: SchemaRef,
    pub(super) files: Vec<Arc<ArrowFile>>,
    /// By file, then by table column: the field of the file. Files with the same schema share theirs. Columns
    /// that no file has come last.
    pub(super) fields: Vec<Arc<[usize]>>,
    /// For batches as Arrow arrays; a bounded number, besides those in use.
    pub(super) mappings: Arc<MappingPool>,
    pub(super) skipped: Vec<SkippedFile>,
    pub(super) policy: InputPolicy,
    pub(super) rows: u64,
    /// For the largest record batch.
    pub(super) batch_rows_max: u64,
    pub(super) columns: Vec<TableColumn>,
}

/// A file that is not part of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedFile {
    /// The file.
    pub path: PathBuf,
    /// The reason: empty, still being written, or the same file under another name.
    pub reason: String,
}

/// The values of a column that no file has, as integers, one per file; `None` is NULL.
pub(super) type Constants = Vec<Option<i64>>;

#[derive(Clone, Debug)]
pub(super) struct TableColumn {
    pub(super) support: std::result::Result<(), String>,
    pub(super) dictionary: Option<TableDictionary>,
    pub(super) stats: ColumnStats,
    /// Maximum bits of a value, code or offset.
    pub(super) row_bits: Option<u64>,
    pub(super) text_bytes_max: u64,
    /// For a column that no file has.
    pub(super) constants: Option<Constants>,
}

impl TableColumn {
    /// The column in some of the files, with the field of each.
    pub(super) fn only<'a>(
        &self,
        (wanted, field): (&[usize], &Field),
        part: impl Fn(usize) -> (&'a Arc<ArrowFile>, usize),
    ) -> TableColumn {
        let part = |at: usize| {
            let (file, field) = part(at);
            ColumnPart { file, field }
        };
        let parts: Vec<ColumnPart<'_>> = (0..wanted.len()).map(part).collect();
        let dictionary = self.dictionary.as_ref().map(|dictionary| dictionary.only(wanted));
        TableColumn {
            support: support(field.data_type(), &parts),
            row_bits: self.row_bits,
            stats: stats(&parts, has_null_values(self.dictionary.as_ref())),
            text_bytes_max: text_bytes_max(field.data_type(), &parts),
            dictionary,
            constants: None,
        }
    }
}

/// Whether a file's dictionary has a NULL entry.
fn has_null_values(dictionary: Option<&TableDictionary>) -> bool {
    dictionary.is_some_and(|d| d.remaps.iter().any(|remap| remap.contains(&-1)))
}

impl ArrowTable {
    /// Opens files and folders (their visible files ending in `.arrow`, `.feather` or `.ipc`,
    /// without subfolders). Files are sorted by path.
    ///
    /// # Errors
    /// Any problem of a path, of a file, or between files. [`FormatError::NoFiles`] if no file is
    /// complete, so that the columns are unknown.
    pub fn open(paths: &[PathBuf]) -> Result<ArrowTable> {
        let listed = list(paths)?;
        let open = |i: usize, shared: &Shared| ArrowFile::open(&listed[i], shared);
        Self::open_listed(&listed, open)
    }

    /// Opens known files, local or remote, in order. Cached metadata is not read again, and new metadata is
    /// added to the cache.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_sources(
        sources: &[Arc<SourceFile>],
        kept: Option<&KeptMetadata>,
    ) -> Result<ArrowTable> {
        let paths: Vec<PathBuf> = sources.iter().map(|file| file.path().to_path_buf()).collect();
        Self::open_listed(&paths, |i, shared| ArrowFile::open_source(&sources[i], shared, kept))
    }

    fn open_listed(
        paths: &[PathBuf],
        open: impl Fn(usize, &Shared) -> Result<Opened> + Sync,
    ) -> Result<ArrowTable> {
        let mut files: Vec<Arc<ArrowFile>> = Vec::new();
        let mut skipped = Vec::new();
        let mut seen: HashMap<(u64, u64), PathBuf> = HashMap::new();
        let shared = Shared::default();
        let threads = (FILES_PER_THREAD_MIN, METADATA_THREADS_MAX);
        let opened = try_map(paths.len(), threads, |i| open(i, &shared))?;
        for (path, opened) in paths.iter().cloned().zip(opened) {
            match opened {
                Opened::Skipped(reason) => skipped.push(SkippedFile { path, reason }),
                Opened::File(file) => {
                    let identity = (file.identity().device, file.identity().inode);
                    if let Some(other) = seen.insert(identity, path.clone()) {
                        let reason = format!("it is the same file as {}", other.display());
                        seen.insert(identity, other);
                        skipped.push(SkippedFile { path, reason });
                        continue;
                    }
                    files.push(Arc::from(file));
                }
            }
        }
        let Some(first) = files.first() else { return Err(no_files(paths, &skipped)) };
        let names = first.schema.fields.iter().map(|f| f.name().to_string()).collect();
        Self::unite(names, files, skipped)
    }

    pub(super) fn unite(
        names: Vec<String>,
        files: Vec<Arc<ArrowFile>>,
        skipped: Vec<SkippedFile>,
    ) -> Result<ArrowTable> {
        let fields = match_files(&names, &files)?;
        let mut table_fields = Vec::with_capacity(names.len());
        let mut columns = Vec::with_capacity(names.len());
        for (i, name) in names.iter().enumerate() {
            let parts: Vec<ColumnPart<'_>> = files
                .iter()
                .zip(&fields)
                .map(|(file, map)| ColumnPart { file, field: map[i] })
                .collect();
            let (field, column) = unite_column(name, &parts)?;
            table_fields.push(field);
            columns.push(column);
        }
        let metadata = files.first().map(|first| first.schema.metadata.clone()).unwrap_or_default();
        Ok(ArrowTable {
            schema: Arc::new(Schema::new_with_metadata(table_fields, metadata)),
            rows: files.iter().map(|file| file.rows()).sum(),
            batch_rows_max: files.iter().map(|file| file.batch_rows_max()).max().unwrap_or(0),
            policy: InputPolicy::default(),
            files,
            fields,
            mappings: MappingPool::new(MAPPINGS_MAX),
            skipped,
            columns,
        })
    }

    /// The table with a policy for its streaming readers. [`read_batch`](Self::read_batch) always
    /// checks, and reads in place.
    pub fn with_policy(self, policy: InputPolicy) -> Self {
        Self { policy, ..self }
    }

    /// The policy for streaming readers.
    pub fn policy(&self) -> InputPolicy {
        self.policy
    }

    /// The columns. Their metadata do not contain statistics: see
    /// [`column_stats`](Self::column_stats).
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows of all files.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The files, sorted by path, as numbered in [`headrace_ir::Segment::file`].
    pub fn files(&self) -> &[Arc<ArrowFile>] {
        &self.files
    }

    /// Files that are not part of the table, and why.
    pub fn skipped(&self) -> &[SkippedFile] {
        &self.skipped
    }

    /// The facts about a column; empty for a missing column.
    pub fn column_stats(&self, column: usize) -> ColumnStats {
        self.columns.get(column).map(|c| c.stats).unwrap_or_default()
    }

    /// Record batches of all files.
    pub(super) fn batches(&self) -> u64 {
        self.files.iter().map(|file| file.batches() as u64).sum()
    }

    /// Rows of the largest record batch.
    pub(super) fn batch_rows_max(&self) -> u64 {
        self.batch_rows_max
    }

    /// Maximum bits of a column's value, code or offset over all files.
    pub(super) fn row_bits(&self, column: usize) -> Option<u64> {
        self.columns.get(column)?.row_bits
    }

    /// The table's columns in the narrowest types that fit all files.
    pub fn narrow_schema(&self) -> Schema {
        let narrow = |(column, field): (usize, &Arc<Field>)| {
            let parts = self.files.iter().zip(&self.fields);
            let parts: Vec<ColumnPart<'_>> = parts
                .filter_map(|(file, fields)| Some(ColumnPart { file, field: *fields.get(column)? }))
                .collect();
            // What is packed has the same base everywhere, or none that all values fit.
            let is_packed = parts.iter().any(|part| part.field().packed().is_some());
            let is_alike =
                |part: &ColumnPart<'_>| part.field().packed() == parts[0].field().packed();
            if is_packed && !parts.iter().all(is_alike) {
                return field.as_ref().clone();
            }
            // Of as many bytes, the one of most digits.
            let widest = parts
                .iter()
                .max_by_key(|part| (part.row_bits(), part.field().data_type().to_string()));
            match widest.map(ColumnPart::field) {
                Some(widest) if widest.table_type() != *widest.data_type() => {
                    widest.field.clone().with_nullable(field.is_nullable())
                }
                _ => field.as_ref().clone(),
            }
        };
        let fields: Vec<Field> = self.schema().fields().iter().enumerate().map(narrow).collect();
        Schema::new_with_metadata(fields, self.schema().metadata().clone())
    }

    /// Maximum bytes of a column's text in a record batch; 0 for other encodings.
    pub(super) fn text_bytes_max(&self, column: usize) -> u64 {
        self.columns.get(column).map_or(0, |column| column.text_bytes_max)
    }

    /// Whether a [`feed`](Self::feed) can name a column's values; the reason if not.
    pub fn column_support(&self, column: usize) -> std::result::Result<(), String> {
        match self.columns.get(column) {
            Some(column) => column.support.clone(),
            None => Err(format!("there is no column {column}")),
        }
    }

    /// Distinct values of a dictionary-encoded text column over all files, sorted by bytes,
    /// none NULL; `None` for other columns.
    pub fn dictionary(&self, column: usize) -> Option<&Arc<StringArray>> {
        self.table_dictionary(column).map(|d| &d.values)
    }

    pub(super) fn table_dictionary(&self, column: usize) -> Option<&TableDictionary> {
        self.columns.get(column)?.dictionary.as_ref()
    }

    /// Error if a file changed since the table was opened, see [`ArrowFile::check_unchanged`].
    pub fn check_unchanged(&self) -> Result<()> {
        self.files.iter().try_for_each(|file| file.check_unchanged())
    }
}

fn no_files(paths: &[PathBuf], skipped: &[SkippedFile]) -> FormatError {
    let join = |texts: Vec<String>| texts.join(", ");
    let searched = match paths {
        [] => "no paths".to_string(),
        paths => join(paths.iter().map(|p| p.display().to_string()).collect()),
    };
    let skipped = match skipped {
        [] => String::new(),
        some => {
            let texts = some.iter().map(|s| format!("{} ({})", s.path.display(), s.reason));
            format!("; skipped: {}", join(texts.collect()))
        }
    };
    FormatError::NoFiles { searched, skipped }
}

/// Files of the paths, with folders replaced by their files, sorted, without duplicates.
fn list(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let fail = |cause| FormatError::List { path: path.clone(), cause };
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let entry = entry.map_err(fail)?.path();
            if is_table_file(&entry) {
                files.push(entry);
            }
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Whether a folder's entry is a file of its table, by its name: not hidden, and ending in `.arrow`,
/// `.feather` or `.ipc`.
pub fn is_table_file(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    !hidden && EXTENSIONS.iter().any(|e| e.eq_ignore_ascii_case(extension)) && !path.is_dir()
}

/// For every file: the fields of the table's columns.
fn match_files(names: &[String], files: &[Arc<ArrowFile>]) -> Result<Vec<Arc<[usize]>>> {
    let mut by_schema: HashMap<*const FileSchema, Arc<[usize]>> = HashMap::new();
    let of_file = |file: &Arc<ArrowFile>| match by_schema.entry(Arc::as_ptr(&file.schema)) {
        Entry::Occupied(known) => Ok(known.get().clone()),
        Entry::Vacant(new) => Ok(new.insert(match_columns(names, file)?.into()).clone()),
    };
    files.iter().map(of_file).collect()
}

/// The file's field for each column of the table.
fn match_columns(names: &[String], file: &ArrowFile) -> Result<Vec<usize>> {
    let own: Vec<&str> = file.schema.fields.iter().map(FileField::name).collect();
    if own.len() == names.len() && own.iter().zip(names).all(|(a, b)| a == b) {
        return Ok((0..own.len()).collect());
    }
    let mismatch = |column: &str, cause: &str| FormatError::SchemaMismatch {
        path: file.path().to_path_buf(),
        column: column.to_string(),
        cause: cause.to_string(),
    };
    let by_name: HashMap<&str, usize> =
        own.iter().enumerate().map(|(i, name)| (*name, i)).collect();
    let known: HashSet<&str> = names.iter().map(String::as_str).collect();
    if let Some(extra) = own.iter().find(|name| !known.contains(**name)) {
        return Err(mismatch(extra, "the other files of the table do not have it"));
    }
    names
        .iter()
        .map(|name| match by_name.get(name.as_str()) {
            Some(i) => Ok(*i),
            None => Err(mismatch(name, "this file does not have it, the others do")),
        })
        .collect()
}

/// A column in one file.
struct ColumnPart<'a> {
    file: &'a ArrowFile,
    field: usize,
}

impl ColumnPart<'_> {
    fn field(&self) -> &FileField {
        &self.file.schema.fields[self.field]
    }

    /// Bits of a value, code or offset, if pipelines can take them in place.
    fn row_bits(&self) -> Option<u64> {
        self.file.schema.places[self.field].lie.as_ref().map(|lie| lie.row_bits)
    }

    /// Whether NULLs may occur despite the schema, which some writers ignore.
    fn has_nulls(&self) -> bool {
        let batches = 0..self.file.batches();
        let without = |batch| self.file.nulls(batch, self.field) == Some(0);
        *self.field().data_type() != DataType::Null && !batches.into_iter().all(without)
    }

    fn dictionary_values(&self) -> Option<ArrayRef> {
        let DataType::Dictionary(_, value) = self.field().data_type() else { return None };
        let id = self.field().dictionary?;
        Some(match self.file.dictionaries.get(&id) {
            Some(values) => arrow_array::make_array(values.clone()),
            None => arrow_array::new_empty_array(value),
        })
    }
}

fn text_codes(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(key, values) if is_text(values) => Some(key),
        _ => None,
    }
}

fn unite_column(name: &str, parts: &[ColumnPart<'_>]) -> Result<(Field, TableColumn)> {
    let first = parts.first().ok_or_else(|| FormatError::column(name, "no file has it"))?.field();
    let first_type = first.table_type();
    for part in parts {
        let own = &part.field().table_type();
        let alike = *own == first_type || (text_codes(own).and(text_codes(&first_type))).is_some();
        if !alike {
            return Err(FormatError::SchemaMismatch {
                path: part.file.path().to_path_buf(),
                column: name.to_string(),
                cause: format!("its type is {own}, and {first_type} in the rest of the table"),
            });
        }
    }
    let dictionary = unite_dictionaries(name, &first_type, parts)?;
    let null_values = has_null_values(dictionary.as_ref());
    let data_type = match &dictionary {
        None => first_type,
        Some(d) => {
            let own = parts.iter().map(|p| p.field().data_type()).chain([&first_type]);
            let key = dictionary::table_code_type(own.filter_map(text_codes), d.values.len());
            DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8))
        }
    };
    let nullable =
        null_values || parts.iter().any(|p| p.field().field.is_nullable() || p.has_nulls());
    let metadata = first.field.metadata().clone();
    let field = without_table_type(Field::new(name, data_type, nullable).with_metadata(metadata));
    let column = TableColumn {
        support: support(field.data_type(), parts),
        stats: stats(parts, null_values),
        row_bits: parts.iter().filter_map(ColumnPart::row_bits).max(),
        text_bytes_max: text_bytes_max(field.data_type(), parts),
        dictionary,
        constants: None,
    };
    Ok((field, column))
}

/// The unified dictionary of a column of dictionary-encoded text; `None` for other types.
fn unite_dictionaries(
    name: &str,
    data_type: &DataType,
    parts: &[ColumnPart<'_>],
) -> Result<Option<TableDictionary>> {
    if text_codes(data_type).is_none() {
        return Ok(None);
    }
    let values: Vec<ArrayRef> = parts.iter().filter_map(ColumnPart::dictionary_values).collect();
    dictionary::unify(&values).map(Some).map_err(|cause| {
        FormatError::column(name, format!("its dictionaries cannot be united: {cause}"))
    })
}

fn support(data_type: &DataType, parts: &[ColumnPart<'_>]) -> std::result::Result<(), String> {
    if ir_type(data_type).is_none() {
        return Err(format!("pipelines do not know type {data_type}"));
    }
    if encoding(data_type).is_none() {
        return Err(format!("values of type {data_type} lie as views"));
    }
    for part in parts {
        let file = part.file.path().display();
        if let Some((batch, codec)) = part.file.batches.compressed() {
            return Err(format!("record batch {batch} of {file} is compressed ({codec})"));
        }
        if let Some(batch) = part.file.with_null_items(part.field) {
            return Err(format!("a list in record batch {batch} of {file} has NULL for an item"));
        }
        let (Some(key), Some(values)) =
            (text_codes(part.field().data_type()), part.dictionary_values())
        else {
            continue;
        };
        // Codes are read as signed integers of the same width.
        let signed_max = code_capacity(key).map_or(0, |capacity| match key {
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => capacity / 2,
            DataType::UInt64 => 1 << 63,
            _ => capacity,
        });
        if values.len() as u64 > signed_max {
            return Err(format!(
                "{} codes of type {key} in {file} do not fit signed codes of that width",
                values.len()
            ));
        }
    }
    Ok(())
}

fn text_bytes_max(data_type: &DataType, parts: &[ColumnPart<'_>]) -> u64 {
    let Some(Encoding::Offsets { .. }) = encoding(data_type) else { return 0 };
    let of_batch =
        |part: &ColumnPart<'_>, batch| part.file.text_bytes(batch, part.field).unwrap_or(0);
    let of_file =
        |part: &ColumnPart<'_>| (0..part.file.batches()).map(|batch| of_batch(part, batch)).max();
    parts.iter().filter_map(of_file).max().unwrap_or(0)
}

fn stats(parts: &[ColumnPart<'_>], null_values: bool) -> ColumnStats {
    let batches =
        || parts.iter().flat_map(|part| (0..part.file.batches()).map(move |batch| (part, batch)));
    let bytes = batches().map(|(p, batch)| p.file.stored_bytes(batch, p.field)).sum();
    let are_counted = parts.iter().all(|part| part.field().counts_nulls());
    let nulls = batches().map(|(p, batch)| p.file.nulls(batch, p.field)).sum::<Option<u64>>();
    let nulls = nulls.filter(|_| are_counted);
    let mut range: Option<(i128, i128)> = None;
    let mut known = true;
    for (part, batch) in batches() {
        match part.file.bounds(batch, part.field) {
            Bounds::Unknown => known = false,
            Bounds::NoValues => {}
            Bounds::Range(min, max) => {
                range = Some(range.map_or((min, max), |(a, b)| (a.min(min), b.max(max))));
            }
        }
    }
    let bound = |value: i128| if known { i64::try_from(value).ok() } else { None };
    ColumnStats {
        min: range.and_then(|(min, _)| bound(min)),
        max: range.and_then(|(_, max)| bound(max)),
        null_count: if null_values { None } else { nulls },
        bytes,
    }
}
