//! `headrace convert`: any file that the planner reads becomes an Arrow file to stream.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::prelude::{CsvReadOptions, JsonReadOptions, ParquetReadOptions};
use futures::StreamExt;
use headrace_engine::{Processor, Session};
use headrace_format::arrow::{ArrowWriter, WriterOptions, WriterSummary};

use crate::args::{ConvertArgs, EngineArgs};
use crate::error::{CliError, Context, Result};
use crate::session::{self, failure};

/// Reads the input batch by batch, so memory stays at a few batches whatever its size.
pub async fn run(args: &ConvertArgs) -> Result<()> {
    if args.output.exists() && !args.force {
        return Err(CliError::new(format!("{} exists", args.output.display()))
            .hint("name another file, or add --force to replace it"));
    }
    let start = std::time::Instant::now();
    let summary = convert(args).await?;
    eprintln!(
        "{}: {} rows, {} record batches, {:.3} GB in {:.2} s",
        args.output.display(),
        summary.rows,
        summary.batches,
        summary.bytes as f64 / 1e9,
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}

async fn convert(args: &ConvertArgs) -> Result<WriterSummary> {
    let place = args.input.display().to_string();
    let failed = |error| failure(&place, &error);
    let session = session::new(&session::on(Processor::Off, &EngineArgs::default()))?;
    register(&session, &args.input).await?;
    let query = session.sql("select * from input").await.map_err(failed)?;
    let mut stream = query.stream().map_err(failed)?;
    let target = target_schema(&query.schema(), &args.dictionary)?;
    let mut writer = create(&args.output, &target)?;
    while let Some(batch) = stream.next().await {
        writer.write(&recoded(&batch.map_err(failed)?, &target)?).at(args.output.display())?;
    }
    writer.finish().at(args.output.display())
}

/// The input as table `input`, by its extension (of the first file, for a folder).
async fn register(session: &Session, input: &Path) -> Result<()> {
    let place = input.display().to_string();
    let context = session.context();
    let registered = match extension(input).at(&place)?.as_str() {
        "parquet" => context.register_parquet("input", &place, ParquetReadOptions::default()).await,
        "csv" => context.register_csv("input", &place, CsvReadOptions::new()).await,
        "json" | "ndjson" | "jsonl" => {
            let options = JsonReadOptions::default();
            context.register_json("input", &place, options).await
        }
        "arrow" | "feather" => session.register_arrow("input", &[input.to_path_buf()]).map(|_| ()),
        other => {
            return Err(CliError::new(format!("{place}: cannot read files of type {other:?}"))
                .hint("convert reads .parquet, .csv, .json and .arrow files"));
        }
    };
    registered.map_err(|error| failure(&place, &error))
}

fn extension(input: &Path) -> std::io::Result<String> {
    let file = if std::fs::metadata(input)?.is_dir() {
        let mut files = std::fs::read_dir(input)?
            .map(|entry| entry.map(|e| e.path()))
            .collect::<std::io::Result<Vec<_>>>()?;
        files.sort();
        files.into_iter().find(|path| path.is_file()).unwrap_or_default()
    } else {
        input.to_path_buf()
    };
    Ok(file.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase())
}

fn create(output: &Path, target: &SchemaRef) -> Result<ArrowWriter> {
    ArrowWriter::create(output, target, WriterOptions::default()).at(output.display())
}

/// The input's schema with text views as plain text and the named columns as dictionaries.
fn target_schema(input: &SchemaRef, dictionary: &[String]) -> Result<SchemaRef> {
    let mut wanted: HashSet<&str> = dictionary.iter().map(String::as_str).collect();
    let fields = input.fields().iter().map(|field| {
        let text =
            matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let data_type = match field.data_type() {
            _ if wanted.remove(field.name().as_str()) && text => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
            DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
            other => other.clone(),
        };
        Field::new(field.name(), data_type, field.is_nullable())
    });
    let schema = Schema::new(fields.collect::<Vec<_>>());
    match wanted.iter().next() {
        None => Ok(Arc::new(schema)),
        Some(name) => Err(CliError::new(format!("--dictionary {name}: no such column"))
            .hint(format!("columns: {}", names(input)))),
    }
}

fn names(schema: &SchemaRef) -> String {
    schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ")
}

fn recoded(batch: &RecordBatch, target: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch
        .columns()
        .iter()
        .zip(target.fields())
        .map(|(column, field)| {
            cast(column, field.data_type()).at(format!("column {}", field.name()))
        })
        .collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(target.clone(), columns).at("batch")
}
