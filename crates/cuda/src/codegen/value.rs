//! How values are held in the generated code.

/// How the value of a register is held in the generated code.
#[derive(Clone, Debug)]
pub(super) enum Held {
    /// A source column that no step has needed yet.
    NotLoaded,
    /// `name[r]` of the register's type; with a nibble `valid` whose bit r is set where not NULL.
    Array { name: String, valid: Option<String> },
    /// `base + name[r]` with narrow unsigned `name[r]`; `base` is an expression.
    Raw { name: String, base: String, valid: Option<String> },
    /// `hr::Deltas name` over the expression `base`.
    Deltas { name: String, base: String, valid: Option<String> },
    /// Bit r of the word `name` is the truth, which is never NULL.
    Bits { name: String },
    /// Payload of the probe at this step, of whose keys only the presence has been looked up.
    Late { step: usize },
}

/// A C++ expression of the representation's type, and whether it is NULL. Neither has side
/// effects; the value of a NULL has no meaning but may be computed.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) code: String,
    pub(super) null: Option<String>,
}

impl Value {
    pub(super) fn known(code: impl Into<String>) -> Self {
        Self { code: code.into(), null: None }
    }
}
