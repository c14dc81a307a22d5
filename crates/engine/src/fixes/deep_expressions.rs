//! Expressions of many levels: `a + b + ..` is one for each operator, and everything that works on them calls
//! itself for each. So statements are planned on a stack that has room, and what is deeper still is refused.
//!
//! ```sql
//! SELECT 1 + 1 + 1 + ..  -- of ten thousand operators
//! ```
//!
//! - DataFusion: The process ends with an overflow of its stack; right is an answer, or an error.
//! - Upstream: no upstream issue known.
//! - This can go when DataFusion and its parser need no stack for each level, or refuse what is too deep.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use datafusion::common::{Result, plan_datafusion_err};
use datafusion::sql::sqlparser::ast::{Expr, Statement, Visitor};

use crate::sql::walk::{self, Flow, ON, Stop};

/// Levels of an expression that is planned.
const LEVELS_MAX: usize = 4000;

/// What planning may need for that many; pages that it does not reach take no memory.
const STACK_BYTES: usize = 512 << 20;

/// Refuses a statement whose expressions have too many levels.
///
/// # Errors
/// That it has.
pub fn check(statement: &Statement) -> Result<()> {
    walk::look(statement, &mut Levels(0))
}

struct Levels(usize);

impl Visitor for Levels {
    type Break = Stop;

    fn pre_visit_expr(&mut self, _: &Expr) -> Flow {
        self.0 += 1;
        if self.0 <= LEVELS_MAX {
            return ON;
        }
        walk::stop(plan_datafusion_err!(
            "an expression has more than {LEVELS_MAX} levels\nhint: each operator of a chain such as a + b + .. is \
             one: write IN (..) for = .. OR = .., set parentheses in the middle, or take the sum in parts"
        ))
    }

    fn post_visit_expr(&mut self, _: &Expr) -> Flow {
        self.0 -= 1;
        ON
    }
}

/// Planning, on a stack that has room for it.
pub struct OnLargeStack<F>(Pin<Box<F>>);

impl<F: Future> OnLargeStack<F> {
    /// Runs `work` there whenever it is polled.
    pub fn new(work: F) -> Self {
        Self(Box::pin(work))
    }
}

impl<F: Future> Future for OnLargeStack<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        stacker::grow(STACK_BYTES, || self.0.as_mut().poll(context))
    }
}
