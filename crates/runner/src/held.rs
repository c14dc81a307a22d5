//! Columns of a table that are held on a GPU, as they lie in their files, for whoever maps them.

use std::sync::Arc;

use headrace_cuda::{HoldError, ResidentColumn};
use headrace_flow::CancelToken;
use headrace_format::arrow::ir_type;
use headrace_gpu::{DeviceInfo, HANDLE_BYTES};
use headrace_io::{Kept, try_for_each};
use headrace_ir::{Field, Input, Pipeline, Sink, Source};
use headrace_pipeline::build::BuildOptions;
use headrace_pipeline::{ExecError, WhyNot};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::chunks;
use crate::cuda::chunk_options;
use crate::error::RunError;
use crate::runner::Runner;
use crate::segments::Segments;
use crate::settings::{Devices, Settings};
use crate::table::StreamTable;
use crate::task::{Outlet, Task};

/// Threads that read columns.
const READERS: usize = 8;

/// Columns that stay on a GPU while this lives.
#[derive(Clone, Debug)]
pub struct HeldColumns {
    /// The GPU.
    pub gpu: DeviceInfo,
    /// The columns.
    pub columns: Vec<HeldColumn>,
}

/// A column that is held.
#[derive(Clone, Debug)]
pub struct HeldColumn {
    /// Its name and type.
    pub field: Field,
    /// Its parts, in the order of the rows.
    parts: Vec<Arc<Kept<ResidentColumn>>>,
}

/// Part of a column as another process maps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MappedPart {
    /// The handle of its memory.
    pub handle: Vec<u8>,
    /// The bytes of that.
    pub bytes: u64,
    /// Values, from its start.
    pub rows: u64,
    /// Where the validity bitmap lies, if there is one.
    pub validity: Option<u64>,
}

impl HeldColumn {
    /// Bytes of device memory.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.buffer.capacity_bytes()).sum()
    }

    /// Its rows.
    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.rows)).sum()
    }

    /// How others map it.
    ///
    /// # Errors
    /// The driver gives no handles.
    pub fn mapped(&self) -> Result<Vec<MappedPart>, RunError> {
        let parts = self.parts.iter().filter(|part| part.rows > 0);
        let part = |part: &Arc<Kept<ResidentColumn>>| {
            let handle: [u8; HANDLE_BYTES] = part.buffer.handle()?;
            Ok(MappedPart {
                handle: handle.to_vec(),
                bytes: part.buffer.bytes() as u64,
                rows: part.rows.into(),
                validity: part.validity.map(|(at, _)| at),
            })
        };
        parts.map(part).collect()
    }
}

/// Whether a column can be held, and the bytes of its values.
fn width_bytes(table: &StreamTable, column: usize) -> Result<(Field, usize), String> {
    let source = table.source();
    source.column_support(column)?;
    let field = source.schema().field(column);
    let data_type = ir_type(field.data_type()).filter(|t| t.plain_width_bytes().is_some());
    let width = data_type.as_ref().and_then(headrace_ir::DataType::plain_width_bytes);
    match data_type.zip(width) {
        Some((data_type, width)) => {
            Ok((Field::new(field.name(), data_type, field.is_nullable()), width))
        }
        None => Err(format!("values of type {} have no fixed width", field.data_type())),
    }
}

impl Runner {
    /// The columns of a table that can be held, by their numbers.
    pub fn holdable(&self, table: &StreamTable) -> Vec<usize> {
        let columns = 0..table.source().schema().fields().len();
        columns.filter(|&column| width_bytes(table, column).is_ok()).collect()
    }

    /// Holds columns of a table, by their numbers, on the first GPU.
    ///
    /// # Errors
    /// A column that cannot be held, files that changed or cannot be read, memory of the device.
    pub fn hold(
        &self,
        table: &StreamTable,
        columns: &[usize],
        token: &CancelToken,
    ) -> Result<HeldColumns, RunError> {
        let named = |column: usize, cause: String| {
            let schema = table.source().schema();
            let name = schema.fields().get(column).map_or("?", |field| field.name().as_str());
            RunError::WhyNot(WhyNot::new(format!("column {name} of {}: {cause}", table.name())))
        };
        let known = columns
            .iter()
            .map(|&column| width_bytes(table, column).map_err(|cause| named(column, cause)));
        let known = known.collect::<Result<Vec<_>, _>>()?;
        let settings = Settings { devices: Devices::All, ..Settings::default() };
        let (fields, widths): (Vec<Field>, Vec<usize>) = known.into_iter().unzip();
        let pipeline = Pipeline {
            source: Source {
                input: Input::Table(0),
                table: table.name().to_string(),
                columns: fields.clone(),
                ordinals: columns.to_vec(),
            },
            steps: Vec::new(),
            sink: Sink::Rows { columns: Vec::new(), limit: None },
        };
        let task = Task {
            pipeline: &pipeline,
            table,
            builds: &[],
            build_options: BuildOptions::default(),
            settings: &settings,
            runner: self,
            groups: self.groups(),
            threads: 1,
            limit: None,
            token,
            outlet: Outlet { emit: &|_| false, take: None },
        };
        let device = self.cuda(&Devices::All)?;
        let feed = chunks::plan(&task, chunk_options(&task, false))?.feed;
        let (segments, is_all) = Segments::of(&task, feed, None).first()?;
        if !is_all {
            let why = format!("table {} has too many record batches to be held", table.name());
            return Err(RunError::WhyNot(WhyNot::new(why)));
        }
        let places = segments.iter().flat_map(|s| (0..columns.len()).map(move |c| (s, c)));
        let places: Vec<_> = places.collect();
        let held: Vec<_> = places.iter().map(|_| Mutex::new(None)).collect();
        try_for_each(places.iter().zip(&held), READERS, |((segment, register), into)| {
            if token.is_cancelled() {
                return Err(ExecError::Cancelled.into());
            }
            let part = device.hold_plain(segment, *register, widths[*register]);
            *into.lock() = Some(part.map_err(|error| match error {
                HoldError::Form(cause) => named(columns[*register], cause),
                HoldError::Read(error) => RunError::Format(error.into()),
                HoldError::Cuda(error) => error.into(),
            })?);
            Ok::<_, RunError>(())
        })?;
        table.source().check_unchanged()?;
        let mut columns: Vec<_> =
            fields.into_iter().map(|field| HeldColumn { field, parts: Vec::new() }).collect();
        for ((_, register), part) in places.iter().zip(held) {
            columns[*register].parts.extend(part.into_inner());
        }
        Ok(HeldColumns { gpu: device.device().info().clone(), columns })
    }
}
