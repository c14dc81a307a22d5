//! Typed expressions over registers.

use serde::{Deserialize, Serialize};

use crate::cuda_function::CudaFunction;
use crate::function::{Function, Signature};
use crate::scalar::{Scalar, Value};
use crate::types::{DataType, Field};

/// Index of a pipeline register (see the crate documentation).
pub type Register = usize;

/// What arithmetic does when a result does not fit its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnOverflow {
    /// The query fails. Floats follow IEEE 754 and never do.
    Error,
    /// The result wraps (two's complement).
    Wrap,
    /// The query fails; of floats where the result is infinite though no operand is, where a product or
    /// quotient is 0 that is none of 0 or by infinity, and where something is divided by 0.
    Strict,
}

/// What a cast does with a value that the target type cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CastFailure {
    /// The query fails.
    Error,
    /// The result is NULL.
    Null,
}

/// Binary arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`: integers truncate towards zero; division by zero fails for integers and decimals.
    Divide,
    /// `%`: the sign is the dividend's; modulo by zero fails.
    Modulo,
}

/// An expression with the name of its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedExpr {
    /// Name of the register or column.
    pub name: String,
    /// Its value.
    pub expr: Expr,
}

impl NamedExpr {
    /// The column that it makes.
    pub fn field(&self) -> Field {
        Field::new(&self.name, self.expr.data_type(), self.expr.nullable())
    }
}

/// Comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CompareOp {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl CompareOp {
    /// The operator that means the same with its operands exchanged.
    pub fn swapped(self) -> Self {
        match self {
            Self::Eq | Self::Ne => self,
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
        }
    }
}

/// A typed expression.
///
/// Operands of arithmetic and comparison already have equal types; whoever plans inserts the
/// casts. The one exception is decimals: `Add` and `Subtract` rescale both operands to the
/// scale of the result (whose scale is the larger of the two), `Multiply` has the sum of the
/// operands' scales, and comparison rescales to the larger scale without overflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Expr {
    /// The value of a register.
    Register {
        /// Which.
        index: Register,
        /// Its type.
        data_type: DataType,
        /// Whether it may be NULL.
        nullable: bool,
        /// Name for EXPLAIN.
        name: String,
    },
    /// A constant.
    Literal(Scalar),
    /// A constant that is not known yet: one of [`crate::Program::parameters`], whose value comes
    /// with the run. It means what the value would mean as a `Literal` in its place.
    Parameter {
        /// Which.
        index: usize,
        /// Its type.
        data_type: DataType,
        /// Whether it may be NULL.
        nullable: bool,
    },
    /// Arithmetic; NULL if an operand is NULL.
    Arithmetic {
        /// Operator.
        op: ArithmeticOp,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
        /// Result type.
        data_type: DataType,
        /// Overflow. A decimal overflows when it has more digits than its precision.
        on_overflow: OnOverflow,
    },
    /// Unary minus.
    Negate {
        /// Operand.
        value: Box<Expr>,
        /// Overflow of the most negative integer.
        on_overflow: OnOverflow,
    },
    /// Comparison; NULL if an operand is NULL.
    Compare {
        /// Operator.
        op: CompareOp,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
    },
    /// Three-valued conjunction, decided from left to right; empty is true.
    And(Vec<Expr>),
    /// Three-valued disjunction, decided from left to right; empty is false.
    Or(Vec<Expr>),
    /// Three-valued negation.
    Not(Box<Expr>),
    /// Whether the operand is NULL; never NULL itself.
    IsNull(Box<Expr>),
    /// `value [NOT] IN (list)` with constants of the value's type; a NULL in the list has its
    /// SQL meaning.
    InList {
        /// Tested value.
        value: Box<Expr>,
        /// Constants.
        list: Vec<Scalar>,
        /// `NOT IN`.
        negated: bool,
    },
    /// `value [NOT] [I]LIKE pattern` with a constant pattern.
    Like {
        /// Tested text.
        value: Box<Expr>,
        /// Pattern with `%` and `_`.
        pattern: String,
        /// Escape character; `None` is backslash.
        escape: Option<char>,
        /// `NOT LIKE`.
        negated: bool,
        /// `ILIKE`.
        case_insensitive: bool,
    },
    /// Searched CASE: the value of the first branch whose condition is true.
    Case {
        /// `(condition, value)` in order.
        branches: Vec<(Expr, Expr)>,
        /// Value if no condition is true; `None` is NULL.
        otherwise: Option<Box<Expr>>,
        /// Type of every branch.
        data_type: DataType,
    },
    /// Conversion.
    Cast {
        /// Operand.
        value: Box<Expr>,
        /// Target type.
        to: DataType,
        /// What happens to values that do not fit.
        on_failure: CastFailure,
    },
    /// A named function; NULL if an argument is NULL.
    Call {
        /// Which.
        function: Function,
        /// What it is called with.
        arguments: Vec<Expr>,
        /// Type of the result, which follows from those of the arguments.
        data_type: DataType,
    },
    /// A function that a user wrote in CUDA; NULL if an argument is NULL. What it does with a row that is gone, or with
    /// NULL, is unknown: it is evaluated for no such row.
    Cuda {
        /// Which.
        function: Box<CudaFunction>,
        /// What it is called with.
        arguments: Vec<Expr>,
        /// The same for the cores.
        twin: Option<Box<Expr>>,
    },
}

/// The operands of an expression that is borrowed: with `iter` and `as_deref`, or those that borrow
/// mutably.
macro_rules! operands {
    ($expr:expr, $iter:ident, $as_deref:ident) => {
        match $expr {
            Self::Register { .. } | Self::Literal(_) | Self::Parameter { .. } => vec![],
            Self::Arithmetic { left, right, .. } | Self::Compare { left, right, .. } => {
                vec![left, right]
            }
            Self::Negate { value, .. }
            | Self::Not(value)
            | Self::IsNull(value)
            | Self::InList { value, .. }
            | Self::Like { value, .. }
            | Self::Cast { value, .. } => vec![value],
            Self::And(operands) | Self::Or(operands) => operands.$iter().collect(),
            Self::Call { arguments, .. } => arguments.$iter().collect(),
            Self::Cuda { arguments, twin, .. } => {
                arguments.$iter().chain(twin.$as_deref()).collect()
            }
            Self::Case { branches, otherwise, .. } => branches
                .$iter()
                .flat_map(|(condition, value)| [condition, value])
                .chain(otherwise.$as_deref())
                .collect(),
        }
    };
}

impl Expr {
    /// `left op right`.
    pub fn compare(op: CompareOp, left: Expr, right: Expr) -> Self {
        Self::Compare { op, left: Box::new(left), right: Box::new(right) }
    }

    /// Checked arithmetic on operands of one integer or float type.
    pub fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Self {
        let (data_type, on_overflow) = (left.data_type(), OnOverflow::Error);
        let (left, right) = (Box::new(left), Box::new(right));
        Self::Arithmetic { op, left, right, data_type, on_overflow }
    }

    /// The expression as another type; a value that does not fit fails.
    pub fn cast(self, to: DataType) -> Self {
        Self::Cast { value: Box::new(self), to, on_failure: CastFailure::Error }
    }

    /// The register, if it is nothing else.
    pub fn as_register(&self) -> Option<Register> {
        match self {
            Self::Register { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// What a call's function does with its arguments; `None` if it does not take them, and for
    /// other expressions.
    pub fn signature(&self) -> Option<Signature> {
        let Self::Call { function, arguments, .. } = self else { return None };
        let types: Vec<DataType> = arguments.iter().map(Expr::data_type).collect();
        function.signature(&types)
    }

    /// Type of the result.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Register { data_type, .. }
            | Self::Parameter { data_type, .. }
            | Self::Arithmetic { data_type, .. }
            | Self::Case { data_type, .. }
            | Self::Call { data_type, .. } => data_type.clone(),
            Self::Literal(scalar) => scalar.data_type.clone(),
            Self::Negate { value, .. } => value.data_type(),
            Self::Cast { to, .. } => to.clone(),
            Self::Cuda { function, .. } => function.result.clone(),
            Self::Compare { .. }
            | Self::And(_)
            | Self::Or(_)
            | Self::Not(_)
            | Self::IsNull(_)
            | Self::InList { .. }
            | Self::Like { .. } => DataType::Bool,
        }
    }

    /// Whether the result may be NULL.
    pub fn nullable(&self) -> bool {
        match self {
            Self::Register { nullable, .. } | Self::Parameter { nullable, .. } => *nullable,
            Self::Literal(scalar) => scalar.is_null(),
            Self::IsNull(_) => false,
            Self::Case { branches, otherwise, .. } => {
                otherwise.as_ref().is_none_or(|e| e.nullable())
                    || branches.iter().any(|(_, value)| value.nullable())
            }
            Self::Cast { value, on_failure, .. } => {
                *on_failure == CastFailure::Null || value.nullable()
            }
            Self::InList { value, list, .. } => {
                value.nullable() || list.iter().any(Scalar::is_null)
            }
            Self::Call { arguments, .. } => {
                self.signature().is_none_or(|signature| signature.may_be_null)
                    || arguments.iter().any(Expr::nullable)
            }
            _ => self.children().into_iter().any(Expr::nullable),
        }
    }

    /// Operands, in order of evaluation.
    pub fn children(&self) -> Vec<&Expr> {
        operands!(self, iter, as_deref)
    }

    /// As [`children`](Self::children), to be changed.
    pub fn children_mut(&mut self) -> Vec<&mut Expr> {
        operands!(self, iter_mut, as_deref_mut)
    }

    /// Puts what `f` answers in place of an expression, at the top first; what it has put there
    /// stays.
    pub fn replace(&mut self, f: &mut impl FnMut(&Expr) -> Option<Expr>) {
        match f(self) {
            Some(other) => *self = other,
            None => self.children_mut().into_iter().for_each(|child| child.replace(f)),
        }
    }

    /// A register under another number; any other expression as it is.
    pub(crate) fn moved_to(&self, register: Register) -> Self {
        let mut moved = self.clone();
        if let Self::Register { index, .. } = &mut moved {
            *index = register;
        }
        moved
    }

    /// Registers that the expression reads, each once, ascending.
    pub fn registers(&self) -> Vec<Register> {
        let mut found = Vec::new();
        self.visit(&mut |e| {
            if let Self::Register { index, .. } = e {
                found.push(*index);
            }
        });
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether evaluation can fail for some row (overflow, division by zero, cast), as far as
    /// types tell.
    pub fn can_fail(&self) -> bool {
        let mut fails = false;
        self.visit(&mut |e| fails |= e.node_can_fail());
        fails
    }

    fn node_can_fail(&self) -> bool {
        match self {
            Self::Arithmetic { op, data_type, on_overflow, .. } => match data_type.is_float() {
                true => *on_overflow == OnOverflow::Strict,
                false => {
                    *on_overflow != OnOverflow::Wrap
                        || matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo)
                }
            },
            Self::Negate { value, on_overflow } => {
                !value.data_type().is_float() && *on_overflow != OnOverflow::Wrap
            }
            Self::Cast { value, to, on_failure } => {
                *on_failure == CastFailure::Error && value.data_type().cast_can_fail(to)
            }
            Self::Call { function, arguments, .. } => {
                let last = match arguments.last() {
                    Some(Self::Literal(Scalar { value: Value::Int(last), .. })) => Some(*last),
                    _ => None,
                };
                !last.is_some_and(|last| function.is_safe_from(last))
                    && self.signature().is_none_or(|signature| signature.can_fail)
            }
            Self::Cuda { .. } => true,
            _ => false,
        }
    }

    /// Calls `f` on this expression and everything below it.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        for child in self.children() {
            child.visit(f);
        }
    }

    /// Conjuncts of a (nested) `And`, flattened; any other expression is its own conjunct.
    pub fn conjuncts(self) -> Vec<Expr> {
        match self {
            Self::And(operands) => operands.into_iter().flat_map(Expr::conjuncts).collect(),
            other => vec![other],
        }
    }
}
