//! How the rows of a text file lie, and which columns it has, told from its beginning.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, Cursor};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json;
use datafusion::common::{DataFusionError, Result};
use headrace_io::SourceFile;
use memchr::memchr_iter;
use regex::Regex;

use super::call::ReadOptions;
use super::files::{DataFile, Packing, TableKind, extension, packing_of, refused};
use super::records::{Blocks, FileBytes, Records, Separators, skip_lines, unpacked};
use super::stream;

/// Records at most that types are told from.
pub const SAMPLE_RECORDS_MAX: usize = 20_480;

/// What helps against a file that cannot be read.
pub const REPAIR: &str = "mend the file or move it out of its table's folder";

/// What is known of a file before its rows are read.
#[derive(Clone, Debug)]
pub struct TextInput {
    /// The file, opened when it is read.
    pub source: Arc<SourceFile>,
    /// How its rows lie.
    pub layout: Layout,
    /// How it is packed.
    pub packing: Packing,
    /// Lines before the first row or header.
    pub skip_lines: u64,
}

impl TextInput {
    /// The file's records, unpacked, and the line with which they begin.
    ///
    /// # Errors
    /// A file that cannot be read or unpacked.
    pub fn open(&self) -> std::io::Result<(Box<dyn BufRead + Send>, u64)> {
        let mut reader = unpacked(self.packing, FileBytes::whole(Arc::clone(&self.source)))?;
        let skipped = skip_lines(&mut reader, self.skip_lines)?;
        Ok((reader, 1 + skipped))
    }
}

/// How rows lie in a file.
#[derive(Clone, Debug)]
pub enum Layout {
    /// Values between delimiters, in the order of the header.
    Separated {
        /// What stands between them, and what is NULL.
        format: Separated,
        /// Names, none twice.
        columns: Arc<[String]>,
    },
    /// JSON objects.
    Json {
        /// Where they end.
        records: Records,
        /// Whether somebody gave types to their values.
        is_typed: bool,
    },
    /// A stream of Arrow batches.
    Batches,
}

/// How separated values are written.
#[derive(Clone, Debug)]
pub struct Separated {
    /// What stands between values and around them.
    pub separators: Separators,
    /// Whether the first line names the columns.
    pub has_header: bool,
    nulls: Option<Regex>,
}

impl Separated {
    fn of(path: &Path, start: &[u8], options: &ReadOptions) -> Result<Self> {
        let separators = Separators {
            delimiter: options.delimiter.unwrap_or_else(|| delimiter(path, start)),
            quote: options.quote.unwrap_or(Separators::NO_QUOTE),
            escape: options.escape,
        };
        // An empty value is NULL in any case.
        let nulls: Vec<String> = options.nulls.iter().map(|null| regex::escape(null)).collect();
        let nulls = (!nulls.is_empty()).then(|| Regex::new(&format!("^(?:{})?$", nulls.join("|"))));
        let nulls = nulls.transpose().map_err(|e| refused(path, e, "name fewer texts of NULL"))?;
        Ok(Self { separators, has_header: options.has_header, nulls })
    }

    fn format(&self) -> csv::reader::Format {
        let Separators { delimiter, quote, escape } = self.separators;
        let mut format = csv::reader::Format::default()
            .with_header(self.has_header)
            .with_delimiter(delimiter)
            .with_quote(quote);
        if let Some(escape) = escape {
            format = format.with_escape(escape);
        }
        match &self.nulls {
            Some(nulls) => format.with_null_regex(nulls.clone()),
            None => format,
        }
    }

    /// What decodes a block.
    pub fn reader(&self, schema: Schema, is_first: bool) -> csv::ReaderBuilder {
        let format = self.format().with_header(self.has_header && is_first);
        csv::ReaderBuilder::new(Arc::new(schema)).with_format(format)
    }
}

/// Looks at the beginning of a file: how it is laid out, and which columns it has.
///
/// # Errors
/// With the file's name: what keeps it from being read.
pub fn inspect(
    file: &DataFile,
    kind: TableKind,
    sample_bytes: usize,
    options: &ReadOptions,
) -> Result<(TextInput, Schema)> {
    let path = file.path();
    let fail = |cause: &dyn fmt::Display| refused(path, cause, REPAIR);
    let source = Arc::clone(&file.source);
    let packing = options.packing.unwrap_or_else(|| packing_of(path));
    let skip_lines = options.skip_lines;
    let mut input = TextInput { source, layout: Layout::Batches, packing, skip_lines };
    if kind == TableKind::Arrow {
        let reader = stream::open(&input.source).map_err(|e| fail(&e))?;
        let schema = Schema::clone(reader.schema());
        return Ok((input, schema));
    }
    let (mut reader, first_line) = input.open().map_err(|e| fail(&e))?;
    let sample = |reader: Box<dyn BufRead + Send>, records: Records| {
        let block = Blocks::new(reader, records, first_line).next(sample_bytes);
        let block = block.map_err(|e| fail(&e))?;
        Ok::<_, DataFusionError>(Cursor::new(block.map(|block| block.bytes).unwrap_or_default()))
    };
    let schema = match kind {
        TableKind::Csv => {
            let start = reader.fill_buf().map_err(|e| fail(&e))?;
            let format = Separated::of(path, start, options)?;
            let sample = sample(reader, Records::Separated(format.separators))?;
            let schema = separated_schema(&sample, &format, options).map_err(|e| fail(&e))?;
            let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
            input.layout = Layout::Separated { format, columns };
            schema
        }
        _ => {
            let records = Records::of_json(&mut reader).map_err(|e| fail(&e))?;
            let sample = sample(reader, records)?;
            let (schema, _) = json::reader::infer_json_schema(sample, Some(SAMPLE_RECORDS_MAX))
                .map_err(|e| fail(&plain_text(&e)))?;
            let is_typed = !(options.columns.is_empty() && options.types.is_empty());
            input.layout = Layout::Json { records, is_typed };
            match options.columns.as_slice() {
                [] => typed(schema, options),
                columns => schema_of(columns),
            }
        }
    };
    Ok((input, schema))
}

/// The columns of separated values, by what their beginning looks like and what was said of them.
fn separated_schema(
    sample: &Cursor<Vec<u8>>,
    format: &Separated,
    options: &ReadOptions,
) -> Result<Schema, String> {
    if sample.get_ref().is_empty() {
        return match options.columns.as_slice() {
            [] => Err("it is empty: the first line must name the columns".into()),
            columns => Ok(schema_of(columns)),
        };
    }
    let sampled = format.format().infer_schema(sample.clone(), Some(SAMPLE_RECORDS_MAX));
    let (schema, _) = sampled.map_err(|e| plain_text(&e))?;
    let found = schema.fields().len();
    let given = [options.columns.len(), options.names.len(), options.types_by_place.len()];
    if (given[0] > 0 && given[0] != found) || given.iter().any(|given| *given > found) {
        let given = given.iter().max().copied().unwrap_or_default();
        return Err(format!(
            "it has {found} columns, and {given} are named: is the delimiter {:?}?",
            char::from(format.separators.delimiter)
        ));
    }
    if given[0] > 0 {
        return Ok(schema_of(&options.columns));
    }
    let names = column_names(&schema).into_iter().enumerate();
    let name = |(at, name)| options.names.get(at).cloned().unwrap_or(name);
    let named = names.map(name).zip(schema.fields()).enumerate();
    let fields = named.map(|(at, (name, field))| {
        let by_place = options.types_by_place.get(at);
        let sampled = match options.is_all_text {
            true => &DataType::Utf8,
            false => field.data_type(),
        };
        Field::new(name, by_place.unwrap_or(sampled).clone(), true)
    });
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let again = column_names(&schema);
    let unique = again.into_iter().zip(schema.fields());
    let unique = unique.map(|(name, field)| field.as_ref().clone().with_name(name));
    Ok(typed(Schema::new(unique.collect::<Vec<_>>()), options))
}

fn schema_of(columns: &[(String, DataType)]) -> Schema {
    let field = |(name, data_type): &(String, DataType)| Field::new(name, data_type.clone(), true);
    Schema::new(columns.iter().map(field).collect::<Vec<_>>())
}

/// With the types that some columns were given.
fn typed(schema: Schema, options: &ReadOptions) -> Schema {
    let field = |field: &FieldRef| {
        let given = options.types.iter().find(|(name, _)| name == field.name());
        match given {
            Some((_, data_type)) => {
                Arc::new(field.as_ref().clone().with_data_type(data_type.clone()))
            }
            None => Arc::clone(field),
        }
    };
    Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>())
}

/// A tab in a `.tsv` file; else what stands in the first line, a comma before all others.
fn delimiter(path: &Path, start: &[u8]) -> u8 {
    if extension(Path::new(path.file_stem().unwrap_or_default())) == "tsv"
        || extension(path) == "tsv"
    {
        return b'\t';
    }
    let line = start.split(|b| *b == b'\n').next().unwrap_or_default();
    let known = [b',', b';', b'\t', b'|'];
    known.into_iter().find(|d| memchr_iter(*d, line).next().is_some()).unwrap_or(b',')
}

/// Every column has a name, and no two the same.
fn column_names(schema: &Schema) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut names = Vec::new();
    for (i, field) in schema.fields().iter().enumerate() {
        let mut name = field.name().clone();
        if name.is_empty() {
            name = format!("column_{}", i + 1);
        }
        while let Some(times) = seen.get_mut(&name) {
            *times += 1;
            name = format!("{name}_{times}");
        }
        seen.insert(name.clone(), 0);
        names.push(name);
    }
    names
}

/// What an error says, without the name of its class.
pub fn plain_text(error: &ArrowError) -> String {
    let text = error.to_string();
    let class = text.split_once(": ").filter(|(class, _)| class.ends_with("error"));
    class.map_or(text.as_str(), |(_, text)| text).to_string()
}
