//! Three-valued logic, and CASE, over some of the rows at a time.

use crate::ColumnError;
use crate::convert::empty_data;
use crate::repr::Repr;
use crate::simd::positions;
use crate::vector::{Data, Vector};

/// AND or OR.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Connective {
    /// Decided by the first false.
    And,
    /// Decided by the first true.
    Or,
}

fn bool_values<'v>(vector: &'v Vector<'_>) -> Result<&'v [u8], ColumnError> {
    match &vector.data {
        Data::Bool(values) => Ok(values),
        _ => Err(ColumnError::Internal("a condition is not Bool".into())),
    }
}

/// A conjunction or disjunction on its way, an operand after the other.
pub struct Connected {
    connective: Connective,
    /// For AND, `decided` says false and `unknown` says NULL unless decided; for OR, true.
    decided: Vec<u8>,
    unknown: Option<Vec<u8>>,
}

impl Connected {
    /// Of `rows` rows, without operands.
    pub fn new(connective: Connective, rows: usize) -> Self {
        Self { connective, decided: vec![0; rows], unknown: None }
    }

    /// The truth that decides.
    fn deciding(&self) -> u8 {
        u8::from(self.connective == Connective::Or)
    }

    /// Rows that are not decided yet.
    pub fn open(&self) -> Vec<u32> {
        let open: Vec<u8> = self.decided.iter().map(|&d| d ^ 1).collect();
        positions(&open)
    }

    /// Takes in an operand of all rows.
    pub fn combine(&mut self, vector: &Vector<'_>) -> Result<(), ColumnError> {
        let rows = self.decided.len();
        let vector = vector.spelled(rows);
        let values = bool_values(&vector)?;
        let flip = self.deciding() ^ 1;
        let decided = &mut self.decided;
        match &vector.validity {
            None => decided.iter_mut().zip(values).for_each(|(d, &v)| *d |= v ^ flip),
            Some(valid) => {
                let unknown = self.unknown.get_or_insert_with(|| vec![0; rows]);
                for (row, (&value, &valid)) in values.iter().zip(valid.iter()).enumerate() {
                    decided[row] |= (value ^ flip) & valid;
                    unknown[row] |= valid ^ 1;
                }
            }
        }
        Ok(())
    }

    /// Takes in an operand of these rows alone.
    pub fn combine_rows(&mut self, vector: &Vector<'_>, rows: &[u32]) -> Result<(), ColumnError> {
        let vector = vector.spelled(rows.len());
        let values = bool_values(&vector)?;
        let deciding = self.deciding();
        for (i, &row) in rows.iter().enumerate() {
            if !vector.is_valid(i) {
                let all = self.decided.len();
                self.unknown.get_or_insert_with(|| vec![0; all])[row as usize] = 1;
            } else if values[i] == deciding {
                self.decided[row as usize] = 1;
            }
        }
        Ok(())
    }

    /// What the operands come to.
    pub fn finish<'a>(self) -> Vector<'a> {
        let Self { connective, decided, unknown } = self;
        let validity = unknown
            .map(|unknown| unknown.iter().zip(&decided).map(|(&u, &d)| (u ^ 1) | d).collect());
        let values = match connective {
            Connective::And => decided.iter().map(|&d| d ^ 1).collect(),
            Connective::Or => decided,
        };
        Vector::bools(values, validity)
    }
}

/// Three-valued negation.
pub fn not<'a>(vector: &Vector<'a>, rows: usize) -> Result<Vector<'a>, ColumnError> {
    let vector = vector.spelled(rows);
    let values = bool_values(&vector)?.iter().map(|&v| v ^ 1).collect();
    Ok(Vector::bools(values, vector.validity.as_deref().map(<[u8]>::to_vec)))
}

/// Whether each row is NULL.
pub fn is_null<'a>(vector: &Vector<'_>, rows: usize) -> Vector<'a> {
    let values = match vector.validity_bytes(rows) {
        None => vec![0; rows],
        Some(valid) => valid.iter().map(|&v| v ^ 1).collect(),
    };
    Vector::bools(values, None)
}

/// The value of a CASE on its way, a branch after the other; NULL where none was taken.
pub struct Chosen<'a> {
    data: Data<'a>,
    valid: Vec<u8>,
}

impl<'a> Chosen<'a> {
    /// For `rows` rows; no row has taken a branch yet.
    pub fn new(repr: &Repr, rows: usize) -> Result<Self, ColumnError> {
        Ok(Self { data: empty_data(repr, rows)?, valid: vec![0; rows] })
    }

    /// Sets the values of these rows.
    pub fn scatter(&mut self, vector: &Vector<'a>, rows: &[u32]) -> Result<(), ColumnError> {
        let vector = vector.spelled(rows.len());
        for (i, &row) in rows.iter().enumerate() {
            self.valid[row as usize] = u8::from(vector.is_valid(i));
        }
        if scatter_data(&mut self.data, &vector.data, rows) {
            return Ok(());
        }
        Err(ColumnError::Internal("CASE branches of different representations".into()))
    }

    /// All values.
    pub fn finish(self) -> Vector<'a> {
        Vector::with_validity(self.data, Some(self.valid))
    }
}

macro_rules! scatter_variants {
    ($into:expr, $from:expr, $rows:expr, $($variant:ident),*) => {
        match ($into, $from) {
            $((Data::$variant(into), Data::$variant(from)) => {
                let into = into.to_mut();
                $rows.iter().zip(from.iter()).for_each(|(&row, &v)| into[row as usize] = v);
                true
            })*
            _ => false,
        }
    };
}

fn scatter_data<'a>(into: &mut Data<'a>, from: &Data<'a>, rows: &[u32]) -> bool {
    if let (Data::Str(into), Data::Str(from)) = (&mut *into, from) {
        rows.iter().zip(from).for_each(|(&row, &text)| into[row as usize] = text);
        return true;
    }
    if let (Data::Bytes(into), Data::Bytes(from)) = (&mut *into, from) {
        rows.iter().zip(from).for_each(|(&row, &bytes)| into[row as usize] = bytes);
        return true;
    }
    scatter_variants!(into, from, rows, Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128)
}
