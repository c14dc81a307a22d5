//! Functions whose body is CUDA C++, written by users.
//!
//! A call of one has the same arguments twice: those that its code gets, and a *twin*, an expression over the same
//! registers that means the same. A GPU that may run the code does so; wherever else the call is evaluated, the twin is.
//! Neither is proven to be the other.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::DataType;

/// Most bytes of a body.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// A function in CUDA C++.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CudaFunction {
    /// Its name in SQL.
    pub name: String,
    /// Names, which are those of variables in C++, and types of its parameters.
    pub parameters: Vec<(String, DataType)>,
    /// What it returns.
    pub result: DataType,
    /// The statements between its braces.
    pub body: String,
}

impl CudaFunction {
    /// Why it cannot be a function; `None` if it can, as far as that can be told without a compiler.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        let mut names = std::iter::once(&self.name).chain(self.parameters.iter().map(|(n, _)| n));
        if let Some(name) = names.find(|name| !is_identifier(name)) {
            return Some(format!("{name:?} is no name of C++: letters of ASCII, digits and _"));
        }
        for (place, (name, data_type)) in self.parameters.iter().enumerate() {
            if self.parameters[..place].iter().any(|(other, _)| other == name) {
                return Some(format!("two parameters are called {name}"));
            }
            if !is_passed(data_type) {
                return Some(format!("parameter {name} cannot be {data_type}: {PASSED}"));
            }
        }
        if !is_returned(&self.result) {
            return Some(format!("it cannot return {}: {RETURNED}", self.result));
        }
        (self.body.len() > BODY_BYTES_MAX)
            .then(|| format!("its body has {} bytes, of at most {BODY_BYTES_MAX}", self.body.len()))
    }

    /// What a call says that is to be evaluated where the code cannot run and that has no twin.
    #[must_use]
    pub fn without_twin(&self) -> String {
        format!(
            "{0}() is CUDA code without a TWIN, and can only run on a GPU of the GPU service\n\
             hint: headrace gpu-service start; or CREATE OR REPLACE FUNCTION {0} .. TWIN 'an SQL expression'",
            self.name
        )
    }
}

pub(crate) const PASSED: &str = "numbers but decimals, booleans, dates, times, texts, fixed_binary(n) and lists float[n] are passed";

const RETURNED: &str = "numbers but decimals, booleans, dates and times are returned";

/// Whether a value of this type can be an argument.
pub(crate) fn is_passed(data_type: &DataType) -> bool {
    let is_row =
        matches!(data_type, DataType::Utf8 | DataType::FixedBinary(_) | DataType::FloatList { .. });
    is_row || is_returned(data_type)
}

/// Whether a value of this type can be returned.
pub(crate) fn is_returned(data_type: &DataType) -> bool {
    use DataType::{Bool, Date32, Float32, Float64, Time64, Timestamp};
    data_type.is_integer()
        || matches!(data_type, Bool | Date32 | Float32 | Float64 | Time64(_) | Timestamp { .. })
}

/// Whether a name can stand in C++ for what it is.
pub(crate) fn is_identifier(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

impl fmt::Display for CudaFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice() -> CudaFunction {
        CudaFunction {
            name: "twice".into(),
            parameters: vec![("x".into(), DataType::Int32)],
            result: DataType::Int64,
            body: "return 2ll * x;".into(),
        }
    }

    #[test]
    fn what_cannot_be_compiled_or_passed_is_refused() {
        assert_eq!(twice().error(), None);
        let named = |name: &str| CudaFunction { name: name.into(), ..twice() };
        for (function, cause) in [
            (named("2x"), "no name of C++"),
            (named("a b"), "no name of C++"),
            (named("größe"), "no name of C++"),
            (named(""), "no name of C++"),
            (
                CudaFunction {
                    parameters: vec![("x".into(), DataType::Bool), ("x".into(), DataType::Bool)],
                    ..twice()
                },
                "two parameters",
            ),
            (
                CudaFunction { parameters: vec![("x".into(), DataType::Binary)], ..twice() },
                "cannot be binary",
            ),
            (CudaFunction { result: DataType::Utf8, ..twice() }, "cannot return"),
            (CudaFunction { body: "x".repeat(BODY_BYTES_MAX + 1), ..twice() }, "of at most"),
        ] {
            let error = function.error().unwrap_or_default();
            assert!(error.contains(cause), "{function:?}: {error}");
        }
    }
}
