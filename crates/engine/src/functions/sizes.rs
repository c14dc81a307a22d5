//! What results of functions take, from their arguments: exact where it is cheap to tell, else a bound that is near.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, TimeUnit};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use memchr::memmem;
use regex::Regex;

use super::bounded::Size;
use crate::planner_memory::viewed_bytes;

/// The functions whose results are not bounded by a few times their arguments.
pub const SIZES: &[(&str, Size)] = &[
    ("repeat", repeat),
    ("lpad", pad),
    ("rpad", pad),
    ("replace", replace),
    ("regexp_replace", regexp_replace),
    ("translate", four_times),
    ("encode", twice),
    ("concat", sum),
    ("concat_ws", joined),
    ("array_repeat", array_repeat),
    ("array_resize", array_resize),
    ("range", series),
    ("generate_series", series),
    ("array_to_string", array_to_string),
    ("flatten", sum),
    ("make_array", sum),
    ("array_concat", sum),
    ("string_to_array", elements),
];

/// Bytes of one element of a list beside its value: offsets or views.
const ELEMENT_BYTES: u64 = 8;

/// An argument: one value for all rows, or one for each.
struct Argument {
    values: ArrayRef,
    is_one: bool,
}

impl Argument {
    fn of(args: &ScalarFunctionArgs, nth: usize) -> Option<Self> {
        let argument = args.args.get(nth)?;
        let is_one = matches!(argument, ColumnarValue::Scalar(_));
        let values = argument.to_array(1).ok()?;
        Some(Self { values, is_one })
    }

    fn place(&self, row: usize) -> usize {
        if self.is_one { 0 } else { row }
    }

    fn cast_to(self, data_type: &DataType) -> Option<Self> {
        Some(Self { values: cast(&self.values, data_type).ok()?, ..self })
    }

    fn texts(self) -> Option<Self> {
        match self.values.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(self),
            _ => self.cast_to(&DataType::LargeUtf8),
        }
    }

    fn numbers(self) -> Option<Self> {
        self.cast_to(&DataType::Int64)
    }

    fn text(&self, row: usize) -> Option<&str> {
        let place = self.place(row);
        self.values.is_valid(place).then(|| match self.values.data_type() {
            DataType::Utf8 => self.values.as_string::<i32>().value(place),
            DataType::Utf8View => self.values.as_string_view().value(place),
            _ => self.values.as_string::<i64>().value(place),
        })
    }

    fn number(&self, row: usize) -> Option<i64> {
        let (numbers, place) = (self.values.as_primitive::<Int64Type>(), self.place(row));
        numbers.is_valid(place).then(|| numbers.value(place))
    }

    /// Bytes of the value of a row, whatever its type.
    fn bytes(&self, row: usize) -> u64 {
        array_bytes(&self.values.slice(self.place(row), 1))
    }

    /// Bytes of all values: as often as there are rows.
    fn all_bytes(&self, rows: usize) -> u64 {
        let bytes = array_bytes(&self.values);
        if self.is_one { bytes.saturating_mul(rows as u64) } else { bytes }
    }
}

fn array_bytes(values: &ArrayRef) -> u64 {
    let data = values.to_data();
    let own = data.get_slice_memory_size().map_or(u64::MAX, |bytes| bytes as u64);
    own.saturating_add(viewed_bytes(&data) as u64)
}

/// Rows of the result: one, where all arguments are constants.
fn rows(args: &ScalarFunctionArgs) -> usize {
    let is_column = |value: &ColumnarValue| matches!(value, ColumnarValue::Array(_));
    if args.args.iter().any(is_column) { args.number_rows } else { 1 }
}

fn over_rows(args: &ScalarFunctionArgs, bytes: impl Fn(usize) -> u64) -> u64 {
    (0..rows(args)).fold(0, |sum: u64, row| sum.saturating_add(bytes(row)))
}

fn repeat(args: &ScalarFunctionArgs) -> u64 {
    let of = || Some((Argument::of(args, 0)?.texts()?, Argument::of(args, 1)?.numbers()?));
    let Some((text, times)) = of() else { return 0 };
    over_rows(args, |row| {
        let (bytes, times) = (text.text(row).map_or(0, str::len), times.number(row).unwrap_or(0));
        (bytes as u64).saturating_mul(times.max(0) as u64)
    })
}

/// Each character that is added is one of the fill's.
fn pad(args: &ScalarFunctionArgs) -> u64 {
    let of = || Some((Argument::of(args, 0)?.texts()?, Argument::of(args, 1)?.numbers()?));
    let Some((text, length)) = of() else { return 0 };
    let fill = Argument::of(args, 2).and_then(Argument::texts);
    let widest = |text: &str| text.chars().map(char::len_utf8).max().unwrap_or(0) as u64;
    over_rows(args, |row| {
        let widest = fill.as_ref().map_or(1, |fill| fill.text(row).map_or(0, widest));
        let bytes = text.text(row).map_or(0, str::len) as u64;
        bytes.saturating_add((length.number(row).unwrap_or(0).max(0) as u64).saturating_mul(widest))
    })
}

fn replace(args: &ScalarFunctionArgs) -> u64 {
    let of = |nth| Argument::of(args, nth).and_then(Argument::texts);
    let (Some(text), Some(from), Some(to)) = (of(0), of(1), of(2)) else { return 0 };
    over_rows(args, |row| {
        let (Some(text), Some(from), Some(to)) = (text.text(row), from.text(row), to.text(row))
        else {
            return 0;
        };
        let bytes = text.len() as u64;
        if from.is_empty() {
            // Between all characters, and at both ends.
            return bytes.saturating_add((bytes + 1).saturating_mul(to.len() as u64));
        }
        if to.len() <= from.len() {
            return bytes;
        }
        let found = memmem::find_iter(text.as_bytes(), from).count() as u64;
        bytes.saturating_add(found.saturating_mul((to.len() - from.len()) as u64))
    })
}

/// A match brings the replacement, and what that names of the match.
fn regexp_replace(args: &ScalarFunctionArgs) -> u64 {
    let of = |nth| Argument::of(args, nth).and_then(Argument::texts);
    let (Some(text), Some(pattern), Some(to)) = (of(0), of(1), of(2)) else { return 0 };
    let mut known: Option<(String, Option<Regex>)> = None;
    (0..rows(args)).fold(0, |sum: u64, row| {
        let (Some(text), Some(pattern), Some(to)) =
            (text.text(row), pattern.text(row), to.text(row))
        else {
            return sum;
        };
        let (bytes, to_bytes) = (text.len() as u64, to.len() as u64);
        let names = to.matches(['\\', '$']).count() as u64;
        let named = bytes.saturating_mul(names);
        let bound = (bytes + 1).saturating_mul(to_bytes + 1).saturating_add(named);
        if bound < 1 << 16 {
            return sum.saturating_add(bound);
        }
        if known.as_ref().is_none_or(|(of, _)| of != pattern) {
            known = Some((pattern.to_string(), Regex::new(pattern).ok()));
        }
        let regex = known.as_ref().and_then(|(_, regex)| regex.as_ref());
        let found = regex.map_or(0, |regex| regex.find_iter(text).count() as u64);
        let bytes = bytes.saturating_add(named).saturating_add(found.saturating_mul(to_bytes));
        sum.saturating_add(bytes)
    })
}

fn twice(args: &ScalarFunctionArgs) -> u64 {
    Argument::of(args, 0).map_or(0, |value| value.all_bytes(rows(args)).saturating_mul(2))
}

/// A character of one byte may become one of four.
fn four_times(args: &ScalarFunctionArgs) -> u64 {
    twice(args).saturating_mul(2)
}

fn sum(args: &ScalarFunctionArgs) -> u64 {
    let rows = rows(args);
    let all = (0..args.args.len()).filter_map(|nth| Argument::of(args, nth));
    all.fold(0, |sum: u64, value| sum.saturating_add(value.all_bytes(rows)))
}

/// All values, and what stands between two.
fn joined(args: &ScalarFunctionArgs) -> u64 {
    let Some(between) = Argument::of(args, 0) else { return 0 };
    let times = args.args.len().saturating_sub(2) as u64;
    sum(args).saturating_add(between.all_bytes(rows(args)).saturating_mul(times))
}

fn array_repeat(args: &ScalarFunctionArgs) -> u64 {
    let of = || Some((Argument::of(args, 0)?, Argument::of(args, 1)?.numbers()?));
    let Some((value, times)) = of() else { return 0 };
    over_rows(args, |row| {
        let bytes = value.bytes(row).max(ELEMENT_BYTES);
        bytes.saturating_mul(times.number(row).unwrap_or(0).max(0) as u64)
    })
}

fn array_resize(args: &ScalarFunctionArgs) -> u64 {
    let of = || Some((Argument::of(args, 0)?, Argument::of(args, 1)?.numbers()?));
    let Some((list, length)) = of() else { return 0 };
    let fill = Argument::of(args, 2);
    over_rows(args, |row| {
        let each = fill.as_ref().map_or(0, |fill| fill.bytes(row)).max(ELEMENT_BYTES);
        let added = each.saturating_mul(length.number(row).unwrap_or(0).max(0) as u64);
        list.bytes(row).saturating_add(added)
    })
}

/// Numbers of a series; series of moments have no bound here: their steps may be months.
fn series(args: &ScalarFunctionArgs) -> u64 {
    let of = |nth| Argument::of(args, nth).filter(|a| a.values.data_type().is_integer());
    let of = |nth| of(nth).and_then(Argument::numbers);
    let Some(first) = of(0) else { return moments(args) };
    let (last, step) = (of(1), of(2));
    over_rows(args, |row| {
        let first = first.number(row).unwrap_or(0);
        let (from, to) = match &last {
            Some(last) => (first, last.number(row).unwrap_or(first)),
            None => (0, first),
        };
        let step = step.as_ref().map_or(1, |step| step.number(row).unwrap_or(0));
        let span = if step > 0 {
            i128::from(to) - i128::from(from)
        } else {
            i128::from(from) - i128::from(to)
        };
        let count = span.max(0) / i128::from(step.unsigned_abs().max(1)) + 1;
        u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(ELEMENT_BYTES)
    })
}

fn moments(args: &ScalarFunctionArgs) -> u64 {
    const NS: i128 = 1_000_000_000;
    let of = |nth| {
        let microseconds = DataType::Timestamp(TimeUnit::Microsecond, None);
        Argument::of(args, nth)?.cast_to(&microseconds)?.numbers()
    };
    let (Some(first), Some(last)) = (of(0), of(1)) else { return 0 };
    let Some(step) = Argument::of(args, 2) else { return 0 };
    over_rows(args, |row| {
        let (Some(first), Some(last)) = (first.number(row), last.number(row)) else { return 0 };
        let nanoseconds = step_nanoseconds(&step, row).unsigned_abs().max(1) as i128;
        let span = (i128::from(last) - i128::from(first)).abs() * (NS / 1_000_000);
        u64::try_from(span / nanoseconds + 1).unwrap_or(u64::MAX).saturating_mul(ELEMENT_BYTES)
    })
}

/// Length of an interval whose months are short ones.
fn step_nanoseconds(step: &Argument, row: usize) -> i128 {
    const DAY: i128 = 86_400_000_000_000;
    let Some(steps) = step.values.as_primitive_opt::<IntervalMonthDayNanoType>() else {
        return DAY;
    };
    let place = step.place(row);
    if steps.is_null(place) {
        return i128::MAX;
    }
    let step = steps.value(place);
    (i128::from(step.months) * 28 + i128::from(step.days)) * DAY + i128::from(step.nanoseconds)
}

/// Values as text, and what stands between them.
fn array_to_string(args: &ScalarFunctionArgs) -> u64 {
    let of = || Some((Argument::of(args, 0)?, Argument::of(args, 1)?.texts()?));
    let Some((list, between)) = of() else { return 0 };
    over_rows(args, |row| {
        let (bytes, between) = (list.bytes(row), between.text(row).map_or(0, str::len) as u64);
        // A number of four bytes has eleven characters at most, and a text has an offset of four.
        bytes.saturating_mul(3).saturating_add((bytes / 4).saturating_mul(between))
    })
}

/// Parts of texts, each with an offset or a view.
fn elements(args: &ScalarFunctionArgs) -> u64 {
    let of = |nth| Argument::of(args, nth).and_then(Argument::texts);
    let Some(text) = of(0) else { return 0 };
    let between = of(1);
    over_rows(args, |row| {
        let text = text.text(row).unwrap_or("");
        let parts = match between.as_ref().map(|b| b.text(row)) {
            Some(Some("")) => 1,
            Some(Some(between)) => memmem::find_iter(text.as_bytes(), between).count() + 1,
            _ => text.chars().count(),
        };
        (text.len() as u64).saturating_add((parts as u64).saturating_mul(16))
    })
}
