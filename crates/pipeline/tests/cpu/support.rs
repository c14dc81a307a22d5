//! Tables in memory, and shorthands for IR.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use headrace_columns::segment::{ColumnView, SegmentView};
use headrace_columns::simd::Tier;
use headrace_ir::{
    AggregateCall, AggregateFunction, ArithmeticOp, CompareOp, DataType, Encoding, Expr, Field,
    Input, NamedExpr, OnOverflow, Pipeline, Probe, ProbeKind, Scalar, Sink, Source, Step,
    ValueRange,
};
use headrace_pipeline::bind::{BindOptions, bind};
use headrace_pipeline::cpu::{CpuProgram, CpuWorker, WorkerOptions};
use headrace_pipeline::state::Output;
use headrace_pipeline::{Bound, BuildOptions, BuildTable, ExecError, SourceColumn, SourceInfo};
use headrace_spill::SpillFolder;

/// One column of a table in memory.
#[derive(Clone, Default)]
pub struct TestColumn {
    pub encoding: Option<Encoding>,
    /// Values, after `skip` bytes that are none.
    pub values: Vec<u8>,
    pub skip: usize,
    pub offsets: Option<Vec<u8>>,
    pub validity: Option<Vec<u8>>,
    pub remap: Option<Vec<i32>>,
    pub info: SourceColumn,
}

/// A table in memory.
#[derive(Clone, Default)]
pub struct Table {
    pub name: String,
    pub rows: usize,
    pub fields: Vec<Field>,
    pub columns: Vec<TestColumn>,
}

pub fn pack_bits(bits: impl IntoIterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (i, bit) in bits.into_iter().enumerate() {
        if i % 8 == 0 {
            bytes.push(0);
        }
        *bytes.last_mut().unwrap() |= u8::from(bit) << (i % 8);
    }
    bytes
}

impl Table {
    pub fn new(name: &str, rows: usize) -> Self {
        Self { name: name.into(), rows, ..Self::default() }
    }

    pub fn push(&mut self, name: &str, data_type: DataType, nullable: bool, column: TestColumn) {
        self.fields.push(Field::new(name, data_type, nullable));
        self.columns.push(column);
    }

    /// A NOT NULL Int32 column with its true bounds.
    pub fn int32(mut self, name: &str, values: &[i32]) -> Self {
        let range = values.iter().fold(None, |range: Option<ValueRange>, &v| {
            let v = i64::from(v);
            Some(range.map_or(ValueRange { min: v, max: v }, |r| ValueRange {
                min: r.min.min(v),
                max: r.max.max(v),
            }))
        });
        let column = TestColumn {
            encoding: Some(Encoding::Plain),
            values: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            info: SourceColumn { range, ..SourceColumn::default() },
            ..TestColumn::default()
        };
        self.push(name, DataType::Int32, false, column);
        self
    }

    /// A NOT NULL text column, plain.
    pub fn text(mut self, name: &str, values: &[&str]) -> Self {
        let mut offsets = vec![0u32];
        let mut bytes = Vec::new();
        for value in values {
            bytes.extend(value.as_bytes());
            offsets.push(bytes.len() as u32);
        }
        let column = TestColumn {
            encoding: Some(Encoding::Offsets { offset_bytes: 4 }),
            values: bytes,
            offsets: Some(offsets.iter().flat_map(|v| v.to_le_bytes()).collect()),
            ..TestColumn::default()
        };
        self.push(name, DataType::Utf8, false, column);
        self
    }

    pub fn source(&self) -> Source {
        Source {
            input: Input::Table(0),
            table: self.name.clone(),
            columns: self.fields.clone(),
            ordinals: (0..self.fields.len()).collect(),
        }
    }

    pub fn info(&self) -> SourceInfo {
        SourceInfo {
            columns: self.columns.iter().map(|c| c.info.clone()).collect(),
            rows_max: self.rows as u64,
            remaps: Vec::new(),
        }
    }

    pub fn segment(&self) -> SegmentView<'_> {
        self.part(0, self.rows)
    }

    /// Rows `start .. end`; `start` is a multiple of 8.
    pub fn part(&self, start: usize, end: usize) -> SegmentView<'_> {
        assert_eq!(start % 8, 0);
        let columns = self.columns.iter().zip(&self.fields).map(|(column, field)| {
            let encoding = column.encoding.clone().unwrap();
            let (first_value, first_offset) = match &encoding {
                Encoding::Offsets { offset_bytes } => (0, start * usize::from(*offset_bytes)),
                other => (other.values_bytes(&field.data_type, start as u64).unwrap() as usize, 0),
            };
            let offsets = column.offsets.as_deref().map(|offsets| &offsets[first_offset..]);
            // The texts from the part's first on.
            let offsets_base = match (&encoding, offsets) {
                (Encoding::Offsets { offset_bytes }, Some(offsets)) => {
                    let mut first = [0; 8];
                    let width = usize::from(*offset_bytes).min(offsets.len());
                    first[..width].copy_from_slice(&offsets[..width]);
                    u64::from_le_bytes(first)
                }
                _ => 0,
            };
            let values = &column.values[column.skip + first_value..];
            // Offsets may be rubbish.
            let own = values.get(usize::try_from(offsets_base).unwrap_or(usize::MAX)..);
            let (values, offsets_base) = own.map_or((values, 0), |own| (own, offsets_base));
            ColumnView {
                encoding,
                values,
                offsets,
                offsets_base,
                validity: column.validity.as_deref().map(|bits| &bits[start / 8..]),
                remap: column.remap.as_deref(),
            }
        });
        SegmentView { rows: end - start, columns: columns.collect() }
    }

    /// A column as an expression.
    pub fn col(&self, name: &str) -> Expr {
        let index = self.fields.iter().position(|f| f.name == name).unwrap();
        let field = &self.fields[index];
        reg(index, field.data_type.clone(), field.nullable, name)
    }
}

pub fn reg(index: usize, data_type: DataType, nullable: bool, name: &str) -> Expr {
    Expr::Register { index, data_type, nullable, name: name.into() }
}

pub fn int(value: i64) -> Expr {
    Expr::Literal(Scalar::int(DataType::Int32, value.into()))
}

pub fn text(value: &str) -> Expr {
    Expr::Literal(Scalar::utf8(value))
}

pub fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    Expr::Compare { op, left: Box::new(left), right: Box::new(right) }
}

pub fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
    Expr::Arithmetic {
        op,
        data_type: left.data_type(),
        left: Box::new(left),
        right: Box::new(right),
        on_overflow: OnOverflow::Error,
    }
}

pub fn named(name: &str, expr: Expr) -> NamedExpr {
    NamedExpr { name: name.into(), expr }
}

pub fn call(
    function: AggregateFunction,
    argument: Option<Expr>,
    result: DataType,
) -> AggregateCall {
    AggregateCall {
        name: function.name().into(),
        function,
        argument,
        filter: None,
        distinct: false,
        result,
        on_overflow: OnOverflow::Error,
    }
}

pub fn inner(build: usize, key: Expr, payload: Vec<usize>) -> Step {
    Step::Probe(Probe { kind: ProbeKind::Inner, payload, ..Probe::semi(build, vec![key]) })
}

/// How a pipeline is run.
#[derive(Clone, Copy)]
pub struct RunOptions {
    /// Each worker but the last is given 8 rows, if there are so many.
    pub workers: usize,
    pub batch_rows: usize,
    pub tier: Tier,
    pub dense_groups_max: u64,
    pub memory_limit_bytes: u64,
    /// Groups of a table that is flushed; there is a store to spill to if it is set.
    pub groups_max: Option<usize>,
    /// Whether tables of groups are put aside as soon as they grow.
    pub puts_aside: bool,
    pub build: BuildOptions,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            workers: 1,
            batch_rows: 4096,
            tier: Tier::best(),
            dense_groups_max: 65_536,
            memory_limit_bytes: u64::MAX,
            groups_max: None,
            puts_aside: false,
            build: BuildOptions::default(),
        }
    }
}

pub fn bound(
    table: &Table,
    steps: Vec<Step>,
    sink: Sink,
    builds: &[Arc<BuildTable>],
) -> Arc<Bound> {
    let pipeline = Pipeline { source: table.source(), steps, sink };
    Arc::new(bind(&pipeline, &table.info(), builds, &BindOptions::default()).unwrap())
}

pub fn run_with(
    table: &Table,
    steps: Vec<Step>,
    sink: Sink,
    builds: &[Arc<BuildTable>],
    options: RunOptions,
) -> Result<Output, ExecError> {
    let pipeline = Pipeline { source: table.source(), steps, sink };
    let bind_options =
        BindOptions { dense_groups_max: options.dense_groups_max, ..BindOptions::default() };
    let bound = bind(&pipeline, &table.info(), builds, &bind_options).unwrap();
    let program = CpuProgram::compile(Arc::new(bound)).unwrap();
    let home = tempfile::tempdir().unwrap();
    let shared = worker_options(&options, home.path());
    program.finish(work(&program, table, &shared, options.workers)?, options.build)
}

/// What the workers of one execution share.
pub fn worker_options(options: &RunOptions, spill_folder: &Path) -> WorkerOptions {
    let mut shared = WorkerOptions::new(options.memory_limit_bytes);
    shared.batch_rows = options.batch_rows;
    shared.tier = options.tier;
    shared.workers = options.workers;
    if options.puts_aside {
        shared.cache_bytes = 0;
    }
    if let Some(groups_max) = options.groups_max {
        shared.groups_max = groups_max;
        shared.spill = Some(SpillFolder::new(spill_folder, u64::MAX, ""));
    }
    shared
}

/// Workers that have seen all rows.
pub fn work(
    program: &Arc<CpuProgram>,
    table: &Table,
    options: &WorkerOptions,
    count: usize,
) -> Result<Vec<CpuWorker>, ExecError> {
    let mut workers = Vec::new();
    for i in 0..count {
        let mut worker = program.worker(options)?;
        let last = i + 1 == count;
        let end = if last { table.rows } else { ((i + 1) * 8).min(table.rows / 8 * 8) };
        worker.execute(&table.part((i * 8).min(table.rows / 8 * 8), end))?;
        workers.push(worker);
    }
    Ok(workers)
}

pub fn run(
    table: &Table,
    steps: Vec<Step>,
    sink: Sink,
    builds: &[Arc<BuildTable>],
) -> Result<Vec<RecordBatch>, ExecError> {
    match run_with(table, steps, sink, builds, RunOptions::default())? {
        Output::Batches(batches) => Ok(batches),
        Output::Build(_) => panic!("a build"),
    }
}

pub fn build(table: &Table, steps: Vec<Step>, keys: &[&str], payload: &[&str]) -> Arc<BuildTable> {
    let columns = |names: &[&str]| names.iter().map(|n| named(n, table.col(n))).collect();
    let sink = Sink::Build { keys: columns(keys), payload: columns(payload) };
    match run_with(table, steps, sink, &[], RunOptions::default()).unwrap() {
        Output::Build(build) => Arc::new(build),
        Output::Batches(_) => panic!("batches"),
    }
}

/// Rows as text, sorted.
pub fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = rows_in_order(batches);
    rows.sort();
    rows
}

/// Rows as text.
pub fn rows_in_order(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cells: Vec<String> =
                batch.columns().iter().map(|column| cell(column.as_ref(), row)).collect();
            rows.push(cells.join("|"));
        }
    }
    rows
}

pub fn cell(column: &dyn Array, row: usize) -> String {
    use arrow_array::types::*;
    use arrow_schema::DataType as T;
    if column.is_null(row) {
        return "NULL".into();
    }
    match column.data_type() {
        T::Boolean => column.as_boolean().value(row).to_string(),
        T::Int8 => column.as_primitive::<Int8Type>().value(row).to_string(),
        T::Int16 => column.as_primitive::<Int16Type>().value(row).to_string(),
        T::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        T::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        T::UInt8 => column.as_primitive::<UInt8Type>().value(row).to_string(),
        T::UInt16 => column.as_primitive::<UInt16Type>().value(row).to_string(),
        T::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        T::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        T::Float32 => format!("{:?}", column.as_primitive::<Float32Type>().value(row)),
        T::Float64 => format!("{:?}", column.as_primitive::<Float64Type>().value(row)),
        T::Decimal128(_, _) => column.as_primitive::<Decimal128Type>().value(row).to_string(),
        T::Date32 => column.as_primitive::<Date32Type>().value(row).to_string(),
        T::Utf8 => column.as_string::<i32>().value(row).to_string(),
        other => panic!("{other}"),
    }
}
