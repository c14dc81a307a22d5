//! Bounds that hold whatever a file says of itself.
//!
//! `BoundExpr::range` is what statistics claim: good for choosing dense groups (whose digits are
//! checked for each row) and for guessing selectivities. Leaving an overflow check out needs
//! more: a file with false statistics must not turn into a wrong sum. These bounds follow from
//! types, constants and from builds, whose rows we have seen.
//!
//! Statistics also prune: a file with false ones loses rows, which cannot be checked without reading what is skipped.

use headrace_ir::ValueRange;

use crate::bind::range;
use crate::bound::{BoundExpr, BoundKind};
use crate::function;

/// Proven bounds of an expression, given those of the registers (none: by types and constants).
pub fn proven(expr: &BoundExpr, registers: &[Option<ValueRange>]) -> Option<ValueRange> {
    let of = |e: &BoundExpr| proven(e, registers);
    match &expr.kind {
        BoundKind::Register(index) => registers.get(*index).copied().flatten(),
        BoundKind::Literal(scalar) => range::of_scalar(scalar),
        BoundKind::Arithmetic { op, left, right, .. } => {
            range::fitted(range::arithmetic(*op, of(left), of(right)), &expr.data_type).1
        }
        BoundKind::Negate { value, .. } => {
            let bounds = of(value).map(|r| (-i128::from(r.max), -i128::from(r.min)));
            range::fitted(bounds, &expr.data_type).1
        }
        // Integer casts keep the value or fail.
        BoundKind::Cast { value, .. }
            if value.data_type.is_integer() && expr.data_type.is_integer() =>
        {
            let bounds = of(value).map(|r| (i128::from(r.min), i128::from(r.max)));
            range::fitted(bounds, &expr.data_type).1
        }
        BoundKind::Call { function, arguments } => {
            let argument = arguments.first()?;
            function::range(*function, &argument.data_type, of(argument), &expr.data_type)
        }
        BoundKind::Case { branches, otherwise } => branches
            .iter()
            .map(|(_, value)| value)
            .chain(otherwise.as_deref())
            .map(of)
            .reduce(range::union)
            .flatten(),
        _ => range::type_range(&expr.data_type),
    }
}
