//! Sinks: dense aggregation and rows.

use headrace_columns::repr::Repr;
use headrace_ir::OrderKey;
use headrace_pipeline::bound::{
    Accumulator, BoundExpr, BoundKey, BoundKind, BoundSink, BoundStep, DenseKey, Grouping,
};
use headrace_pipeline::build::PayloadColumn;

use crate::codegen::describe;
use crate::codegen::generator::Generator;
use crate::codegen::plan::sink::{SinkPlan, Where};
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{c_type, i64_literal, is_integer};
use crate::codegen::value::Held;
use crate::fields::Param;
use crate::place::Place;
use crate::tables::payload_shape;

impl Generator<'_> {
    pub(super) fn sink(&mut self, plan: &SinkPlan) -> Result<()> {
        let bound = self.bound;
        self.headline(&describe::sink(bound));
        match &bound.sink {
            BoundSink::Aggregate { keys, accumulators, .. } => {
                self.aggregate(plan, keys, accumulators)
            }
            BoundSink::Rows { columns, .. } => self.rows(plan, columns),
            BoundSink::Sorted { columns, order, limit } => {
                if let (Some(key), Some(_)) = (order.first(), limit) {
                    self.drop_later(&columns[key.column].1, *key)?;
                }
                self.rows(plan, columns)
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
        let base = payload_shape(&payload.data).base?;
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
        let values = keys.iter().map(|key| self.value(&key.expr)).collect::<Result<Vec<_>>>()?;
        let reprs: Vec<Repr> = keys.iter().map(|key| key.expr.repr.clone()).collect();
        self.set_key_words(&table.keys, &reprs, values);
        let slots = self.param(Param::GroupSlots, "u32*", "group_slots");
        let values = self.param(Param::GroupKeys, "u64*", "group_keys");
        let used = self.param(Param::GroupsUsed, "u32*", "groups_used");
        let capacity = self.param(Param::GroupCapacity, "u64", "group_capacity");
        let mask = self.param(Param::GroupSlotMask, "u64", "group_slot_mask");
        let text_keys = table.keys.texts;
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

    fn rows(&mut self, plan: &SinkPlan, columns: &[(headrace_ir::Field, BoundExpr)]) -> Result<()> {
        for (_, expr) in columns {
            self.require(expr)?;
        }
        self.leave_if_dead();
        self.write_rows(plan, columns)
    }

    /// Drops rows that by the first of the order's keys come after the last one that is wanted, as far as that was
    /// known when the kernel was launched.
    fn drop_later(&mut self, key: &BoundExpr, order: OrderKey) -> Result<()> {
        let word = match &key.repr {
            Repr::Str => "hr::first_bytes",
            // Half of its values are no i64.
            Repr::U64 => return Ok(()),
            Repr::F32 | Repr::F64 => "hr::float_order",
            repr if is_integer(repr) => "i64",
            _ => return Ok(()),
        };
        self.require(key)?;
        self.leave_if_dead();
        let last = self.param(Param::LastWanted, "i64", "last_wanted");
        self.body.open("EACH_ROW(r)");
        self.body.open("if (alive >> r & 1u)");
        let value = self.value(key)?;
        let (after, unknown) = match order.descending {
            true => ("<", i64::MIN),
            false => (">", i64::MAX),
        };
        let comes_after = format!("{word}({}) {after} {last}", value.code);
        let comes_after = match (value.null, order.nulls_first) {
            (None, _) => comes_after,
            (Some(null), true) => format!("!({null}) && {comes_after}"),
            (Some(null), false) => {
                format!("{null} ? {last} != {} : {comes_after}", i64_literal(unknown))
            }
        };
        self.body.line(format!("if ({comes_after}) alive &= ~(1u << r);"));
        self.body.close();
        self.body.close();
        self.check_pending = true;
        Ok(())
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
