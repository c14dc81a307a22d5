//! The out-of-core operators: thin doors over `headrace_ooc`.

mod generate;
mod run;
mod sets;

pub use generate::{GenerateCommand, generate};
pub use sets::{SetArgs, set};
