//! What the beginning of a file of separated values tells: where its table begins, what its columns are called, and
//! which types their values fit.
//!
//! The first record names the columns unless it looks like the others: some column has another type than text, and no
//! value of the record is other than its column's type. Where all columns are text, it names them if no two of its values
//! are the same.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use csv::ByteRecord;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use memchr::memchr_iter;

use super::cells::{self, Written};
use super::options::ReadOptions;
use super::packing::extension;
use super::records::Separators;
use super::sample::{SAMPLE_RECORDS_MAX, schema_of};
use super::separated::{Column, Separated};

/// What stands between values, the likeliest first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// What begins comments, where files have some.
const COMMENT: u8 = b'#';

/// Lines before a table at most.
const PREAMBLE_LINES_MAX: usize = 1000;

/// What was told.
pub struct Sniffed {
    /// How values are written.
    pub format: Separated,
    /// The columns.
    pub columns: Vec<Column>,
    /// Their types.
    pub schema: Schema,
    /// Lines before the table.
    pub preamble_lines: u64,
    /// Bytes of a record of the sample, on average; 0: it has none.
    pub row_bytes: usize,
    /// What was told and could be wrong, with what says otherwise.
    pub notes: Vec<String>,
}

/// As what was said, and else the first line looks.
pub fn first_format(path: &Path, start: &[u8], options: &ReadOptions) -> Separated {
    let comment = options.comment.flatten();
    let separators = Separators {
        delimiter: options.delimiter.unwrap_or_else(|| delimiter(path, start, comment)),
        quote: options.quote.unwrap_or(Separators::NO_QUOTE),
        escape: options.escape,
        comment,
    };
    Separated {
        separators,
        has_header: options.has_header.unwrap_or(true),
        nulls: options.nulls.clone().into(),
        pads: options.pads,
        ignores: options.ignores,
    }
}

/// A tab in a `.tsv` file; else what stands in the first line, a comma before all others.
fn delimiter(path: &Path, start: &[u8], comment: Option<u8>) -> u8 {
    if extension(Path::new(path.file_stem().unwrap_or_default())) == "tsv"
        || extension(path) == "tsv"
    {
        return b'\t';
    }
    let is_comment = |line: &&[u8]| comment.is_some() && line.first().copied() == comment;
    let line = start.split(|b| *b == b'\n').find(|line| !is_comment(line)).unwrap_or_default();
    DELIMITERS.into_iter().find(|d| memchr_iter(*d, line).next().is_some()).unwrap_or(b',')
}

/// Looks at whole records from a file's beginning.
///
/// # Errors
/// What keeps it from being a table.
pub fn sniff(sample: &[u8], format: Separated, options: &ReadOptions) -> Result<Sniffed, String> {
    let mut notes = Vec::new();
    let (mut format, preamble_lines) = table_in(sample, format, options, &mut notes);
    let table = after_lines(sample, preamble_lines);
    let records = records(table, &format).map_err(|e| e.to_string())?;
    let Some(first) = records.first() else {
        return match options.columns.as_slice() {
            [] => Err("it is empty: the first line must name the columns".into()),
            columns => {
                let schema = schema_of(columns);
                let columns = columns.iter().map(|(name, data_type)| Column {
                    name: name.clone(),
                    written: options.formats.of_given(data_type),
                });
                let columns = columns.collect();
                Ok(Sniffed { format, columns, schema, preamble_lines, row_bytes: 0, notes })
            }
        };
    };
    let width = match format.pads {
        true => records.iter().map(ByteRecord::len).max().unwrap_or_default(),
        false => first.len(),
    };
    check_given(width, &format, options)?;
    let guess = Guess { format: &format, options, width };
    let of_rest = guess.types(&records[1..]);
    let has_header =
        options.has_header.unwrap_or_else(|| guess.is_header(first, &records[1..], &of_rest));
    if options.has_header.is_none() && !has_header {
        notes.push("it has no header: columns are column_1, .. (header => true: the first line names them)".into());
    }
    let types = if has_header { of_rest } else { guess.types(&records) };
    let names = match has_header {
        true => first.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        false => Vec::new(),
    };
    let names = guess.names(names);
    format.has_header = has_header;
    let typed = guess_given(names, types, options);
    let fields = typed.iter().map(|(name, data_type, _)| Field::new(name, data_type.clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let columns = typed.into_iter().map(|(name, _, written)| Column { name, written }).collect();
    let row_bytes = table.len() / records.len();
    Ok(Sniffed { format, columns, schema, preamble_lines, row_bytes, notes })
}

fn check_given(width: usize, format: &Separated, options: &ReadOptions) -> Result<(), String> {
    let given = [options.columns.len(), options.names.len(), options.types_by_place.len()];
    if (given[0] > 0 && given[0] != width) || given.iter().any(|given| *given > width) {
        let given = given.iter().max().copied().unwrap_or_default();
        return Err(format!(
            "it has {width} columns, and {given} are named: is the delimiter {:?}?",
            char::from(format.separators.delimiter)
        ));
    }
    Ok(())
}

/// With the types that somebody named.
fn guess_given(
    names: Vec<String>,
    types: Vec<(DataType, Written)>,
    options: &ReadOptions,
) -> Vec<(String, DataType, Written)> {
    let given = |at: usize, name: &str| {
        let by_name = || options.types.iter().find(|(known, _)| known == name).map(|(_, t)| t);
        let by_column = options.columns.get(at).map(|(_, data_type)| data_type);
        by_column.or_else(by_name).or_else(|| options.types_by_place.get(at)).cloned()
    };
    let column = |(at, (name, (told, written))): (usize, (String, (DataType, Written)))| match given(
        at, &name,
    ) {
        Some(data_type) => {
            let written = options.formats.of_given(&data_type);
            (name, data_type, written)
        }
        None if options.is_all_text => (name, DataType::Utf8, Written::default()),
        None => (name, told, written),
    };
    names.into_iter().zip(types).enumerate().map(column).collect()
}

struct Guess<'a> {
    format: &'a Separated,
    options: &'a ReadOptions,
    width: usize,
}

impl Guess<'_> {
    fn value<'r>(&self, record: &'r ByteRecord, column: usize) -> Option<&'r str> {
        let value = record.get(column).filter(|value| !self.format.is_null(value))?;
        std::str::from_utf8(value).ok()
    }

    fn types(&self, records: &[ByteRecord]) -> Vec<(DataType, Written)> {
        let texts = |column: usize| records.iter().filter_map(move |r| self.value(r, column));
        (0..self.width).map(|column| cells::infer(texts(column), &self.options.formats)).collect()
    }

    fn is_header(
        &self,
        first: &ByteRecord,
        rest: &[ByteRecord],
        types: &[(DataType, Written)],
    ) -> bool {
        if rest.is_empty() {
            // Nothing but names, or nothing but values.
            let own = self.types(std::slice::from_ref(first));
            return own.iter().all(|(t, _)| matches!(t, DataType::Utf8 | DataType::Null));
        }
        let values: Vec<Option<&str>> = (0..self.width).map(|c| self.value(first, c)).collect();
        let typed: Vec<bool> = values
            .iter()
            .zip(types)
            .filter(|(_, (data_type, _))| !matches!(data_type, DataType::Utf8 | DataType::Null))
            .filter_map(|(value, (data_type, written))| {
                value.map(|value| cells::fits(value, data_type, written))
            })
            .collect();
        if !typed.is_empty() {
            return typed.contains(&false);
        }
        let mut seen = HashSet::new();
        values.iter().flatten().all(|value| seen.insert(*value))
    }

    /// Every column has a name, and no two the same.
    fn names(&self, found: Vec<String>) -> Vec<String> {
        let ReadOptions { columns, names, .. } = self.options;
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut unique = Vec::new();
        for at in 0..self.width {
            let given = columns.get(at).map(|(name, _)| name).or_else(|| names.get(at));
            let mut name = given.or_else(|| found.get(at)).cloned().unwrap_or_default();
            if name.is_empty() {
                name = format!("column_{}", at + 1);
            }
            while let Some(times) = seen.get_mut(&name) {
                *times += 1;
                name = format!("{name}_{times}");
            }
            seen.insert(name.clone(), 0);
            unique.push(name);
        }
        unique
    }
}

/// The text behind its first lines.
fn after_lines(text: &[u8], lines: u64) -> &[u8] {
    match lines.checked_sub(1) {
        None => text,
        Some(last) => {
            let end = memchr_iter(b'\n', text).nth(last as usize).map_or(text.len(), |at| at + 1);
            &text[end..]
        }
    }
}

fn records(text: &[u8], format: &Separated) -> Result<Vec<ByteRecord>, csv::Error> {
    format.reader(text).into_byte_records().take(SAMPLE_RECORDS_MAX + 1).collect()
}

/// How a table is written that a file has, where it does not fill all of it: behind lines that are no records, between
/// comments; and the lines before it.
fn table_in(
    sample: &[u8],
    format: Separated,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> (Separated, u64) {
    let is_said = options.skip_lines.is_some() || format.pads || format.ignores;
    let regular = |format: &Separated| {
        let records = records(sample, format).ok()?;
        let width = records.first().map_or(0, ByteRecord::len);
        Some(records.iter().all(|record| format.fits(record, width)))
    };
    if is_said || regular(&format).unwrap_or(true) {
        return (format, 0);
    }
    let delimiters = match options.delimiter {
        Some(given) => vec![given],
        None => DELIMITERS.to_vec(),
    };
    let comments = match options.comment {
        Some(given) => vec![given],
        None => vec![None, Some(COMMENT)],
    };
    for comment in comments {
        for delimiter in &delimiters {
            let separators = Separators { delimiter: *delimiter, comment, ..format.separators };
            let candidate = Separated { separators, ..format.clone() };
            if let Some(lines) = lines_before(sample, &candidate) {
                if options.comment.is_none() && comment.is_some() {
                    notes.push(
                        "lines that begin with # are left out (comment => '': they are records)"
                            .into(),
                    );
                }
                if lines > 0 {
                    let what = if lines == 1 { "line is" } else { "lines are" };
                    notes.push(format!(
                        "its first {lines} {what} left out (skip => 0: the table begins there)"
                    ));
                }
                return (candidate, lines);
            }
        }
    }
    (format, 0)
}

/// The lines before a table of two columns or more, none of which looks like a record.
fn lines_before(sample: &[u8], format: &Separated) -> Option<u64> {
    let records = records(sample, format).ok()?;
    let mut widths: HashMap<usize, usize> = HashMap::new();
    records.iter().for_each(|record| *widths.entry(record.len()).or_default() += 1);
    let (width, _) = widths.into_iter().max_by_key(|(width, times)| (*times, *width))?;
    let begin = records.iter().position(|record| record.len() == width)?;
    let (before, table) = records.split_at(begin);
    let is_text = |record: &ByteRecord| {
        record.len() == 1 || record.get(0).is_some_and(|value| value.first() == Some(&COMMENT))
    };
    let is_table = width > 1
        && table.len() > 1
        && begin <= PREAMBLE_LINES_MAX
        && before.iter().all(is_text)
        && table.iter().all(|record| format.fits(record, width));
    let offset = table.first()?.position()?.byte() as usize;
    // Where the record before ended: empty lines may follow.
    let (past, rest) = sample.split_at(offset.min(sample.len()));
    let empty = rest.iter().take_while(|b| matches!(b, b'\n' | b'\r')).filter(|b| **b == b'\n');
    let skip = match begin {
        0 => 0,
        _ => (memchr_iter(b'\n', past).count() + empty.count()) as u64,
    };
    is_table.then_some(skip)
}
