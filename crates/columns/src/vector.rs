//! Columns of a batch: typed values, validity, constants.

use std::borrow::Cow;
use std::rc::Rc;

/// Values of one column for the rows of some rows.
#[derive(Clone, Debug)]
pub enum Data<'a> {
    /// Truth values as 0 and 1.
    Bool(Cow<'a, [u8]>),
    /// Integers.
    I8(Cow<'a, [i8]>),
    /// 16 bits.
    I16(Cow<'a, [i16]>),
    /// 32 bits, dates and dictionary codes.
    I32(Cow<'a, [i32]>),
    /// 64 bits, times.
    I64(Cow<'a, [i64]>),
    /// Unsigned.
    U8(Cow<'a, [u8]>),
    /// 16 bits.
    U16(Cow<'a, [u16]>),
    /// 32 bits.
    U32(Cow<'a, [u32]>),
    /// 64 bits.
    U64(Cow<'a, [u64]>),
    /// binary32.
    F32(Cow<'a, [f32]>),
    /// binary64.
    F64(Cow<'a, [f64]>),
    /// Unscaled decimals.
    I128(Cow<'a, [i128]>),
    /// Text. (A `Cow` of references would make the whole type invariant.)
    Str(Vec<&'a str>),
    /// Bytes of one length, and the floats of vectors.
    Bytes(Vec<&'a [u8]>),
}

/// Runs one expression for whichever element type the data has.
macro_rules! with_data {
    ($data:expr, $values:ident => $body:expr) => {
        match $data {
            $crate::vector::Data::Bool($values) => $body,
            $crate::vector::Data::I8($values) => $body,
            $crate::vector::Data::I16($values) => $body,
            $crate::vector::Data::I32($values) => $body,
            $crate::vector::Data::I64($values) => $body,
            $crate::vector::Data::U8($values) => $body,
            $crate::vector::Data::U16($values) => $body,
            $crate::vector::Data::U32($values) => $body,
            $crate::vector::Data::U64($values) => $body,
            $crate::vector::Data::F32($values) => $body,
            $crate::vector::Data::F64($values) => $body,
            $crate::vector::Data::I128($values) => $body,
            $crate::vector::Data::Str($values) => $body,
            $crate::vector::Data::Bytes($values) => $body,
        }
    };
}

/// As `with_data!`, for a body that yields a `Vec` of the same element type, which becomes
/// data of the same variant.
macro_rules! map_data {
    ($data:expr, $values:ident => $body:expr) => {{
        use $crate::vector::Data;
        match $data {
            Data::Bool($values) => Data::Bool(($body).into()),
            Data::I8($values) => Data::I8(($body).into()),
            Data::I16($values) => Data::I16(($body).into()),
            Data::I32($values) => Data::I32(($body).into()),
            Data::I64($values) => Data::I64(($body).into()),
            Data::U8($values) => Data::U8(($body).into()),
            Data::U16($values) => Data::U16(($body).into()),
            Data::U32($values) => Data::U32(($body).into()),
            Data::U64($values) => Data::U64(($body).into()),
            Data::F32($values) => Data::F32(($body).into()),
            Data::F64($values) => Data::F64(($body).into()),
            Data::I128($values) => Data::I128(($body).into()),
            Data::Str($values) => Data::Str(($body).into()),
            Data::Bytes($values) => Data::Bytes(($body).into()),
        }
    }};
}

pub(crate) use {map_data, with_data};

impl Data<'_> {
    /// Number of values.
    #[inline]
    pub fn count(&self) -> usize {
        with_data!(self, values => values.len())
    }
}

/// A column of some rows.
#[derive(Clone, Debug)]
pub struct Vector<'a> {
    /// One value a row, or exactly one if `constant`. What stands where validity says NULL
    /// is any value of the type (a code is in its dictionary's range or 0).
    pub data: Data<'a>,
    /// One byte a row (or one if `constant`), 1 = not NULL; `None`: no NULLs.
    pub validity: Option<Cow<'a, [u8]>>,
    /// Whether one value stands for all rows.
    pub constant: bool,
}

impl<'a> Vector<'a> {
    /// A column without NULLs.
    pub fn new(data: Data<'a>) -> Self {
        Self { data, validity: None, constant: false }
    }

    /// A column with validity bytes; drops them when nothing is NULL.
    pub fn with_validity(data: Data<'a>, validity: Option<Vec<u8>>) -> Self {
        let validity = validity.filter(|v| v.contains(&0)).map(Cow::Owned);
        Self { data, validity, constant: false }
    }

    /// One value for all rows.
    pub fn constant(data: Data<'a>, is_null: bool) -> Self {
        Self { data, validity: is_null.then(|| Cow::Owned(vec![0])), constant: true }
    }

    /// A column of truth values.
    pub fn bools(values: Vec<u8>, validity: Option<Vec<u8>>) -> Self {
        Self::with_validity(Data::Bool(Cow::Owned(values)), validity)
    }

    /// Whether row `row` is not NULL.
    #[inline]
    pub fn is_valid(&self, row: usize) -> bool {
        match &self.validity {
            None => true,
            Some(bytes) => bytes[if self.constant { 0 } else { row }] != 0,
        }
    }

    /// Whether every row is NULL because the one constant is.
    pub(crate) fn is_null_constant(&self) -> bool {
        self.constant && self.validity.is_some()
    }

    /// Validity bytes for `rows` rows; `None`: no NULLs.
    pub fn validity_bytes(&self, rows: usize) -> Option<Cow<'_, [u8]>> {
        match &self.validity {
            None => None,
            Some(bytes) if self.constant => Some(Cow::Owned(vec![bytes[0]; rows])),
            Some(bytes) => Some(Cow::Borrowed(bytes)),
        }
    }

    /// The rows at `indices`, in that order.
    pub fn take(&self, indices: &[u32]) -> Vector<'a> {
        if self.constant {
            return self.clone();
        }
        Vector {
            data: map_data!(&self.data, values => take_values(values, indices)),
            validity: self.validity.as_deref().map(|v| Cow::Owned(take_values(v, indices))),
            constant: false,
        }
    }

    /// The same column with every row spelled out; borrowed unless it was a constant.
    pub fn spelled(&self, rows: usize) -> Cow<'_, Self> {
        if !self.constant {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Vector {
            data: map_data!(&self.data, values => vec![values[0]; rows]),
            validity: self.validity.as_deref().map(|v| Cow::Owned(vec![v[0]; rows])),
            constant: false,
        })
    }
}

/// A column that others may hold too.
pub type Shared<'a> = Rc<Vector<'a>>;

/// The values at `indices`.
pub fn take_values<T: Copy>(values: &[T], indices: &[u32]) -> Vec<T> {
    indices.iter().map(|&i| values[i as usize]).collect()
}

/// An element type of [`Data`] with the order of the engine: floats compare with `-0 = 0`
/// and NaN equal to itself and above everything else.
pub trait Element: Copy + Send + Sync + 'static {
    /// The values, if the data has this element type.
    fn values<'v>(data: &'v Data<'_>) -> Option<&'v [Self]>;
    /// Data of this element type.
    fn data(values: Vec<Self>) -> Data<'static>;
    /// Equality.
    fn equal(self, other: Self) -> bool;
    /// Strict order.
    fn less(self, other: Self) -> bool;
}

macro_rules! element {
    ($type:ty, $variant:ident, |$a:ident, $b:ident| $equal:expr, $less:expr) => {
        impl Element for $type {
            #[inline]
            fn values<'v>(data: &'v Data<'_>) -> Option<&'v [Self]> {
                match data {
                    Data::$variant(values) => Some(values),
                    _ => None,
                }
            }
            fn data(values: Vec<Self>) -> Data<'static> {
                Data::$variant(Cow::Owned(values))
            }
            #[inline(always)]
            fn equal(self, other: Self) -> bool {
                let ($a, $b) = (self, other);
                $equal
            }
            #[inline(always)]
            fn less(self, other: Self) -> bool {
                let ($a, $b) = (self, other);
                $less
            }
        }
    };
}

element!(i8, I8, |a, b| a == b, a < b);
element!(i16, I16, |a, b| a == b, a < b);
element!(i32, I32, |a, b| a == b, a < b);
element!(i64, I64, |a, b| a == b, a < b);
element!(u8, U8, |a, b| a == b, a < b);
element!(u16, U16, |a, b| a == b, a < b);
element!(u32, U32, |a, b| a == b, a < b);
element!(u64, U64, |a, b| a == b, a < b);
element!(i128, I128, |a, b| a == b, a < b);
element!(f32, F32, |a, b| a == b || (a.is_nan() & b.is_nan()), a < b || (!a.is_nan() & b.is_nan()));
element!(f64, F64, |a, b| a == b || (a.is_nan() & b.is_nan()), a < b || (!a.is_nan() & b.is_nan()));

/// An operand of a kernel: a value a row, or one for all.
#[derive(Clone, Copy)]
pub enum Operand<'v, T> {
    /// A value a row.
    Rows(&'v [T]),
    /// One for all.
    One(T),
}

impl<T: Copy> Operand<'_, T> {
    /// Value of a row.
    #[inline(always)]
    pub(crate) fn get(&self, row: usize) -> T {
        match self {
            Self::Rows(values) => values[row],
            Self::One(value) => *value,
        }
    }
}

impl Vector<'_> {
    /// As an operand of element type `T`; `None` if it has another.
    pub(crate) fn operand<T: Element>(&self) -> Option<Operand<'_, T>> {
        let values = T::values(&self.data)?;
        Some(if self.constant { Operand::One(values[0]) } else { Operand::Rows(values) })
    }
}

/// Combined validity of two operands for `rows` rows; `None`: no NULLs.
pub(crate) fn both_valid(left: &Vector<'_>, right: &Vector<'_>, rows: usize) -> Option<Vec<u8>> {
    match (left.validity_bytes(rows), right.validity_bytes(rows)) {
        (None, None) => None,
        (Some(valid), None) | (None, Some(valid)) => Some(valid.into_owned()),
        (Some(l), Some(r)) => Some(l.iter().zip(r.iter()).map(|(&a, &b)| a & b).collect()),
    }
}
