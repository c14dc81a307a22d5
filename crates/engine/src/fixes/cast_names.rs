//! Casts that the planner takes for what they cast.
//!
//! ```sql
//! SELECT max(x), max(CAST(x AS TEXT)) FROM t
//! ```
//!
//! - DataFusion: A cast is called as what it casts, and two outputs, groups or aggregates of one name are refused; right is
//!   two columns.
//! - Upstream: apache/datafusion#4478.
//! - This can go when its canary finds the fault mended.
//!
//! It calls `CAST(x AS INT)` as it calls `x`, and refuses two groups, aggregates or windows of one name. [`Named`] around a
//! cast is its value under another name.

use std::mem;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::{Expr, Statement, Value, VisitorMut};

use crate::sql::nodes::call;
use crate::sql::walk::{self, Flow, ON, Stop};
use crate::strict;

/// What is around a cast is called.
const NAME: &str = "cast";

/// Gives every cast a name of its own; whether there is one.
pub fn name(statement: &mut Statement) -> bool {
    let mut name = Name { found: false };
    walk::change_all(statement, &mut name);
    name.found
}

struct Name {
    found: bool,
}

impl VisitorMut for Name {
    type Break = Stop;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if matches!(expr, Expr::Cast { .. }) {
            self.found = true;
            let cast = mem::replace(expr, Expr::value(Value::Null));
            *expr = Expr::Function(call(NAME, [cast]));
        }
        ON
    }
}

/// The function around casts, which is its argument.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Named {
    signature: Signature,
}

impl Named {
    /// As sessions register it.
    pub fn function() -> ScalarUDF {
        ScalarUDF::from(Self { signature: Signature::any(1, Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for Named {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value] => Ok(value.clone()),
            _ => internal_err!("{NAME} of {} values", arguments.len()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        strict::return_field(self, &args)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        args.args.pop().map_or_else(|| internal_err!("{NAME} of no value"), Ok)
    }
}
