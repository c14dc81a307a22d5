//! What is asked for: of each group, or of each row.

use headrace_ir::{AggregateOutput, Expr, NamedExpr, Sink};
use pgrx::pg_sys::{self, Node, NodeTag, PlannerInfo, RelOptInfo};

use super::groups;
use super::top::{Top, at_least_one};
use crate::nodes::{self, Walk, WhyNot, items, why_not};
use crate::plan::Output;
use crate::translate::{Aggregates, Shown, Translator, aggregate, check_equality, stored};
use crate::version;

/// The columns that the node brings, of which PostgreSQL computes its target list.
pub struct Target {
    /// Expressions that rows are grouped by, or that rows are of.
    keys: Vec<*mut Node>,
    /// Aggregates.
    aggregates: Vec<*mut pg_sys::Aggref>,
    /// Conditions on groups.
    pub having: *mut pg_sys::List,
    /// How many rows are wanted.
    pub top: Option<Top>,
    /// How many groups there will be.
    pub groups: f64,
    is_grouped: bool,
}

impl Target {
    /// The columns that rows are of, of which something is computed.
    pub unsafe fn of_rows(computed: *mut pg_sys::PathTarget, top: Option<Top>) -> Self {
        let mut keys: Vec<*mut Node> = Vec::new();
        for column in items::<Node>(pg_sys::pull_var_clause((*computed).exprs.cast(), 0)) {
            if !keys.iter().any(|known| nodes::equal(*known, column)) {
                keys.push(column);
            }
        }
        let having = std::ptr::null_mut();
        Self { keys, aggregates: Vec::new(), having, top, groups: 0.0, is_grouped: false }
    }

    /// Those of a grouping.
    pub unsafe fn of_groups(
        root: *mut PlannerInfo,
        input: *mut RelOptInfo,
        output: *mut RelOptInfo,
        extra: &pg_sys::GroupPathExtraData,
    ) -> Result<Self, WhyNot> {
        let mut keys: Vec<*mut Node> = Vec::new();
        for clause in items::<pg_sys::SortGroupClause>(version::group_clause(root)) {
            let entry = pg_sys::get_sortgroupclause_tle(clause, (*root).processed_tlist);
            let key: *mut Node = (*entry).expr.cast();
            if !keys.iter().any(|known| nodes::equal(*known, key)) {
                keys.push(key);
            }
        }
        let having = extra.havingQual.cast::<pg_sys::List>();
        let aggregates = Vec::new();
        let groups = groups::estimated(root, &keys, (*input).rows);
        let mut target = Self { keys, aggregates, having, top: None, groups, is_grouped: true };
        let exprs = (*(*output).reltarget).exprs;
        for expr in items::<Node>(exprs).chain(items(having)) {
            target.add(expr)?;
        }
        Ok(target)
    }

    /// Takes note of what an expression needs: a column outside of a key and of an aggregate follows
    /// from the keys (they contain its table's primary key), and is one more key.
    unsafe fn add(&mut self, expr: *mut Node) -> Result<(), WhyNot> {
        let mut refused = Ok(());
        nodes::walk(expr, &mut |expr| {
            if self.keys.iter().any(|key| nodes::equal(*key, expr)) {
                return Walk::Past;
            }
            match nodes::tag(expr) {
                NodeTag::T_Var => self.keys.push(expr),
                NodeTag::T_GroupingFunc => {
                    refused = why_not("GROUPING()");
                    return Walk::Stop;
                }
                NodeTag::T_Aggref => {
                    let aggref = expr.cast::<pg_sys::Aggref>();
                    if !self.aggregates.iter().any(|known| nodes::equal(*known, aggref)) {
                        self.aggregates.push(aggref);
                    }
                }
                _ => return Walk::Into,
            }
            Walk::Past
        });
        refused
    }

    /// Every expression that is evaluated for rows.
    pub unsafe fn read(&self) -> impl Iterator<Item = *mut Node> + '_ {
        self.keys.iter().copied().chain(self.aggregates.iter().map(|aggref| aggref.cast()))
    }

    /// Where rows end, and the columns: keys, then aggregates.
    pub unsafe fn sink(&self, translator: &mut Translator) -> Result<(Sink, Vec<Output>), WhyNot> {
        let (mut keys, mut outputs, mut varying) = (Vec::new(), Vec::new(), Vec::new());
        for (column, key) in self.keys.iter().enumerate() {
            if self.is_grouped
                && let Some((expr, pattern)) = translator.formatted(*key)?
            {
                check_key(*key, &expr)?;
                keys.push(NamedExpr { name: format!("k{column}"), expr });
                outputs.push(Output::Formatted { column, pattern });
                continue;
            }
            let Shown { value: expr, digits } = translator.shown(*key)?;
            if self.is_grouped {
                check_key(*key, &expr)?;
            }
            keys.push(NamedExpr { name: format!("k{column}"), expr });
            let type_oid = stored(pg_sys::exprType(*key), -1).0.to_u32();
            outputs.push(Output::Value { column, type_oid });
            varying.extend(digits.map(|digits| (column, digits.count)));
        }
        if !self.is_grouped {
            for (column, expr) in varying {
                let digits = keys.len();
                keys.push(NamedExpr { name: format!("d{column}"), expr });
                outputs[column] = Output::Shown { column, least: digits, most: digits };
            }
            let sink = match &self.top {
                Some(top) => top.sink(translator, &self.keys, keys)?,
                None => Sink::Rows { columns: at_least_one(keys), limit: None },
            };
            return Ok((sink, outputs));
        }
        let mut aggregates = Aggregates { calls: Vec::new(), keys: keys.len() };
        for aggref in &self.aggregates {
            outputs.push(aggregate(translator, &mut aggregates, &**aggref)?);
        }
        for (column, count) in varying {
            let (least, most) = aggregates.extremes_of(&count);
            outputs[column] = Output::Shown { column, least, most };
        }
        aggregates.check()?;
        let (sets, output) = (Vec::new(), AggregateOutput::Final);
        Ok((Sink::Aggregate { keys, sets, calls: aggregates.calls, output }, outputs))
    }

    /// The columns as a target list that PostgreSQL finds its expressions in.
    pub unsafe fn scan_list(&self) -> *mut pg_sys::List {
        let entries = self.read().zip(1..).map(|(expr, number)| {
            let expr = match nodes::tag(expr) {
                NodeTag::T_Aggref => nodes::copy(expr),
                _ if pg_sys::contain_var_clause(expr) => nodes::copy(expr),
                _ => unlike_any(expr),
            };
            pg_sys::makeTargetEntry(expr.cast(), number, std::ptr::null_mut(), false)
        });
        nodes::list(entries.collect::<Vec<_>>())
    }
}

/// What stands for a key without columns: PostgreSQL would find a parameter of the program in it, which is
/// evaluated before there is a row. It evaluates such a key itself.
unsafe fn unlike_any(expr: *mut Node) -> *mut Node {
    let (oid, typmod) = (pg_sys::exprType(expr), pg_sys::exprTypmod(expr));
    let collation = pg_sys::exprCollation(expr);
    let null = pg_sys::makeNullConst(oid, typmod, collation).cast();
    // Nowhere in a plan: it is simplified to the constant.
    let format = pg_sys::CoercionForm::COERCE_IMPLICIT_CAST;
    pg_sys::makeRelabelType(null, oid, typmod, collation, format).cast()
}

/// Whether groups are the same as PostgreSQL's, and shown the same.
unsafe fn check_key(key: *mut Node, expr: &Expr) -> Result<(), WhyNot> {
    if expr.data_type().is_float() {
        return why_not("groups by floats, of which 0 and -0 are one");
    }
    // The server takes the expressions of parameters that stand in the node's target list for its columns.
    if matches!(expr, Expr::Parameter { .. }) {
        return why_not("groups by a value that is known at execution only");
    }
    check_equality(key)
}
