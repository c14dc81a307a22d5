//! Generation of one fused kernel for one pipeline and one layout.
//!
//! ```text
//! for each tile of HR_ROWS x BLOCK_THREADS rows    every thread has 8 (or 4) rows, `alive` their bits
//!     load the first step's columns                16 bytes at a time
//!     filter / probe                               clears bits of `alive`
//!     continue if none of the rows is alive        later columns are not touched then
//!     ...
//!     (for each match of the rows:                 builds with duplicate keys: what follows stands
//!                                                  in a loop, `alive` the rows with one more match)
//!     aggregate into registers, shared or global memory | write rows
//! merge the block's accumulators into the global ones
//! ```
//!
//! [`plan`] decides what must be known before any text is written. [`generator`] holds the state that all writers share.
//! Each of the other files writes one part, and [`frame`] puts the kernel around them.
//!
//! The text reads like the plan: each part stands under the SQL of its step. Expressions are
//! evaluated row by row ([`expr`]); those that can fail are only evaluated for rows that are
//! alive. A value is a C++ expression and, where it may be NULL, another one that tells.
//!
//! The text depends on the shape of the pipeline alone, so that a query like an earlier one finds
//! its kernel compiled: columns go by their numbers. Literals, bases, domains, strides, sizes,
//! predicates over dictionaries and IN lists are fields of the parameter struct, so that a
//! constant never seen or a build that has grown finds its kernel compiled. What the text does
//! depend on changes rarely: types, nullability and the forms of columns; the index, the
//! uniqueness and the payload widths of builds; which of their tables fit shared memory; where
//! accumulators live; which columns are loaded ahead; divisors, as a division by a known number
//! is a multiplication; which overflows are proven impossible.

mod accumulate;
mod arithmetic;
mod cast;
mod chain;
mod constants;
mod describe;
mod expr;
mod frame;
mod function;
mod generator;
mod keys;
mod load;
mod pairs;
mod payload;
mod plan;
mod probe;
mod queue;
mod refusal;
mod sink;
mod steps;
mod text;
mod texts;
mod user;
mod user_table;
mod value;

use std::sync::Arc;

use headrace_pipeline::bound::{Bound, BoundStep};

use crate::codegen::generator::Generator;
use crate::codegen::plan::pairs::CountedPairs;
use crate::codegen::plan::probes::matches_max;
use crate::codegen::plan::queue::queue_step;
use crate::codegen::plan::shared::SharedPlan;
use crate::codegen::plan::sink::SinkPlan;
use crate::codegen::refusal::{Result, refuse};
use crate::hash_tables::HashLayout;
use crate::layout::SegmentLayout;
use crate::program::CudaProgram;
use crate::tuning::Tuning;

pub use user::check_function;
pub use user_table::{TABLE_HEADER, TABLE_KERNEL_NAME, TableKernel, check_table_function};

impl CudaProgram {
    /// Whether sink and probes are taken, whatever the layout: for a stream that has no segment,
    /// which no kernel tells about.
    ///
    /// # Errors
    /// What the CUDA processor cannot do.
    pub fn check(bound: &Bound, tuning: Tuning) -> Result<()> {
        check(bound, tuning)
    }

    /// Whether the pipeline has pairs of rows whose common bits warps could count, given the room.
    pub(crate) fn may_count_pairs(bound: &Bound) -> bool {
        CountedPairs::with_rows(bound).is_some()
    }

    /// Generates the kernel of `bound` for segments of `layout`.
    ///
    /// # Errors
    /// What the CUDA processor cannot do.
    pub fn compile(bound: Arc<Bound>, layout: &SegmentLayout, tuning: Tuning) -> Result<Self> {
        generate(bound, layout, tuning)
    }
}

/// What can be said without any layout: whether the sink and the probes are taken.
fn check(bound: &Bound, tuning: Tuning) -> Result<()> {
    SinkPlan::of(bound, tuning)?;
    bound.steps.iter().try_for_each(|step| match step {
        BoundStep::Probe(probe) => HashLayout::of(&probe.build).map(drop),
        BoundStep::Filter { .. } | BoundStep::Compute { .. } => Ok(()),
    })
}

/// Generates the kernel.
fn generate(bound: Arc<Bound>, layout: &SegmentLayout, tuning: Tuning) -> Result<CudaProgram> {
    if layout.columns.len() != bound.source_registers {
        return refuse("the segment layout has another number of columns than the source");
    }
    let sink = SinkPlan::of(&bound, tuning)?;
    let queue_step = queue_step(&bound, tuning);
    let shared = SharedPlan::of(&bound, &sink, tuning, queue_step);
    let mut generator = Generator::new(&bound, layout, tuning, shared, queue_step);
    if queue_step.is_some() {
        generator.open_tile();
    }
    let mut index = 0;
    while index < bound.steps.len() {
        if queue_step == Some(index) {
            generator.take_one_by_one()?;
        }
        index = generator.steps_at(index)?;
        generator.count_left(index - 1);
    }
    if queue_step == Some(index) {
        generator.take_one_by_one()?;
    }
    generator.sink(&sink)?;
    generator.close_loops();
    if queue_step.is_some() {
        generator.close_queue();
    }
    let parts = generator.into_parts(&sink)?;
    Ok(CudaProgram {
        layout: layout.clone(),
        tuning,
        source: parts.source,
        params: parts.params,
        segment_fields: parts.segment_fields,
        places: parts.places,
        constants: parts.constants,
        tables: parts.tables,
        shared_bytes: parts.shared_bytes,
        shared_builds: parts.shared_builds,
        counts_pairs: parts.counts_pairs,
        accumulators: sink.accumulators,
        groups: sink.groups,
        group_table: sink.group_table,
        outputs: sink.outputs,
        matches_max: matches_max(&bound),
        bound,
    })
}
