//! Walks over the nodes of a statement.
//!
//! The parser's walk is compiled anew for each type of visitor, all nodes of SQL each time: most of this crate's code
//! was that. So there is one type for those that look and one for those that change, around whatever visitor it is.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

/// What a walk is ended with.
pub type Stop = Box<DataFusionError>;

/// Whether a walk goes on.
pub type Flow = ControlFlow<Stop>;

/// Goes on.
pub const ON: Flow = ControlFlow::Continue(());

/// Ends a walk.
pub fn stop(error: DataFusionError) -> Flow {
    ControlFlow::Break(Box::new(error))
}

/// Shows all nodes below one to a visitor.
///
/// # Errors
/// What the visitor ended the walk with.
pub fn look(node: &impl Visit, visitor: &mut dyn Visitor<Break = Stop>) -> Result<()> {
    result(node.visit(&mut Looking(visitor)))
}

/// Lets a visitor change all nodes below one.
///
/// # Errors
/// What the visitor ended the walk with.
pub fn change(node: &mut impl VisitMut, visitor: &mut dyn VisitorMut<Break = Stop>) -> Result<()> {
    result(node.visit(&mut Changing(visitor)))
}

/// Shows all nodes below one to a visitor that never ends the walk.
pub fn look_at_all(node: &impl Visit, visitor: &mut dyn Visitor<Break = Stop>) {
    let _never = look(node, visitor);
}

/// Lets a visitor that never ends the walk change all nodes below one.
pub fn change_all(node: &mut impl VisitMut, visitor: &mut dyn VisitorMut<Break = Stop>) {
    let _never = change(node, visitor);
}

fn result(flow: Flow) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Looking<'a>(&'a mut dyn Visitor<Break = Stop>);

struct Changing<'a>(&'a mut dyn VisitorMut<Break = Stop>);

macro_rules! forward {
    ($trait:ident for $walk:ident: $($pre:ident $post:ident $node:ty),*) => {
        impl $trait for $walk<'_> {
            type Break = Stop;

            $(
                fn $pre(&mut self, node: $node) -> Flow {
                    self.0.$pre(node)
                }

                fn $post(&mut self, node: $node) -> Flow {
                    self.0.$post(node)
                }
            )*
        }
    };
}

forward!(Visitor for Looking:
    pre_visit_query post_visit_query &Query,
    pre_visit_select post_visit_select &Select,
    pre_visit_relation post_visit_relation &ObjectName,
    pre_visit_table_factor post_visit_table_factor &TableFactor,
    pre_visit_expr post_visit_expr &Expr,
    pre_visit_statement post_visit_statement &Statement,
    pre_visit_value post_visit_value &ValueWithSpan
);

forward!(VisitorMut for Changing:
    pre_visit_query post_visit_query &mut Query,
    pre_visit_select post_visit_select &mut Select,
    pre_visit_relation post_visit_relation &mut ObjectName,
    pre_visit_table_factor post_visit_table_factor &mut TableFactor,
    pre_visit_expr post_visit_expr &mut Expr,
    pre_visit_statement post_visit_statement &mut Statement,
    pre_visit_value post_visit_value &mut ValueWithSpan
);
