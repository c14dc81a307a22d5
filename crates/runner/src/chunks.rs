//! From a table and bounds to chunks: what is read, and what the processors know before.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use headrace_flow::{ChunkSpec, ReadSpec};
use headrace_format::arrow::{ChunkOptions, ChunkPlan, ColumnBound};
use headrace_io::ReadAt;
use headrace_ir::{Chunk, Segment, ValueRange};
use headrace_pipeline::{ColumnView, SegmentView, SourceColumn, SourceInfo};

use crate::bounds::bounds;
use crate::error::RunError;
use crate::task::Task;

/// The chunks of a task.
pub struct Chunks {
    /// The plan.
    pub plan: ChunkPlan,
    /// The files that chunks read from, opened, in the order of the table.
    pub files: Vec<Arc<dyn ReadAt>>,
    /// What is known of the columns.
    pub info: SourceInfo,
}

/// Plans what a task reads.
pub fn plan(task: &Task<'_>, options: ChunkOptions) -> Result<Chunks, RunError> {
    let ordinals = &task.pipeline.source.ordinals;
    let conditions: Vec<_> = bounds(task.pipeline, task.builds)
        .into_iter()
        .map(|(register, interval)| ColumnBound {
            column: ordinals[register],
            min: interval.min,
            max: interval.max,
        })
        .collect();
    let plan = task.table.source().plan_chunks(ordinals, &conditions, options)?;
    let files = open_files(task, &plan)?;
    let info = source_info(task, &plan);
    Ok(Chunks { plan, files, info })
}

/// The files that chunks read from, each once, in order.
fn used_files(plan: &ChunkPlan) -> BTreeSet<u32> {
    plan.chunks.iter().flat_map(|c| &c.segments).map(|s| s.file).collect()
}

fn open_files(task: &Task<'_>, plan: &ChunkPlan) -> Result<Vec<Arc<dyn ReadAt>>, RunError> {
    let source = task.table.source();
    used_files(plan).into_iter().map(|file| Ok(source.open_file(file as usize)?)).collect()
}

fn source_info(task: &Task<'_>, plan: &ChunkPlan) -> SourceInfo {
    let table = task.table;
    let columns = task.pipeline.source.ordinals.iter().map(|&column| {
        let stats = table.source().column_stats(column);
        let range = match (stats.min, stats.max) {
            (Some(min), Some(max)) => Some(ValueRange { min, max }),
            _ => None,
        };
        SourceColumn {
            dictionary: table.dictionary(column),
            range,
            may_have_nulls: stats.null_count != Some(0),
        }
    });
    SourceInfo { columns: columns.collect(), rows_max: plan.rows, remaps: plan.remaps.clone() }
}

impl Chunks {
    /// The table's file numbers as indices into `files`.
    pub fn file_numbers(&self) -> HashMap<u32, usize> {
        let numbered = used_files(&self.plan).into_iter().enumerate();
        numbered.map(|(number, file)| (file, number)).collect()
    }

    /// Extents for the race.
    pub fn specs(&self) -> Vec<ChunkSpec> {
        let numbers = self.file_numbers();
        let spec = |chunk: &Chunk| ChunkSpec {
            reads: chunk
                .segments
                .iter()
                .flat_map(|segment| {
                    let file = numbers[&segment.file];
                    segment.extents().map(move |extent| ReadSpec {
                        file,
                        offset: extent.offset,
                        bytes: extent.bytes,
                    })
                })
                .collect(),
        };
        self.plan.chunks.iter().map(spec).collect()
    }
}

/// One segment over its buffers, which stand in the order of [`Segment::extents`].
pub fn segment_view<'a>(
    segment: &Segment,
    buffers: &mut impl Iterator<Item = &'a [u8]>,
    remaps: &'a [Arc<[i32]>],
) -> SegmentView<'a> {
    let columns = segment
        .columns
        .iter()
        .map(|column| {
            let mut next = || buffers.next().unwrap_or_default();
            let values = next();
            let offsets = column.offsets.map(|_| next());
            let validity = column.validity.map(|_| next());
            let remap = column.remap.and_then(|r| remaps.get(r as usize)).map(|r| &**r);
            ColumnView { encoding: column.encoding.clone(), values, offsets, validity, remap }
        })
        .collect();
    SegmentView { rows: segment.rows as usize, columns }
}
