//! How keys and accumulators lie in a batch of partial states.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType as ArrowType, Field as ArrowField, Schema, SchemaRef};
use headrace_ir::DataType;

use crate::ExecError;
use crate::bound::{Accumulator, AccumulatorKind, Bound, BoundKey, BoundSink, Repr};
use crate::column::arrow_type;
use crate::cpu::group_keys::KeyLayout;
use crate::state::{AccumulatorState, Texts};

/// The schema of partial states: the keys under their names, then `a0`, `a1`, ... for the
/// accumulators of the bound sink.
///
/// | accumulator | column |
/// |---|---|
/// | count | `UInt64` |
/// | total of 64 bits | `Int64` |
/// | total of 128 bits | `FixedSizeBinary(16)`, little-endian, two's complement |
/// | total of 192 bits | `FixedSizeBinary(24)`, the same |
/// | total of floats | `Float64` |
/// | extreme of integers, dates, times | `Int64`, unsigned 64 bits `UInt64` |
/// | extreme of floats | `Float64` |
/// | extreme of decimals | `FixedSizeBinary(16)` |
/// | extreme of text | `Utf8`, NULL before the first value |
///
/// Before its first value the smallest of numbers is the largest number of the type (NaN for
/// floats) and the largest the smallest (minus infinity); whether there was a value is what a
/// count tells.
///
/// The portable form holds text as text. The local form, for one execution of one process,
/// holds codes of the execution's dictionaries as `Int32`.
#[derive(Clone, Debug)]
pub struct PartialSchema {
    schema: SchemaRef,
    keys: Arc<[PartialKey]>,
    values: Arc<[PartialValue]>,
}

/// A key: how a table holds it, and its column.
#[derive(Clone, Debug)]
pub(crate) struct PartialKey {
    pub held: Repr,
    pub column_repr: Repr,
    pub column_type: DataType,
    pub nullable: bool,
}

/// An accumulator before the first row.
#[derive(Clone, Debug)]
pub(crate) struct PartialValue {
    /// Without groups.
    pub empty: AccumulatorState,
    /// Of extremes: whether the smallest are kept.
    pub smaller: bool,
}

impl PartialSchema {
    /// The form that other processes, other processors and other dictionaries understand.
    ///
    /// # Errors
    /// The pipeline does not aggregate.
    pub fn portable(bound: &Bound) -> Result<Self, ExecError> {
        Self::of(bound, true)
    }

    /// The form within one execution.
    pub(crate) fn local(bound: &Bound) -> Result<Self, ExecError> {
        Self::of(bound, false)
    }

    fn of(bound: &Bound, portable: bool) -> Result<Self, ExecError> {
        let BoundSink::Aggregate { keys, accumulators, .. } = &bound.sink else {
            return Err(ExecError::Internal("partial states of another sink".into()));
        };
        let partial_keys: Vec<_> = keys.iter().map(|key| partial_key(key, portable)).collect();
        let values: Vec<_> = accumulators.iter().map(|a| partial_value(a, portable)).collect();
        let key_fields = keys.iter().zip(&partial_keys).map(|(key, partial)| {
            ArrowField::new(&key.field.name, arrow_type(&partial.column_type), partial.nullable)
        });
        let value_fields = values.iter().enumerate().map(|(i, value)| {
            let nullable = matches!(value.empty, AccumulatorState::ExtremeText(_));
            ArrowField::new(format!("a{i}"), value_type(&value.empty), nullable)
        });
        let fields: Vec<_> = key_fields.chain(value_fields).collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(Self { schema, keys: partial_keys.into(), values: values.into() })
    }

    /// As Arrow.
    pub fn arrow(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether a batch, wherever it comes from, has this schema.
    ///
    /// # Errors
    /// [`ExecError::Partial`], which names the column.
    pub(crate) fn check(&self, batch: &RecordBatch) -> Result<(), ExecError> {
        let found = batch.schema();
        if found.fields().len() != self.schema.fields().len() {
            let (is, wanted) = (found.fields().len(), self.schema.fields().len());
            return Err(ExecError::Partial(format!("{is} columns instead of {wanted}")));
        }
        for ((column, field), index) in batch.columns().iter().zip(self.schema.fields()).zip(0..) {
            let (name, wanted, is) = (field.name(), field.data_type(), column.data_type());
            if is != wanted {
                let cause = format!("column {index} ({name}) is {is} instead of {wanted}");
                return Err(ExecError::Partial(cause));
            }
            if column.null_count() > 0 && !field.is_nullable() {
                let cause = format!("column {index} ({name}) holds a NULL");
                return Err(ExecError::Partial(cause));
            }
        }
        Ok(())
    }

    pub(crate) fn keys(&self) -> &[PartialKey] {
        &self.keys
    }

    pub(crate) fn values(&self) -> &[PartialValue] {
        &self.values
    }

    /// How a table holds the keys.
    pub(crate) fn layout(&self) -> KeyLayout {
        KeyLayout::new(self.keys.iter().map(|key| (key.held.clone(), key.nullable)))
    }
}

fn partial_key(key: &BoundKey, portable: bool) -> PartialKey {
    let (held, column_type) = match (&key.expr.repr, portable) {
        (Repr::Code(_), true) => (Repr::Str, DataType::Utf8),
        (Repr::Code(_), false) => (key.expr.repr.clone(), DataType::Int32),
        (repr, _) => (repr.clone(), key.field.data_type.clone()),
    };
    let column_repr = if let Repr::Code(_) = held { Repr::I32 } else { held.clone() };
    PartialKey { held, column_repr, column_type, nullable: key.field.nullable }
}

fn partial_value(accumulator: &Accumulator, portable: bool) -> PartialValue {
    let coded = accumulator.argument.as_ref().is_some_and(|a| matches!(a.repr, Repr::Code(_)));
    let extreme = matches!(accumulator.kind, AccumulatorKind::Min | AccumulatorKind::Max);
    let empty = if portable && coded && extreme {
        AccumulatorState::ExtremeText(Texts::default())
    } else {
        AccumulatorState::new(accumulator, 0)
    };
    PartialValue { empty, smaller: accumulator.kind == AccumulatorKind::Min }
}

fn value_type(state: &AccumulatorState) -> ArrowType {
    match state {
        AccumulatorState::Count(_) | AccumulatorState::ExtremeU64(_) => ArrowType::UInt64,
        AccumulatorState::SumI64(_) | AccumulatorState::ExtremeI64(_) => ArrowType::Int64,
        AccumulatorState::SumF64(_) | AccumulatorState::ExtremeF64(_) => ArrowType::Float64,
        AccumulatorState::SumI128(_) | AccumulatorState::ExtremeI128(_) => {
            ArrowType::FixedSizeBinary(16)
        }
        AccumulatorState::SumWide { .. } => ArrowType::FixedSizeBinary(24),
        AccumulatorState::ExtremeText(_) => ArrowType::Utf8,
    }
}
