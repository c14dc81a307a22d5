//! Relations that the stream looks rows up in: whose plans are made twice, once for PostgreSQL's own plan and once
//! for the build, and which are read to their ends.

use pgrx::pg_sys::{self, Node, NodeTag, PlannerInfo, RTEKind};

use super::joins::{Join, entry, tables};
use crate::nodes::{self, WhyNot, items, why_not};
use crate::settings;

/// Relations whose plans can be made twice, once for PostgreSQL's own plan and once for the build.
pub unsafe fn check(root: *mut PlannerInfo, join: &Join) -> Result<(), WhyNot> {
    for number in tables(root, join.inner) {
        check_entry(root, number)?;
    }
    // Its plan may run a second time, in PostgreSQL's own.
    let is_join = pg_sys::bms_num_members((*join.inner).relids) > 1;
    if is_join && pg_sys::contain_volatile_functions((*(*root).parse).jointree.cast()) {
        return why_not(format!("{} is volatile", join.name));
    }
    if is_join && joins_may_fail(root, join.inner) {
        return why_not(format!("what may fail would be asked of all rows of {}", join.name));
    }
    let path = (*join.inner).cheapest_total_path;
    if path.is_null() || !(*path).param_info.is_null() {
        return why_not(format!("{} has no plan of its own", join.name));
    }
    let bytes = (*join.inner).rows * f64::from((*(*join.inner).reltarget).width + 16);
    let limit = f64::from(settings::MEMORY_LIMIT_KIB.get()) * 1024.0 / 2.0;
    match bytes > limit {
        true => why_not(format!(
            "{} would be a build of {:.0} MB, half of headrace.memory_limit is {:.0} MB",
            join.name,
            bytes / 1e6,
            limit / 1e6
        )),
        false => Ok(()),
    }
}

/// Whether what joins the tables of a join may be an error for a pair of their rows.
unsafe fn joins_may_fail(root: *mut PlannerInfo, inner: *mut pg_sys::RelOptInfo) -> bool {
    let within = |clause: &*mut pg_sys::RestrictInfo| {
        pg_sys::bms_is_subset((**clause).clause_relids, (*inner).relids)
    };
    let fails = |clause: *mut pg_sys::RestrictInfo| may_fail((*clause).clause.cast());
    let of_tables = tables(root, inner).any(|number| {
        let relation = *(*root).simple_rel_array.add(number as usize);
        items((*relation).joininfo).filter(within).any(fails)
    });
    // Equalities that hold by their classes stand with no relation.
    of_tables
        || items::<pg_sys::EquivalenceClass>((*root).eq_classes)
            .any(|class| items((*class).ec_sources).filter(within).any(fails))
}

/// Functions of columns that PostgreSQL does not call leak-proof, and that have a value for every one.
const TOTAL_FUNCTIONS: [u32; 28] = [
    pg_sys::F_TEXTLIKE,
    pg_sys::F_TEXTNLIKE,
    pg_sys::F_BPCHARLIKE,
    pg_sys::F_BPCHARNLIKE,
    pg_sys::F_TEXTICLIKE,
    pg_sys::F_TEXTICNLIKE,
    pg_sys::F_TEXTREGEXEQ,
    pg_sys::F_TEXTREGEXNE,
    pg_sys::F_STARTS_WITH,
    pg_sys::F_LENGTH_TEXT,
    pg_sys::F_LOWER_TEXT,
    pg_sys::F_UPPER_TEXT,
    pg_sys::F_SUBSTRING_TEXT_INT4_INT4,
    pg_sys::F_EXTRACT_TEXT_DATE,
    pg_sys::F_NUMERIC_EQ,
    pg_sys::F_NUMERIC_NE,
    pg_sys::F_NUMERIC_LT,
    pg_sys::F_NUMERIC_LE,
    pg_sys::F_NUMERIC_GT,
    pg_sys::F_NUMERIC_GE,
    pg_sys::F_DATE_LT_TIMESTAMP,
    pg_sys::F_DATE_LE_TIMESTAMP,
    pg_sys::F_DATE_GT_TIMESTAMP,
    pg_sys::F_DATE_GE_TIMESTAMP,
    pg_sys::F_DATE_LT_TIMESTAMPTZ,
    pg_sys::F_DATE_LE_TIMESTAMPTZ,
    pg_sys::F_DATE_GT_TIMESTAMPTZ,
    pg_sys::F_DATE_GE_TIMESTAMPTZ,
];

/// Whether an expression may be an error for a row.
unsafe fn may_fail(expr: *mut Node) -> bool {
    nodes::any(expr, &mut |node| {
        let function = match (*node).type_ {
            NodeTag::T_FuncExpr => (*node.cast::<pg_sys::FuncExpr>()).funcid,
            NodeTag::T_OpExpr | NodeTag::T_DistinctExpr | NodeTag::T_NullIfExpr => {
                (*node.cast::<pg_sys::OpExpr>()).opfuncid
            }
            NodeTag::T_ScalarArrayOpExpr => (*node.cast::<pg_sys::ScalarArrayOpExpr>()).opfuncid,
            // What is in a subquery's plan is not seen from here.
            NodeTag::T_SubPlan
            | NodeTag::T_AlternativeSubPlan
            | NodeTag::T_CoerceViaIO
            | NodeTag::T_ArrayCoerceExpr
            | NodeTag::T_CoerceToDomain => return true,
            _ => return false,
        };
        // Without a column it is asked once, whatever the plan.
        let is_total = function != pg_sys::InvalidOid && pg_sys::get_func_leakproof(function);
        let is_known = TOTAL_FUNCTIONS.contains(&function.to_u32());
        !is_total && !is_known && pg_sys::contain_var_clause(node)
    })
}

/// A relation whose rows are the same, and can be read, at any time.
unsafe fn check_entry(root: *mut PlannerInfo, number: u32) -> Result<(), WhyNot> {
    let (entry, relation) = (&*entry(root, number), *(*root).simple_rel_array.add(number as usize));
    let name = nodes::owned((*entry.eref).aliasname);
    let clauses = items::<pg_sys::RestrictInfo>((*relation).baserestrictinfo);
    let mut evaluated: Vec<*mut Node> = clauses.map(|clause| (*clause).clause.cast()).collect();
    match entry.rtekind {
        RTEKind::RTE_RELATION => {}
        RTEKind::RTE_VALUES => evaluated.push(entry.values_lists.cast()),
        RTEKind::RTE_FUNCTION => evaluated.push(entry.functions.cast()),
        RTEKind::RTE_SUBQUERY if entry.inh => {
            for info in items::<pg_sys::AppendRelInfo>((*root).append_rel_list) {
                if (*info).parent_relid == number {
                    evaluated.push((*info).translated_vars.cast());
                    check_entry(root, (*info).child_relid)?;
                }
            }
        }
        RTEKind::RTE_SUBQUERY => {
            check_subquery(&name, (*relation).subroot)?;
            evaluated.push(entry.subquery.cast());
        }
        RTEKind::RTE_CTE if !entry.self_reference => {
            let query = cte(root, entry);
            if query.is_null() || (*query).commandType != pg_sys::CmdType::CMD_SELECT {
                return why_not(format!("{name} changes rows"));
            }
            evaluated.push(query.cast());
        }
        _ => {
            return why_not(format!(
                "{name} is a recursive query, or made of XML or a trigger's rows"
            ));
        }
    }
    // PostgreSQL may never look at these rows, if there are none to be joined with.
    if evaluated.iter().any(|expr| may_fail(*expr)) {
        return why_not(format!("what may fail would be asked of all rows of {name}"));
    }
    match evaluated.into_iter().any(|expr| pg_sys::contain_volatile_functions(expr)) {
        true => why_not(format!("{name} is volatile")),
        false => Ok(()),
    }
}

/// The query of a WITH.
unsafe fn cte(mut root: *mut PlannerInfo, entry: &pg_sys::RangeTblEntry) -> *mut pg_sys::Query {
    for _ in 0..entry.ctelevelsup {
        root = (*root).parent_root;
    }
    let name = nodes::owned(entry.ctename);
    let mut ctes = items::<pg_sys::CommonTableExpr>((*(*root).parse).cteList);
    let found = ctes.find(|cte| nodes::owned((**cte).ctename) == name);
    found.map_or(std::ptr::null_mut(), |cte| (*cte).ctequery.cast())
}

/// A subquery of which the server can make a plan twice: what its planner notes of parts of tables, of
/// subqueries that are run first, and of rows to be locked, is of one plan.
unsafe fn check_subquery(name: &str, root: *mut PlannerInfo) -> Result<(), WhyNot> {
    let Some(own) = root.as_ref() else { return why_not(format!("{name} has no plan")) };
    let query = &*own.parse;
    let is_of_one_plan = !own.append_rel_list.is_null()
        || !own.init_plans.is_null()
        || !query.setOperations.is_null()
        || !query.rowMarks.is_null()
        || query.hasSubLinks
        // Its plan may look for the smallest value in an index, by a subquery of its own.
        || (query.hasAggs && query.groupClause.is_null());
    if is_of_one_plan {
        return why_not(format!(
            "{name} is a subquery of parts, unions, other subqueries, or a single group"
        ));
    }
    for number in 1..own.simple_rel_array_size as usize {
        let relation = *own.simple_rel_array.add(number);
        let entry = *own.simple_rte_array.add(number);
        if !relation.is_null() && (*entry).rtekind == RTEKind::RTE_SUBQUERY {
            check_subquery(name, (*relation).subroot)?;
        }
    }
    Ok(())
}
