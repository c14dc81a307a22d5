//! One dictionary for a whole file, which grows by the dictionaries of the batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::PrimitiveBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, DictionaryArray, PrimitiveArray, UInt64Array};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;

use crate::error::{FormatError, Result};

/// Runs `$body` with `$key` as the key type of `$data_type`.
macro_rules! with_key_type {
    ($data_type:expr, $key:ident => $body:expr, else $other:expr) => {
        match $data_type {
            DataType::Int8 => {
                type $key = Int8Type;
                $body
            }
            DataType::Int16 => {
                type $key = Int16Type;
                $body
            }
            DataType::Int32 => {
                type $key = Int32Type;
                $body
            }
            DataType::Int64 => {
                type $key = Int64Type;
                $body
            }
            DataType::UInt8 => {
                type $key = UInt8Type;
                $body
            }
            DataType::UInt16 => {
                type $key = UInt16Type;
                $body
            }
            DataType::UInt32 => {
                type $key = UInt32Type;
                $body
            }
            DataType::UInt64 => {
                type $key = UInt64Type;
                $body
            }
            _ => $other,
        }
    };
}
pub(crate) use with_key_type;

/// Number of distinct values that codes of a type can represent; `None`: not a key type.
pub(crate) fn code_capacity(key: &DataType) -> Option<u64> {
    Some(match key {
        DataType::Int8 => 1 << 7,
        DataType::Int16 => 1 << 15,
        DataType::Int32 => 1 << 31,
        DataType::Int64 => 1 << 63,
        DataType::UInt8 => 1 << 8,
        DataType::UInt16 => 1 << 16,
        DataType::UInt32 => 1 << 32,
        DataType::UInt64 => u64::MAX,
        _ => return None,
    })
}

/// Translation of the codes of a batch's dictionary into those of the file's dictionary.
enum Translation {
    Identity,
    /// By code of the batch; `None` is NULL.
    Table(Vec<Option<usize>>),
}

/// The dictionary of one column of a file being written.
///
/// Values keep their first codes, so batches that were written stay valid when the dictionary
/// grows. No value is NULL or duplicated: NULL values of an incoming dictionary become NULL codes.
pub(crate) struct GrowingDictionary {
    column: String,
    key: DataType,
    value: DataType,
    parts: Vec<ArrayRef>,
    len: usize,
    index: HashMap<Vec<u8>, usize>,
    last: Option<(ArrayRef, Translation)>,
}

impl GrowingDictionary {
    pub(crate) fn new(column: &str, key: &DataType, value: &DataType) -> Self {
        Self {
            column: column.to_string(),
            key: key.clone(),
            value: value.clone(),
            parts: Vec::new(),
            len: 0,
            index: HashMap::new(),
            last: None,
        }
    }

    /// Adds a batch's column: returns its codes as codes of the file's dictionary, as a primitive
    /// array of the key type.
    pub(crate) fn translate(&mut self, column: &ArrayRef) -> Result<ArrayRef> {
        let Some(dictionary) = column.as_any_dictionary_opt() else {
            return Err(FormatError::column(&self.column, "not a dictionary array"));
        };
        let values = dictionary.values();
        let known = self.last.as_ref().is_some_and(|(seen, _)| same_array(seen, values));
        if !known {
            let translation = self.absorb(values)?;
            self.last = Some((values.clone(), translation));
        }
        let keys = dictionary.keys();
        match &self.last {
            Some((_, Translation::Table(table))) => {
                with_key_type!(&self.key, K => Ok(translate_keys::<K>(keys.as_primitive(), table)),
                    else Err(self.not_a_key()))
            }
            _ => Ok(keys.slice(0, keys.len())),
        }
    }

    /// The dictionary array of codes from [`translate`](Self::translate).
    pub(crate) fn attach(&mut self, codes: &ArrayRef) -> Result<ArrayRef> {
        let values = self.values()?;
        let fail =
            |cause| FormatError::arrow(format!("dictionary of column {}", self.column), cause);
        with_key_type!(&self.key, K => {
            let array = DictionaryArray::<K>::try_new(codes.as_primitive().clone(), values);
            Ok(Arc::new(array.map_err(fail)?))
        }, else Err(self.not_a_key()))
    }

    fn values(&mut self) -> Result<ArrayRef> {
        if self.parts.len() != 1 {
            let all = match self.parts.is_empty() {
                true => arrow_array::new_empty_array(&self.value),
                false => {
                    let parts: Vec<&dyn Array> = self.parts.iter().map(AsRef::as_ref).collect();
                    arrow_select::concat::concat(&parts)
                        .map_err(|e| FormatError::arrow("joining dictionary values", e))?
                }
            };
            self.parts = vec![all];
        }
        Ok(self.parts[0].clone())
    }

    /// Adds new values and returns the translation of codes.
    fn absorb(&mut self, values: &ArrayRef) -> Result<Translation> {
        let Some(bytes_of) = byte_values(values) else {
            return self.absorb_whole(values);
        };
        let first = self.len == 0;
        let mut table = Vec::with_capacity(values.len());
        let mut fresh = Vec::new();
        for i in 0..values.len() {
            if values.is_null(i) {
                table.push(None);
                continue;
            }
            let value = bytes_of(i);
            let code = match self.index.get(value) {
                Some(code) => *code,
                None => {
                    let code = self.len + fresh.len();
                    self.index.insert(value.to_vec(), code);
                    fresh.push(i as u64);
                    code
                }
            };
            table.push(Some(code));
        }
        let identity = table.iter().enumerate().all(|(i, code)| *code == Some(i));
        self.grow(values, fresh, first && identity)?;
        Ok(if identity { Translation::Identity } else { Translation::Table(table) })
    }

    fn grow(&mut self, values: &ArrayRef, fresh: Vec<u64>, whole: bool) -> Result<()> {
        let len = self.len + fresh.len();
        let capacity = code_capacity(&self.key).ok_or_else(|| self.not_a_key())?;
        if len as u64 > capacity {
            return Err(FormatError::column(
                &self.column,
                format!(
                    "{len} distinct values, but codes of type {} tell only {capacity} apart; use a \
                     wider code type",
                    self.key
                ),
            ));
        }
        if whole && !values.is_empty() {
            self.parts.push(values.clone());
        } else if !fresh.is_empty() {
            let part = arrow_select::take::take(values, &UInt64Array::from(fresh), None)
                .map_err(|e| FormatError::arrow("selecting dictionary values", e))?;
            self.parts.push(part);
        }
        self.len = len;
        Ok(())
    }

    /// Dictionaries of values that are not bytes are not unified: all batches must have the same.
    fn absorb_whole(&mut self, values: &ArrayRef) -> Result<Translation> {
        if let Some(first) = self.parts.first() {
            if first.to_data() != values.to_data() {
                return Err(FormatError::column(
                    &self.column,
                    format!(
                        "batches with different dictionaries of {} values cannot be written to one \
                         file; give every batch the same dictionary, or plain values",
                        self.value
                    ),
                ));
            }
        } else {
            self.parts.push(values.clone());
            self.len = values.len();
        }
        Ok(Translation::Identity)
    }

    fn not_a_key(&self) -> FormatError {
        FormatError::column(&self.column, format!("{} cannot be a dictionary code", self.key))
    }
}

fn same_array(a: &ArrayRef, b: &ArrayRef) -> bool {
    Arc::ptr_eq(a, b) || a.to_data().ptr_eq(&b.to_data())
}

type BytesOf<'a> = Box<dyn Fn(usize) -> &'a [u8] + 'a>;

/// Text and binary values as bytes; `None` for other types.
fn byte_values(values: &ArrayRef) -> Option<BytesOf<'_>> {
    macro_rules! bytes {
        ($array:expr) => {{
            let array = $array;
            Some(Box::new(move |i: usize| AsRef::<[u8]>::as_ref(array.value(i))))
        }};
    }
    match values.data_type() {
        DataType::Utf8 => bytes!(values.as_string::<i32>()),
        DataType::LargeUtf8 => bytes!(values.as_string::<i64>()),
        DataType::Utf8View => bytes!(values.as_string_view()),
        DataType::Binary => bytes!(values.as_binary::<i32>()),
        DataType::LargeBinary => bytes!(values.as_binary::<i64>()),
        DataType::BinaryView => bytes!(values.as_binary_view()),
        _ => None,
    }
}

fn translate_keys<K: ArrowDictionaryKeyType>(
    keys: &PrimitiveArray<K>,
    table: &[Option<usize>],
) -> ArrayRef {
    let mut builder = PrimitiveBuilder::<K>::with_capacity(keys.len());
    for key in keys.iter() {
        let code = key.and_then(|key| table.get(key.as_usize()).copied().flatten());
        builder.append_option(code.map(K::Native::usize_as));
    }
    Arc::new(builder.finish())
}
