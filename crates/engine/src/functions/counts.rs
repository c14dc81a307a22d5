//! Aggregates of how often each value occurs: `mode`, `histogram`, `quantile_disc`.

use std::collections::HashMap;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, MapArray, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, internal_datafusion_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;

use super::maps::{entries, map_of};

/// The functions.
pub fn functions() -> impl Iterator<Item = AggregateUDF> {
    let of = |(name, answer)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::from(Counted { name, answer, signature })
    };
    [
        ("mode", Answer::Mode),
        ("histogram", Answer::Histogram),
        ("quantile_disc", Answer::Quantile),
        ("percentile_disc", Answer::Quantile),
    ]
    .into_iter()
    .map(of)
}

/// What is told of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    /// The value that occurs most often; of several the least.
    Mode,
    /// All values, in order, with their counts.
    Histogram,
    /// The first value, in order, up to which there is a share of all.
    Quantile,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Counted {
    name: &'static str,
    answer: Answer,
    signature: Signature,
}

impl AggregateUDFImpl for Counted {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let plain = |data_type: &DataType| match data_type {
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            other => other.clone(),
        };
        match (self.answer, types) {
            (Answer::Quantile, [value, share]) if share.is_numeric() => {
                Ok(vec![plain(value), DataType::Float64])
            }
            (Answer::Mode | Answer::Histogram, [value]) => Ok(vec![plain(value)]),
            (Answer::Quantile, _) => {
                plan_err!("{}() takes a value and a share\nhint: {}(x, 0.5)", self.name, self.name)
            }
            _ => plan_err!("{}() takes one value", self.name),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.answer, types) {
            (Answer::Histogram, [value, ..]) => Ok(map_of(value, &DataType::Int64)),
            (_, [value, ..]) => Ok(value.clone()),
            _ => plan_err!("{}() of nothing", self.name),
        }
    }

    fn supports_within_group_clause(&self) -> bool {
        self.answer != Answer::Histogram
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = |name: &str, item: DataType| {
            let item = Field::new_list_field(item, true);
            Arc::new(Field::new(
                format_state_name(args.name, name),
                DataType::List(Arc::new(item)),
                true,
            ))
        };
        let Some(value) = args.input_fields.first() else {
            return plan_err!("{}() of nothing", self.name);
        };
        Ok(vec![list("values", value.data_type().clone()), list("counts", DataType::Int64)])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let Some(value) = args.expr_fields.first() else {
            return plan_err!("{}() of nothing", self.name);
        };
        let share = match self.answer {
            Answer::Quantile => share(self.name, &args)?,
            _ => 0.0,
        };
        let is_descending = args.order_bys.first().is_some_and(|order| order.options.descending);
        Ok(Box::new(Counts {
            counts: HashMap::new(),
            values_bytes: 0,
            data_type: value.data_type().clone(),
            answer: self.answer,
            share,
            is_descending,
            is_distinct: args.is_distinct,
        }))
    }
}

fn share(name: &str, args: &AccumulatorArgs) -> Result<f64> {
    let literal = args.exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>());
    match literal.map(Literal::value) {
        Some(ScalarValue::Float64(Some(share))) if (0.0..=1.0).contains(share) => Ok(*share),
        _ => plan_err!("{name}() needs a constant share between 0 and 1\nhint: {name}(x, 0.5)"),
    }
}

#[derive(Debug)]
struct Counts {
    counts: HashMap<ScalarValue, i64>,
    /// Bytes of the values beside their own structures.
    values_bytes: usize,
    data_type: DataType,
    answer: Answer,
    share: f64,
    is_descending: bool,
    is_distinct: bool,
}

impl Counts {
    fn add(&mut self, value: ScalarValue, times: i64) {
        match self.counts.get_mut(&value) {
            Some(count) => *count += times,
            None => {
                self.values_bytes += value.size() - size_of_val(&value);
                self.counts.insert(value, times);
            }
        }
    }

    fn in_order(&self) -> Result<Vec<(&ScalarValue, i64)>> {
        let mut counts: Vec<_> = self.counts.iter().map(|(value, count)| (value, *count)).collect();
        if let Some((one, _)) = counts.first()
            && one.partial_cmp(one).is_none()
        {
            return exec_err!("values of type {} have no order", self.data_type);
        }
        counts.sort_by(|(one, _), (other, _)| {
            one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal)
        });
        if self.is_descending {
            counts.reverse();
        }
        if self.is_distinct {
            counts.iter_mut().for_each(|(_, count)| *count = 1);
        }
        Ok(counts)
    }

    fn array(&self, values: impl IntoIterator<Item = ScalarValue>) -> Result<ArrayRef> {
        let mut values = values.into_iter().peekable();
        match values.peek() {
            Some(_) => ScalarValue::iter_to_array(values),
            None => Ok(datafusion::arrow::array::new_empty_array(&self.data_type)),
        }
    }

    fn histogram(&self) -> Result<ScalarValue> {
        let counts = self.in_order()?;
        if counts.is_empty() {
            return ScalarValue::try_from(map_of(&self.data_type, &DataType::Int64));
        }
        let keys = self.array(counts.iter().map(|(value, _)| (*value).clone()))?;
        let values = Int64Array::from_iter_values(counts.iter().map(|(_, count)| *count));
        let fields = entries(&self.data_type, &DataType::Int64);
        let entries_field = Field::new("entries", DataType::Struct(fields.clone()), false);
        let offsets = OffsetBuffer::from_lengths([keys.len()]);
        let entries = StructArray::try_new(fields, vec![keys, Arc::new(values)], None)?;
        let map = MapArray::try_new(Arc::new(entries_field), offsets, entries, None, false)?;
        Ok(ScalarValue::Map(Arc::new(map)))
    }

    fn quantile(&self) -> Result<ScalarValue> {
        let counts = self.in_order()?;
        let all: i64 = counts.iter().map(|(_, count)| count).sum();
        let wanted = (self.share * all as f64).ceil().max(1.0) as i64;
        let mut before = 0;
        for (value, count) in counts {
            before += count;
            if before >= wanted {
                return Ok(value.clone());
            }
        }
        ScalarValue::try_from(&self.data_type)
    }

    fn mode(&self) -> Result<ScalarValue> {
        let mut most: Option<(&ScalarValue, i64)> = None;
        for (value, count) in self.in_order()? {
            if most.is_none_or(|(_, before)| count > before) {
                most = Some((value, count));
            }
        }
        most.map_or_else(|| ScalarValue::try_from(&self.data_type), |(value, _)| Ok(value.clone()))
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return Ok(()) };
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            self.add(ScalarValue::try_from_array(values, row)?.compacted(), 1);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts] = states else {
            return exec_err!("a state of {} columns", states.len());
        };
        let (values, counts) = (values.as_list::<i32>(), counts.as_list::<i32>());
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let (values, counts) = (values.value(row), counts.value(row));
            let counts = counts.as_primitive::<Int64Type>();
            for at in 0..values.len() {
                self.add(ScalarValue::try_from_array(&values, at)?.compacted(), counts.value(at));
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let counts: Vec<_> = self.counts.drain().collect();
        self.values_bytes = 0;
        let numbers: Vec<_> = counts.iter().map(|(_, count)| ScalarValue::from(*count)).collect();
        let values: Vec<_> = counts.into_iter().map(|(value, _)| value).collect();
        Ok(vec![
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.data_type)),
            ScalarValue::List(ScalarValue::new_list_nullable(&numbers, &DataType::Int64)),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.answer {
            Answer::Mode => self.mode(),
            Answer::Histogram => self.histogram(),
            Answer::Quantile => self.quantile(),
        }
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return Ok(()) };
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let value = ScalarValue::try_from_array(values, row)?;
            let left = self.counts.get_mut(&value).map(|count| {
                *count -= 1;
                *count
            });
            match left {
                Some(0) => {
                    self.values_bytes -= value.size().min(self.values_bytes);
                    self.counts.remove(&value);
                }
                Some(_) => {}
                None => {
                    return Err(internal_datafusion_err!(
                        "a value left a window that was not there"
                    ));
                }
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        let entry = size_of::<(ScalarValue, i64)>() + 1;
        size_of_val(self) + self.counts.capacity() * entry + self.values_bytes
    }
}
