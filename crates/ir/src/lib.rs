//! The words of Headrace: types, expressions, pipeline steps and sinks, and how the
//! columns of a chunk lie in memory.
//!
//! This crate does no work. It is the contract between whoever plans (DataFusion, later
//! PostgreSQL) and whoever executes (a CPU core, a CUDA kernel, later a remote process):
//! everything here is plain data, serialisable, and says exactly what it means, so that
//! two processors cannot disagree about it.
//!
//! # What a program is
//!
//! A [`Program`] is a graph of stages. A stage is a [`Pipeline`]: what happens to each chunk of one
//! source with no stop in between.
//!
//! ```text
//! source -> Filter | Compute | Probe ... -> sink
//! ```
//!
//! A stage ends in rows (perhaps with window functions beside them, [`windows`]), groups, a build or partitions. A later
//! stage reads rows and groups as
//! its source and probes builds; the last stage's output is the answer. Planners write tables, builds
//! and groups; distinct calls, groups of unions, grouping sets and joins by partitions are lowered to stages of these
//! kinds ([`distinct`], [`union`], [`grouping`], [`divide`]).
//!
//! Rows are described by *registers*. Registers `0..n` are the `n` columns of the source;
//! each `Compute` appends one, each `Probe` appends one per payload column (and one for a
//! mark). A register is assigned once and never changes, so an expression means the same
//! wherever it stands after the registers that it reads exist.
//!
//! Functions have names of a closed set that says of each what it takes, yields and refuses
//! ([`function`]); users write others in CUDA ([`cuda_function`]), those of whole tables, too ([`cuda_table`]).
//!
//! A constant that is not known when a program is made is a parameter: its value comes with each
//! run and is put in the parameter's place before anything else happens ([`parameter`]).
//!
//! # Evaluation rules that every processor keeps
//!
//! - SQL three-valued logic; a `Filter` keeps a row only when its expression is true.
//! - Arithmetic carries what happens on overflow ([`OnOverflow`]).
//! - An expression that can fail ([`Expr::can_fail`]) is never evaluated for a row that an
//!   earlier step removed, nor in a `CASE` branch that was not taken, nor to the right of an
//!   `AND` / `OR` operand that already decided, however steps are reordered for speed.
//! - Floats compare in the total order of Arrow and PostgreSQL: `-0 = 0`, NaN equals NaN
//!   and is greater than every other value.
//! - `sum` of integers and decimals is exact: it fails if and only if the exact total does
//!   not fit its result type, whatever the order of the rows. (Beside distinct calls it may also
//!   fail where the total of part of a group has more than 38 digits.)
//!
//! # What this crate must never know
//!
//! Any other crate; files, devices, threads, DataFusion, PostgreSQL, CUDA.

pub mod aggregate;
pub mod cuda_function;
pub mod cuda_table;
pub mod distinct;
pub mod divide;
pub mod expr;
pub mod function;
pub mod grouping;
pub mod layout;
pub mod moment;
pub mod order;
pub mod pages;
pub mod parameter;
pub mod pipeline;
pub mod program;
pub mod scalar;
pub mod types;
pub mod union;
pub mod windows;
mod windows_read;

mod display;
mod first_ranks;
mod lower;
mod parts;
mod passed_on;
mod shared;
mod splice;
mod validate;

pub use aggregate::{AggregateCall, AggregateFunction, AggregateOutput, FirstGroups, GroupsOfNone};
pub use cuda_function::CudaFunction;
pub use cuda_table::{CudaTableFunction, TableLaunch};
pub use expr::{ArithmeticOp, CastFailure, CompareOp, Expr, NamedExpr, OnOverflow, Register};
pub use function::{DatePart, Function, MatchPart, Unmatched};
pub use layout::{Chunk, ColumnExtents, Encoding, Extent, Segment, ValueRange};
pub use moment::{Interval, TimeZone};
pub use order::OrderKey;
pub use parameter::ParameterError;
pub use passed_on::PassedOn;
pub use pipeline::{Input, Pipeline, Probe, ProbeKind, Sink, Source, Step};
pub use program::{PROGRAM_VERSION, Program};
pub use scalar::{Scalar, Value};
pub use types::{DataType, Field, Schema, TimeUnit};
pub use validate::IrError;
pub use windows::{ColumnCall, FrameEnd, RowOf, WindowCall, WindowFunction, Windows};
