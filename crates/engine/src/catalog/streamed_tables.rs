//! The tables that scans of a session have opened. Each is kept with its first file, and the next scan of the same columns
//! and files finds it. The runner records run times and prepared GPU runs by table, so a table opened anew would lose them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use headrace_io::{ReadAt, SourceFile};
use headrace_runner::StreamTable;
use parking_lot::Mutex;

/// Scans of a file at most that differ in their columns or their other files.
const KEPT_MAX: usize = 32;

type Files = Vec<Arc<SourceFile>>;

/// The tables.
#[derive(Debug, Default)]
pub(super) struct StreamedTables(Mutex<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    columns: SchemaRef,
    files: Files,
    table: Arc<Opened>,
}

/// A table, with the facts that decide whether a pipeline takes it.
#[derive(Debug)]
pub(super) struct Opened {
    pub stream: Arc<StreamTable>,
    /// Of the memory for reading that its largest row group takes.
    pub slot_bytes: u64,
    /// Why its rows had better stay the planner's, if they had.
    pub long_texts: Option<String>,
}

impl Kept {
    /// Whether it has a file that is another one by now.
    fn has_older(&self, files: &Files) -> bool {
        let now: HashMap<_, _> = files.iter().map(|file| (file.path(), file)).collect();
        let is_older =
            |file: &Arc<SourceFile>| now.get(file.path()).is_some_and(|it| !Arc::ptr_eq(it, file));
        self.files.iter().any(is_older)
    }
}

impl StreamedTables {
    /// The table of these columns of these files.
    pub fn known(&self, columns: &SchemaRef, files: &Files) -> Option<Arc<Opened>> {
        let mut kept = self.0.lock();
        let is_same = |it: &Kept| {
            it.files.len() == files.len()
                && it.files.iter().zip(files).all(|(a, b)| Arc::ptr_eq(a, b))
                && it.columns == *columns
        };
        let at = kept.iter().position(is_same)?;
        // The one used last is the last.
        kept[at..].rotate_left(1);
        kept.last().map(|kept| Arc::clone(&kept.table))
    }

    /// Keeps a table. Those of files that are others by now leave.
    pub fn keep(&self, (columns, files): (SchemaRef, Files), table: Opened) -> Arc<Opened> {
        let (mut kept, table) = (self.0.lock(), Arc::new(table));
        kept.retain(|it| !it.has_older(&files));
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push(Kept { columns, files, table: Arc::clone(&table) });
        table
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use headrace_format::batches::BatchTable;
    use headrace_io::FileIdentity;

    use super::*;

    fn file(path: &str) -> Arc<SourceFile> {
        let identity =
            FileIdentity { device: 1, inode: 2, size_bytes: 3, mtime_ns: 4, ctime_ns: 5 };
        SourceFile::known(path, identity)
    }

    fn columns(names: &[&str]) -> SchemaRef {
        let fields = names.iter().map(|name| Field::new(*name, DataType::Int64, true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn opened(columns: &SchemaRef) -> Opened {
        let (_, receiver) = headrace_format::batches::batch_channel(1);
        let table = BatchTable::new("t", columns, receiver);
        let stream = Arc::new(StreamTable::new("t", Arc::new(table)));
        Opened { stream, slot_bytes: 0, long_texts: None }
    }

    #[test]
    fn a_table_is_known_by_its_columns_and_its_files() {
        let tables = StreamedTables::default();
        let (a, b) = (file("a"), file("b"));
        let (x, xy) = (columns(&["x"]), columns(&["x", "y"]));
        let both = vec![Arc::clone(&a), Arc::clone(&b)];
        let kept = tables.keep((Arc::clone(&x), both.clone()), opened(&x));
        assert!(Arc::ptr_eq(&tables.known(&x, &both).unwrap(), &kept));
        assert!(tables.known(&xy, &both).is_none() && tables.known(&x, &vec![a.clone()]).is_none());
        let again = vec![a, file("b")];
        assert!(tables.known(&x, &again).is_none(), "a file of the same name is another one");
        tables.keep((Arc::clone(&xy), again.clone()), opened(&xy));
        assert!(tables.known(&x, &both).is_none(), "the table of the older one has left");
        for number in 0..KEPT_MAX {
            tables.keep((columns(&[&number.to_string()]), again.clone()), opened(&x));
        }
        assert!(tables.known(&xy, &again).is_none(), "the one used longest ago leaves");
    }
}
