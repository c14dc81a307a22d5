//! What is wrong with a page, for an error that says where.

/// The cause.
#[derive(Debug)]
pub struct Bad(pub String);

impl Bad {
    pub fn new(cause: impl Into<String>) -> Self {
        Self(cause.into())
    }

    pub fn encoding(encoding: i32) -> Self {
        Self(format!("encoding {encoding} is not read for its type"))
    }
}
