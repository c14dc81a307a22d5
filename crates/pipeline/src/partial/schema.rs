//! How keys and accumulators lie in a batch of partial states.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType as ArrowType, Field as ArrowField, Schema, SchemaRef};
use headrace_columns::column::arrow_type;
use headrace_columns::group_keys::KeyLayout;
use headrace_columns::repr::Repr;
use headrace_ir::{AggregateOutput, DataType};

use crate::ExecError;
use crate::bound::{Accumulator, AccumulatorKind, Bound, BoundCall, BoundKey, BoundSink};
use crate::state::{AccumulatorState, Texts};

/// What the schema's metadata says of its version.
const VERSION_KEY: &str = "headrace.partial.version";
/// The version of the portable form that is written and read here: changed whenever the meaning
/// of a column changes.
const VERSION: &str = "1";
/// What the schema's metadata says of the aggregation.
const OF_KEY: &str = "headrace.partial.of";

/// The schema of partial states: the keys under their names, then running values.
///
/// The portable form is the same for all who run a pipeline, whatever their files, statistics
/// and dictionaries are. After the keys, which may all be NULL there, come `rows`, the count of
/// the group's rows, and two columns for each aggregate `i`: `v{i}`, its running value, and
/// `n{i}`, the count of the values that went into it (0: the result is NULL).
///
/// | running value | column |
/// |---|---|
/// | count | `UInt64` |
/// | total of integers or decimals | `FixedSizeBinary(24)`: 192 bits, little-endian, two's complement |
/// | total of floats | `Float64` |
/// | squared deviations | `FixedSizeBinary(24)`: how many values (64 bits), their sum and squared deviations (binary64), little-endian |
/// | extreme of integers, dates, times, truth values | `Int64`, of unsigned 64 bits `UInt64` |
/// | extreme of floats | `Float64` |
/// | extreme of decimals | `FixedSizeBinary(16)`, little-endian, two's complement |
/// | extreme of text | `Utf8`, NULL before the first value |
///
/// The schema's metadata says the version of this form (`headrace.partial.version`) and whose
/// states they are, as calls and keys (`headrace.partial.of`): states of another version or of
/// another aggregation are refused.
///
/// Before its first value the smallest of numbers is the largest number of the type (NaN for
/// floats) and the largest the smallest (minus infinity).
///
/// The local form, for one execution of one process, has a column `a{i}` an accumulator of the
/// bound sink instead; it holds codes of the execution's dictionaries as `Int32`, and totals in
/// the 64, 128 or 192 bits that are known to do for this execution's rows.
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

/// A running value before the first row.
#[derive(Clone, Debug)]
pub(crate) struct PartialValue {
    /// Without groups.
    pub empty: AccumulatorState,
    /// Of extremes: whether the smallest are kept.
    pub smaller: bool,
    /// The accumulator of the bound sink that it is.
    pub accumulator: usize,
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

    /// The form in which groups are put out, if not as results.
    pub(crate) fn of_output(bound: &Bound) -> Result<Option<Self>, ExecError> {
        match bound.sink {
            BoundSink::Aggregate { output: AggregateOutput::Partial, .. } => {
                Self::portable(bound).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn of(bound: &Bound, portable: bool) -> Result<Self, ExecError> {
        let BoundSink::Aggregate { keys, accumulators, calls, .. } = &bound.sink else {
            return Err(ExecError::Internal("partial states of another sink".into()));
        };
        let (names, numbers): (Vec<_>, Vec<_>) = if portable {
            portable_values(calls).into_iter().unzip()
        } else {
            (0..accumulators.len()).map(|i| (format!("a{i}"), i)).unzip()
        };
        let value = |&number: &usize| partial_value(number, &accumulators[number], portable);
        let values: Vec<_> = numbers.iter().map(value).collect();
        let partial_keys: Vec<_> = keys.iter().map(|key| partial_key(key, portable)).collect();
        let key_fields = keys.iter().zip(&partial_keys).map(|(key, partial)| {
            ArrowField::new(&key.field.name, arrow_type(&partial.column_type), partial.nullable)
        });
        let value_fields = names.iter().zip(&values).map(|(name, value)| {
            let nullable = matches!(value.empty, AccumulatorState::ExtremeText(_));
            ArrowField::new(name, value_type(&value.empty), nullable)
        });
        let fields: Vec<_> = key_fields.chain(value_fields).collect();
        let metadata = if portable { metadata(keys, calls) } else { HashMap::new() };
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
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
        for key in [VERSION_KEY, OF_KEY] {
            let Some(wanted) = self.schema.metadata().get(key) else { continue };
            let is = found.metadata().get(key).map_or("not said", String::as_str);
            if is != wanted {
                return Err(ExecError::Partial(format!("{key} is {is} instead of {wanted}")));
            }
        }
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

fn metadata(keys: &[BoundKey], calls: &[BoundCall]) -> HashMap<String, String> {
    let calls: Vec<&str> = calls.iter().map(|call| &*call.text).collect();
    let keys: Vec<&str> = keys.iter().map(|key| key.field.name.as_str()).collect();
    let of = format!("{} by ({})", calls.join(", "), keys.join(", "));
    [(VERSION_KEY, VERSION.to_string()), (OF_KEY, of)].map(|(k, v)| (k.to_string(), v)).into()
}

fn partial_key(key: &BoundKey, portable: bool) -> PartialKey {
    let (held, column_type) = match (&key.expr.repr, portable) {
        (Repr::Code(_), true) => (Repr::Str, DataType::Utf8),
        (Repr::Code(_), false) => (key.expr.repr.clone(), DataType::Int32),
        (repr, _) => (repr.clone(), key.field.data_type.clone()),
    };
    let column_repr = if let Repr::Code(_) = held { Repr::I32 } else { held.clone() };
    PartialKey { held, column_repr, column_type, nullable: portable || key.field.nullable }
}

/// The running values of the portable form: names, and accumulators of the bound sink, of which
/// there are fewer where one serves several calls.
fn portable_values(calls: &[BoundCall]) -> Vec<(String, usize)> {
    let of_call = |(i, call): (usize, &BoundCall)| {
        [(format!("v{i}"), call.value), (format!("n{i}"), call.count)]
    };
    std::iter::once(("rows".into(), 0)).chain(calls.iter().enumerate().flat_map(of_call)).collect()
}

/// The same pipeline with one accumulator a running value of the portable form.
pub(crate) fn with_portable_values(bound: &Bound) -> Bound {
    let mut bound = bound.clone();
    if let BoundSink::Aggregate { accumulators, calls, .. } = &mut bound.sink {
        let numbers = portable_values(calls).into_iter().map(|(_, number)| number);
        *accumulators = numbers.map(|number| accumulators[number].clone()).collect();
        for (i, call) in calls.iter_mut().enumerate() {
            (call.value, call.count) = (2 * i + 1, 2 * i + 2);
        }
    }
    bound
}

fn partial_value(number: usize, accumulator: &Accumulator, portable: bool) -> PartialValue {
    let repr = accumulator.argument.as_ref().map(|argument| &argument.repr);
    let empty = match (accumulator.kind, repr) {
        // What fits one execution's rows need not fit those of several.
        (AccumulatorKind::SumI64 | AccumulatorKind::SumI128, _) if portable => {
            AccumulatorState::SumWide { low: Vec::new(), carry: Vec::new() }
        }
        (AccumulatorKind::Min | AccumulatorKind::Max, Some(Repr::Code(_))) if portable => {
            AccumulatorState::ExtremeText(Texts::default())
        }
        _ => AccumulatorState::new(accumulator, 0),
    };
    let smaller = accumulator.kind == AccumulatorKind::Min;
    PartialValue { empty, smaller, accumulator: number }
}

fn value_type(state: &AccumulatorState) -> ArrowType {
    match state {
        AccumulatorState::Count(_) | AccumulatorState::ExtremeU64(_) => ArrowType::UInt64,
        AccumulatorState::SumI64(_) | AccumulatorState::ExtremeI64(_) => ArrowType::Int64,
        AccumulatorState::SumF64(_) | AccumulatorState::ExtremeF64(_) => ArrowType::Float64,
        AccumulatorState::SumI128(_) | AccumulatorState::ExtremeI128(_) => {
            ArrowType::FixedSizeBinary(16)
        }
        AccumulatorState::SumWide { .. } | AccumulatorState::SquaredDeviations(_) => {
            ArrowType::FixedSizeBinary(24)
        }
        AccumulatorState::ExtremeText(_) => ArrowType::Utf8,
    }
}
