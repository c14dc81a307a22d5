//! Separated values: how a file writes them, and the rows of a block as batches.

use std::sync::Arc;

use csv::{ByteRecord, Reader, ReaderBuilder};
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StringBuilder,
};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use memchr::memchr_iter;

use super::cells::{self, Written};
use super::records::{Block, Separators};
use super::sample::{REPAIR, SAMPLE_RECORDS_MAX, plain_text};
use crate::sql::type_name;

/// Letters of a value that an error shows.
const SHOWN_MAX: usize = 60;

/// How separated values are written.
#[derive(Clone, Debug)]
pub struct Separated {
    /// What stands between values and around them.
    pub separators: Separators,
    /// Whether the first record names the columns.
    pub has_header: bool,
    /// Texts that are NULL, besides the empty one.
    pub nulls: Arc<[String]>,
    /// Whether values that a record lacks are NULL.
    pub pads: bool,
    /// Whether records that do not fit are left out.
    pub ignores: bool,
}

/// A column of a file.
#[derive(Clone, Debug)]
pub struct Column {
    /// No other has it.
    pub name: String,
    /// How its values are written.
    pub written: Written,
}

impl Separated {
    /// The records of a text.
    pub fn reader<'a>(&self, text: &'a [u8]) -> Reader<&'a [u8]> {
        let Separators { delimiter, quote, escape, comment } = self.separators;
        ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .quote(quote)
            .quoting(quote != Separators::NO_QUOTE)
            .escape(escape)
            .comment(comment)
            .from_reader(text)
    }

    /// Whether a value is NULL.
    pub fn is_null(&self, value: &[u8]) -> bool {
        value.is_empty() || self.nulls.iter().any(|null| null.as_bytes() == value)
    }

    /// Whether a record of so many columns has more than nothing behind them, or lacks some.
    pub fn fits(&self, record: &ByteRecord, columns: usize) -> bool {
        match record.len() {
            found if found < columns => self.pads,
            _ => record.iter().skip(columns).all(<[u8]>::is_empty),
        }
    }
}

/// What keeps a record from being read: where it begins in its block, why, and what helps.
pub struct Fault {
    offset: u64,
    cause: String,
    /// What helps.
    pub remedy: String,
}

impl Fault {
    fn of(error: &csv::Error) -> Self {
        let offset = error.position().map_or(0, csv::Position::byte);
        Self { offset, cause: error.to_string(), remedy: REPAIR.into() }
    }

    /// The cause, with its line in the file.
    pub fn placed(&self, block: &Block) -> String {
        let (before, rest) = block.bytes.split_at((self.offset as usize).min(block.bytes.len()));
        // Empty lines belong to the record behind them.
        let empty = rest.iter().take_while(|b| matches!(b, b'\n' | b'\r')).filter(|b| **b == b'\n');
        let lines = memchr_iter(b'\n', before).count() + empty.count();
        format!("line {}: {}", block.first_line + lines as u64, self.cause)
    }
}

/// How the records of a block become batches.
pub struct Reading<'a> {
    /// How they are written.
    pub format: &'a Separated,
    /// All columns.
    pub columns: &'a [Column],
    /// Their types.
    pub types: Vec<DataType>,
    /// Those that come out, in this order.
    pub wanted: Vec<usize>,
    /// Rows of a batch at most.
    pub batch_rows: usize,
}

/// Rows of a batch in the making.
struct Portion {
    columns: Vec<(usize, StringBuilder)>,
    offsets: Vec<u64>,
}

impl Reading<'_> {
    /// The batches, and how many records were left out.
    ///
    /// # Errors
    /// A record that does not fit.
    pub fn batches(&self, block: &Block) -> Result<(Vec<RecordBatch>, u64), Fault> {
        let mut reader = self.format.reader(&block.bytes);
        let (mut record, mut ignored) = (ByteRecord::new(), 0);
        if block.is_first && self.format.has_header {
            reader.read_byte_record(&mut record).map_err(|e| Fault::of(&e))?;
        }
        let (mut portion, mut batches) = (self.portion(), Vec::new());
        loop {
            let offset = reader.position().byte();
            if !reader.read_byte_record(&mut record).map_err(|e| Fault::of(&e))? {
                break;
            }
            match self.format.fits(&record, self.columns.len()) {
                true => portion.push(self.format, &record, offset)?,
                false if self.format.ignores => ignored += 1,
                false => return Err(self.ragged(&record, offset)),
            }
            if portion.offsets.len() >= self.batch_rows {
                batches.push(self.batch(&mut portion, &mut ignored)?);
            }
        }
        if !portion.offsets.is_empty() {
            batches.push(self.batch(&mut portion, &mut ignored)?);
        }
        Ok((batches, ignored))
    }

    /// Where records are left out that do not fit, which ones must not depend on the columns that are wanted.
    fn portion(&self) -> Portion {
        let read = match self.format.ignores {
            true => (0..self.columns.len()).collect(),
            false => self.wanted.clone(),
        };
        let columns = read.into_iter().map(|column| (column, StringBuilder::new())).collect();
        Portion { columns, offsets: Vec::new() }
    }

    fn batch(&self, portion: &mut Portion, ignored: &mut u64) -> Result<RecordBatch, Fault> {
        let rows = portion.offsets.len();
        let (mut misfits, mut arrays) = (vec![false; rows], Vec::new());
        let mut first: Option<(usize, usize, String)> = None;
        for (column, builder) in &mut portion.columns {
            let texts = builder.finish();
            let (data_type, written) = (&self.types[*column], &self.columns[*column].written);
            let parsed = cells::parse(&texts, data_type, written);
            let (array, wrong) = parsed.map_err(|e| Fault {
                offset: portion.offsets[0],
                cause: plain_text(&e),
                remedy: "name another type".into(),
            })?;
            if let Some(row) = wrong.first()
                && first.as_ref().is_none_or(|(known, ..)| row < known)
            {
                first = Some((*row, *column, texts.value(*row).to_string()));
            }
            wrong.iter().for_each(|row| misfits[*row] = true);
            arrays.push((*column, array));
        }
        if let Some((row, column, text)) = first
            && !self.format.ignores
        {
            return Err(self.misfit(portion.offsets[row], column, &text));
        }
        portion.offsets.clear();
        let batch = self.arranged(&arrays, rows).map_err(|e| Fault {
            offset: 0,
            cause: plain_text(&e),
            remedy: REPAIR.into(),
        })?;
        let left_out = misfits.iter().filter(|misfit| **misfit).count() as u64;
        if left_out == 0 {
            return Ok(batch);
        }
        *ignored += left_out;
        let kept: BooleanArray = misfits.iter().map(|misfit| Some(!misfit)).collect();
        filter_record_batch(&batch, &kept).map_err(|e| Fault {
            offset: 0,
            cause: plain_text(&e),
            remedy: REPAIR.into(),
        })
    }

    fn arranged(
        &self,
        arrays: &[(usize, ArrayRef)],
        rows: usize,
    ) -> Result<RecordBatch, datafusion::arrow::error::ArrowError> {
        let of = |wanted: &usize| {
            let found = arrays.iter().find(|(column, _)| column == wanted);
            found.map(|(_, array)| {
                (
                    Field::new(&self.columns[*wanted].name, array.data_type().clone(), true),
                    Arc::clone(array),
                )
            })
        };
        let (fields, columns): (Vec<Field>, Vec<ArrayRef>) =
            self.wanted.iter().filter_map(of).unzip();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
    }

    fn ragged(&self, record: &ByteRecord, offset: u64) -> Fault {
        let (found, columns) = (record.len(), self.columns.len());
        let pads =
            if found < columns { "null_padding => true: what is missing is NULL; " } else { "" };
        Fault {
            offset,
            cause: format!("it has {found} values, and the file {columns} columns"),
            remedy: format!(
                "mend the line, or say how it is read: read_csv('..', ..) with {pads}ignore_errors => true: such \
                 lines are left out; comment => '#'; skip => lines before the header; delim => ';'"
            ),
        }
    }

    fn misfit(&self, offset: u64, column: usize, text: &str) -> Fault {
        let Column { name, written } = &self.columns[column];
        Fault {
            offset,
            cause: format!(
                "column {name}: '{}' is no {}",
                shown(text),
                type_name(&self.types[column])
            ),
            remedy: misfit_remedy("read_csv", name, written.is_given),
        }
    }
}

/// What helps against a value that does not fit its column.
pub fn misfit_remedy(function: &str, name: &str, is_given: bool) -> String {
    let name = name.replace('\'', "''");
    match is_given {
        true => "mend the value, or name a type that all values fit".to_string(),
        false => format!(
            "the types of columns are told from a file's first {SAMPLE_RECORDS_MAX} rows: mend the value, or name the \
             type: {function}('..', types => {{'{name}': 'VARCHAR'}})"
        ),
    }
}

/// A value as an error shows it.
pub fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN_MAX).collect();
    let more = if short.len() < text.len() { ".." } else { "" };
    format!("{}{more}", short.escape_debug())
}

impl Portion {
    fn push(&mut self, format: &Separated, record: &ByteRecord, offset: u64) -> Result<(), Fault> {
        for (column, builder) in &mut self.columns {
            match record.get(*column).filter(|value| !format.is_null(value)) {
                None => builder.append_null(),
                Some(value) => {
                    let text = std::str::from_utf8(value).map_err(|e| Fault {
                        offset,
                        cause: e.to_string(),
                        remedy: REPAIR.into(),
                    })?;
                    builder.append_value(text);
                }
            }
        }
        self.offsets.push(offset);
        Ok(())
    }
}
