//! Source columns: from the bytes of a segment to typed values, for a whole batch or for
//! single rows of it. Every length, code and offset is checked here, so that nothing above
//! can be led astray by corrupt bytes.

mod bytes;

use std::borrow::Cow;

use headrace_ir::{DataType, Encoding};

use crate::ColumnError;
use crate::load::bytes::{Plain, Rows, aligned_values, joined_texts, unpack_bits};
use crate::narrow::Narrow;
use crate::repr::Repr;
use crate::segment::{ColumnView, SegmentView};
use crate::simd::{Tier, U24, Widen};
use crate::vector::{Data, Vector};

pub use bytes::{Small, SmallColumn};

/// The name, type and representation that a column is loaded as.
#[derive(Clone, Copy, Debug)]
pub struct ColumnInfo<'a> {
    /// Name for errors.
    pub name: &'a str,
    /// SQL type.
    pub data_type: &'a DataType,
    /// How its values are held.
    pub repr: &'a Repr,
    /// Whether NULL may occur.
    pub nullable: bool,
}

/// The source columns of one segment, their buffers known to be long enough.
pub struct SourceColumns<'a> {
    columns: Vec<Column<'a>>,
}

struct Column<'a> {
    view: &'a ColumnView<'a>,
    info: ColumnInfo<'a>,
    /// Number of codes, for dictionary codes.
    codes: usize,
}

fn corrupt(info: ColumnInfo<'_>, cause: impl Into<String>) -> ColumnError {
    ColumnError::Corrupt { column: info.name.to_string(), cause: cause.into() }
}

impl<'a> SourceColumns<'a> {
    /// Checks that the segment's buffers are as long as its rows ask for.
    pub fn new(
        segment: &'a SegmentView<'a>,
        planned: impl ExactSizeIterator<Item = ColumnInfo<'a>>,
    ) -> Result<Self, ColumnError> {
        if segment.columns.len() > planned.len() {
            return Err(ColumnError::Internal(format!(
                "a segment of {} columns where {} are planned",
                segment.columns.len(),
                planned.len()
            )));
        }
        let columns = segment
            .columns
            .iter()
            .zip(planned)
            .map(|(view, info)| Column::checked(view, info, segment.rows))
            .collect::<Result<_, _>>()?;
        Ok(Self { columns })
    }

    /// Values of consecutive rows.
    pub fn load(
        &self,
        column: usize,
        start: usize,
        rows: usize,
    ) -> Result<Vector<'a>, ColumnError> {
        self.column(column)?.read(Rows::Range { start, rows })
    }

    /// Values of the rows `start + picked[i]`.
    pub fn gather(
        &self,
        column: usize,
        start: usize,
        picked: &[u32],
    ) -> Result<Vector<'a>, ColumnError> {
        self.column(column)?.read(Rows::Picked { start, picked })
    }

    /// Decimals in 64 bits, of consecutive rows or of the rows `start + picked[i]`; `None`: they do not fit.
    pub fn narrow(
        &self,
        column: usize,
        start: usize,
        rows: usize,
        picked: Option<&Vec<u32>>,
    ) -> Result<Option<Narrow<'a>>, ColumnError> {
        let rows = match picked {
            None => Rows::Range { start, rows },
            Some(picked) => Rows::Picked { start, picked },
        };
        let column = self.column(column)?;
        if let (Repr::I128, Some(values)) = (column.info.repr, column.values_of_64(rows)) {
            let validity = column.validity(rows)?.map(Cow::Owned);
            return Ok(Some(Narrow::of_64(values, validity)));
        }
        let (Repr::I128, Some(values)) =
            (column.info.repr, aligned_values::<i128>(column.view.values))
        else {
            return Ok(Narrow::of_vector(&column.read(rows)?));
        };
        let validity = column.validity(rows)?.map(Cow::Owned);
        Ok(match rows {
            Rows::Range { start, rows } => {
                Narrow::of(values[start..start + rows].iter().copied(), validity)
            }
            Rows::Picked { start, picked } => {
                let values = &values[start..];
                Narrow::of(picked.iter().map(|&row| values[row as usize]), validity)
            }
        })
    }

    /// A column of signed integers, or of decimals, as it lies in at most 32 bits a value that are values of 32 bits. `None`:
    /// it is anything else, or what is said of its NULLs has to be checked.
    pub fn small(&self, column: usize) -> Option<SmallColumn<'a>> {
        let Column { view, info, .. } = self.columns.get(column)?;
        let trusted = view.validity.is_none() || info.nullable;
        let (values, base) = match (&view.encoding, info.repr) {
            (Encoding::Plain, Repr::I8) | (Encoding::Narrow { value_bytes: 1 }, _) => {
                (Small::I8(aligned_values(view.values)?), 0)
            }
            (Encoding::Plain, Repr::I16) | (Encoding::Narrow { value_bytes: 2 }, _) => {
                (Small::I16(aligned_values(view.values)?), 0)
            }
            (Encoding::Plain, Repr::I32) | (Encoding::Narrow { value_bytes: 4 }, _) => {
                (Small::I32(aligned_values(view.values)?), 0)
            }
            (&Encoding::Deltas { base, delta_bytes: delta_bytes @ 1..=3 }, _) => {
                let values = match delta_bytes {
                    1 => Small::U8(aligned_values(view.values)?),
                    2 => Small::U16(aligned_values(view.values)?),
                    _ => Small::U24(aligned_values(view.values)?),
                };
                let last = base.checked_add((1 << (8 * delta_bytes)) - 1)?;
                i32::try_from(last).ok()?;
                (values, i32::try_from(base).ok()?)
            }
            _ => return None,
        };
        // Rows are numbered by 32 bits.
        let is_numbered = u32::try_from(view.values.len()).is_ok();
        (trusted && is_numbered).then_some(SmallColumn { values, base, validity: view.validity })
    }

    fn column(&self, column: usize) -> Result<&Column<'a>, ColumnError> {
        self.columns.get(column).ok_or_else(|| {
            ColumnError::Internal(format!("column {column} of {}", self.columns.len()))
        })
    }
}

impl<'a> Column<'a> {
    fn checked(
        view: &'a ColumnView<'a>,
        info: ColumnInfo<'a>,
        rows: usize,
    ) -> Result<Self, ColumnError> {
        let codes = match info.repr {
            Repr::Code(dictionary) => {
                use arrow_array::Array;
                dictionary.values.len()
            }
            _ => 0,
        };
        let fits = matches!(
            (&view.encoding, info.repr),
            (Encoding::Dictionary { code_bytes: 1 | 2 | 4 | 8 }, Repr::Code(_))
                | (Encoding::Bits, Repr::Bool)
                | (Encoding::Narrow { value_bytes: 4 | 8 }, Repr::I128)
                | (Encoding::Narrow { value_bytes: 1 | 2 | 4 }, Repr::I64)
                | (Encoding::Narrow { value_bytes: 1 | 2 }, Repr::I32)
                | (Encoding::Narrow { value_bytes: 1 }, Repr::I16)
                | (Encoding::Deltas { delta_bytes: 1..=4, .. }, Repr::I128 | Repr::I64)
                | (Encoding::Deltas { delta_bytes: 1..=3, .. }, Repr::I32)
                | (Encoding::Deltas { delta_bytes: 1, .. }, Repr::I16)
                | (Encoding::Offsets { offset_bytes: 4 | 8 }, Repr::Str)
                | (Encoding::Constant { .. }, Repr::I32 | Repr::I64 | Repr::Code(_))
        ) || (view.encoding == Encoding::Plain
            && !matches!(info.repr, Repr::Code(_) | Repr::Bool | Repr::Str));
        if !fits {
            return Err(corrupt(
                info,
                format!("{:?} cannot hold what was planned for it", view.encoding),
            ));
        }
        let column = Self { view, info, codes };
        column.check_length("values", view.values.len(), column.values_bytes(rows))?;
        if let Encoding::Offsets { offset_bytes } = view.encoding {
            let wanted = if rows == 0 { 0 } else { (rows + 1) * usize::from(offset_bytes) };
            column.check_length("offsets", view.offsets.map_or(0, <[u8]>::len), wanted)?;
        }
        if let Some(validity) = view.validity {
            column.check_length("validity", validity.len(), rows.div_ceil(8))?;
        }
        Ok(column)
    }

    fn values_bytes(&self, rows: usize) -> usize {
        self.view
            .encoding
            .values_bytes(self.info.data_type, rows as u64)
            .map_or(0, |bytes| bytes as usize)
    }

    fn check_length(&self, what: &str, bytes: usize, wanted: usize) -> Result<(), ColumnError> {
        if bytes >= wanted {
            return Ok(());
        }
        Err(corrupt(self.info, format!("{bytes} bytes of {what} where {wanted} are needed")))
    }

    fn read(&self, rows: Rows<'_>) -> Result<Vector<'a>, ColumnError> {
        if let Encoding::Constant { value } = self.view.encoding {
            return self.constant(value);
        }
        let validity = self.validity(rows)?;
        let data = match (self.info.repr, &self.view.encoding) {
            (Repr::I8, _) => Data::I8(self.plain(rows)),
            (Repr::I16, &Encoding::Deltas { base, delta_bytes }) => {
                let value = |delta: u32| base.wrapping_add(delta.into()) as i16;
                Data::I16(self.based(delta_bytes, rows, value))
            }
            (Repr::I32, &Encoding::Deltas { base, delta_bytes }) => {
                let value = |delta: u32| (base as i32).wrapping_add(delta as i32);
                Data::I32(self.based(delta_bytes, rows, value))
            }
            (Repr::I16, Encoding::Narrow { .. }) => Data::I16(self.widened::<i8, _>(rows)),
            (Repr::I16, _) => Data::I16(self.plain(rows)),
            (Repr::I32, Encoding::Narrow { value_bytes: 1 }) => {
                Data::I32(self.widened::<i8, _>(rows))
            }
            (Repr::I32, Encoding::Narrow { .. }) => Data::I32(self.widened::<i16, _>(rows)),
            (Repr::I32, _) => Data::I32(self.plain(rows)),
            (Repr::I64, _) => {
                Data::I64(self.values_of_64(rows).unwrap_or_else(|| self.plain(rows)))
            }
            (Repr::U8, _) => Data::U8(self.plain(rows)),
            (Repr::U16, _) => Data::U16(self.plain(rows)),
            (Repr::U32, _) => Data::U32(self.plain(rows)),
            (Repr::U64, _) => Data::U64(self.plain(rows)),
            (Repr::F32, _) => Data::F32(self.plain(rows)),
            (Repr::F64, _) => Data::F64(self.plain(rows)),
            (Repr::I128, _) => Data::I128(match self.values_of_64(rows) {
                Some(values) => values.iter().map(|&value| value.into()).collect(),
                None => self.plain(rows),
            }),
            (Repr::Bool, _) => Data::Bool(unpack_bits(self.view.values, rows).into()),
            (Repr::Bytes(width), _) => {
                let mut values = Vec::with_capacity(rows.len());
                rows.for_each(|row| values.push(&self.view.values[row * width..][..*width]));
                Data::Bytes(values)
            }
            (Repr::Code(_), Encoding::Dictionary { code_bytes }) => {
                return self.codes(*code_bytes, rows, validity);
            }
            (_, Encoding::Offsets { offset_bytes: 4 }) => {
                self.texts::<u32>(rows, validity.as_deref())?
            }
            (_, _) => self.texts::<u64>(rows, validity.as_deref())?,
        };
        Ok(Vector { data, validity: validity.map(Cow::Owned), constant: false })
    }

    fn validity(&self, rows: Rows<'_>) -> Result<Option<Vec<u8>>, ColumnError> {
        let Some(bits) = self.view.validity else { return Ok(None) };
        let bytes = unpack_bits(bits, rows);
        if !bytes.contains(&0) {
            return Ok(None);
        }
        if !self.info.nullable {
            return Err(corrupt(self.info, "NULL in a column that is declared NOT NULL"));
        }
        Ok(Some(bytes))
    }

    /// One value for all rows, whichever of them are wanted.
    fn constant(&self, value: Option<i64>) -> Result<Vector<'a>, ColumnError> {
        if value.is_none() && !self.info.nullable {
            return Err(corrupt(self.info, "NULL in a column that is declared NOT NULL"));
        }
        let plain = value.unwrap_or_default();
        let data = match self.info.repr {
            Repr::I64 => Data::I64(vec![plain].into()),
            _ => {
                let narrow = i32::try_from(plain);
                let narrow = narrow.map_err(|_| corrupt(self.info, format!("value {plain}")))?;
                Data::I32(vec![narrow].into())
            }
        };
        if let (Repr::Code(_), Data::I32(code), Some(_)) = (self.info.repr, &data, value) {
            self.check_codes(code, self.codes, None)?;
        }
        Ok(Vector::constant(data, value.is_none()))
    }

    fn plain<T: Plain>(&self, rows: Rows<'_>) -> Cow<'a, [T]> {
        let bytes = self.view.values;
        let width = size_of::<T>();
        let aligned = aligned_values::<T>(bytes);
        match rows {
            Rows::Range { start, rows } => match aligned {
                Some(values) => Cow::Borrowed(&values[start..start + rows]),
                None => bytes[start * width..(start + rows) * width]
                    .chunks_exact(width)
                    .map(T::from_bytes)
                    .collect(),
            },
            Rows::Picked { start, picked } => match aligned {
                Some(values) => {
                    let values = &values[start..];
                    picked.iter().map(|&i| values[i as usize]).collect()
                }
                None => picked
                    .iter()
                    .map(|&i| T::from_bytes(&bytes[(start + i as usize) * width..][..width]))
                    .collect(),
            },
        }
    }

    /// Values that lie in fewer bytes than they have.
    fn widened<N: Plain + Into<W>, W: Clone>(&self, rows: Rows<'_>) -> Cow<'a, [W]> {
        self.plain::<N>(rows).iter().map(|&value| value.into()).collect()
    }

    /// Values that lie as differences of so many bytes.
    fn based<W: Clone>(
        &self,
        delta_bytes: u8,
        rows: Rows<'_>,
        value: impl Fn(u32) -> W,
    ) -> Cow<'a, [W]> {
        match delta_bytes {
            1 => self.based_on::<u8, _>(rows, value),
            2 => self.based_on::<u16, _>(rows, value),
            3 => self.based_on::<U24, _>(rows, value),
            _ => self.based_on::<i32, _>(rows, value),
        }
    }

    fn based_on<N: Plain + Widen, W: Clone>(
        &self,
        rows: Rows<'_>,
        value: impl Fn(u32) -> W,
    ) -> Cow<'a, [W]> {
        const TOGETHER: usize = 512;
        let (deltas, mut wide) = (self.plain::<N>(rows), [0; TOGETHER]);
        let mut values = Vec::with_capacity(deltas.len());
        for deltas in deltas.chunks(TOGETHER) {
            let wide = &mut wide[..deltas.len()];
            N::widen(Tier::best(), deltas, wide);
            values.extend(wide.iter().map(|&delta| value(delta as u32)));
        }
        values.into()
    }

    /// Decimals and integers that lie in other bytes than they have, none of them of more than 64 bits.
    fn values_of_64(&self, rows: Rows<'_>) -> Option<Cow<'a, [i64]>> {
        Some(match self.view.encoding {
            Encoding::Narrow { value_bytes: 1 } => self.widened::<i8, _>(rows),
            Encoding::Narrow { value_bytes: 2 } => self.widened::<i16, _>(rows),
            Encoding::Narrow { value_bytes: 4 } => self.widened::<i32, _>(rows),
            Encoding::Narrow { .. } => self.plain(rows),
            Encoding::Deltas { base, delta_bytes } => {
                // Whoever says what lies there has seen to it that it fits.
                self.based(delta_bytes, rows, |delta: u32| base.wrapping_add(delta.into()))
            }
            _ => return None,
        })
    }

    fn codes(
        &self,
        code_bytes: u8,
        rows: Rows<'_>,
        validity: Option<Vec<u8>>,
    ) -> Result<Vector<'a>, ColumnError> {
        let wide = |code: i64| i32::try_from(code).unwrap_or(-2);
        let mut codes: Cow<'a, [i32]> = match code_bytes {
            1 => self.plain::<i8>(rows).iter().map(|&c| i32::from(c)).collect(),
            2 => self.plain::<i16>(rows).iter().map(|&c| i32::from(c)).collect(),
            4 => self.plain::<i32>(rows),
            _ => self.plain::<i64>(rows).iter().map(|&c| wide(c)).collect(),
        };
        // What lies under a NULL may be anything.
        if let Some(valid) = &validity {
            codes.to_mut().iter_mut().zip(valid).for_each(|(c, &v)| *c *= i32::from(v));
        }
        let limit = self.view.remap.map_or(self.codes, <[i32]>::len);
        self.check_codes(&codes, limit, validity.as_deref())?;
        let Some(remap) = self.view.remap else {
            return Ok(Vector {
                data: Data::I32(codes),
                validity: validity.map(Cow::Owned),
                constant: false,
            });
        };
        self.remapped(&codes, remap, validity)
    }

    fn check_codes(
        &self,
        codes: &[i32],
        limit: usize,
        validity: Option<&[u8]>,
    ) -> Result<(), ColumnError> {
        // Negative codes are large as unsigned ones.
        let largest = codes.iter().fold(0u32, |m, &c| m.max(c as u32));
        let any_valid = !codes.is_empty() && validity.is_none_or(|v| v.contains(&1));
        if (largest as usize) < limit || !any_valid {
            return Ok(());
        }
        let outside = codes.iter().find(|&&c| c as u32 as usize >= limit).copied();
        Err(corrupt(
            self.info,
            format!("code {} of a dictionary of {limit} values", outside.unwrap_or(0)),
        ))
    }

    fn remapped(
        &self,
        codes: &[i32],
        remap: &[i32],
        mut validity: Option<Vec<u8>>,
    ) -> Result<Vector<'a>, ColumnError> {
        if remap.is_empty() {
            // Every row is NULL: `check_codes` has seen to it.
            let rows = codes.len();
            return Ok(Vector::with_validity(Data::I32(vec![0; rows].into()), Some(vec![0; rows])));
        }
        let mut mapped: Vec<i32> = codes.iter().map(|&c| remap[c as usize]).collect();
        if mapped.iter().any(|&c| c < 0) {
            let valid = validity.get_or_insert_with(|| vec![1; codes.len()]);
            for (code, valid) in mapped.iter_mut().zip(valid) {
                if *code == -1 {
                    *code = 0;
                    *valid = 0;
                }
            }
            if !self.info.nullable {
                return Err(corrupt(self.info, "NULL in a column that is declared NOT NULL"));
            }
        }
        self.check_codes(&mapped, self.codes, validity.as_deref())?;
        Ok(Vector::with_validity(Data::I32(mapped.into()), validity))
    }

    fn texts<O: Plain + Into<u64>>(
        &self,
        rows: Rows<'_>,
        validity: Option<&[u8]>,
    ) -> Result<Data<'a>, ColumnError> {
        let (bytes, offsets) = (self.view.values, self.view.offsets.unwrap_or(&[]));
        let width = size_of::<O>();
        let offset = |row: usize| -> usize {
            let offset: u64 = O::from_bytes(&offsets[row * width..][..width]).into();
            let offset = offset.checked_sub(self.view.offsets_base).unwrap_or(u64::MAX);
            usize::try_from(offset).unwrap_or(usize::MAX)
        };
        let (joined, first) = rows
            .dense()
            .and_then(|dense| joined_texts(bytes, offset(dense.start)..offset(dense.end)))
            .unwrap_or_default();
        let mut texts = Vec::with_capacity(rows.len());
        let mut failure = None;
        rows.for_each(|row| {
            let (from, to) = (offset(row), offset(row + 1));
            let text = if validity.is_some_and(|v| v[texts.len()] == 0) {
                Ok("")
            } else {
                let known = joined.get(from.wrapping_sub(first)..to.wrapping_sub(first));
                known.map_or_else(|| self.text(bytes, from, to), Ok)
            };
            match text {
                Ok(text) => texts.push(text),
                Err(error) => {
                    texts.push("");
                    failure.get_or_insert(error);
                }
            }
        });
        failure.map_or(Ok(Data::Str(texts)), Err)
    }

    fn text(&self, bytes: &'a [u8], from: usize, to: usize) -> Result<&'a str, ColumnError> {
        let bytes = bytes.get(from..to).ok_or_else(|| {
            corrupt(self.info, format!("offsets {from}..{to} into {} bytes", bytes.len()))
        })?;
        std::str::from_utf8(bytes).map_err(|e| corrupt(self.info, format!("not UTF-8: {e}")))
    }
}
