//! The kernel around its steps: structs, loops over runs and tiles, shared memory, and what stands before and after them.

use std::sync::Arc;

use headrace_pipeline::bound::{AccumulatorKind, BoundSink};

use crate::accumulator::DeviceAccumulator;
use crate::codegen::accumulate::{element_types, first_extreme, register_accumulator};
use crate::codegen::describe;
use crate::codegen::generator::Generator;
use crate::codegen::plan::shared::{SharedEntry, SharedItem};
use crate::codegen::plan::sink::{SinkPlan, Where};
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{Writer, comment_text};
use crate::codegen::user;
use crate::fields::{Param, SegmentField};
use crate::place::Place;
use crate::program::KERNEL_NAME;
use crate::tuning::Tuning;

/// What is generated.
pub(super) struct Parts {
    pub(super) source: String,
    pub(super) params: Vec<Param>,
    pub(super) segment_fields: Vec<SegmentField>,
    pub(super) places: Vec<Place>,
    pub(super) constants: Vec<u64>,
    pub(super) tables: Vec<Arc<[u8]>>,
    pub(super) shared_bytes: u32,
    pub(super) shared_builds: usize,
    pub(super) counts_pairs: bool,
}

/// Most shared memory of a block that `distance.cuh` takes.
const STAGE_BYTES: u32 = 32 << 10;

impl Generator<'_> {
    pub(super) fn into_parts(mut self, sink: &SinkPlan) -> Result<Parts> {
        if self.places.len() > usize::from(u16::MAX) {
            return refuse(format!("{} places that can fail", self.places.len()));
        }
        let body = std::mem::take(&mut self.body).into_text();
        let mut text = Writer::default();
        self.preamble(&mut text)?;
        let (counters, counted) = self.counters();
        let (prologue, epilogue) = self.block_frame(sink)?;
        let (runs, leave) = self.run_loop(sink);
        self.structs(&mut text);
        text.open(format!("HR_KERNEL {KERNEL_NAME}(HR_CONSTANT Params p)"));
        text.line("constexpr u32 ROWS = HR_ROWS;");
        for line in prologue {
            text.line(line);
        }
        counters.into_iter().for_each(|line| text.line(line));
        text.line("u32 s = 0;");
        text.line("const u32 tiles = u32(p.tiles), stride = gridDim.x * p.run_tiles;");
        runs.into_iter().for_each(|line| text.line(line));
        text.line("for (u32 tile = run, run_end = hr::least(run + p.run_tiles, tiles); tile < run_end;) {");
        text.line("while (tile >= p.segments[s].end_tile) ++s;");
        text.line("const Segment segment = p.segments[s];");
        text.line("const u32 rows = u32(segment.row_count);");
        text.line("const u32 first = tile, end = hr::least(run_end, u32(segment.end_tile));");
        text.line("const u32 first_row = (first - u32(segment.first_tile)) * HR_TILE;");
        text.open("for (; tile < end; ++tile)");
        text.line("const u32 row = first_row + (tile - first) * HR_TILE + threadIdx.x * HR_ROWS;");
        text.line("u32 alive = hr::rows_alive(row, rows);");
        if self.queue_step.is_none() {
            text.line("if (alive == 0) continue;");
        }
        let mut text_so_far = text.into_text();
        text_so_far.push_str(&body);
        let mut text = Writer::at_depth(2);
        text.close_with("}");
        for line in leave.into_iter().chain(counted).chain(epilogue) {
            text.line(line);
        }
        text.close();
        text_so_far.push_str(&text.into_text());
        Ok(Parts {
            source: text_so_far,
            params: self.params.into_iter().map(|(param, _, _)| param).collect(),
            segment_fields: self.segment_fields.into_iter().map(|(field, _)| field).collect(),
            places: self.places,
            constants: self.constants,
            tables: self.tables,
            shared_bytes: self.shared.bytes,
            shared_builds: self.shared.builds,
            counts_pairs: self.shared.pairs.is_some(),
        })
    }

    /// The variables that count what steps leave, and what adds them up. A launch has too few rows for a
    /// thread to count beyond 32 bits, unless a row has several matches.
    fn counters(&mut self) -> (Vec<String>, Vec<String>) {
        let c_type = if self.walks { "u64" } else { "u32" };
        let mut counters = Vec::new();
        let mut counted = Vec::new();
        for (step, name) in std::mem::take(&mut self.left) {
            let total = self.param(Param::RowsLeft(step), "u64*", &name);
            counters.push(format!("{c_type} {name} = 0;"));
            counted.push(format!("hr::add_count({total}, {name});"));
        }
        (counters, counted)
    }

    fn preamble(&self, text: &mut Writer) -> Result<()> {
        text.line("// The pipeline:");
        for step in &self.bound.steps {
            text.line(format!("//   {}", comment_text(&describe::step(self.bound, step))));
        }
        text.line(format!("//   {}", comment_text(&describe::sink(self.bound))));
        text.line("");
        let Tuning { block_threads, blocks_per_sm, rows_per_thread, .. } = self.tuning;
        text.line("#ifndef BLOCK_THREADS");
        text.line(format!("#define BLOCK_THREADS {block_threads}"));
        text.line("#endif");
        text.line(format!("#define BLOCKS_PER_SM {blocks_per_sm}"));
        text.line(format!("#define HR_ROWS {rows_per_thread}u"));
        // `distance.cuh` has shared memory of its own.
        if self.compares_rows && self.shared.bytes + STAGE_BYTES > self.tuning.shared_bytes_max {
            text.line("#define HR_UNSTAGED");
        }
        text.line("#include \"headrace/pipeline.cuh\"");
        for function in &self.functions {
            user::define(text, function)?;
        }
        text.line("");
        Ok(())
    }

    fn structs(&self, text: &mut Writer) {
        text.line("// One row range of the table and where its columns lie.");
        text.open("struct Segment");
        for (field, name) in &self.segment_fields {
            let c_type = match field {
                SegmentField::Values(_) | SegmentField::Validity(_) => "const void*",
                SegmentField::Remap(_) => "const i32*",
                SegmentField::Bytes(_) => "const u8*",
                SegmentField::Form(_) => "alignas(8) u32",
                _ => "u64",
            };
            text.line(format!("{c_type} {name};"));
        }
        text.close_struct();
        text.open("struct Params");
        for (_, c_type, name) in &self.params {
            // Every field takes 8 bytes.
            let wide = c_type.ends_with('*') || matches!(c_type.as_str(), "u64" | "i64" | "f64");
            let align = if wide { "" } else { "alignas(8) " };
            text.line(format!("{align}{c_type} {name};"));
        }
        text.close_struct();
    }

    /// How a block goes through its runs of tiles, from where to where the loop over a run stands
    /// (`groups.rs`): hashed groups end it before their table is full, and output rows before their
    /// buffers are.
    fn run_loop(&mut self, plan: &SinkPlan) -> (Vec<String>, Option<String>) {
        let first = match &self.bound.sink {
            BoundSink::Sorted { .. } => {
                let tile = self.param(Param::FirstTile, "u32", "first_tile");
                format!("{tile} + blockIdx.x * p.run_tiles")
            }
            _ => "blockIdx.x * p.run_tiles".to_string(),
        };
        let (used, limit) = if plan.group_table.is_some() {
            let used = self.param(Param::GroupsUsed, "u32*", "groups_used");
            (used, self.param(Param::GroupLimit, "u32", "group_limit"))
        } else if plan.rows_multiply {
            let used = self.param(Param::RowsUsed, "u64*", "rows_used");
            (used, self.param(Param::RowLimit, "u64", "row_limit"))
        } else {
            let line = format!("for (u32 run = {first}; run < tiles; run += stride)");
            return (vec![line], None);
        };
        let left = self.param(Param::RunsLeft, "const u32*", "runs_left");
        let leave = self.param(Param::RunsLeave, "u32*", "runs_leave");
        let before = vec![
            format!("u32 run = hr::begin_run({left}, {first});"),
            format!("for (; run < tiles && hr::has_room({used}, {limit}); run += stride)"),
        ];
        (before, Some(format!("hr::leave_run({leave}, run);")))
    }

    /// What stands before and after the tile loop.
    fn block_frame(&mut self, plan: &SinkPlan) -> Result<(Vec<String>, Vec<String>)> {
        let mut before = Vec::new();
        let mut after = Vec::new();
        let bound = self.bound;
        let kinds: Vec<AccumulatorKind> = match &bound.sink {
            BoundSink::Aggregate { accumulators, .. } => {
                accumulators.iter().map(|a| a.kind).collect()
            }
            _ => vec![],
        };
        if matches!(plan.place, Where::Registers | Where::Shared { .. }) {
            for (index, kind) in kinds.iter().enumerate() {
                self.shared_accumulator(index, *kind);
            }
        }
        self.name_queue();
        self.shared.entries.retain(|e| e.name.is_some());
        self.pack_shared();
        if !self.shared.entries.is_empty() {
            before.push("HR_DYNAMIC_SHARED(shared_memory);".to_string());
        }
        for entry in self.shared.entries.clone() {
            self.shared_entry(plan, &entry, &mut before);
        }
        before.extend(self.first_group(plan));
        if plan.place == Where::Registers {
            for (index, kind) in kinds.iter().enumerate() {
                before.push(register_accumulator(plan.accumulators[index], index, *kind));
            }
        }
        if !self.shared.entries.is_empty() {
            before.push("__syncthreads();".to_string());
        }
        if !matches!(plan.place, Where::Global | Where::Rows) {
            after.push(String::new());
            after.push("// merge the block's accumulators".to_string());
            if plan.place == Where::Registers {
                for (index, kind) in kinds.iter().enumerate() {
                    after.extend(self.merge_warp(plan, index, *kind));
                }
            }
            after.push("__syncthreads();".to_string());
            for (index, kind) in kinds.iter().enumerate() {
                after.push(self.flush(plan, index, *kind));
            }
        }
        Ok((before, after))
    }

    /// Where group numbers begin: in shared memory at the copy of the thread's warp.
    fn first_group(&mut self, plan: &SinkPlan) -> Option<String> {
        if plan.group_table.is_some() {
            return None;
        }
        let first = u64::from(self.first_group);
        match plan.place {
            Where::Registers | Where::Rows => None,
            Where::Global => {
                let first = self.constant(first, "u32", "first_group");
                Some(format!("const u32 first_group = {first};"))
            }
            Where::Shared { replicas } => {
                let first = self.constant(first, "u32", "first_group");
                let mask = self.constant(u64::from(replicas) - 1, "u32", "replica_mask");
                let groups = self.constant(plan.groups, "u32", "groups");
                let first = format!("{first} + (threadIdx.x / 32u & {mask}) * {groups}");
                self.replicas = Some((groups, mask));
                Some(format!("const u32 first_group = {first};"))
            }
        }
    }

    /// Offsets without the entries that nothing uses.
    fn pack_shared(&mut self) {
        let mut offset = 0;
        for entry in &mut self.shared.entries {
            entry.offset = offset;
            offset += entry.bytes;
        }
        self.shared.bytes = offset as u32;
    }

    fn shared_entry(&mut self, plan: &SinkPlan, entry: &SharedEntry, lines: &mut Vec<String>) {
        let Some(name) = &entry.name else { return };
        let offset = entry.offset;
        match entry.item {
            SharedItem::Queue => lines.extend(self.queue_lines(offset)),
            SharedItem::Pairs => lines.push(self.shared_pointer("u8", name, offset)),
            SharedItem::Accumulator(index) => {
                let device = plan.accumulators[index];
                let (_, element) = element_types(device);
                lines.push(self.shared_pointer(element, name, offset));
                let first = match device {
                    DeviceAccumulator::Count
                    | DeviceAccumulator::Total64
                    | DeviceAccumulator::Limbs(_)
                    | DeviceAccumulator::MinWide
                    | DeviceAccumulator::MaxWide => "0u",
                    DeviceAccumulator::WideCount => "0ull",
                    DeviceAccumulator::Float => "0.0",
                    extreme => first_extreme(extreme),
                };
                let width = if matches!(element, "u32") { 4 } else { 8 };
                let count = self.constant(entry.bytes / width, "u32", &format!("{name}_words"));
                lines.push(format!("hr::fill_shared<{element}>({name}, {count}, {first});"));
            }
            SharedItem::Build { step, piece } => {
                let Some((_, c_type, param)) =
                    self.params.iter().find(|(p, _, _)| *p == Param::Build { step, piece })
                else {
                    return;
                };
                let (c_type, param) = (c_type.clone(), param.clone());
                let element = c_type.trim_start_matches("const ").trim_end_matches('*');
                lines.push(self.shared_pointer(element, name, offset));
                let bytes = self.constant(entry.bytes, "u32", &format!("{name}_bytes"));
                lines.push(format!("hr::copy_to_shared({name}, p.{param}, {bytes});"));
            }
        }
    }

    fn shared_pointer(&mut self, element: &str, name: &str, offset: u64) -> String {
        let offset = self.constant(offset, "u32", &format!("{name}_at"));
        format!("{element}* {name} = reinterpret_cast<{element}*>(shared_memory + {offset});")
    }
}
