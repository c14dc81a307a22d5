//! PostgreSQL's types, expressions and aggregates in the words of `ir`, or the reason why not.
//!
//! What is translated means the same, byte for byte, or it fails: a failing pipeline leaves the answer
//! to PostgreSQL's own plan, so that an overflow may be noticed on other rows than PostgreSQL would
//! look at, but a value may never be another one. What has no exact counterpart is refused here.

mod aggregate;
mod call;
mod choice;
mod compare;
pub mod constant;
pub mod document;
mod expr;
mod format;
mod moment;
mod number;
mod shown;
mod text;
mod types;
mod zone;

pub use aggregate::{Aggregates, aggregate};
pub use call::arithmetic;

pub use compare::{check_equality, descends, equality_key};
pub use expr::{Columns, Translator};
pub use format::{constant_text, finest};
pub use shown::{Digits, Shown};
pub use types::{
    HeapColumn, declared_digits, ir_type, is_deterministic, is_of_one_length, name_of, stored,
    wider_decimal, wider_integer,
};
