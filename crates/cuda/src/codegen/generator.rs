//! The state of one generation, and what every part of it writes with.

use std::sync::Arc;

use headrace_columns::repr::{Dictionary, Repr};
use headrace_ir::CudaFunction;
use headrace_pipeline::bound::{Bound, BoundSink};

use crate::codegen::plan::eager::EagerPlan;
use crate::codegen::plan::probes::walks_step;
use crate::codegen::plan::shared::SharedPlan;
use crate::codegen::text::{Names, Writer};
use crate::codegen::value::Held;
use crate::fields::{Param, SegmentField};
use crate::layout::SegmentLayout;
use crate::place::Place;
use crate::tuning::Tuning;

/// State of one generation.
pub(super) struct Generator<'a> {
    pub(super) bound: &'a Bound,
    pub(super) layout: &'a SegmentLayout,
    pub(super) tuning: Tuning,
    /// Text inside the tile loop.
    pub(super) body: Writer,
    pub(super) names: Names,
    /// Members of the structs have names of their own.
    pub(super) param_names: Names,
    pub(super) field_names: Names,
    pub(super) held: Vec<Held>,
    /// Parameter, C++ type, name.
    pub(super) params: Vec<(Param, String, String)>,
    pub(super) segment_fields: Vec<(SegmentField, String)>,
    pub(super) places: Vec<Place>,
    pub(super) constants: Vec<u64>,
    pub(super) tables: Vec<Arc<[u8]>>,
    /// Dictionaries whose texts are a table, and its name.
    pub(super) dictionaries: Vec<(Arc<Dictionary>, String)>,
    pub(super) shared: SharedPlan,
    pub(super) eager: EagerPlan,
    /// What the group number of a row is before any digit that is not a narrow payload value.
    pub(super) first_group: u32,
    /// Parameters with the number of groups, and of their copies in shared memory less one.
    pub(super) replicas: Option<(String, String)>,
    /// Whether `alive` may have become 0 since it was last looked at.
    pub(super) check_pending: bool,
    /// Whether the group number's variable is declared.
    pub(super) group_declared: bool,
    /// Keys whose digit is already in the group number.
    pub(super) keys_folded: Vec<bool>,
    /// Whether any step loops over the matches of a row.
    pub(super) walks: bool,
    /// Loops over matches that are open, each with what stands behind it.
    pub(super) open_loops: Vec<Option<String>>,
    /// Steps whose rows are counted, each with the variable.
    pub(super) left: Vec<(usize, String)>,
    /// The step from which on rows are taken one by one.
    pub(super) queue_step: Option<usize>,
    /// Whether they are.
    pub(super) one_by_one: bool,
    /// Whether values of `distance.cuh` are computed.
    pub(super) compares_rows: bool,
    /// Functions of users that are called.
    pub(super) functions: Vec<Arc<CudaFunction>>,
}

impl<'a> Generator<'a> {
    pub(super) fn new(
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
            dictionaries: Vec::new(),
            shared,
            eager: EagerPlan::of(bound, layout, tuning, queue_step),
            first_group: 0,
            replicas: None,
            check_pending: false,
            group_declared: false,
            keys_folded: Vec::new(),
            walks: bound.steps.iter().any(walks_step),
            open_loops: Vec::new(),
            left: Vec::new(),
            queue_step,
            one_by_one: false,
            compares_rows: false,
            functions: Vec::new(),
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

    pub(super) fn headline(&mut self, text: &str) {
        self.body.line("");
        self.body.comment(text);
    }

    /// Leaves the tile when none of the thread's rows is alive, if that can have become so.
    pub(super) fn leave_if_dead(&mut self) {
        if std::mem::take(&mut self.check_pending) {
            // Together, where the warp counts together.
            self.body.line(match self.shared.pairs {
                None => "if (alive == 0) continue;",
                Some(_) => "if (hr::none_alive(alive)) continue;",
            });
        }
    }

    /// The expression of a failure's number. Equal failures are numbered apart: their texts hold
    /// constants, on which the source must not depend.
    pub(super) fn place(&mut self, place: Place) -> String {
        self.places.push(place);
        format!("p.first_place + {}u", self.places.len())
    }

    /// A statement that fails at a place.
    pub(super) fn raise(&mut self, place: &str) {
        self.body.line(format!("hr::raise(p.error, {place});"));
    }

    /// Name of a parameter, which is declared when first asked for.
    pub(super) fn param(&mut self, param: Param, c_type: &str, wish: &str) -> String {
        if let Some((_, _, name)) = self.params.iter().find(|(p, _, _)| *p == param) {
            return format!("p.{name}");
        }
        let name = self.param_names.unique(wish);
        self.params.push((param, c_type.to_string(), name.clone()));
        format!("p.{name}")
    }

    /// Name of a descriptor field, which is declared when first asked for.
    pub(super) fn segment_field(&mut self, field: SegmentField, wish: &str) -> String {
        if let Some((_, name)) = self.segment_fields.iter().find(|(f, _)| *f == field) {
            return format!("segment.{name}");
        }
        let name = self.field_names.unique(wish);
        self.segment_fields.push((field, name.clone()));
        format!("segment.{name}")
    }

    /// A constant table in device memory: the expression of its address.
    pub(super) fn table(&mut self, bytes: Vec<u8>, c_type: &str, wish: &str) -> String {
        let mut bytes = bytes;
        bytes.resize(bytes.len().next_multiple_of(16).max(16), 0);
        self.tables.push(bytes.into());
        self.param(Param::Table(self.tables.len() - 1), c_type, wish)
    }

    pub(super) fn register_type(&self, register: usize) -> &'a Repr {
        &self.bound.registers[register].repr
    }

    /// Records a failure and leaves the row, under a condition.
    pub(super) fn leave_row_if(&mut self, condition: &str, place: &str) {
        self.body.open(format!("if ({condition})"));
        self.raise(place);
        self.body.line("continue;");
        self.body.close();
    }
}
