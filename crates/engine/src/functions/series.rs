//! `generate_series` and `range` of timestamps and dates: those of SQL are of microseconds, the planner's of nanoseconds, which
//! end in 2262.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{
    DataType, Field, IntervalMonthDayNano, IntervalUnit, Schema, SchemaRef, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::memory::{LazyBatchGenerator, LazyMemoryExec};
use parking_lot::RwLock;

/// The functions, and whether the last moment is one of the series.
pub const NAMES: [(&str, bool); 2] = [("generate_series", true), ("range", false)];

/// A function of numbers, which that of moments goes before.
#[derive(Debug)]
pub struct OfMoments {
    /// The planner's.
    pub of_numbers: Arc<dyn TableFunctionImpl>,
    /// What it is called.
    pub name: &'static str,
    /// Whether the last moment is one of the series.
    pub has_end: bool,
}

impl TableFunctionImpl for OfMoments {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let value = |expr: &Expr| match expr {
            Expr::Literal(value, _) => Some(value.clone()),
            _ => None,
        };
        let values: Option<Vec<ScalarValue>> = args.exprs().iter().map(value).collect();
        let is_moment = |value: &ScalarValue| {
            matches!(value.data_type(), DataType::Timestamp(..) | DataType::Date32)
        };
        match values {
            Some(values) if values.iter().any(is_moment) => {
                Ok(Arc::new(Series::of(self.name, self.has_end, &values)?))
            }
            _ => self.of_numbers.call_with_args(args),
        }
    }
}

/// Moments from one to another.
#[derive(Clone, Debug)]
struct Series {
    schema: SchemaRef,
    name: &'static str,
    zone: Option<Arc<str>>,
    /// From, to, by; `None` if one of them is NULL: there is no moment then.
    moments: Option<(i64, i64, IntervalMonthDayNano)>,
    has_end: bool,
}

impl Series {
    fn of(name: &'static str, has_end: bool, values: &[ScalarValue]) -> Result<Self> {
        let [from, to, step] = values else {
            return plan_err!(
                "{name} of timestamps takes a start, an end and an interval\n\
                 hint: {name}(timestamp '2024-01-01', timestamp '2024-02-01', interval '1 day')"
            );
        };
        let zone = match (from.data_type(), to.data_type()) {
            (DataType::Timestamp(_, Some(zone)), _) | (_, DataType::Timestamp(_, Some(zone))) => {
                Some(zone)
            }
            _ => None,
        };
        let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
        let moment = |value: &ScalarValue| match value.cast_to(&data_type)? {
            ScalarValue::TimestampMicrosecond(moment, _) => Ok(moment),
            other => plan_err!("{name} of timestamps, and {other} is none"),
        };
        let by = match step.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano))? {
            ScalarValue::IntervalMonthDayNano(by) => by,
            other => plan_err!("{name} of timestamps goes by intervals, and {other} is none")?,
        };
        let moments = match (moment(from)?, moment(to)?, by) {
            (Some(from), Some(to), Some(by)) => Some((from, to, by)),
            _ => None,
        };
        if let Some((.., by)) = moments {
            let parts = [i64::from(by.months), i64::from(by.days), by.nanoseconds];
            if parts.iter().all(|part| *part == 0) {
                return plan_err!("{name} by an interval of nothing never ends");
            }
            if parts.iter().any(|part| *part > 0) && parts.iter().any(|part| *part < 0) {
                return plan_err!("{name} by an interval that goes both ways: {step}");
            }
        }
        let field = Field::new("value", data_type, false);
        let schema = Arc::new(Schema::new(vec![field]));
        Ok(Self { schema, name, zone, moments, has_end })
    }
}

#[async_trait]
impl TableProvider for Series {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch_rows = state.config_options().execution.batch_size.get();
        let next = self.moments.map(|(from, ..)| from);
        let rows = Rows { series: self.clone(), next, batch_rows };
        let rows: Arc<RwLock<dyn LazyBatchGenerator>> = Arc::new(RwLock::new(rows));
        let exec = LazyMemoryExec::try_new(self.schema(), vec![rows])?;
        Ok(Arc::new(exec.with_projection(projection.cloned())))
    }
}

/// A series on its way.
#[derive(Debug)]
struct Rows {
    series: Series,
    /// The moment that comes next.
    next: Option<i64>,
    batch_rows: usize,
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((from, to, by)) = self.series.moments else {
            return write!(f, "{}: empty", self.series.name);
        };
        let shown = |us| ScalarValue::TimestampMicrosecond(Some(us), self.series.zone.clone());
        let by = ScalarValue::IntervalMonthDayNano(Some(by));
        write!(f, "{}: {} to {} by {by}", self.series.name, shown(from), shown(to))
    }
}

impl LazyBatchGenerator for Rows {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn generate_next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some((_, to, by)) = self.series.moments else { return Ok(None) };
        let zone: Tz = match &self.series.zone {
            Some(zone) => {
                zone.parse().map_err(|_| exec_datafusion_err!("there is no time zone '{zone}'"))?
            }
            None => "+00:00".parse()?,
        };
        let is_backwards = by.months < 0 || by.days < 0 || by.nanoseconds < 0;
        let is_past = |moment: i64| match (is_backwards, self.series.has_end) {
            (false, true) => moment > to,
            (false, false) => moment >= to,
            (true, true) => moment < to,
            (true, false) => moment <= to,
        };
        let mut moments = Vec::new();
        while let Some(moment) = self.next
            && !is_past(moment)
            && moments.len() < self.batch_rows
        {
            moments.push(moment);
            // The calendar may end before the series does. What is less than a microsecond is no step.
            let next = TimestampMicrosecondType::add_month_day_nano(moment, by, zone);
            self.next = next.filter(|next| *next != moment);
        }
        if moments.is_empty() {
            return Ok(None);
        }
        let moments = TimestampMicrosecondArray::from(moments);
        let moments: ArrayRef = Arc::new(moments.with_timezone_opt(self.series.zone.clone()));
        Ok(Some(RecordBatch::try_new(self.series.schema(), vec![moments])?))
    }

    fn reset_state(&self) -> Arc<RwLock<dyn LazyBatchGenerator>> {
        let next = self.series.moments.map(|(from, ..)| from);
        Arc::new(RwLock::new(Self { series: self.series.clone(), next, ..*self }))
    }
}
