//! Groups of a table on the device as columns, so that another pipeline reads them where they lie.
//!
//! The table has a group's key as words and its running values as entries of arrays. A column of it is made by
//! a kernel (`group_column.cu`), window by window: keys are copied out of the words, totals are brought to the type
//! of their result, texts become views of what the table keeps. The columns are plain ones of a segment, so the
//! reading pipeline's kernel is like any other's.
//!
//! Results must be those of `headrace_pipeline::state::finish`. What the kernel cannot compute is refused here, by
//! type. Whether all totals fit their types is checked before anything is read ([`all_fit`]); if not, the host finishes
//! the groups.

use headrace_columns::decimal::magnitude_limit;
use headrace_columns::repr::Repr;
use headrace_gpu::{Grid, Source, Stream};
use headrace_ir::{AggregateFunction, AggregateOutput, DataType, OnOverflow};
use headrace_pipeline::bound::{Bound, BoundCall, BoundKey, BoundSink};
use headrace_pipeline::{SourceColumn, WhyNot};

use crate::accumulator::DeviceAccumulator;
use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::groups::GroupTableLayout;
use crate::headers::HEADERS;
use crate::keys::{KeyPart, fixed_bytes};
use crate::layout::{ColumnForm, ColumnLayout};
use crate::text_values::TEXT_VALUE_BYTES;
use crate::words::queue_words;

/// Name of the kernel.
const KERNEL_NAME: &str = "headrace_group_column";

/// Where the parameters say how numbers are ordered.
const ORDER_AT: usize = 12;

/// Threads of a block of it, and rows of a thread.
const BLOCK_THREADS: u32 = 256;
const ROWS_PER_THREAD: u64 = 8;

/// The kernel's source.
pub fn group_column_source() -> Source<'static> {
    let text = include_str!("../kernels/group_column.cu");
    Source { name: "group_column.cu", text, headers: &HEADERS }
}

/// How the kernel makes a value of an entry; numbered as in `group_column.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Its first bytes.
    Values = 0,
    /// A truth value of its first byte.
    Bits = 1,
    /// A view of a key's text.
    TextKeys = 2,
    /// A view of a smallest or largest text.
    TextExtremes = 3,
    /// A float of its order.
    FloatExtremes = 4,
    /// A total in binary64, which may become a binary32.
    Floats = 5,
    /// A total.
    Totals = 6,
    /// A total divided by the number of its values.
    Means = 7,
    /// A float's.
    FloatMeans = 8,
    /// Its first bytes, a float.
    FloatKeys = 9,
}

/// What the entries of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entries {
    /// A key within the words of all.
    Key { at: usize },
    /// An accumulator, and the one that counts its values, if there can be none.
    Accumulator { value: usize, count: Option<usize> },
}

/// How numbers are ordered that stand for the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberOrder {
    /// The largest first.
    pub descending: bool,
    /// What is missing first.
    pub nulls_first: bool,
}

/// One column of the groups of a table.
#[derive(Clone, Debug)]
pub struct GroupColumn {
    entries: Entries,
    /// Bytes from an entry to the next, and of an entry.
    stride: u64,
    entry_bytes: u32,
    /// Behind the entry's first byte; 0: a key that is never NULL.
    null_at: usize,
    form: Form,
    /// Bytes of a value; 0 for bits.
    value_bytes: u32,
    /// Between which totals and means must lie.
    bounds: (i128, i128),
    /// A mean multiplies its total by this factor before the division.
    factor: i128,
    /// Whether its values are unsigned integers.
    is_unsigned: bool,
    /// Whether a value may be missing.
    is_nullable: bool,
    /// Whether a value may not fit.
    may_misfit: bool,
    layout: ColumnForm,
    info: SourceColumn,
}

/// Where the parts of a group table lie on the device.
#[derive(Clone, Debug)]
pub struct GroupAddresses {
    /// Keys.
    pub keys: u64,
    /// Texts that groups keep.
    pub texts: u64,
    /// Accumulators.
    pub accumulators: Vec<u64>,
}

/// Where a column is made, and what else is told.
#[derive(Clone, Copy, Debug)]
pub struct ColumnTarget {
    /// Values; 0: they are only looked at.
    pub values: u64,
    /// A validity bitmap; 0 for a column that is never NULL.
    pub validity: u64,
    /// A `u32` that becomes 1 if a value does not fit.
    pub misfit: u64,
}

impl GroupColumn {
    /// The output columns of a pipeline that ends in hashed groups: keys, then results.
    ///
    /// # Errors
    /// What the device cannot make of them.
    pub fn of(
        bound: &Bound,
        layout: &GroupTableLayout,
        accumulators: &[DeviceAccumulator],
    ) -> Result<Vec<Self>, WhyNot> {
        Self::each(bound, layout, accumulators)?.into_iter().collect()
    }

    /// As [`of`](Self::of), with the reason for each.
    pub(crate) fn each(
        bound: &Bound,
        layout: &GroupTableLayout,
        accumulators: &[DeviceAccumulator],
    ) -> Result<Vec<Result<Self, WhyNot>>, WhyNot> {
        let BoundSink::Aggregate { keys, calls, output, .. } = &bound.sink else {
            return Err(WhyNot::new("groups of another sink"));
        };
        if matches!(output, AggregateOutput::Partial) {
            return Err(WhyNot::new("groups whose results are not wanted"));
        }
        let stride = layout.key_bytes() as u64;
        let of_key = |(key, part): (&BoundKey, &KeyPart)| Self::of_key(key, *part, stride);
        let of_call = |call: &BoundCall| Self::of_call(bound, call, accumulators);
        let keys = keys.iter().zip(&layout.keys.parts).map(of_key);
        Ok(keys.chain(calls.iter().map(of_call)).collect())
    }

    fn of_key(key: &BoundKey, part: KeyPart, stride: u64) -> Result<Self, WhyNot> {
        let repr = &key.expr.repr;
        let column = Self {
            entries: Entries::Key { at: part.at },
            stride,
            entry_bytes: part.bytes as u32,
            null_at: part.null_at.map_or(0, |at| at - part.at),
            form: Form::Values,
            value_bytes: part.bytes as u32,
            bounds: (0, 0),
            factor: 1,
            is_unsigned: is_unsigned(repr),
            is_nullable: part.null_at.is_some(),
            may_misfit: false,
            layout: ColumnForm::Plain,
            info: SourceColumn { range: key.expr.range, ..SourceColumn::default() },
        };
        let column = match repr {
            Repr::Str => Self {
                form: Form::TextKeys,
                value_bytes: TEXT_VALUE_BYTES as u32,
                is_nullable: key.expr.nullable,
                ..column
            },
            Repr::F32 | Repr::F64 => Self { form: Form::FloatKeys, ..column },
            _ => column,
        };
        column.held_as(repr, &key.field.data_type)
    }

    fn of_call(
        bound: &Bound,
        call: &BoundCall,
        kinds: &[DeviceAccumulator],
    ) -> Result<Self, WhyNot> {
        let BoundSink::Aggregate { accumulators, .. } = &bound.sink else {
            return Err(WhyNot::new("groups of another sink"));
        };
        let kind = kinds[call.value];
        let is_count = call.function == AggregateFunction::Count;
        let result = &call.field.data_type;
        let refused =
            || Err(WhyNot::new(format!("{} as {result} is finished on the host", call.text)));
        let column = Self {
            entries: Entries::Accumulator {
                value: call.value,
                count: (!is_count).then_some(call.count),
            },
            stride: kind.bytes(),
            entry_bytes: kind.bytes() as u32,
            null_at: 0,
            form: Form::Values,
            value_bytes: 8,
            bounds: (i128::MIN, i128::MAX),
            factor: 1,
            is_unsigned: is_count,
            is_nullable: !is_count && call.field.nullable,
            may_misfit: false,
            layout: ColumnForm::Plain,
            info: SourceColumn::default(),
        };
        use DeviceAccumulator as Kind;
        let is_total = matches!(kind, Kind::Total64 | Kind::Limbs(_));
        let column = match (call.function, kind, result) {
            (AggregateFunction::Count, _, DataType::Int64 | DataType::UInt64) => column,
            (AggregateFunction::Sum, Kind::Float, DataType::Float64) => {
                Self { form: Form::Floats, ..column }
            }
            (AggregateFunction::Sum, Kind::Float, DataType::Float32) => {
                Self { form: Form::Floats, value_bytes: 4, ..column }
            }
            (
                AggregateFunction::Sum,
                _,
                DataType::Int64 | DataType::UInt64 | DataType::Decimal128 { .. },
            ) if is_total => column.totals(result, call.on_overflow),
            (AggregateFunction::Avg, Kind::Float, DataType::Float64) => {
                Self { form: Form::FloatMeans, ..column }
            }
            (AggregateFunction::Avg, Kind::Float, DataType::Float32) => {
                Self { form: Form::FloatMeans, value_bytes: 4, ..column }
            }
            (AggregateFunction::Avg, _, DataType::Decimal128 { scale, .. }) if is_total => {
                let Some(DataType::Decimal128 { scale: from, .. }) = call.argument_type else {
                    return refused();
                };
                let Some(factor) = power_of_ten(i32::from(*scale) - i32::from(from)) else {
                    return refused();
                };
                Self { form: Form::Means, factor, ..column.totals(result, OnOverflow::Error) }
            }
            (AggregateFunction::Min | AggregateFunction::Max, ..) => {
                let argument = accumulators[call.value].argument.as_ref();
                let Some(repr) = argument.map(|argument| &argument.repr) else { return refused() };
                return column.extremes(kind, repr).held_as(repr, result);
            }
            _ => return refused(),
        };
        Ok(column)
    }

    /// Totals within the bounds of a type.
    fn totals(self, result: &DataType, on_overflow: OnOverflow) -> Self {
        let (bounds, value_bytes) = match result {
            DataType::Int64 => ((i64::MIN.into(), i64::MAX.into()), 8),
            DataType::UInt64 => ((0, u64::MAX.into()), 8),
            DataType::Decimal128 { precision, .. } => {
                let limit = magnitude_limit(*precision) - 1;
                ((-limit, limit), 16)
            }
            _ => ((i128::MIN, i128::MAX), 16),
        };
        // Wrapped totals of more than 128 bits are the host's, too.
        let bounds = match on_overflow {
            OnOverflow::Wrap => (i128::MIN, i128::MAX),
            OnOverflow::Error | OnOverflow::Strict => bounds,
        };
        Self { form: Form::Totals, value_bytes, bounds, may_misfit: true, ..self }
    }

    /// Smallest or largest values that are held as `repr` says.
    fn extremes(self, kind: DeviceAccumulator, repr: &Repr) -> Self {
        use DeviceAccumulator as Kind;
        let value_bytes = fixed_bytes(repr).unwrap_or(TEXT_VALUE_BYTES) as u32;
        let form = match kind {
            Kind::MinText | Kind::MaxText => Form::TextExtremes,
            Kind::MinFloat | Kind::MaxFloat => Form::FloatExtremes,
            _ => Form::Values,
        };
        Self { form, value_bytes, is_unsigned: is_unsigned(repr), ..self }
    }

    /// How values lie that are held as `repr` says, which the type must imply.
    fn held_as(self, repr: &Repr, data_type: &DataType) -> Result<Self, WhyNot> {
        if let (Repr::Code(dictionary), DataType::Utf8) = (repr, data_type) {
            let info =
                SourceColumn { dictionary: Some(dictionary.clone()), range: None, ..self.info };
            return Ok(Self { layout: ColumnForm::Codes(4), info, ..self });
        }
        let is_implied = Repr::of(data_type).is_some_and(|implied| implied.same_as(repr));
        match repr {
            _ if !is_implied => Err(WhyNot::new(format!("a {data_type} that is held otherwise"))),
            Repr::Bool => {
                Ok(Self { form: Form::Bits, value_bytes: 0, layout: ColumnForm::Bits, ..self })
            }
            Repr::Str => Ok(Self { layout: ColumnForm::Text, ..self }),
            _ => Ok(self),
        }
    }

    /// What is known of the column before it is read.
    pub fn info(&self) -> SourceColumn {
        SourceColumn { may_have_nulls: self.is_nullable, ..self.info.clone() }
    }

    /// How it lies once it is made.
    pub fn layout(&self) -> ColumnLayout {
        ColumnLayout { form: self.layout, validity: self.is_nullable }
    }

    /// Bytes of the values of some rows, which other kernels read 16 at a time.
    pub fn value_bytes(&self, rows: u64) -> u64 {
        let bytes = match self.form {
            Form::Bits => rows.div_ceil(ROWS_PER_THREAD),
            _ => rows * u64::from(self.value_bytes),
        };
        bytes.next_multiple_of(16)
    }

    /// Bytes of the validity bitmap of some rows; 0 for a column that is never NULL.
    pub fn validity_bytes(&self, rows: u64) -> u64 {
        if self.is_nullable { rows.div_ceil(ROWS_PER_THREAD).next_multiple_of(16) } else { 0 }
    }

    /// Whether numbers can stand for its values in an order: not for texts, nor for codes, which only their dictionary
    /// orders, nor for totals that wrap.
    pub fn has_order(&self) -> bool {
        let is_text = matches!(self.form, Form::TextKeys | Form::TextExtremes);
        let wraps = matches!(self.form, Form::Totals) && self.bounds.0 == i128::MIN;
        !is_text && !wraps && !matches!(self.layout, ColumnForm::Codes(_))
    }

    /// As [`params`](Self::params); made are numbers of 64 bits in the order that is wanted, from the smallest on. Equal values have
    /// equal numbers, others may have.
    pub fn order_params(
        &self,
        groups: &GroupAddresses,
        rows: u64,
        (order, numbers): (NumberOrder, u64),
    ) -> Vec<u64> {
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let to = ColumnTarget { values: numbers, validity: 0, misfit: 0 };
        let mut params = self.params(groups, (0, rows), to);
        params[ORDER_AT] =
            1 | bit(order.descending, 2) | bit(order.nulls_first, 4) | bit(self.is_unsigned, 8);
        params
    }

    /// Whether a value may not fit, so that all must be looked at first.
    pub fn may_misfit(&self) -> bool {
        self.may_misfit
    }

    /// The parameter struct of `group_column.cu`, field by field, for `rows` groups from the
    /// `first` on.
    pub fn params(
        &self,
        groups: &GroupAddresses,
        (first, rows): (u64, u64),
        to: ColumnTarget,
    ) -> Vec<u64> {
        let (entries, counts) = match self.entries {
            Entries::Key { at } => (groups.keys + at as u64, 0),
            Entries::Accumulator { value, count } => {
                let of = |accumulator: usize| groups.accumulators[accumulator];
                (of(value), count.map_or(0, |count| of(count) + first * 8))
            }
        };
        let factored_max = i128::MAX / self.factor;
        let words = |value: i128| [value as u64, (value >> 64) as u64];
        let mut params = vec![
            entries + first * self.stride,
            self.stride,
            counts,
            self.null_at as u64,
            groups.texts,
            to.values,
            to.validity,
            to.misfit,
            rows,
            self.form as u64,
            self.entry_bytes.into(),
            self.value_bytes.into(),
            0,
        ];
        for value in [self.bounds.0, self.bounds.1, self.factor, factored_max] {
            params.extend(words(value));
        }
        params
    }

    /// Queues the making of the column.
    ///
    /// # Errors
    /// [`CudaError::Gpu`] when the kernel does not load or the driver refuses.
    ///
    /// # Safety
    /// The groups, and room for [`Self::value_bytes`] and [`Self::validity_bytes`] of these rows from
    /// multiples of 16 on, must be memory of this device, valid and ordered with the stream until
    /// it has done the kernel.
    pub(crate) unsafe fn queue(
        &self,
        device: &CudaDevice,
        stream: &Stream,
        groups: &GroupAddresses,
        rows: (u64, u64),
        to: ColumnTarget,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { queue(device, stream, rows.1, &self.params(groups, rows, to)) }
    }

    /// Queues the making of 64-bit numbers in the order of the values of so many groups.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    ///
    /// # Safety
    /// As there, for room for as many numbers.
    pub(crate) unsafe fn queue_order(
        &self,
        device: &CudaDevice,
        stream: &Stream,
        groups: &GroupAddresses,
        rows: u64,
        to: (NumberOrder, u64),
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { queue(device, stream, rows, &self.order_params(groups, rows, to)) }
    }
}

/// Whether the results of all groups fit these columns. Waits for the stream.
///
/// # Errors
/// [`CudaError::Gpu`].
///
/// # Safety
/// The groups must be memory of this device, valid and ordered with the stream until this returns.
pub(crate) unsafe fn all_fit<'c>(
    device: &CudaDevice,
    stream: &Stream,
    columns: impl IntoIterator<Item = &'c GroupColumn>,
    (groups, rows): (&GroupAddresses, u64),
) -> Result<bool, CudaError> {
    let mut columns = columns.into_iter().filter(|column| column.may_misfit).peekable();
    if columns.peek().is_none() {
        return Ok(true);
    }
    let misfit = device.upload(&[0; 16])?;
    let to = ColumnTarget { values: 0, validity: 0, misfit: misfit.ptr() };
    // SAFETY: the word stays until the wait below; the groups are the caller's promise.
    let queued =
        columns.try_for_each(|c| unsafe { c.queue(device, stream, groups, (0, rows), to) });
    let mut told = [0; 4];
    // Waits, whether all could be queued or not.
    stream.download(&misfit, 0, &mut told)?;
    queued.map(|()| told == [0; 4])
}

/// Queues the kernel for so many groups.
///
/// # Safety
/// As [`GroupColumn::queue`].
unsafe fn queue(
    device: &CudaDevice,
    stream: &Stream,
    rows: u64,
    params: &[u64],
) -> Result<(), CudaError> {
    if rows == 0 {
        return Ok(());
    }
    let function = device.function(&group_column_source(), KERNEL_NAME)?;
    let tile_rows = u64::from(BLOCK_THREADS) * ROWS_PER_THREAD;
    let grid = Grid {
        blocks: rows.div_ceil(tile_rows).min(1 << 16) as u32,
        threads: BLOCK_THREADS,
        shared_bytes: 0,
    };
    // SAFETY: the struct is filled field by field as `group_column.cu` declares it; the addresses are
    // the caller's promise.
    unsafe { queue_words(&function, stream, grid, params) }
}

fn is_unsigned(repr: &Repr) -> bool {
    matches!(repr, Repr::U8 | Repr::U16 | Repr::U32 | Repr::U64)
}

fn power_of_ten(digits: i32) -> Option<i128> {
    10i128.checked_pow(u32::try_from(digits).ok()?)
}
