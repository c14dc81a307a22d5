//! Accumulators in the text: their variables, what a row does to them, how they are merged.

use headrace_pipeline::bound::{Accumulator, AccumulatorKind};

use crate::accumulator::DeviceAccumulator;
use crate::codegen::generator::Generator;
use crate::codegen::plan::shared::SharedItem;
use crate::codegen::plan::sink::{SinkPlan, Where};
use crate::codegen::refusal::Result;
use crate::codegen::value::Value;
use crate::fields::Param;
use crate::place::Place;

/// Short name of an accumulator.
pub(super) fn accumulator_wish(index: usize, kind: AccumulatorKind) -> String {
    let kind = match kind {
        AccumulatorKind::Count => "count",
        AccumulatorKind::SumI64
        | AccumulatorKind::SumI128
        | AccumulatorKind::SumWide
        | AccumulatorKind::SumF64 => "sum",
        AccumulatorKind::SquaredDeviations => "squared_deviations",
        AccumulatorKind::Min => "min",
        AccumulatorKind::Max => "max",
    };
    format!("{kind}_{index}")
}

/// C++ type of the array elements of an accumulator, in global memory and in shared memory.
pub(super) fn element_types(device: DeviceAccumulator) -> (&'static str, &'static str) {
    match device {
        DeviceAccumulator::Count => ("u64", "u32"),
        DeviceAccumulator::Total64 => ("u64", "u32"),
        DeviceAccumulator::Limbs(_) | DeviceAccumulator::MinWide | DeviceAccumulator::MaxWide => {
            ("u32", "u32")
        }
        DeviceAccumulator::Float => ("f64", "f64"),
        DeviceAccumulator::MinSigned | DeviceAccumulator::MaxSigned => ("i64", "i64"),
        _ => ("u64", "u64"),
    }
}

/// First value of a minimum or maximum.
pub(super) fn first_extreme(device: DeviceAccumulator) -> &'static str {
    match device {
        DeviceAccumulator::MinSigned => "hr::Limits<i64>::max",
        DeviceAccumulator::MaxSigned => "hr::Limits<i64>::min",
        DeviceAccumulator::MinUnsigned | DeviceAccumulator::MinFloat => "~0ull",
        DeviceAccumulator::MinWide => "hr::Limits<i128>::max",
        DeviceAccumulator::MaxWide => "hr::Limits<i128>::min",
        _ => "0ull",
    }
}

/// Declaration of a thread's own accumulator.
pub(super) fn register_accumulator(
    device: DeviceAccumulator,
    index: usize,
    kind: AccumulatorKind,
) -> String {
    let name = format!("my_{}", accumulator_wish(index, kind));
    match device {
        DeviceAccumulator::Count => format!("u32 {name} = 0;"),
        DeviceAccumulator::WideCount => format!("u64 {name} = 0;"),
        DeviceAccumulator::MinWide | DeviceAccumulator::MaxWide => {
            format!("i128 {name} = {};", first_extreme(device))
        }
        DeviceAccumulator::Total64 => format!("i64 {name} = 0;"),
        DeviceAccumulator::Limbs(_) => format!("i128 {name} = 0;"),
        DeviceAccumulator::Float => format!("f64 {name} = 0.0;"),
        DeviceAccumulator::MinSigned | DeviceAccumulator::MaxSigned => {
            format!("i64 {name} = {};", first_extreme(device))
        }
        _ => format!("u64 {name} = {};", first_extreme(device)),
    }
}

/// The statement that adds a row to an accumulator.
pub(super) fn update(
    plan: &SinkPlan,
    index: usize,
    name: &str,
    argument: Option<&Value>,
) -> String {
    let value = argument.map_or("1u", |v| v.code.as_str());
    let device = plan.accumulators[index];
    let widened = match device {
        DeviceAccumulator::Total64
        | DeviceAccumulator::MinSigned
        | DeviceAccumulator::MaxSigned => format!("i64({value})"),
        DeviceAccumulator::MinUnsigned | DeviceAccumulator::MaxUnsigned => format!("u64({value})"),
        DeviceAccumulator::Float => format!("f64({value})"),
        DeviceAccumulator::MinFloat | DeviceAccumulator::MaxFloat => {
            format!("hr::ordered(f64({value}))")
        }
        DeviceAccumulator::MinWide | DeviceAccumulator::MaxWide => format!("i128({value})"),
        DeviceAccumulator::Count
        | DeviceAccumulator::WideCount
        | DeviceAccumulator::Limbs(_)
        | DeviceAccumulator::MinText
        | DeviceAccumulator::MaxText => value.to_string(),
    };
    let is_min = device.is_min();
    if plan.place == Where::Registers {
        return match device {
            DeviceAccumulator::Count | DeviceAccumulator::WideCount => format!("++{name};"),
            DeviceAccumulator::Total64 | DeviceAccumulator::Float => {
                format!("{name} += {widened};")
            }
            DeviceAccumulator::Limbs(_) => format!("{name} += i128({widened});"),
            _ if is_min => format!("if ({widened} < {name}) {name} = {widened};"),
            _ => format!("if ({widened} > {name}) {name} = {widened};"),
        };
    }
    let global = plan.place == Where::Global;
    match device {
        DeviceAccumulator::WideCount if !global => format!("hr::count_wide({name}, at);"),
        DeviceAccumulator::WideCount => format!("atomicAdd({name} + at, u64(1));"),
        DeviceAccumulator::Count if global => format!("atomicAdd({name} + at, u64(1));"),
        DeviceAccumulator::Count => format!("atomicAdd({name} + at, 1u);"),
        DeviceAccumulator::Total64 if global => format!("atomicAdd({name} + at, u64({widened}));"),
        DeviceAccumulator::Total64 => format!("hr::add_total<2>({name} + 2 * at, {widened});"),
        DeviceAccumulator::Limbs(limbs) => {
            format!("hr::add_total<{limbs}>({name} + {limbs} * u64(at), {widened});")
        }
        DeviceAccumulator::Float => format!("atomicAdd({name} + at, {widened});"),
        DeviceAccumulator::MinWide | DeviceAccumulator::MaxWide => {
            format!("hr::extreme_wide<{is_min}>({name} + hr::WIDE_WORDS * u64(at), {widened});")
        }
        _ if is_min => format!("hr::lower({name} + at, {widened});"),
        _ => format!("hr::raise_to({name} + at, {widened});"),
    }
}

impl Generator<'_> {
    pub(super) fn accumulate(
        &mut self,
        plan: &SinkPlan,
        index: usize,
        accumulator: &Accumulator,
    ) -> Result<()> {
        let name = self.accumulator_name(plan, index, accumulator.kind);
        let mut depth = 0;
        if let Some(filter) = &accumulator.filter {
            let truth = self.truth(filter)?;
            self.body.open(format!("if ({truth})"));
            depth += 1;
        }
        let mut argument = None;
        if let Some(expr) = &accumulator.argument {
            // A count of values needs the value only where computing it can fail.
            let value = self.value(expr)?;
            if let Some(null) = &value.null {
                self.body.open(format!("if (!({null}))"));
                depth += 1;
            }
            argument = Some(value);
        }
        let plain = accumulator.filter.is_none() && accumulator.argument.is_none();
        let marks = index == 0 && plain && !plan.rows_counted;
        match (&argument, plan.accumulators[index]) {
            (Some(value), kind) if kind.is_text() => {
                let (is_min, text) = (kind.is_min(), &value.code);
                let column = "a smallest or largest text".to_string();
                let place = self.place(Place::GroupText { column });
                let kept = format!("!hr::extreme_text<{is_min}>({name} + at, {text}, group_texts)");
                self.leave_row_if(&kept, &place);
            }
            _ if marks => self.body.line(format!("hr::mark({name} + at);")),
            _ => self.body.line(update(plan, index, &name, argument.as_ref())),
        }
        for _ in 0..depth {
            self.body.close();
        }
        Ok(())
    }

    /// The variable of an accumulator inside the tile loop.
    pub(super) fn accumulator_name(
        &mut self,
        plan: &SinkPlan,
        index: usize,
        kind: AccumulatorKind,
    ) -> String {
        let wish = accumulator_wish(index, kind);
        match plan.place {
            Where::Global => {
                let (global, _) = element_types(plan.accumulators[index]);
                self.param(Param::Accumulator(index), &format!("{global}*"), &wish)
            }
            Where::Registers => format!("my_{wish}"),
            Where::Shared { .. } | Where::Rows => self.shared_accumulator(index, kind),
        }
    }

    pub(super) fn shared_accumulator(&mut self, index: usize, kind: AccumulatorKind) -> String {
        let wish = format!("block_{}", accumulator_wish(index, kind));
        let item = SharedItem::Accumulator(index);
        let names = &mut self.names;
        match self.shared.entries.iter_mut().find(|e| e.item == item) {
            Some(entry) => entry.name.get_or_insert_with(|| names.unique(&wish)).clone(),
            None => wish,
        }
    }

    /// Brings the threads' registers together in the block's entry.
    pub(super) fn merge_warp(
        &mut self,
        plan: &SinkPlan,
        index: usize,
        kind: AccumulatorKind,
    ) -> [String; 2] {
        let mine = format!("my_{}", accumulator_wish(index, kind));
        let block = self.shared_accumulator(index, kind);
        let device = plan.accumulators[index];
        let (verb, statement) = match device {
            DeviceAccumulator::Count | DeviceAccumulator::WideCount => {
                ("sum", format!("atomicAdd({block}, {mine})"))
            }
            DeviceAccumulator::Total64 => ("sum", format!("hr::add_total<2>({block}, {mine})")),
            DeviceAccumulator::Limbs(n) => ("sum", format!("hr::add_total<{n}>({block}, {mine})")),
            DeviceAccumulator::Float => ("sum", format!("atomicAdd({block}, {mine})")),
            DeviceAccumulator::MinWide => {
                ("min", format!("hr::extreme_wide<true>({block}, {mine})"))
            }
            DeviceAccumulator::MaxWide => {
                ("max", format!("hr::extreme_wide<false>({block}, {mine})"))
            }
            extreme if extreme.is_min() => ("min", format!("hr::lower({block}, {mine})")),
            _ => ("max", format!("hr::raise_to({block}, {mine})")),
        };
        [
            format!("{mine} = hr::warp_{verb}({mine});"),
            format!("if (hr::first_lane()) {statement};"),
        ]
    }

    /// Adds the block's entries to the global ones.
    pub(super) fn flush(&mut self, plan: &SinkPlan, index: usize, kind: AccumulatorKind) -> String {
        let device = plan.accumulators[index];
        let (global, _) = element_types(device);
        let wish = accumulator_wish(index, kind);
        let to = self.param(Param::Accumulator(index), &format!("{global}*"), &wish);
        let from = self.shared_accumulator(index, kind);
        let verb = match device {
            DeviceAccumulator::Count | DeviceAccumulator::WideCount => "flush_count".to_string(),
            DeviceAccumulator::Total64 => "flush_total64".to_string(),
            DeviceAccumulator::Limbs(n) => format!("flush_total<{n}>"),
            DeviceAccumulator::Float => "flush_f64".to_string(),
            DeviceAccumulator::MinWide => "flush_wide<true>".to_string(),
            DeviceAccumulator::MaxWide => "flush_wide<false>".to_string(),
            extreme if extreme.is_min() => "flush_min".to_string(),
            _ => "flush_max".to_string(),
        };
        match &self.replicas {
            None => format!("hr::{verb}({to}, {from}, 1u, 1u);"),
            Some((groups, mask)) => format!("hr::{verb}({to}, {from}, {groups}, {mask} + 1u);"),
        }
    }
}
