//! Nodes of a statement: names, and calls.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName,
};

/// Whether two names are the same.
pub fn is_same(a: &Ident, b: &Ident) -> bool {
    plain_name(a) == plain_name(b)
}

/// A name as it is compared: in lower case, unless it is quoted.
pub fn plain_name(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// A call of a function.
pub fn call(name: impl Into<Ident>, arguments: impl IntoIterator<Item = Expr>) -> Function {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    let arguments = FunctionArgumentList {
        duplicate_treatment: None,
        args: arguments.into_iter().map(argument).collect(),
        clauses: Vec::new(),
    };
    Function {
        name: ObjectName::from(vec![name.into()]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(arguments),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    }
}
