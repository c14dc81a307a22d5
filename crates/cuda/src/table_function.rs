//! Calls of functions of whole tables that users wrote in CUDA.
//!
//! ```text
//! batches ─► columns on the device, whole ─► one launch ─► columns that the code wrote ─► batches
//! ```
//!
//! All of it lies on the device at the same time: the table, and the most rows that the code may write.

use arrow_array::RecordBatch;
use headrace_columns::column::output_batch;
use headrace_columns::whole::{whole_array, whole_part, whole_width_bytes};
use headrace_flow::CancelToken;
use headrace_gpu::{DeviceBuffer, GpuError, Grid, LaunchArgs, Stream, launch};
use headrace_ir::{CudaTableFunction, DataType, Field, Scalar, TableLaunch, Value};
use headrace_pipeline::{ExecError, WhyNot};

use crate::codegen::{TABLE_KERNEL_NAME, TableKernel};
use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::words::word_bytes;

/// Rows of a batch of an answer.
const BATCH_ROWS: u64 = 64 << 10;

/// What a call has written, on the device.
pub struct CalledTable<'a> {
    function: &'a CudaTableFunction,
    stream: Stream,
    rows: u64,
    outputs: Vec<(DeviceBuffer, DeviceBuffer)>,
    why_incomplete: Option<String>,
}

/// Calls a function with all rows of a table.
///
/// # Errors
/// A batch of other columns, memory of the device, code that does not compile or faults.
pub fn call_table<'a>(
    device: &CudaDevice,
    function: &'a CudaTableFunction,
    batches: &[RecordBatch],
    parameters: &[Scalar],
    shape: TableLaunch,
    token: &CancelToken,
) -> Result<CalledTable<'a>, CudaError> {
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    let rows_max = if function.emits { shape.rows_max } else { rows };
    let blocks = function.blocks(shape, rows).ok_or_else(|| {
        WhyNot::new(format!("{}() has no grid of 1 to 2147483647 blocks", function.name))
    })?;
    let kernel = TableKernel::of(function)?;
    let loaded = kernel.with_source(|source| device.load(source, TABLE_KERNEL_NAME))?;
    let stream = device.device().stream()?;
    let emitted = zeroed(device, &stream, 8)?;
    let mut words = vec![rows, rows_max, emitted.ptr()];
    let mut held = Vec::new();
    for at in 0..function.columns.len() {
        if token.is_cancelled() {
            return Err(ExecError::Cancelled.into());
        }
        let column = upload_column(device, &stream, function, batches, at)?;
        words.extend(column.words());
        held.push(column);
    }
    let mut texts = Vec::new();
    for (scalar, (name, data_type)) in parameters.iter().zip(&function.parameters) {
        let (bits, bytes) = parameter_words(device, scalar, (name, data_type), &mut texts)?;
        words.extend([bits, bytes]);
    }
    if parameters.len() != function.parameters.len() {
        return Err(internal("another number of values than parameters"));
    }
    if parameters.is_empty() {
        words.extend([0, 0]);
    }
    let mut outputs = Vec::with_capacity(function.outputs.len());
    for (_, data_type) in &function.outputs {
        let width = width_of(data_type)?;
        let values = zeroed(device, &stream, bytes_of(rows_max, width)?)?;
        let valid = zeroed(device, &stream, bytes_of(rows_max, 1)?)?;
        words.extend([values.ptr(), valid.ptr()]);
        outputs.push((values, valid));
    }
    let grid = Grid { blocks, threads: function.block_threads, shared_bytes: 0 };
    let mut args = LaunchArgs::new();
    args.push_bytes(&word_bytes(&words));
    // SAFETY: the words are those of the kernel's parameters, field by field, and name buffers that live until the stream has
    // been waited for. What the user's code reaches beyond them is the user's: see `headrace_ir::cuda_table`.
    unsafe { launch(&loaded, grid, &stream, &mut args) }?;
    let mut counted = [0; 8];
    let downloaded = stream.download(&emitted, 0, &mut counted);
    drop((held, texts));
    downloaded?;
    let counted = u64::from_le_bytes(counted);
    let rows = if function.emits { counted.min(rows_max) } else { rows };
    let why_incomplete = why_incomplete(function, counted, rows_max);
    Ok(CalledTable { function, stream, rows, outputs, why_incomplete })
}

/// Why what was written is not the answer, if it is not.
fn why_incomplete(function: &CudaTableFunction, counted: u64, rows_max: u64) -> Option<String> {
    let name = &function.name;
    match function.emits {
        true if counted > rows_max => Some(format!(
            "{name}() emits {counted} rows, more than its bound of {rows_max}\n\
             hint: CREATE OR REPLACE FUNCTION {name} .. ROWS with a larger bound"
        )),
        false if counted > 0 => Some(format!(
            "{name}() puts a row to a place behind the {rows_max} rows of its table\n\
             hint: places are 0 to {0}.rows - 1; a function of other numbers of rows has ROWS, and emits them",
            function.table
        )),
        _ => None,
    }
}

impl CalledTable<'_> {
    /// Why the rows are not the answer, if they are not: the code has written more than it may.
    pub fn why_incomplete(&self) -> Option<&str> {
        self.why_incomplete.as_deref()
    }

    /// The rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The answer, batch by batch, as long as `emit` wants more.
    ///
    /// # Errors
    /// The device fails.
    pub fn batches(&self, emit: &dyn Fn(RecordBatch) -> bool) -> Result<(), CudaError> {
        let mut first = 0;
        while first < self.rows {
            let rows = BATCH_ROWS.min(self.rows - first);
            if !emit(self.batch(first, rows)?) {
                return Ok(());
            }
            first += rows;
        }
        Ok(())
    }

    fn batch(&self, first: u64, rows: u64) -> Result<RecordBatch, CudaError> {
        let (first, rows) = (first as usize, rows as usize);
        let mut columns = Vec::with_capacity(self.outputs.len());
        for ((_, data_type), (values, valid)) in self.function.outputs.iter().zip(&self.outputs) {
            let width = width_of(data_type)?;
            let (mut bytes, mut there) = (vec![0; rows * width], vec![0; rows]);
            self.stream.download(values, first * width, &mut bytes)?;
            self.stream.download(valid, first, &mut there)?;
            columns.push(whole_array(data_type, rows, bytes, &there).map_err(ExecError::from)?);
        }
        let fields = self.function.outputs.iter();
        let fields: Vec<_> =
            fields.map(|(name, data_type)| Field::new(name, data_type.clone(), true)).collect();
        Ok(output_batch(fields.iter(), columns, rows).map_err(ExecError::from)?)
    }
}

/// A column on the device.
struct Column {
    values: DeviceBuffer,
    valid: Option<DeviceBuffer>,
    offsets: Option<DeviceBuffer>,
}

impl Column {
    fn words(&self) -> [u64; 3] {
        let address = |buffer: &Option<DeviceBuffer>| buffer.as_ref().map_or(0, DeviceBuffer::ptr);
        [self.values.ptr(), address(&self.valid), address(&self.offsets)]
    }
}

/// Copies a column of all batches to the device.
fn upload_column(
    device: &CudaDevice,
    stream: &Stream,
    function: &CudaTableFunction,
    batches: &[RecordBatch],
    at: usize,
) -> Result<Column, CudaError> {
    let data_type = &function.columns[at].1;
    let is_wanted = |batch: &RecordBatch| batch.num_columns() == function.columns.len();
    if !batches.iter().all(is_wanted) {
        return Err(internal("a batch of another number of columns than the function has"));
    }
    let parts = batches.iter().map(|batch| whole_part(batch.column(at), data_type));
    let parts = parts.collect::<Result<Vec<_>, _>>().map_err(ExecError::from)?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let values = device.alloc(parts.iter().map(|part| part.values.len()).sum())?;
    let mut offset = 0;
    for part in &parts {
        stream.upload(&values, offset, &part.values)?;
        offset += part.values.len();
    }
    let has_nulls = parts.iter().any(|part| part.valid.is_some());
    let valid = has_nulls.then(|| device.alloc(rows)).transpose()?;
    if let Some(valid) = &valid {
        let mut first = 0;
        for (part, batch) in parts.iter().zip(batches) {
            let all = || vec![1; batch.num_rows()];
            stream.upload(valid, first, &part.valid.clone().unwrap_or_else(all))?;
            first += batch.num_rows();
        }
    }
    let offsets = (*data_type == DataType::Utf8).then(|| device.alloc((rows + 1) * 8));
    let offsets = offsets.transpose()?;
    if let Some(offsets) = &offsets {
        let (mut at, mut base) = (8, 0);
        stream.upload(offsets, 0, &[0; 8])?;
        for part in &parts {
            let ends = part.ends.iter().flatten().map(|end| base + end);
            let ends = word_bytes(&ends.collect::<Vec<_>>());
            stream.upload(offsets, at, &ends)?;
            at += ends.len();
            base += part.values.len() as u64;
        }
    }
    Ok(Column { values, valid, offsets })
}

/// The words of a parameter; bytes of a text go to the device, and stay in `texts`.
fn parameter_words(
    device: &CudaDevice,
    scalar: &Scalar,
    (name, data_type): (&str, &DataType),
    texts: &mut Vec<std::sync::Arc<headrace_io::Kept<DeviceBuffer>>>,
) -> Result<(u64, u64), CudaError> {
    if scalar.data_type != *data_type {
        return Err(internal("a value of another type than its parameter"));
    }
    let mut bytes_on_device = |bytes: &[u8]| -> Result<(u64, u64), CudaError> {
        let there = device.upload(bytes)?;
        let words = (there.ptr(), bytes.len() as u64);
        texts.push(there);
        Ok(words)
    };
    match &scalar.value {
        Value::Null => Err(WhyNot::new(format!("parameter {name} is NULL")).into()),
        Value::Bool(value) => Ok((u64::from(*value), 0)),
        Value::Int(value) => Ok((*value as u64, 0)),
        Value::Float(value) if *data_type == DataType::Float32 => {
            Ok((u64::from((*value as f32).to_bits()), 0))
        }
        Value::Float(value) => Ok((value.to_bits(), 0)),
        Value::Utf8(text) => bytes_on_device(text.as_bytes()),
        Value::Binary(bytes) => bytes_on_device(bytes),
    }
}

fn width_of(data_type: &DataType) -> Result<usize, CudaError> {
    whole_width_bytes(data_type).ok_or_else(|| internal("a column without a width is written"))
}

fn bytes_of(rows: u64, width: usize) -> Result<usize, CudaError> {
    usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(width)).ok_or_else(|| {
        WhyNot::new(format!("{rows} rows of {width} bytes are more than any GPU has")).into()
    })
}

fn zeroed(device: &CudaDevice, stream: &Stream, bytes: usize) -> Result<DeviceBuffer, GpuError> {
    let buffer = device.alloc(bytes)?;
    // SAFETY: nobody else has the buffer, which is not let go before the stream has been waited for.
    let filled = unsafe { stream.fill_async(&buffer, 0, bytes, 0) };
    filled.and(stream.synchronize())?;
    Ok(buffer)
}

fn internal(cause: &str) -> CudaError {
    ExecError::Internal(format!("a call of a table function: {cause}")).into()
}
