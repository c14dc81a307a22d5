//! GROUP BY, HAVING and DISTINCT ON in the planner's words.
//!
//! ```sql
//! SELECT count(*) FROM t GROUP BY ()
//! ```
//!
//! - DataFusion: Refused, as are HAVING without groups, ROLLUP within GROUPING SETS, and rows in ROLLUP; right is one group
//!   of all rows, and all their sets.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! ```text
//! GROUP BY ()                                   GROUP BY GROUPING SETS (()): one group of all rows
//! HAVING c, without groups and aggregates       the same
//! CUBE (1, 2), ROLLUP (1), GROUPING SETS ((1))  of the outputs at these places; DISTINCT ON (1), too
//! GROUPING SETS (ROLLUP (a, b), CUBE (c))       all their sets
//! ROLLUP ((a, b), c)                            GROUPING SETS ((a, b, c), (a, b), ()); CUBE alike
//! ```

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    ObjectNamePart, Select, SelectItem, Value, Visitor,
};

use crate::sql::walk::{self, Flow, ON, Stop};

/// Columns of a CUBE at most: it has a set for each choice of them.
const CUBE_MAX: usize = 12;

/// Spells out the groups of a SELECT.
pub fn spell_out(select: &mut Select) {
    let outputs = select.projection.clone();
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        in_places(std::slice::from_mut(keys), &outputs);
    }
    let needs_group = select.having.is_some() && !calls(select);
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return };
    for key in keys.iter_mut() {
        match key {
            Expr::Rollup(parts) | Expr::Cube(parts) => in_places(parts, &outputs),
            Expr::GroupingSets(sets) => {
                *sets = sets.drain(..).flat_map(sets_of).collect();
                in_places(sets, &outputs);
            }
            _ => {}
        }
    }
    let before = keys.len();
    keys.retain(|key| !matches!(key, Expr::Tuple(none) if none.is_empty()));
    if keys.is_empty() && (before > 0 || needs_group) {
        keys.push(Expr::GroupingSets(vec![Vec::new()]));
    }
}

/// A ROLLUP or CUBE of more than columns, as its sets.
pub fn in_sets(expr: &mut Expr) {
    match expr {
        Expr::Rollup(parts) if parts.iter().any(|part| part.len() != 1) => {
            *expr = Expr::GroupingSets(rollup(parts));
        }
        Expr::Cube(parts)
            if parts.iter().any(|part| part.len() != 1) && parts.len() <= CUBE_MAX =>
        {
            *expr = Expr::GroupingSets(cube(parts));
        }
        _ => {}
    }
}

/// Outputs in the place of their numbers.
fn in_places(sets: &mut [Vec<Expr>], outputs: &[SelectItem]) {
    for key in sets.iter_mut().flatten() {
        let Expr::Value(value) = &*key else { continue };
        let Value::Number(place, _) = &value.value else { continue };
        let output =
            place.parse::<usize>().ok().and_then(|place| outputs.get(place.wrapping_sub(1)));
        if let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = output
        {
            *key = expr.clone();
        }
    }
}

/// The sets of a ROLLUP or CUBE within GROUPING SETS, which the parser takes for a function.
fn sets_of(set: Vec<Expr>) -> Vec<Vec<Expr>> {
    let [Expr::Function(Function { name, args: FunctionArguments::List(list), .. })] =
        set.as_slice()
    else {
        return vec![set];
    };
    let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return vec![set] };
    let part = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Tuple(part))) => Some(part.clone()),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(part)) => Some(vec![part.clone()]),
        _ => None,
    };
    let Some(parts) = list.args.iter().map(part).collect::<Option<Vec<_>>>() else {
        return vec![set];
    };
    match name.value.to_ascii_lowercase().as_str() {
        "rollup" => rollup(&parts),
        "cube" if parts.len() <= CUBE_MAX => cube(&parts),
        _ => vec![set],
    }
}

/// The sets of a ROLLUP.
fn rollup(parts: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    (0..=parts.len()).rev().map(|count| parts[..count].concat()).collect()
}

/// The sets of a CUBE.
fn cube(parts: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    let of = |choice: usize| {
        let chosen = parts.iter().enumerate().filter(|(nth, _)| choice & (1 << nth) != 0);
        chosen.flat_map(|(_, part)| part.clone()).collect()
    };
    (0..1_usize << parts.len()).rev().map(of).collect()
}

/// Whether outputs or HAVING call a function, which may be an aggregate.
fn calls(select: &Select) -> bool {
    struct Calls(bool);
    impl Visitor for Calls {
        type Break = Stop;

        fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
            self.0 |= matches!(expr, Expr::Function(_));
            ON
        }
    }
    let mut found = Calls(false);
    walk::look_at_all(&select.projection, &mut found);
    walk::look_at_all(&select.having, &mut found);
    found.0
}
