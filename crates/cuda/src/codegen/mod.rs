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

mod cast;
mod chain;
mod constants;
mod describe;
mod eager;
mod expr;
mod function;
mod load;
mod probe;
mod queue;
mod shared;
mod sink;
mod text;
mod texts;

use std::sync::Arc;

use eager::EagerPlan;
use headrace_pipeline::WhyNot;
use headrace_pipeline::bound::{Bound, BoundExpr, BoundSink, BoundStep, Repr};
use shared::SharedPlan;

use crate::layout::SegmentLayout;
use crate::program::{CudaProgram, KERNEL_NAME, Param, Place, SegmentField, Tuning};
pub(super) use shared::payload_shape;
use text::{Names, Writer, comment_text};

type Result<T> = std::result::Result<T, WhyNot>;

fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(WhyNot::new(reason))
}

/// How the value of a register is held in the generated code.
#[derive(Clone, Debug)]
enum Held {
    /// A source column that no step has needed yet.
    NotLoaded,
    /// `name[r]` of the register's type; with a nibble `valid` whose bit r is set where not NULL.
    Array { name: String, valid: Option<String> },
    /// `base + name[r]` with narrow unsigned `name[r]`; `base` is an expression.
    Raw { name: String, base: String, valid: Option<String> },
    /// `hr::Deltas name` over the expression `base`.
    Deltas { name: String, base: String, valid: Option<String> },
    /// Payload of the probe at this step, of whose keys only the presence has been looked up.
    Late { step: usize },
}

/// State of one generation.
struct Generator<'a> {
    bound: &'a Bound,
    layout: &'a SegmentLayout,
    tuning: Tuning,
    /// Text inside the tile loop.
    body: Writer,
    names: Names,
    /// Members of the structs have names of their own.
    param_names: Names,
    field_names: Names,
    held: Vec<Held>,
    /// Parameter, C++ type, name.
    params: Vec<(Param, String, String)>,
    segment_fields: Vec<(SegmentField, String)>,
    places: Vec<Place>,
    constants: Vec<u64>,
    tables: Vec<Arc<[u8]>>,
    shared: SharedPlan,
    eager: EagerPlan,
    /// What the group number of a row is before any digit that is not a narrow payload value.
    first_group: u32,
    /// Parameters with the number of groups, and of their copies in shared memory less one.
    replicas: Option<(String, String)>,
    /// Whether `alive` may have become 0 since it was last looked at.
    check_pending: bool,
    /// Whether the group number's variable is declared.
    group_declared: bool,
    /// Keys whose digit is already in the group number.
    keys_folded: Vec<bool>,
    /// Whether any step loops over the matches of a row.
    walks: bool,
    /// Loops over matches that are open.
    open_loops: usize,
    /// The step from which on rows are taken one by one.
    queue_step: Option<usize>,
    /// Whether they are.
    one_by_one: bool,
}

/// Whether two filters may be evaluated at once.
fn filters_together(first: &BoundExpr, next: &BoundExpr) -> bool {
    let (mut a, mut b) = (first.registers(), next.registers());
    a.sort_unstable();
    b.sort_unstable();
    a == b && !first.can_fail() && !next.can_fail() && !first.nullable && !next.nullable
}

/// What can be said without any layout: whether the sink and the probes are taken.
pub(super) fn check(bound: &Bound, tuning: Tuning) -> Result<()> {
    sink::SinkPlan::of(bound, tuning)?;
    bound.steps.iter().try_for_each(|step| match step {
        BoundStep::Probe(probe) => probe::check(probe),
        BoundStep::Filter { .. } | BoundStep::Compute { .. } => Ok(()),
    })
}

/// Generates the kernel.
pub(super) fn generate(
    bound: Arc<Bound>,
    layout: &SegmentLayout,
    tuning: Tuning,
) -> Result<CudaProgram> {
    if layout.columns.len() != bound.source_registers {
        return refuse("the segment layout has another number of columns than the source");
    }
    let sink = sink::SinkPlan::of(&bound, tuning)?;
    let queue_step = queue::step(&bound, tuning);
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
        accumulators: sink.accumulators,
        groups: sink.groups,
        group_table: sink.group_table,
        outputs: sink.outputs,
        matches_max: chain::matches_max(&bound),
        bound,
    })
}

struct Parts {
    source: String,
    params: Vec<Param>,
    segment_fields: Vec<SegmentField>,
    places: Vec<Place>,
    constants: Vec<u64>,
    tables: Vec<Arc<[u8]>>,
    shared_bytes: u32,
    shared_builds: usize,
}

impl<'a> Generator<'a> {
    fn new(
        bound: &'a Bound,
        layout: &'a SegmentLayout,
        tuning: Tuning,
        shared: SharedPlan,
        queue_step: Option<usize>,
    ) -> Self {
        let mut generator = Self {
            bound,
            layout,
            tuning,
            body: Writer::at_depth(2),
            names: Names::default(),
            param_names: Names::default(),
            field_names: Names::default(),
            held: vec![Held::NotLoaded; bound.registers.len()],
            params: Vec::new(),
            segment_fields: Vec::new(),
            places: Vec::new(),
            constants: Vec::new(),
            tables: Vec::new(),
            shared,
            eager: EagerPlan::of(bound, layout, tuning, queue_step),
            first_group: 0,
            replicas: None,
            check_pending: false,
            group_declared: false,
            keys_folded: Vec::new(),
            walks: bound.steps.iter().any(chain::walks_step),
            open_loops: 0,
            queue_step,
            one_by_one: false,
        };
        if let BoundSink::Aggregate { keys, .. } = &bound.sink {
            generator.keys_folded = vec![false; keys.len()];
        }
        for (param, c_type, name) in [
            (Param::Segments, "const Segment*", "segments"),
            (Param::Tiles, "u64", "tiles"),
            (Param::Error, "u32*", "error"),
            (Param::FirstPlace, "u32", "first_place"),
            (Param::RunTiles, "u32", "run_tiles"),
        ] {
            generator.param_names.reserve(name);
            generator.params.push((param, c_type.into(), name.into()));
        }
        for (field, name) in [
            (SegmentField::Rows, "row_count"),
            (SegmentField::FirstTile, "first_tile"),
            (SegmentField::EndTile, "end_tile"),
        ] {
            generator.field_names.reserve(name);
            generator.segment_fields.push((field, name.into()));
        }
        generator
    }

    /// The step at an index, and filters of the same columns that follow it; the answer is the
    /// step after them.
    fn steps_at(&mut self, index: usize) -> Result<usize> {
        let bound = self.bound;
        let step = &bound.steps[index];
        self.headline(&describe::step(bound, step));
        match self.one_by_one {
            true => self.load_next_ahead(index)?,
            false => self.load_ahead(index, step)?,
        }
        match step {
            BoundStep::Filter { expr, .. } => {
                let mut together = vec![expr];
                while let Some(BoundStep::Filter { expr: next, .. }) =
                    bound.steps.get(index + together.len())
                    && self.queue_step != Some(index + together.len())
                    && filters_together(expr, next)
                {
                    let step = &bound.steps[index + together.len()];
                    self.body.comment(&describe::step(bound, step));
                    together.push(next);
                }
                self.filters(&together)?;
                return Ok(index + together.len());
            }
            BoundStep::Compute { register, expr } => self.compute(*register, expr)?,
            BoundStep::Probe(probe) => self.probe(index, probe)?,
        }
        Ok(index + 1)
    }

    fn headline(&mut self, text: &str) {
        self.body.line("");
        self.body.comment(text);
    }

    /// Leaves the tile when none of the thread's rows is alive, if that can have become so.
    fn leave_if_dead(&mut self) {
        if std::mem::take(&mut self.check_pending) {
            self.body.line("if (alive == 0) continue;");
        }
    }

    /// Filters of the same columns none of which can fail, or a single one.
    fn filters(&mut self, filters: &[&BoundExpr]) -> Result<()> {
        let [first, _, ..] = filters else {
            return filters.first().map_or(Ok(()), |only| self.filter(only));
        };
        self.require(first)?;
        self.body.open("EACH_ROW(r)");
        let mut all = Vec::with_capacity(filters.len());
        for filter in filters {
            all.push(format!("bool({})", self.truth(filter)?));
        }
        self.body.line(format!("if (!({})) alive &= ~(1u << r);", all.join(" & ")));
        self.body.close();
        self.check_pending = true;
        Ok(())
    }

    fn filter(&mut self, expr: &BoundExpr) -> Result<()> {
        self.require(expr)?;
        self.body.open("EACH_ROW(r)");
        if expr.can_fail() {
            self.body.open("if (alive >> r & 1u)");
            let keep = self.truth(expr)?;
            self.body.line(format!("if (!{}) alive &= ~(1u << r);", expr::operand(&keep)));
            self.body.close();
        } else {
            let keep = self.truth(expr)?;
            self.body.line(format!("if (!{}) alive &= ~(1u << r);", expr::operand(&keep)));
        }
        self.body.close();
        self.check_pending = true;
        Ok(())
    }

    fn compute(&mut self, register: usize, expr: &BoundExpr) -> Result<()> {
        self.require(expr)?;
        self.leave_if_dead();
        let info = &self.bound.registers[register];
        let kind = text::c_type(&info.repr)?;
        let name = self.names.unique(&describe::register_name(self.bound, register));
        let may_be_null = self.may_be_null(expr);
        self.body.line(format!("{kind} {name}[ROWS];"));
        let valid = may_be_null.then(|| self.names.unique(&format!("{name}_valid")));
        if let Some(valid) = &valid {
            self.body.line(format!("u32 {valid} = 0;"));
        }
        self.body.open("EACH_ROW(r)");
        self.body.line(format!("{name}[r] = {kind}(0);"));
        self.body.open("if (alive >> r & 1u)");
        let value = self.value(expr)?;
        match (&valid, &value.null) {
            (Some(valid), Some(null)) => {
                self.body.open(format!("if (!({null}))"));
                self.body.line(format!("{name}[r] = {};", value.code));
                self.body.line(format!("{valid} |= 1u << r;"));
                self.body.close();
            }
            (Some(valid), None) => {
                self.body.line(format!("{name}[r] = {};", value.code));
                self.body.line(format!("{valid} |= 1u << r;"));
            }
            (None, _) => self.body.line(format!("{name}[r] = {};", value.code)),
        }
        self.body.close();
        self.body.close();
        self.held[register] = Held::Array { name, valid };
        Ok(())
    }

    /// The expression of a failure's number. Equal failures are numbered apart: their texts hold
    /// constants, on which the source must not depend.
    fn place(&mut self, place: Place) -> String {
        self.places.push(place);
        format!("p.first_place + {}u", self.places.len())
    }

    /// A statement that fails at a place.
    fn raise(&mut self, place: &str) {
        self.body.line(format!("hr::raise(p.error, {place});"));
    }

    /// Name of a parameter, which is declared when first asked for.
    fn param(&mut self, param: Param, c_type: &str, wish: &str) -> String {
        if let Some((_, _, name)) = self.params.iter().find(|(p, _, _)| *p == param) {
            return format!("p.{name}");
        }
        let name = self.param_names.unique(wish);
        self.params.push((param, c_type.to_string(), name.clone()));
        format!("p.{name}")
    }

    /// Name of a descriptor field, which is declared when first asked for.
    fn segment_field(&mut self, field: SegmentField, wish: &str) -> String {
        if let Some((_, name)) = self.segment_fields.iter().find(|(f, _)| *f == field) {
            return format!("segment.{name}");
        }
        let name = self.field_names.unique(wish);
        self.segment_fields.push((field, name.clone()));
        format!("segment.{name}")
    }

    /// A constant table in device memory: the expression of its address.
    fn table(&mut self, bytes: Vec<u8>, c_type: &str, wish: &str) -> String {
        let mut bytes = bytes;
        bytes.resize(bytes.len().next_multiple_of(16).max(16), 0);
        self.tables.push(bytes.into());
        self.param(Param::Table(self.tables.len() - 1), c_type, wish)
    }

    fn register_type(&self, register: usize) -> &'a Repr {
        &self.bound.registers[register].repr
    }

    fn into_parts(mut self, sink: &sink::SinkPlan) -> Result<Parts> {
        if self.places.len() > usize::from(u16::MAX) {
            return refuse(format!("{} places that can fail", self.places.len()));
        }
        let body = std::mem::take(&mut self.body).into_text();
        let mut text = Writer::default();
        self.preamble(&mut text);
        let (prologue, epilogue) = self.block_frame(sink)?;
        let (runs, leave) = self.run_loop(sink);
        self.structs(&mut text);
        text.open(format!("HR_KERNEL {KERNEL_NAME}(HR_CONSTANT Params p)"));
        text.line("constexpr u32 ROWS = HR_ROWS;");
        for line in prologue {
            text.line(line);
        }
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
        for line in leave.into_iter().chain(epilogue) {
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
        })
    }

    fn preamble(&self, text: &mut Writer) {
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
        text.line("#include \"headrace/pipeline.cuh\"");
        text.line("");
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
}
