//! Facts that need no trust in a file's statistics: bounds, and whether evaluation can fail.
//!
//! `BoundExpr::range` is what statistics claim: good for choosing dense groups (whose digits are
//! checked for each row) and for guessing selectivities. Leaving an overflow check out needs
//! more: a file with false statistics must not turn into a wrong sum. These bounds follow from
//! types, constants and from builds, whose rows we have seen.
//!
//! Statistics also prune: a file with false ones loses rows, which cannot be checked without reading what is skipped.

use headrace_ir::{ArithmeticOp, CastFailure, DataType, Function, OnOverflow, ValueRange};

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

impl BoundExpr {
    /// Whether evaluation can fail for some row: the one rule of both processors. Nothing that a
    /// file claims proves the contrary, and nothing that holds for the rows alone which earlier
    /// steps left: what cannot fail may be evaluated for any bit pattern of a register.
    pub fn can_fail(&self) -> bool {
        let mut fails = false;
        self.visit(&mut |e| fails |= e.node_can_fail());
        fails
    }

    /// The same of the outermost operation alone.
    pub fn node_can_fail(&self) -> bool {
        if matches!(self.kind, BoundKind::Cuda { .. }) {
            return true;
        }
        if self.data_type.is_float() && !matches!(self.kind, BoundKind::Cast { .. }) {
            return self.is_strict();
        }
        match &self.kind {
            BoundKind::Arithmetic { op, right, on_overflow, cannot_overflow, .. } => {
                let divides = matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo);
                let divisor_is_safe = right.proven().is_some_and(|r| r.min > 0 || r.max < 0);
                (divides && !divisor_is_safe)
                    || (*on_overflow != OnOverflow::Wrap && !cannot_overflow)
            }
            BoundKind::Negate { value, on_overflow } => {
                // Signed types lack the opposite of their smallest value, unsigned ones have
                // only that of 0.
                let safe = match (value.proven(), value.data_type.integer_range()) {
                    (Some(range), Some((0, _))) => range.max <= 0,
                    (Some(range), Some((min, _))) => range.min > min,
                    _ => false,
                };
                *on_overflow != OnOverflow::Wrap && !safe
            }
            BoundKind::Cast { value, on_failure } => {
                *on_failure == CastFailure::Error && value.data_type.cast_can_fail(&self.data_type)
            }
            BoundKind::Call { function, arguments } => call_can_fail(*function, arguments),
            BoundKind::Shift { .. } => true,
            _ => false,
        }
    }

    /// Bounds that types and constants alone prove.
    pub(crate) fn proven(&self) -> Option<ValueRange> {
        proven(self, &[])
    }
}

/// Whether a call can fail for some bit pattern of its arguments.
fn call_can_fail(function: Function, arguments: &[BoundExpr]) -> bool {
    let types: Vec<DataType> = arguments.iter().map(|a| a.data_type.clone()).collect();
    let proven = arguments.first().and_then(BoundExpr::proven);
    let last = arguments.last().and_then(BoundExpr::proven);
    let is_safe = last.is_some_and(|last| function.is_safe_from(last.min.into()));
    let spared = is_safe
        || match (function, proven, types.first().and_then(DataType::integer_range)) {
            (Function::Abs, Some(proven), Some((min, _))) => proven.min > min,
            _ => false,
        };
    !spared && function.signature(&types).is_none_or(|signature| signature.can_fail)
}
