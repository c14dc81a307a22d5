//! Calls of `COLUMNS(..)`.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArguments, ObjectNamePart, Query, SelectItem, Visitor,
};

use super::walk::{self, Flow, ON, Stop};

/// The call of COLUMNS, if it is one.
pub fn arguments(expr: &Expr) -> Option<&[FunctionArg]> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else {
        return None;
    };
    let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
    name.value.eq_ignore_ascii_case("columns").then_some(list.args.as_slice())
}

/// Whether an output has COLUMNS in it; those of a subquery are its own.
pub fn has_columns(item: &SelectItem) -> bool {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return false;
    };
    let mut calls = Calls::default();
    walk::look_at_all(expr, &mut calls);
    !calls.found.is_empty()
}

/// Those in an expression.
#[derive(Default)]
pub struct Calls {
    pub found: Vec<Expr>,
    queries: usize,
}

impl Visitor for Calls {
    type Break = Stop;

    fn pre_visit_query(&mut self, _: &Query) -> Flow {
        self.queries += 1;
        ON
    }

    fn post_visit_query(&mut self, _: &Query) -> Flow {
        self.queries -= 1;
        ON
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        if self.queries == 0 && arguments(expr).is_some() {
            self.found.push(expr.clone());
        }
        ON
    }
}
