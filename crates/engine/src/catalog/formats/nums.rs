//! Numbers, one a line: `.nums`.

use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::datasource::physical_plan::FileSource;

use crate::catalog::files::DataFile;
use crate::catalog::format::{FileFormat, Inspected, Scan};
use crate::catalog::layout::{Decode, Fault, Layout, Text, TextInput, Wanted};
use crate::catalog::options::ReadOptions;
use crate::catalog::records::{Block, Records};
use crate::catalog::separated::shown;
use crate::catalog::text::TextSource;

/// A 64-bit integer a line, the column `value`; empty lines are none.
#[derive(Debug)]
pub struct Nums;

impl FileFormat for Nums {
    fn name(&self) -> &'static str {
        "numbers"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["nums"]
    }

    fn is_packable(&self) -> bool {
        true
    }

    fn functions(&self) -> &'static [&'static str] {
        &["read_nums"]
    }

    fn options(&self) -> &'static [&'static str] {
        &["encoding", "compression"]
    }

    fn inspect(&self, file: &DataFile, options: &ReadOptions, _: usize) -> Result<Inspected> {
        let text = Text::of(file, options);
        let layout = Layout::Records(Arc::new(Lines));
        let file = file.planned().with_extension(TextInput { text, layout, row_bytes: 0 });
        Ok(Inspected { file, schema: schema(), notes: Vec::new() })
    }

    fn source(&self, scan: Scan<'_>) -> Arc<dyn FileSource> {
        Arc::new(TextSource::new("nums", scan))
    }
}

fn schema() -> Schema {
    Schema::new(vec![Field::new("value", DataType::Int64, false)])
}

#[derive(Debug)]
struct Lines;

impl Decode for Lines {
    fn records(&self) -> Records {
        Records::Lines
    }

    fn decode(&self, block: &Block, wanted: &Wanted<'_>) -> Result<(Vec<RecordBatch>, u64), Fault> {
        let lines = (block.first_line..).zip(block.bytes.split(|byte| *byte == b'\n'));
        let filled = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
        let values = filled.map(|(at, line)| number(at, line)).collect::<Result<Vec<_>, _>>()?;
        let schema = Arc::new(schema());
        let batch = |values: &[i64]| {
            let column = Arc::new(Int64Array::from(values.to_vec()));
            RecordBatch::try_new(Arc::clone(&schema), vec![column])
        };
        let batches = values.chunks(wanted.batch_rows).map(batch).collect::<Result<_, _>>();
        let batches = batches.map_err(|e| fault(block.first_line, &e.to_string()))?;
        Ok((batches, 0))
    }
}

fn number(at: u64, line: &[u8]) -> Result<i64, Fault> {
    let text = String::from_utf8_lossy(line.trim_ascii());
    text.parse().map_err(|_| fault(at, &format!("'{}' is no BIGINT", shown(&text))))
}

fn fault(at: u64, cause: &str) -> Fault {
    Fault {
        cause: format!("line {at}: {cause}"),
        remedy: "write one whole number of 64 bits in each line".into(),
    }
}
