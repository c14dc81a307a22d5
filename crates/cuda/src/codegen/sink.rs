//! Sinks: dense aggregation and rows.

use headrace_ir::AggregateFunction;
use headrace_pipeline::bound::{
    Accumulator, AccumulatorKind, Bound, BoundCall, BoundExpr, BoundKey, BoundKind, BoundSink,
    BoundStep, DenseKey, Grouping, Repr,
};
use headrace_pipeline::build::PayloadColumn;

use super::expr::Value;
use super::probe::key_part;
use super::shared::SharedItem;
use super::text::c_type;
use super::{Generator, Held, Result, refuse};
use crate::gather::TEXT_VALUE_BYTES;
use crate::groups::{GroupKeyPart, GroupTableLayout};
use crate::program::{DeviceAccumulator, OutputColumn, Param, Place, Tuning};

/// Accumulators of more shared memory than this stay in global memory.
const SHARED_ACCUMULATORS_BYTES_MAX: u64 = 48 * 1024;

/// Accumulators are replicated, to have fewer threads meet at one, up to these bytes in all.
const REPLICATED_BYTES_MAX: u64 = 16 * 1024;

/// Most copies.
const REPLICAS_MAX: u64 = 16;

/// Group numbers are 32 bits.
const GROUPS_MAX: u64 = 1 << 30;

/// Where running values live during the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// One group: in each thread's registers.
    Registers,
    /// In the block's shared memory, in copies that different warps use.
    Shared { replicas: u32 },
    /// In global memory.
    Global,
    /// There are none.
    Rows,
}

/// What the sink needs of the device.
#[derive(Debug)]
pub(super) struct SinkPlan {
    pub(super) accumulators: Vec<DeviceAccumulator>,
    pub(super) groups: u64,
    pub(super) group_table: Option<GroupTableLayout>,
    pub(super) outputs: Vec<OutputColumn>,
    pub(super) place: Where,
    /// Whether anything but the existence of a group depends on accumulator 0.
    pub(super) rows_counted: bool,
    /// Whether a streamed row may become several output rows.
    pub(super) rows_multiply: bool,
}

impl SinkPlan {
    pub(super) fn of(bound: &Bound, tuning: Tuning) -> Result<Self> {
        match &bound.sink {
            BoundSink::Aggregate { keys, grouping, accumulators, calls, .. } => {
                let matches_max = super::chain::matches_max(bound);
                let Grouping::Dense { groups } = *grouping else {
                    let rows = (bound.rows_max, matches_max);
                    return Self::hashed(keys, accumulators, calls, rows);
                };
                if groups == 0 || groups > GROUPS_MAX {
                    return refuse(format!("{groups} groups"));
                }
                Self::aggregate(keys, groups, accumulators, calls, tuning, matches_max > 1)
            }
            BoundSink::Rows { columns, .. } | BoundSink::Sorted { columns, .. } => {
                super::chain::check_rows(bound, tuning)?;
                let outputs = columns
                    .iter()
                    .map(|(field, expr)| {
                        Ok(OutputColumn {
                            value_bytes: value_bytes(&expr.repr)?,
                            nullable: expr.nullable || field.nullable,
                            is_text: matches!(expr.repr, Repr::Str),
                        })
                    })
                    .collect::<Result<_>>()?;
                Ok(Self {
                    accumulators: vec![],
                    groups: 0,
                    group_table: None,
                    outputs,
                    place: Where::Rows,
                    rows_counted: false,
                    rows_multiply: super::chain::matches_max(bound) > 1,
                })
            }
            BoundSink::Build { .. } => refuse("builds are made on the CPU"),
        }
    }

    /// Groups by hash: accumulators by group number in global memory.
    fn hashed(
        keys: &[BoundKey],
        accumulators: &[Accumulator],
        calls: &[BoundCall],
        (rows_max, matches_max): (u64, u64),
    ) -> Result<Self> {
        let accumulators = device_accumulators(accumulators, matches_max > 1)?;
        let table = GroupTableLayout::of(keys, (rows_max, matches_max), &accumulators)?;
        Ok(Self {
            accumulators,
            groups: table.groups_max,
            group_table: Some(table),
            outputs: vec![],
            place: Where::Global,
            rows_counted: needs_row_counts(calls),
            rows_multiply: false,
        })
    }

    fn aggregate(
        keys: &[BoundKey],
        groups: u64,
        accumulators: &[Accumulator],
        calls: &[BoundCall],
        tuning: Tuning,
        multiplies: bool,
    ) -> Result<Self> {
        let device = device_accumulators(accumulators, multiplies)?;
        if device.iter().any(|kind| kind.is_text()) {
            return refuse("min and max of plain text without hashed groups");
        }
        let group_bytes: u64 = device.iter().map(|d| d.shared_bytes()).sum();
        let bytes = group_bytes * groups;
        let limit = SHARED_ACCUMULATORS_BYTES_MAX.min(u64::from(tuning.shared_bytes_max));
        let wide_decimal = device.contains(&DeviceAccumulator::Limbs(6));
        let place = if keys.is_empty() && !wide_decimal && groups == 1 {
            Where::Registers
        } else if bytes <= limit {
            let warps = u64::from(tuning.block_threads / 32).max(1);
            let mut replicas = 1;
            while replicas * 2 <= REPLICAS_MAX.min(warps)
                && replicas * 2 * bytes <= REPLICATED_BYTES_MAX
            {
                replicas *= 2;
            }
            Where::Shared { replicas: replicas as u32 }
        } else {
            Where::Global
        };
        let rows_counted = place == Where::Registers || needs_row_counts(calls);
        let group_table = None;
        Ok(Self {
            accumulators: device,
            groups,
            group_table,
            outputs: vec![],
            place,
            rows_counted,
            rows_multiply: false,
        })
    }
}

/// Statements that set a value of at most 16 bytes in the words of a key, which are 0 there.
fn set_key(part: GroupKeyPart, value: &str) -> String {
    let (word, shift) = (part.at / 8, part.at % 8 * 8);
    let low = format!("key_words[{word}] |= u64({value}) << {shift};");
    if shift + part.bytes * 8 <= 64 {
        return low;
    }
    let rest = format!("key_words[{}] |= u64(u128({value}) >> {});", word + 1, 64 - shift);
    // What is left of 16 bytes that begin within a word fits no third one: none begins there.
    format!("{low} {rest}")
}

/// Whether a call depends on the number of a group's rows.
fn needs_row_counts(calls: &[BoundCall]) -> bool {
    calls.iter().any(|call| {
        (call.value == 0 && call.function == AggregateFunction::Count)
            || (call.count == 0 && call.function == AggregateFunction::Avg)
    })
}

fn device_accumulators(
    accumulators: &[Accumulator],
    multiplies: bool,
) -> Result<Vec<DeviceAccumulator>> {
    let device_of = |a: &Accumulator| {
        let device = DeviceAccumulator::of(a.kind, a.argument.as_ref().map(|e| &e.repr))?;
        let wide = multiplies && device == DeviceAccumulator::Count;
        Ok(if wide { DeviceAccumulator::WideCount } else { device })
    };
    accumulators.iter().map(device_of).collect()
}

fn value_bytes(repr: &Repr) -> Result<u32> {
    Ok(match c_type(repr)? {
        "hr::Text" => TEXT_VALUE_BYTES as u32,
        "bool" | "i8" | "u8" => 1,
        "i16" | "u16" => 2,
        "i32" | "u32" | "f32" => 4,
        "i128" => 16,
        _ => 8,
    })
}

/// Short name of an accumulator.
fn accumulator_wish(index: usize, kind: AccumulatorKind) -> String {
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
fn element_types(device: DeviceAccumulator) -> (&'static str, &'static str) {
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
fn first_extreme(device: DeviceAccumulator) -> &'static str {
    match device {
        DeviceAccumulator::MinSigned => "hr::Limits<i64>::max",
        DeviceAccumulator::MaxSigned => "hr::Limits<i64>::min",
        DeviceAccumulator::MinUnsigned | DeviceAccumulator::MinFloat => "~0ull",
        DeviceAccumulator::MinWide => "hr::Limits<i128>::max",
        DeviceAccumulator::MaxWide => "hr::Limits<i128>::min",
        _ => "0ull",
    }
}

impl Generator<'_> {
    pub(super) fn sink(&mut self, plan: &SinkPlan) -> Result<()> {
        let bound = self.bound;
        self.headline(&super::describe::sink(bound));
        match &bound.sink {
            BoundSink::Aggregate { keys, accumulators, .. } => {
                self.aggregate(plan, keys, accumulators)
            }
            BoundSink::Rows { columns, .. } | BoundSink::Sorted { columns, .. } => {
                for (_, expr) in columns {
                    self.require(expr)?;
                }
                self.leave_if_dead();
                self.write_rows(plan, columns)
            }
            BoundSink::Build { .. } => refuse("builds are made on the CPU"),
        }
    }

    /// Adds the digits of keys that are payload registers of the probe just made, and of
    /// nothing else, to the group number: their registers need not be kept then.
    pub(super) fn fold_keys(&mut self, appended: &[usize]) -> Result<()> {
        let bound = self.bound;
        let BoundSink::Aggregate { keys, grouping: Grouping::Dense { .. }, .. } = &bound.sink
        else {
            return Ok(());
        };
        // Digits add up; within a loop over matches they would do so once for each match.
        // What is folded before rows are taken one by one is lost then.
        if self.walks || (self.queue_step.is_some() && !self.one_by_one) {
            return Ok(());
        }
        for (index, key) in keys.iter().enumerate() {
            let BoundKind::Register(register) = key.expr.kind else { continue };
            let Some(dense) = key.dense else { continue };
            if appended.contains(&register) && !self.keys_folded[index] {
                self.add_digit(index, key, dense)?;
            }
        }
        Ok(())
    }

    /// Adds a key's digit to the group number of every living row.
    fn add_digit(&mut self, index: usize, key: &BoundKey, dense: DenseKey) -> Result<()> {
        self.keys_folded[index] = true;
        if !self.group_declared {
            self.group_declared = true;
            self.body.line("u32 group[ROWS];");
            self.body.line("EACH_ROW(r) group[r] = first_group;");
        }
        if let Some(line) = self.plain_digit(index, key, dense) {
            self.body.line(format!("EACH_ROW(r) {line}"));
            return Ok(());
        }
        let values = dense.cardinality - u64::from(dense.has_null);
        self.body.open("EACH_ROW(r)");
        self.body.open("if (alive >> r & 1u)");
        let value = self.value(&key.expr)?;
        let range = (dense.min, values);
        let offset = self.offset_of(&value.code, &key.expr.repr, range, "key_min")?;
        self.body.line(format!("{} digit = {};", offset.c_type, offset.code));
        let values = self.constant(values, offset.c_type, "key_values");
        let outside = self.place(Place::Corrupt {
            column: key.field.name.clone(),
            cause: "a value outside the bounds that are recorded for it".into(),
        });
        let null = value.null.filter(|_| dense.has_null);
        let otherwise = if let Some(null) = &null {
            self.body.line(format!("if ({null}) digit = {values};"));
            "else "
        } else {
            ""
        };
        self.body.open(format!("{otherwise}if (digit >= {values})"));
        self.raise(&outside);
        self.body.line("digit = 0;");
        self.body.close();
        let digit = self.strided(index, "u32(digit)", dense);
        self.body.line(format!("group[r] += {digit};"));
        self.body.close();
        self.body.close();
        Ok(())
    }

    /// The digit of a payload column whose bounds are exact: no check, no branch. What its raw
    /// values begin with is part of the first group number.
    fn plain_digit(&mut self, index: usize, key: &BoundKey, dense: DenseKey) -> Option<String> {
        let BoundKind::Register(register) = key.expr.kind else { return None };
        let Held::Raw { name, valid: None, .. } = &self.held[register] else { return None };
        let name = name.clone();
        let payload = self.payload_of(register)?;
        let range = payload.range?;
        let base = super::shared::payload_shape(&payload.data).base?;
        let values = dense.cardinality - u64::from(dense.has_null);
        let last = i128::from(dense.min) + i128::from(values) - 1;
        if range.min < dense.min || i128::from(range.max) > last {
            return None;
        }
        let shift = u32::try_from(i128::from(base) - i128::from(dense.min)).ok()?;
        let shifted = shift.wrapping_mul(dense.stride as u32);
        self.first_group = self.first_group.wrapping_add(shifted);
        let digit = self.strided(index, &format!("u32({name}[r])"), dense);
        Some(format!("group[r] += {digit};"))
    }

    /// A digit times its stride, which is 1 for the last key.
    fn strided(&mut self, index: usize, digit: &str, dense: DenseKey) -> String {
        if index + 1 == self.keys_folded.len() {
            return digit.to_string();
        }
        let stride = self.constant(dense.stride, "u32", "group_stride");
        format!("{digit} * {stride}")
    }

    /// The payload column behind a register.
    fn payload_of(&self, register: usize) -> Option<&PayloadColumn> {
        self.bound.steps.iter().find_map(|step| match step {
            BoundStep::Probe(probe) => {
                let index = register.checked_sub(probe.first_register)?;
                probe.build.payload.get(*probe.payload.get(index)?)
            }
            _ => None,
        })
    }

    fn aggregate(
        &mut self,
        plan: &SinkPlan,
        keys: &[BoundKey],
        accumulators: &[Accumulator],
    ) -> Result<()> {
        // The columns first: payload that is read late is on its way at the same time.
        for accumulator in accumulators {
            for expr in accumulator.filter.iter().chain(&accumulator.argument) {
                self.require(expr)?;
            }
        }
        for (index, key) in keys.iter().enumerate() {
            if plan.group_table.is_some() {
                self.require(&key.expr)?;
                continue;
            }
            if self.keys_folded[index] {
                continue;
            }
            let Some(dense) = key.dense else {
                return refuse(format!("group key {} has no known bounds", key.field.name));
            };
            self.require(&key.expr)?;
            self.leave_if_dead();
            self.add_digit(index, key, dense)?;
        }
        self.leave_if_dead();
        let hashed = plan.group_table.is_some();
        if !self.group_declared && !hashed && plan.place != Where::Registers {
            self.body.line("u32 group[ROWS];");
            self.body.line("EACH_ROW(r) group[r] = first_group;");
        }
        let count_by_bits = plan.place == Where::Registers;
        if count_by_bits {
            let name = self.accumulator_name(plan, 0, accumulators[0].kind);
            self.body.line(format!("{name} += __popc(alive);"));
        }
        if count_by_bits && accumulators.len() == 1 {
            return Ok(());
        }
        self.body.open("EACH_ROW(r)");
        self.body.open("if (alive >> r & 1u)");
        match plan.place {
            _ if hashed => self.find_group(plan, keys)?,
            Where::Shared { .. } | Where::Global => self.body.line("const u32 at = group[r];"),
            Where::Registers | Where::Rows => {}
        }
        for (index, accumulator) in accumulators.iter().enumerate() {
            if index > 0 || !count_by_bits {
                self.accumulate(plan, index, accumulator)?;
            }
        }
        self.body.close();
        self.body.close();
        Ok(())
    }

    /// The number `at` of the row's group, by hash. A row without one has failed.
    fn find_group(&mut self, plan: &SinkPlan, keys: &[BoundKey]) -> Result<()> {
        let Some(table) = &plan.group_table else { return refuse("groups without a table") };
        self.body.line(format!("u64 key_words[{}] = {{}};", table.words));
        for (key, part) in keys.iter().zip(&table.parts) {
            let value = self.value(&key.expr)?;
            if matches!(key.expr.repr, Repr::Str) {
                self.set_text_key(*part, value);
                continue;
            }
            let (unsigned, _) = key_part(&key.expr.repr)?;
            let take = set_key(*part, &format!("{unsigned}({})", value.code));
            match (part.null_at, value.null) {
                (Some(at), Some(null)) => {
                    let is_null = format!("key_words[{}] |= 1ull << {};", at / 8, at % 8 * 8);
                    self.body.line(format!("if ({null}) {is_null}"));
                    self.body.line(format!("else {{ {take} }}"));
                }
                _ => self.body.line(take),
            }
        }
        let slots = self.param(Param::GroupSlots, "u32*", "group_slots");
        let values = self.param(Param::GroupKeys, "u64*", "group_keys");
        let used = self.param(Param::GroupsUsed, "u32*", "groups_used");
        let capacity = self.param(Param::GroupCapacity, "u64", "group_capacity");
        let mask = self.param(Param::GroupSlotMask, "u64", "group_slot_mask");
        let text_keys = table.text_keys;
        let texts = match table.kept_texts {
            0 => format!("nullptr, nullptr, 0, {used}"),
            _ => {
                let bytes = self.param(Param::GroupTexts, "u8*", "texts");
                let taken = self.param(Param::GroupTextsUsed, "u64*", "texts_used");
                let capacity = self.param(Param::GroupTextsCapacity, "u64", "texts_capacity");
                format!("{bytes}, {taken}, {capacity}, {used}")
            }
        };
        self.body.line(format!("const hr::GroupTexts group_texts({texts});"));
        self.body.line(format!(
            "const u32 at = hr::group_of<{text_keys}>({slots}, {values}, {used}, {capacity}, {mask}, key_words, group_texts);"
        ));
        let column = keys.first().map_or_else(String::new, |key| key.field.name.clone());
        let cause = "more groups than the bounds that are recorded for it allow".into();
        let place = self.place(Place::Corrupt { column, cause });
        self.leave_row_if("at == hr::NO_GROUP", &place);
        if let Some(key) = keys.iter().find(|key| matches!(key.expr.repr, Repr::Str)) {
            let place = self.place(Place::GroupText { column: key.field.name.clone() });
            self.leave_row_if("at == hr::NO_TEXT_ROOM", &place);
        }
        Ok(())
    }

    /// Records a failure and leaves the row, under a condition.
    fn leave_row_if(&mut self, condition: &str, place: &str) {
        self.body.open(format!("if ({condition})"));
        self.raise(place);
        self.body.line("continue;");
        self.body.close();
    }

    fn accumulate(
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

    /// How a block goes through its runs of tiles, from where to where the loop over a run stands
    /// (`groups.rs`): hashed groups end it before their table is full, and output rows before their
    /// buffers are.
    pub(super) fn run_loop(&mut self, plan: &SinkPlan) -> (Vec<String>, Option<String>) {
        let first = "blockIdx.x * p.run_tiles";
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

    /// The variable of an accumulator inside the tile loop.
    fn accumulator_name(&mut self, plan: &SinkPlan, index: usize, kind: AccumulatorKind) -> String {
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

    fn shared_accumulator(&mut self, index: usize, kind: AccumulatorKind) -> String {
        let wish = format!("block_{}", accumulator_wish(index, kind));
        let item = SharedItem::Accumulator(index);
        let names = &mut self.names;
        match self.shared.entries.iter_mut().find(|e| e.item == item) {
            Some(entry) => entry.name.get_or_insert_with(|| names.unique(&wish)).clone(),
            None => wish,
        }
    }

    /// What stands before and after the tile loop.
    pub(super) fn block_frame(&mut self, plan: &SinkPlan) -> Result<(Vec<String>, Vec<String>)> {
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

    fn shared_entry(
        &mut self,
        plan: &SinkPlan,
        entry: &super::shared::SharedEntry,
        lines: &mut Vec<String>,
    ) {
        let Some(name) = &entry.name else { return };
        let offset = entry.offset;
        match entry.item {
            SharedItem::Queue => lines.extend(self.queue_lines(offset)),
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

    /// Brings the threads' registers together in the block's entry.
    fn merge_warp(&mut self, plan: &SinkPlan, index: usize, kind: AccumulatorKind) -> [String; 2] {
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
    fn flush(&mut self, plan: &SinkPlan, index: usize, kind: AccumulatorKind) -> String {
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

    fn write_rows(
        &mut self,
        plan: &SinkPlan,
        columns: &[(headrace_ir::Field, BoundExpr)],
    ) -> Result<()> {
        let used = self.param(Param::RowsUsed, "u64*", "rows_used");
        let capacity = self.param(Param::RowsCapacity, "u64", "rows_capacity");
        self.body.line(format!("u64 output = hr::reserve_rows({used}, __popc(alive));"));
        self.body.open("EACH_ROW(r)");
        self.body.open(format!("if ((alive >> r & 1u) && output < {capacity})"));
        for (index, (field, expr)) in columns.iter().enumerate() {
            let kind = match c_type(&expr.repr)? {
                "bool" => "u8",
                kind => kind,
            };
            let to = self.param(Param::RowsValues(index), &format!("{kind}*"), "output");
            let value = self.value(expr)?;
            self.body.line(format!("{to}[output] = {kind}({});", value.code));
            if plan.outputs[index].nullable {
                let valid = self.param(Param::RowsValidity(index), "u8*", "output_valid");
                let null = value.null.unwrap_or_else(|| "false".into());
                self.body.line(format!("{valid}[output] = !({null});"));
            } else if let Some(null) = value.null {
                let place = self.place(Place::Corrupt {
                    column: field.name.clone(),
                    cause: "a NULL where none can be".into(),
                });
                self.body.open(format!("if ({null})"));
                self.raise(&place);
                self.body.close();
            }
        }
        self.body.line("++output;");
        self.body.close();
        self.body.close();
        Ok(())
    }
}

/// Declaration of a thread's own accumulator.
fn register_accumulator(device: DeviceAccumulator, index: usize, kind: AccumulatorKind) -> String {
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
fn update(plan: &SinkPlan, index: usize, name: &str, argument: Option<&Value>) -> String {
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
