//! A pipeline lowered for the table and builds at hand. Both processors start from this.

use std::sync::Arc;

use headrace_columns::automaton::Automaton;
use headrace_columns::fault::Target;
use headrace_columns::load::ColumnInfo;
use headrace_columns::lookup::Truth;
use headrace_columns::repr::Repr;
use headrace_columns::shift::Shift;
use headrace_ir::{
    AggregateFunction, AggregateOutput, ArithmeticOp, CastFailure, CompareOp, CudaFunction,
    DataType, Field, Function, OnOverflow, OrderKey, ProbeKind, Register, Scalar, ValueRange,
};

use crate::build::BuildTable;

/// One register.
#[derive(Clone, Debug)]
pub struct RegisterInfo {
    /// Name for EXPLAIN and errors.
    pub name: String,
    /// SQL type.
    pub data_type: DataType,
    /// How it is held.
    pub repr: Repr,
    /// Whether NULL may occur.
    pub nullable: bool,
    /// Bounds of integer-like values and of codes, if known.
    pub range: Option<ValueRange>,
}

impl RegisterInfo {
    /// The column as it is loaded from the source.
    pub(crate) fn planned(&self) -> ColumnInfo<'_> {
        let Self { name, data_type, repr, nullable, .. } = self;
        ColumnInfo { name, data_type, repr, nullable: *nullable }
    }
}

/// An expression whose dictionary predicates are lookups and whose types are resolved.
#[derive(Clone, Debug)]
pub struct BoundExpr {
    /// What it computes.
    pub kind: BoundKind,
    /// SQL type.
    pub data_type: DataType,
    /// How the result is held.
    pub repr: Repr,
    /// Whether NULL may occur.
    pub nullable: bool,
    /// Bounds of integer-like results, if known.
    pub range: Option<ValueRange>,
    /// SQL text for error messages ("lo_extendedprice * lo_discount").
    pub text: Arc<str>,
}

/// What a bound expression computes. Semantics are those of [`headrace_ir::Expr`].
#[derive(Clone, Debug)]
pub enum BoundKind {
    /// A register.
    Register(Register),
    /// A constant. A text constant that is compared with codes has become an integer
    /// comparison or a `Lookup`, so a `Literal` of type Utf8 has `Repr::Str`.
    Literal(Scalar),
    /// A predicate over one dictionary register, tabulated: entry `code` is its truth; the
    /// last entry (index = number of codes) is its truth for NULL.
    Lookup {
        /// The register, of `Repr::Code`.
        register: Register,
        /// Truth by code, then for NULL.
        table: Arc<[Truth]>,
    },
    /// A number for each text of one dictionary register, NULL for NULL.
    Numbers {
        /// The register, of `Repr::Code`.
        register: Register,
        /// Number by code; never empty.
        table: Arc<[i32]>,
    },
    /// Arithmetic in the result's representation.
    Arithmetic {
        /// Operator.
        op: ArithmeticOp,
        /// Left.
        left: Box<BoundExpr>,
        /// Right.
        right: Box<BoundExpr>,
        /// Overflow.
        on_overflow: OnOverflow,
        /// Whether `range`s prove that it cannot overflow.
        cannot_overflow: bool,
    },
    /// Unary minus.
    Negate {
        /// Operand.
        value: Box<BoundExpr>,
        /// Overflow.
        on_overflow: OnOverflow,
    },
    /// Comparison of equal representations (codes: of one dictionary).
    Compare {
        /// Operator.
        op: CompareOp,
        /// Left.
        left: Box<BoundExpr>,
        /// Right.
        right: Box<BoundExpr>,
    },
    /// Conjunction.
    And(Vec<BoundExpr>),
    /// Disjunction.
    Or(Vec<BoundExpr>),
    /// Negation.
    Not(Box<BoundExpr>),
    /// NULL test.
    IsNull(Box<BoundExpr>),
    /// IN over constants.
    InList {
        /// Tested value.
        value: Box<BoundExpr>,
        /// Constants that are not NULL, sorted.
        list: Arc<[Scalar]>,
        /// Whether the SQL list held a NULL.
        list_has_null: bool,
        /// NOT IN.
        negated: bool,
    },
    /// LIKE over `Repr::Str`.
    Like {
        /// Text.
        value: Box<BoundExpr>,
        /// Pattern.
        pattern: Arc<str>,
        /// Escape.
        escape: char,
        /// NOT LIKE.
        negated: bool,
        /// ILIKE.
        case_insensitive: bool,
    },
    /// Searched CASE.
    Case {
        /// `(condition, value)`.
        branches: Vec<(BoundExpr, BoundExpr)>,
        /// ELSE; `None` is NULL.
        otherwise: Option<Box<BoundExpr>>,
    },
    /// Conversion.
    Cast {
        /// Operand.
        value: Box<BoundExpr>,
        /// Failure.
        on_failure: CastFailure,
    },
    /// A named function.
    Call {
        /// Which.
        function: Function,
        /// Arguments.
        arguments: Vec<BoundExpr>,
    },
    /// A function that a user wrote in CUDA.
    Cuda {
        /// Which.
        function: Arc<CudaFunction>,
        /// Arguments.
        arguments: Vec<BoundExpr>,
        /// What the cores evaluate.
        twin: Option<Box<BoundExpr>>,
    },
    /// A moment that a zone or an interval moves.
    Shift {
        /// The moment.
        value: Box<BoundExpr>,
        /// By what.
        by: Arc<Shift>,
    },
    /// Whether an automaton finds a match in a text, or, where the value is a text, the part that it finds.
    Search {
        /// The text.
        value: Box<BoundExpr>,
        /// The automaton.
        by: Arc<Automaton>,
    },
    /// Text of a code, where codes of different dictionaries or plain text meet.
    Decode(Box<BoundExpr>),
}

/// One step. `Filter`s are single conjuncts.
#[derive(Clone, Debug)]
pub enum BoundStep {
    /// Keeps rows for which the expression is true.
    Filter {
        /// Condition.
        expr: BoundExpr,
        /// Expected share of rows kept, 0 to 1.
        selectivity: f64,
    },
    /// Sets a register.
    Compute {
        /// The register.
        register: Register,
        /// Its value.
        expr: BoundExpr,
    },
    /// Lookup in a build.
    Probe(BoundProbe),
}

/// A probe. Appended registers are `first_register ..`.
#[derive(Clone, Debug)]
pub struct BoundProbe {
    /// The build.
    pub build: Arc<BuildTable>,
    /// Keys, in the representations of the build's keys.
    pub keys: Vec<BoundExpr>,
    /// Kind.
    pub kind: ProbeKind,
    /// NULL matches NULL.
    pub null_equal: bool,
    /// Residual condition.
    pub residual: Option<BoundExpr>,
    /// Payload columns of the build, one appended register each.
    pub payload: Vec<usize>,
    /// First appended register.
    pub first_register: Register,
    /// Expected share of rows kept, 0 to 1 (may exceed 1 with duplicates).
    pub selectivity: f64,
}

/// A group key as one digit of a dense group number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenseKey {
    /// Smallest value: digit = value - min.
    pub min: i64,
    /// Number of digits, the one for NULL included (it is the last).
    pub cardinality: u64,
    /// Whether the last digit stands for NULL.
    pub has_null: bool,
    /// Product of the cardinalities of later keys: group = sum of digit * stride.
    pub stride: u64,
}

/// A group key.
#[derive(Clone, Debug)]
pub struct BoundKey {
    /// Output column.
    pub field: Field,
    /// Value (integer-like or code for dense grouping).
    pub expr: BoundExpr,
    /// Digit, when the grouping is dense.
    pub dense: Option<DenseKey>,
}

/// How groups are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Group number computed from the keys' digits; `groups` accumulators of each kind.
    /// No keys: one group.
    Dense {
        /// Number of possible groups.
        groups: u64,
    },
    /// Hash table over the keys.
    Hash,
}

/// One running value per group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccumulatorKind {
    /// Rows that passed the filter and whose argument is not NULL: `u64`.
    Count,
    /// Exact total, proven by ranges and `rows_max` to fit `i64` at any time.
    SumI64,
    /// Exact 128-bit total, proven to fit: fewer than 2^63 rows of 64-bit values, or decimals
    /// of few enough digits for `rows_max`.
    SumI128,
    /// Exact 128-bit total with a count of its overflows, for decimals of many digits.
    SumWide,
    /// Sum in binary64.
    SumF64,
    /// Squared deviations of floats, with the number and sum that merging them takes.
    SquaredDeviations,
    /// Smallest.
    Min,
    /// Largest.
    Max,
}

impl AccumulatorKind {
    /// Whether it keeps one of its values.
    #[must_use]
    pub fn is_extreme(self) -> bool {
        matches!(self, Self::Min | Self::Max)
    }
}

/// One running value per group, with what feeds it.
#[derive(Clone, Debug)]
pub struct Accumulator {
    /// Kind.
    pub kind: AccumulatorKind,
    /// Argument; `None`: count rows.
    pub argument: Option<BoundExpr>,
    /// FILTER; a row for which it is not true is left out.
    pub filter: Option<BoundExpr>,
    /// The last one before it with the same argument and filter. Extremes share with extremes alone: they do not take
    /// decimals in 64 bits.
    pub same_as: Option<usize>,
}

impl Accumulator {
    /// Counts all rows.
    #[must_use]
    pub fn rows() -> Self {
        Self { kind: AccumulatorKind::Count, argument: None, filter: None, same_as: None }
    }
}

/// How one output column follows from accumulators.
#[derive(Clone, Debug)]
pub struct BoundCall {
    /// Output column.
    pub field: Field,
    /// Function.
    pub function: AggregateFunction,
    /// Accumulator that holds the count, total, squared deviations, minimum or maximum.
    pub value: usize,
    /// Accumulator that counts the values that went into it: 0 means NULL. Accumulator 0
    /// where no argument is nullable and there is no filter.
    pub count: usize,
    /// Overflow of the result type.
    pub on_overflow: OnOverflow,
    /// Argument type (scale of decimals for avg).
    pub argument_type: Option<DataType>,
    /// SQL text for error messages.
    pub text: Arc<str>,
}

/// The sink.
#[derive(Clone, Debug)]
pub enum BoundSink {
    /// Grouped aggregation.
    Aggregate {
        /// Keys.
        keys: Vec<BoundKey>,
        /// How groups are found.
        grouping: Grouping,
        /// Running values. Accumulator 0 is always a `Count` of all rows of the group: it
        /// tells whether the group exists.
        accumulators: Vec<Accumulator>,
        /// Output columns after the keys.
        calls: Vec<BoundCall>,
        /// Results, or partial states in portable form.
        output: AggregateOutput,
    },
    /// Rows.
    Rows {
        /// Output columns.
        columns: Vec<(Field, BoundExpr)>,
        /// Limit.
        limit: Option<u64>,
    },
    /// Rows in an order.
    Sorted {
        /// Output columns.
        columns: Vec<(Field, BoundExpr)>,
        /// What they are ordered by.
        order: Vec<OrderKey>,
        /// Limit.
        limit: Option<u64>,
    },
    /// A build.
    Build {
        /// Key columns.
        keys: Vec<(Field, BoundExpr)>,
        /// Payload columns.
        payload: Vec<(Field, BoundExpr)>,
    },
}

/// A lowered pipeline.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Table name.
    pub table: String,
    /// Number of source registers.
    pub source_registers: usize,
    /// All registers.
    pub registers: Vec<RegisterInfo>,
    /// Steps, most selective first as far as the evaluation rules allow.
    pub steps: Vec<BoundStep>,
    /// For each step, its place in the program.
    pub places: Vec<usize>,
    /// Sink.
    pub sink: BoundSink,
    /// Upper bound of streamed rows.
    pub rows_max: u64,
    /// Code translation tables of the source.
    pub remaps: Vec<Arc<[i32]>>,
}

impl BoundExpr {
    /// The expression as the target of a kernel.
    pub(crate) fn target(&self) -> Target<'_> {
        Target { data_type: &self.data_type, repr: &self.repr, text: &self.text }
    }

    /// Operands, in order of evaluation.
    pub fn children(&self) -> Vec<&BoundExpr> {
        match &self.kind {
            BoundKind::Register(_)
            | BoundKind::Literal(_)
            | BoundKind::Lookup { .. }
            | BoundKind::Numbers { .. } => vec![],
            BoundKind::Arithmetic { left, right, .. } | BoundKind::Compare { left, right, .. } => {
                vec![left, right]
            }
            BoundKind::Negate { value, .. }
            | BoundKind::Not(value)
            | BoundKind::IsNull(value)
            | BoundKind::InList { value, .. }
            | BoundKind::Like { value, .. }
            | BoundKind::Cast { value, .. }
            | BoundKind::Shift { value, .. }
            | BoundKind::Search { value, .. }
            | BoundKind::Decode(value) => vec![value],
            BoundKind::And(operands)
            | BoundKind::Or(operands)
            | BoundKind::Call { arguments: operands, .. } => operands.iter().collect(),
            BoundKind::Cuda { arguments, twin, .. } => {
                arguments.iter().chain(twin.as_deref()).collect()
            }
            BoundKind::Case { branches, otherwise } => branches
                .iter()
                .flat_map(|(condition, value)| [condition, value])
                .chain(otherwise.as_deref())
                .collect(),
        }
    }

    /// Calls `f` on this expression and everything below it.
    pub(crate) fn visit<'a>(&'a self, f: &mut impl FnMut(&'a BoundExpr)) {
        f(self);
        for child in self.children() {
            child.visit(f);
        }
    }

    /// Registers that the expression reads, in order of evaluation, each once.
    pub fn registers(&self) -> Vec<Register> {
        let mut found = Vec::new();
        self.visit(&mut |e| {
            if let BoundKind::Register(register)
            | BoundKind::Lookup { register, .. }
            | BoundKind::Numbers { register, .. } = &e.kind
                && !found.contains(register)
            {
                found.push(*register);
            }
        });
        found
    }

    /// Whether it is arithmetic that fails where floats leave their range.
    pub fn is_strict(&self) -> bool {
        matches!(self.kind, BoundKind::Arithmetic { on_overflow: OnOverflow::Strict, .. })
    }
}
