//! What the sink needs of the device, and where its accumulators live.

use headrace_columns::repr::Repr;
use headrace_ir::AggregateFunction;
use headrace_pipeline::bound::{Accumulator, Bound, BoundCall, BoundKey, BoundSink, Grouping};

use crate::accumulator::DeviceAccumulator;
use crate::codegen::plan::probes::{check_rows, matches_max};
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::c_type;
use crate::groups::GroupTableLayout;
use crate::program::OutputColumn;
use crate::text_values::TEXT_VALUE_BYTES;
use crate::tuning::Tuning;

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
pub(crate) enum Where {
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
pub(crate) struct SinkPlan {
    pub(crate) accumulators: Vec<DeviceAccumulator>,
    pub(crate) groups: u64,
    pub(crate) group_table: Option<GroupTableLayout>,
    pub(crate) outputs: Vec<OutputColumn>,
    pub(crate) place: Where,
    /// Whether anything but the existence of a group depends on accumulator 0.
    pub(crate) rows_counted: bool,
    /// Whether a streamed row may become several output rows.
    pub(crate) rows_multiply: bool,
}

impl SinkPlan {
    pub(crate) fn of(bound: &Bound, tuning: Tuning) -> Result<Self> {
        match &bound.sink {
            BoundSink::Aggregate { keys, grouping, accumulators, calls, .. } => {
                let matches_max = matches_max(bound);
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
                check_rows(bound, tuning)?;
                let outputs = columns
                    .iter()
                    .map(|(field, expr)| {
                        Ok(OutputColumn {
                            value_bytes: value_bytes(&expr.repr)?,
                            nullable: expr.nullable || field.nullable,
                            is_text: matches!(expr.repr, Repr::Str | Repr::Bytes(_)),
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
                    rows_multiply: matches_max(bound) > 1,
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
