//! Constants as parameters: the text of a kernel names them, the launch fills them in.

use headrace_columns::repr::Repr;
use headrace_ir::{Scalar, Value as Constant};

use crate::codegen::generator::Generator;
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{c_type, i128_literal, literal};
use crate::fields::Param;

/// Kernels take 4 KB of parameters; what is beyond this number of constants stands in the text.
pub(super) const CONSTANTS_MAX: usize = 400;

impl Generator<'_> {
    /// A constant's name in the kernel; `bits` holds its bytes, low ones first.
    pub(super) fn constant(&mut self, bits: u64, c_type: &str, wish: &str) -> String {
        let index = self.constants.len();
        self.constants.push(bits);
        self.param(Param::Constant(index), c_type, wish)
    }

    /// A constant that is not NULL, in a representation.
    pub(super) fn literal(&mut self, scalar: &Scalar, repr: &Repr, wish: &str) -> Result<String> {
        match (&scalar.value, repr) {
            (Constant::Utf8(text), Repr::Str) => return self.bytes_literal(text.as_bytes(), wish),
            (Constant::Binary(bytes), Repr::Bytes(_)) => return self.bytes_literal(bytes, wish),
            _ => {}
        }
        if self.constants.len() >= CONSTANTS_MAX || matches!(repr, Repr::Bool) {
            return literal(scalar, repr);
        }
        let kind = c_type(repr)?;
        match (&scalar.value, repr) {
            (Constant::Int(value), Repr::I128) => Ok(self.wide_literal(*value, wish)),
            (Constant::Int(value), Repr::F32) => {
                Ok(self.constant(u64::from((*value as f32).to_bits()), kind, wish))
            }
            (Constant::Int(value), Repr::F64) => {
                Ok(self.constant((*value as f64).to_bits(), kind, wish))
            }
            (Constant::Int(value), _) => Ok(self.constant(*value as u64, kind, wish)),
            (Constant::Float(value), Repr::F32) => {
                Ok(self.constant(u64::from((*value as f32).to_bits()), kind, wish))
            }
            (Constant::Float(value), Repr::F64) => Ok(self.constant(value.to_bits(), kind, wish)),
            _ => refuse(format!("the CUDA processor has no constant {scalar}")),
        }
    }

    fn wide_literal(&mut self, value: i128, wish: &str) -> String {
        if self.constants.len() + 2 > CONSTANTS_MAX {
            return i128_literal(value);
        }
        let high = self.constant((value >> 64) as u64, "u64", &format!("{wish}_high"));
        let low = self.constant(value as u64, "u64", &format!("{wish}_low"));
        format!("i128(u128({high}) << 64 | {low})")
    }
}
