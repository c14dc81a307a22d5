//! What the generator does not take.

use headrace_pipeline::WhyNot;

pub(super) type Result<T> = std::result::Result<T, WhyNot>;

pub(super) fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(WhyNot::new(reason))
}
