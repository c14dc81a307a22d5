//! What a process of another machine needs to open the same table, if the same files lie there under the same paths.
//!
//! ```text
//! one machine:      table ─► PortableTable: paths, versions of the files, columns
//! another machine:  PortableTable ─► files of these versions, or an error ─► table
//! ```
//!
//! Devices, inodes and times of status changes are a machine's own. What is the same wherever a file is seen is its size, the
//! time of its last write, and its footer, which says where all of its columns lie.

use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use headrace_io::{FileIdentity, IoError, ReadAt, SourceFile};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;

use crate::description::Constants;
use crate::error::{FormatError, Result};

/// Bytes at the end of a file that are looked at: a footer, or the end of a long one.
const FOOTER_BYTES: u64 = 64 << 10;

/// The version of a file, as any machine that sees it can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileVersion {
    /// Its size.
    pub size_bytes: u64,
    /// Time of the last write, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Of the last 64 KiB.
    pub footer_hash: u64,
}

impl FileVersion {
    /// Of an open file; reads its end.
    ///
    /// # Errors
    /// Its end cannot be read, or it has been written since it was opened.
    pub fn of(file: &SourceFile) -> Result<Self> {
        let FileIdentity { size_bytes, mtime_ns, .. } = file.identity();
        let bytes = size_bytes.min(FOOTER_BYTES);
        let mut end = vec![0; bytes as usize];
        file.read_exact_at(size_bytes - bytes, &mut end)?;
        file.check_unchanged()?;
        let mut hasher = XxHash64::with_seed(0);
        hasher.write(&end);
        Ok(Self { size_bytes, mtime_ns, footer_hash: hasher.finish() })
    }
}

/// A file of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortableFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// The version that was seen first.
    pub version: FileVersion,
    /// Its record batches, or row groups.
    pub batches: u32,
}

impl PortableFile {
    /// Opens it, if it is the file that was seen first.
    ///
    /// # Errors
    /// It is another one, or cannot be read.
    pub fn open(&self) -> Result<Arc<SourceFile>> {
        let source = SourceFile::open(&self.path)?;
        let found = FileVersion::of(&source)?;
        if found != self.version {
            let what = difference(&self.version, &found);
            return Err(IoError::Changed { path: self.path.clone(), what }.into());
        }
        Ok(source)
    }
}

fn difference(seen: &FileVersion, found: &FileVersion) -> String {
    let what = match (seen, found) {
        (seen, found) if seen.size_bytes != found.size_bytes => {
            format!("it had {} bytes and has {}", seen.size_bytes, found.size_bytes)
        }
        (seen, found) if seen.mtime_ns != found.mtime_ns => "it was written since".to_string(),
        _ => "its footer is another one".to_string(),
    };
    format!("the process that asks has seen another version of it: {what}")
}

/// How the files of a table are read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PortableFormat {
    /// As Arrow files.
    Arrow {
        /// Columns that no file has.
        constants: PortableConstants,
    },
    /// As Parquet files.
    Parquet,
}

/// Columns that no file has: one value per file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortableConstants(pub(crate) Vec<(String, Constants)>);

/// A table of local files, in words that another machine understands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortableTable {
    /// Its files.
    pub files: Vec<PortableFile>,
    /// How they are read.
    pub format: PortableFormat,
    /// All columns: their names, types, and whether they may be NULL.
    columns: Vec<(String, String, bool)>,
}

impl PortableTable {
    /// A table of files, each with its path, the identity that it had when it was opened, and the number of its batches.
    /// Reads their footers.
    ///
    /// # Errors
    /// Why other machines cannot open it.
    pub(crate) fn of<'a>(
        files: impl Iterator<Item = (&'a Path, FileIdentity, usize)>,
        schema: &Schema,
        format: PortableFormat,
    ) -> std::result::Result<Self, String> {
        let file = |(path, identity, batches): (&Path, FileIdentity, usize)| {
            let file = seen(path, identity).map_err(|error| error.to_string())?;
            let path = std::path::absolute(path).map_err(|cause| cause.to_string())?;
            let batches = u32::try_from(batches).map_err(|cause| cause.to_string())?;
            let version = FileVersion::of(&file).map_err(|error| error.to_string())?;
            Ok::<_, String>(PortableFile { path, version, batches })
        };
        let files = files.map(file).collect::<std::result::Result<_, _>>()?;
        let portable = Self { files, format, columns: columns(schema) };
        match portable.schema() {
            Ok(schema) if columns(&schema) == portable.columns => Ok(portable),
            Ok(_) | Err(_) => Err("its columns have types that cannot be sent".into()),
        }
    }

    /// Its columns.
    ///
    /// # Errors
    /// A type that there is not.
    pub fn schema(&self) -> Result<Schema> {
        let field = |(name, data_type, nullable): &(String, String, bool)| {
            let parsed: DataType = data_type.parse().map_err(|_| {
                FormatError::Argument(format!("column {name}: there is no type {data_type}"))
            })?;
            Ok(Field::new(name, parsed, *nullable))
        };
        Ok(Schema::new(self.columns.iter().map(field).collect::<Result<Vec<_>>>()?))
    }

    /// Opens its files.
    ///
    /// # Errors
    /// A file that is another one than was seen first, or cannot be read.
    pub fn open_files(&self) -> Result<Vec<Arc<SourceFile>>> {
        self.files.iter().map(PortableFile::open).collect()
    }

    /// Checks the columns of the table that was opened.
    ///
    /// # Errors
    /// They are other ones.
    pub fn check(&self, opened: &Schema) -> Result<()> {
        match columns(opened) == self.columns {
            true => Ok(()),
            false => Err(FormatError::Argument("its columns have other types here".into())),
        }
    }
}

/// A file of a table, if it is still the one that was opened.
fn seen(path: &Path, identity: FileIdentity) -> Result<Arc<SourceFile>> {
    let file = SourceFile::open(path)?;
    if file.identity() != identity {
        let what = "it was written after its table was opened".into();
        return Err(IoError::Changed { path: path.to_path_buf(), what }.into());
    }
    Ok(file)
}

fn columns(schema: &Schema) -> Vec<(String, String, bool)> {
    let column = |field: &Arc<Field>| {
        (field.name().clone(), field.data_type().to_string(), field.is_nullable())
    };
    schema.fields().iter().map(column).collect()
}
