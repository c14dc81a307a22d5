//! Conditions that the names of folders decide: a file whose folders do not meet them is not read.

use std::collections::HashMap;

use pgrx::pg_sys::{
    self, Datum, EState, ExprContext, List, Node, NodeTag, PlannerInfo, RelOptInfo,
};

use super::files::Found;
use super::table::{Column, ForeignTable};
use crate::nodes::{self, WhyNot, cast, items};
use crate::version;

/// Conditions on a relation's rows alone that read columns of folders and nothing else of a row.
pub unsafe fn clauses(relation: *mut RelOptInfo, of_folders: &[i16]) -> Vec<*mut Node> {
    plain(relation).filter(|clause| is_decided(*clause, of_folders)).collect()
}

/// Conditions on a relation's rows alone that may be asked before others: not those that must see only
/// rows that others let through.
pub unsafe fn plain<'a>(relation: *mut RelOptInfo) -> impl Iterator<Item = *mut Node> + 'a {
    let of_relation = items::<pg_sys::RestrictInfo>((*relation).baserestrictinfo);
    let plain = of_relation.filter(move |rinfo| {
        !(**rinfo).pseudoconstant && pg_sys::restriction_is_securely_promotable(*rinfo, relation)
    });
    plain.map(|rinfo| (*rinfo).clause.cast::<Node>())
}

unsafe fn is_decided(clause: *mut Node, of_folders: &[i16]) -> bool {
    let mut reads_folders = false;
    let is_obstacle = nodes::any(clause, &mut |node| match nodes::tag(node) {
        NodeTag::T_Var => {
            let var = node.cast::<pg_sys::Var>();
            reads_folders = true;
            (*var).varlevelsup > 0 || !of_folders.contains(&(*var).varattno)
        }
        NodeTag::T_Param => {
            let parameter = node.cast::<pg_sys::Param>();
            (*parameter).paramkind != pg_sys::ParamKind::PARAM_EXTERN
        }
        NodeTag::T_SubPlan | NodeTag::T_AlternativeSubPlan | NodeTag::T_PlaceHolderVar => true,
        _ => false,
    });
    reads_folders && !is_obstacle && !pg_sys::contain_volatile_functions(clause)
}

/// A value that a folder's name gives to a column, in the memory at hand. Ends the query if it is none
/// of the column's type.
pub unsafe fn value(column: &Column, text: Option<&str>) -> Option<Datum> {
    let text = nodes::c_string(text?);
    let (mut input, mut parameter) = (pg_sys::Oid::INVALID, pg_sys::Oid::INVALID);
    pg_sys::getTypeInputInfo(column.type_oid, &mut input, &mut parameter);
    let text = text.as_ptr().cast_mut();
    Some(pg_sys::OidInputFunctionCall(input, text, parameter, column.typmod))
}

struct Values<'a> {
    table: &'a ForeignTable,
    file: &'a Found,
}

/// An expression with constants in place of columns.
unsafe fn with_values(node: *mut Node, values: &Values<'_>) -> *mut Node {
    unsafe extern "C-unwind" fn replace(
        node: *mut Node,
        context: *mut std::ffi::c_void,
    ) -> *mut Node {
        // `with_values` made it, and waits.
        let values = &*context.cast::<Values<'_>>();
        match node.is_null() {
            true => node,
            false => match cast::<pg_sys::Var>(node, NodeTag::T_Var) {
                Some(var) => constant(&*var, values),
                None => version::mutated(node, replace, context),
            },
        }
    }

    let context: *const Values<'_> = values;
    replace(node, context.cast_mut().cast())
}

unsafe fn constant(var: &pg_sys::Var, values: &Values<'_>) -> *mut Node {
    let column = values.table.column(var.varattno);
    let datum =
        column.ok().and_then(|column| value(column, values.file.value(&column.name).flatten()));
    let (mut length, mut by_value) = (0, false);
    pg_sys::get_typlenbyval(var.vartype, &mut length, &mut by_value);
    let value = datum.unwrap_or(Datum::from(0));
    let constant = pg_sys::makeConst(
        var.vartype,
        var.vartypmod,
        var.varcollid,
        length.into(),
        value,
        datum.is_none(),
        by_value,
    );
    constant.cast()
}

/// The files that conditions let through, each combination of values asked once.
unsafe fn kept(
    table: &ForeignTable,
    found: Vec<Found>,
    holds: impl Fn(&Values<'_>) -> bool,
) -> Vec<Found> {
    let mut known: HashMap<Vec<(String, Option<String>)>, bool> = HashMap::new();
    let mut keep = |file: &Found| match known.get(&file.values) {
        Some(known) => *known,
        None => {
            let holds = holds(&Values { table, file });
            known.insert(file.values.clone(), holds);
            holds
        }
    };
    found.into_iter().filter(|file| keep(file)).collect()
}

/// The files that are likely to be read, for estimates.
pub unsafe fn likely(
    root: *mut PlannerInfo,
    table: &ForeignTable,
    found: Vec<Found>,
    clauses: &[*mut Node],
) -> Vec<Found> {
    let is_ruled_out = |clause: &*mut Node, values: &Values<'_>| {
        let value = pg_sys::estimate_expression_value(root, with_values(*clause, values));
        let constant = cast::<pg_sys::Const>(value, NodeTag::T_Const);
        constant.is_some_and(|value| (*value).constisnull || (*value).constvalue.value() == 0)
    };
    kept(table, found, |values| !clauses.iter().any(|clause| is_ruled_out(clause, values)))
}

/// The files that are read.
pub unsafe fn wanted(
    estate: *mut EState,
    context: *mut ExprContext,
    table: &ForeignTable,
    found: Vec<Found>,
    clauses: *mut List,
) -> Result<Vec<Found>, WhyNot> {
    if clauses.is_null() {
        return Ok(found);
    }
    let clauses: Vec<*mut Node> = items(clauses).collect();
    for name in clauses.iter().flat_map(|clause| columns(*clause)) {
        let column = table.column(name)?;
        if let Some(file) = found.iter().find(|file| file.value(&column.name).is_none()) {
            return Err(WhyNot(format!(
                "{}: no folder above it is named {}=..., which column \"{}\" of foreign table \"{}\" was planned with",
                file.path.display(),
                column.name,
                column.name,
                table.name
            )));
        }
    }
    let holds = |clause: &*mut Node, values: &Values<'_>| {
        let expr = with_values(*clause, values);
        let state = pg_sys::ExecPrepareExpr(expr.cast(), estate);
        let mut is_null = false;
        let value = pg_sys::ExecEvalExprSwitchContext(state, context, &mut is_null);
        !is_null && value.value() != 0
    };
    Ok(kept(table, found, |values| clauses.iter().all(|clause| holds(clause, values))))
}

unsafe fn columns(clause: *mut Node) -> Vec<i16> {
    let mut found = Vec::new();
    nodes::any(clause, &mut |node| {
        if let Some(var) = cast::<pg_sys::Var>(node, NodeTag::T_Var) {
            found.push((*var).varattno);
        }
        false
    });
    found
}
