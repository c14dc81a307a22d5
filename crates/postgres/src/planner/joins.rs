//! Which relations are joined to the stream, in which order, and by what.

use std::collections::HashMap;

use headrace_format::heap::JsonbQuery;
use headrace_ir::{Expr, Field, ProbeKind};
use pgrx::pg_sys::{self, Node, NodeTag, PlannerInfo, RelOptInfo};

use super::{inner, numbers};
use crate::nodes::{self, WhyNot, cast, items, why_not};
use crate::plan::ChildColumn;
use crate::settings;
use crate::translate::{
    Translator, document, equality_key, is_of_one_length, stored, wider_decimal, wider_integer,
};
use crate::version;

/// A relation that the stream looks rows up in: one, or the join that is the inner side of an outer, semi or
/// anti join.
pub struct Join {
    /// The relation.
    pub inner: *mut RelOptInfo,
    /// Its name in the query, or the names of those that it is of.
    pub name: String,
    /// What becomes of rows that find none, one or several.
    pub kind: ProbeKind,
    /// Pairs of equal values: of what is joined so far, and a column of this relation.
    pub pairs: Vec<Pair>,
    /// Further conditions on a pair of rows.
    pub residual: Vec<*mut Node>,
    /// Conditions on the joined rows that can be decided from here on.
    pub filters: Vec<*mut Node>,
}

/// A clause `outer = inner`.
pub struct Pair {
    outer: *mut Node,
    inner: *mut pg_sys::Var,
}

/// The base relations of a query.
pub unsafe fn members(
    root: *mut PlannerInfo,
    input: *mut RelOptInfo,
) -> Result<Vec<*mut RelOptInfo>, WhyNot> {
    let mut members = Vec::new();
    for index in 1..(*root).simple_rel_array_size {
        let relation = *(*root).simple_rel_array.add(index as usize);
        if relation.is_null() || !pg_sys::bms_is_member(index, (*input).relids) {
            continue;
        }
        if (*relation).reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL {
            members.push(relation);
        }
    }
    match members.is_empty() {
        true => why_not("no table is read"),
        false => Ok(members),
    }
}

/// The joins in an order in which each has a key among what is joined before it, the smallest
/// relation first.
pub unsafe fn joins(
    root: *mut PlannerInfo,
    members: &[*mut RelOptInfo],
    streamed: *mut RelOptInfo,
) -> Result<Vec<Join>, WhyNot> {
    let mut left: Vec<*mut RelOptInfo> =
        members.iter().copied().filter(|member| *member != streamed).collect();
    if !left.is_empty() && !settings::ENABLE_JOIN.get() {
        return why_not("headrace.enable_join is off");
    }
    left = units(root, &left)?;
    left.sort_by(|a, b| (**a).rows.total_cmp(&(**b).rows));
    let (mut joined, mut done) = (pg_sys::bms_copy((*streamed).relids), Vec::new());
    let mut joins: Vec<Join> = Vec::new();
    while !left.is_empty() {
        let mut found = None;
        for (place, inner) in left.iter().enumerate() {
            let join = join(root, joined, *inner, &done)?;
            if let Some(join) = join.filter(|(join, ..)| !join.pairs.is_empty()) {
                found = Some((place, join));
                break;
            }
        }
        let Some((place, (join, used, both))) = found else {
            return why_not(format!("{} is joined by no equality of columns", name(root, left[0])));
        };
        joined = both;
        done.extend(used);
        left.remove(place);
        inner::check(root, &join)?;
        joins.push(join);
    }
    Ok(joins)
}

unsafe fn name(root: *mut PlannerInfo, relation: *mut RelOptInfo) -> String {
    let entries = tables(root, relation).map(|number| entry(root, number));
    let names: Vec<_> = entries.map(|entry| nodes::owned((*(*entry).eref).aliasname)).collect();
    names.join(", ")
}

/// What a relation is a join of. Since PostgreSQL 16 the outer joins among it have numbers, too, and no
/// relation of their own.
pub unsafe fn tables(
    root: *mut PlannerInfo,
    relation: *mut RelOptInfo,
) -> impl Iterator<Item = u32> {
    let is_join = move |number: u32| (*entry(root, number)).rtekind == pg_sys::RTEKind::RTE_JOIN;
    nodes::numbers((*relation).relids).filter(move |number| !is_join(*number))
}

pub unsafe fn entry(root: *mut PlannerInfo, number: u32) -> *mut pg_sys::RangeTblEntry {
    *(*root).simple_rte_array.add(number as usize)
}

type Clauses = Vec<*mut pg_sys::RestrictInfo>;

/// Whether a relation's rows may be missing, or several for one, beside rows of others: it is on the inner
/// side of an outer, semi or anti join.
pub unsafe fn is_inner_side(root: *mut PlannerInfo, relation: *mut RelOptInfo) -> bool {
    let mut specials = items::<pg_sys::SpecialJoinInfo>((*root).join_info_list);
    specials.any(|special| pg_sys::bms_overlap((*special).syn_righthand, (*relation).relids))
}

/// What is joined as a whole: relations, and the largest inner sides of outer, semi and anti joins, whatever
/// joins are in them.
unsafe fn units(
    root: *mut PlannerInfo,
    members: &[*mut RelOptInfo],
) -> Result<Vec<*mut RelOptInfo>, WhyNot> {
    let mut units = Vec::new();
    for &member in members {
        let sides = items::<pg_sys::SpecialJoinInfo>((*root).join_info_list)
            .map(|special| (*special).syn_righthand)
            .filter(|side| pg_sys::bms_overlap(*side, (*member).relids));
        let unit = match sides.max_by_key(|side| pg_sys::bms_num_members(*side)) {
            Some(side) if !pg_sys::bms_equal(side, (*member).relids) => {
                pg_sys::find_join_rel(root, side)
            }
            _ => member,
        };
        if unit.is_null() {
            return why_not("an outer, semi or anti join with tables that are not joined first");
        }
        if !units.contains(&unit) {
            units.push(unit);
        }
    }
    Ok(units)
}

/// The outer, semi or anti join that brings a relation.
unsafe fn special_of(
    root: *mut PlannerInfo,
    inner: *mut RelOptInfo,
) -> Result<Option<(*mut pg_sys::SpecialJoinInfo, ProbeKind)>, WhyNot> {
    for special in items::<pg_sys::SpecialJoinInfo>((*root).join_info_list) {
        if !pg_sys::bms_equal((*special).syn_righthand, (*inner).relids) {
            continue;
        }
        let kind = match (*special).jointype {
            pg_sys::JoinType::JOIN_LEFT => ProbeKind::Left,
            pg_sys::JoinType::JOIN_SEMI => ProbeKind::Semi,
            pg_sys::JoinType::JOIN_ANTI => ProbeKind::Anti,
            _ => return why_not("a full join"),
        };
        return Ok(Some((special, kind)));
    }
    Ok(None)
}

/// What joins a relation to those that are joined, the clauses that this takes care of, and what is joined
/// then; `None` if others must be joined first.
unsafe fn join(
    root: *mut PlannerInfo,
    joined: pg_sys::Relids,
    inner: *mut RelOptInfo,
    done: &[*mut pg_sys::RestrictInfo],
) -> Result<Option<(Join, Clauses, pg_sys::Relids)>, WhyNot> {
    let special = special_of(root, inner)?;
    if let Some((special, _)) = special
        && !pg_sys::bms_is_subset((*special).syn_lefthand, joined)
    {
        return Ok(None);
    }
    let kind = special.map_or(ProbeKind::Inner, |(_, kind)| kind);
    let special_join = special.map_or(std::ptr::null_mut(), |(special, _)| special);
    let inputs = pg_sys::bms_union(joined, (*inner).relids);
    let both = version::joined(inputs, special_join);
    let implied = version::implied_equalities(root, both, joined, inner, special_join);
    let decidable = items::<pg_sys::RestrictInfo>((*inner).joininfo)
        .filter(|clause| version::is_decidable(*clause, inputs, both) && !done.contains(clause));
    let mut join = Join {
        inner,
        name: name(root, inner),
        kind,
        pairs: Vec::new(),
        residual: Vec::new(),
        filters: Vec::new(),
    };
    let mut used = Vec::new();
    for clause in items(implied).chain(decidable) {
        used.push(clause);
        if (*clause).security_level > 0 {
            return why_not("a clause behind a security barrier");
        }
        // A condition of WHERE looks at rows that an outer join made; one of ON decides which it makes.
        let is_of_where = matches!(kind, ProbeKind::Left | ProbeKind::Anti)
            && ((*clause).is_pushed_down
                || !pg_sys::bms_is_subset((*clause).required_relids, both));
        match pair(clause, joined, inner).filter(|_| !is_of_where) {
            Some(pair) => join.pairs.push(pair),
            None if is_of_where || kind == ProbeKind::Inner => {
                join.filters.push((*clause).clause.cast());
            }
            None => join.residual.push((*clause).clause.cast()),
        }
    }
    Ok(Some((join, used, both)))
}

unsafe fn pair(
    clause: *mut pg_sys::RestrictInfo,
    joined: pg_sys::Relids,
    inner: *mut RelOptInfo,
) -> Option<Pair> {
    let operator = cast::<pg_sys::OpExpr>((*clause).clause.cast(), NodeTag::T_OpExpr)?;
    let sides: Vec<*mut Node> = items((*operator).args).collect();
    let [left, right] = sides[..] else { return None };
    if !(*clause).can_join || !equality_key(operator) {
        return None;
    }
    let is_inner = |relids: pg_sys::Relids| {
        !relids.is_null() && pg_sys::bms_is_subset(relids, (*inner).relids)
    };
    let is_outer = |relids| pg_sys::bms_is_subset(relids, joined);
    let (outer, column) = match clause.as_ref()? {
        c if is_outer(c.left_relids) && is_inner(c.right_relids) => (left, right),
        c if is_outer(c.right_relids) && is_inner(c.left_relids) => (right, left),
        _ => return None,
    };
    let inner = cast::<pg_sys::Var>(column, NodeTag::T_Var)?;
    Some(Pair { outer, inner })
}

/// The columns that an expression reads, by relation, each once.
pub unsafe fn vars(expr: *mut Node, found: &mut HashMap<u32, Vec<&pg_sys::Var>>) {
    nodes::any(expr, &mut |node| {
        if let Some(var) = cast::<pg_sys::Var>(node, NodeTag::T_Var) {
            let of_relation = found.entry((*var).varno as u32).or_default();
            if !of_relation.iter().any(|known| known.varattno == (*var).varattno) {
                of_relation.push(&*var);
            }
        }
        false
    });
}

/// Columns of documents and what is asked of them, by relation, each once.
pub type Asked<'a> = HashMap<u32, Vec<(&'a pg_sys::Var, JsonbQuery)>>;

/// What an expression reads: columns, and of documents what is asked of them alone.
pub unsafe fn read_by<'a>(
    expr: *mut Node,
    read: &mut HashMap<u32, Vec<&'a pg_sys::Var>>,
    asked: &mut Asked<'a>,
) {
    nodes::walk(expr, &mut |node| {
        if let Some((var, query)) = document::asked(node) {
            let known = asked.entry(var.varno as u32).or_default();
            let digits = document::digits_of(&query).map(|(query, _)| query);
            for query in std::iter::once(query).chain(digits) {
                if !known.iter().any(|(own, of)| own.varattno == var.varattno && *of == query) {
                    known.push((var, query));
                }
            }
            return nodes::Walk::Past;
        }
        if nodes::tag(node) == NodeTag::T_Var {
            vars(node, read);
        }
        nodes::Walk::Into
    });
}

impl Join {
    /// Takes its columns out of those that are read.
    pub unsafe fn take<'a>(
        &self,
        read: &mut HashMap<u32, Vec<&'a pg_sys::Var>>,
    ) -> Vec<&'a pg_sys::Var> {
        let own = nodes::numbers((*self.inner).relids).filter_map(|number| read.remove(&number));
        own.flatten().collect()
    }

    /// What is read of registers.
    pub fn stream_side(&self) -> impl Iterator<Item = *mut Node> + '_ {
        let outer = self.pairs.iter().map(|pair| pair.outer);
        outer.chain(self.residual.iter().copied()).chain(self.filters.iter().copied())
    }

    /// The place of a column in the rows of this relation's plan.
    pub unsafe fn position_of(&self, var: &pg_sys::Var) -> Result<usize, WhyNot> {
        let target = (*(*self.inner).cheapest_total_path).pathtarget;
        let found = items::<Node>((*target).exprs).position(|expr| {
            cast::<pg_sys::Var>(expr, NodeTag::T_Var)
                .is_some_and(|own| (*own).varno == var.varno && (*own).varattno == var.varattno)
        });
        found.ok_or_else(|| WhyNot(format!("a column that {} does not give", self.name)))
    }

    /// The further conditions as one.
    pub unsafe fn residual(&self, translator: &mut Translator) -> Result<Option<Expr>, WhyNot> {
        let exprs = self.residual.iter().map(|expr| translator.expr(*expr));
        let exprs = exprs.collect::<Result<Vec<_>, _>>()?;
        Ok((!exprs.is_empty()).then_some(Expr::And(exprs)))
    }

    /// The keys of the stream's rows, and those of the build.
    pub unsafe fn keys(
        &self,
        root: *mut PlannerInfo,
        translator: &mut Translator,
    ) -> Result<(Vec<Expr>, Vec<ChildColumn>), WhyNot> {
        let (mut keys, mut columns) = (Vec::new(), Vec::new());
        for pair in &self.pairs {
            let column = &*pair.inner;
            let own = numbers::of_var(root, column)?.data_type;
            // Of numbers the value alone counts.
            let key = translator.value(pair.outer)?;
            let given = key.data_type();
            if !is_of_one_length(column.vartype, column.vartypmod)
                || (column.vartype == pg_sys::BPCHAROID
                    && pg_sys::exprTypmod(pair.outer) != column.vartypmod)
            {
                return why_not("a join of texts of type bpchar of different lengths");
            }
            let key_type = match wider_integer(&own, &given) {
                Some(wider) => wider,
                None if own == given => own,
                None if let Some(both) = wider_decimal(&own, &given) => both,
                None => return why_not(format!("a join of {given} with {own}")),
            };
            keys.push(if given == key_type { key } else { key.cast(key_type.clone()) });
            columns.push(ChildColumn {
                position: self.position_of(column)?,
                type_oid: stored(column.vartype, -1).0.to_u32(),
                field: Field::new(format!("{}.{}", self.name, column.varattno), key_type, true),
                shows: None,
                query: None,
            });
        }
        Ok((keys, columns))
    }
}
