//! Expressions, by OID.

use std::collections::HashMap;

use headrace_format::heap::JsonbQuery;
use headrace_ir::{DataType, Expr, Field, Scalar};
use pgrx::pg_sys::{self, Node, NodeTag, Oid};

use super::compare::Comparison;
use super::constant::scalar;
use super::document;
use super::shown::{Digits, Shown};
use super::types::ir_type;
use crate::nodes::{self, WhyNot, cast, items, why_not};

/// The columns that expressions may read, each by range table entry and attribute.
#[derive(Default)]
pub struct Columns {
    /// Registers of their values.
    pub scope: HashMap<(u32, i16), Expr>,
    /// The digits behind the point that numbers show, where that differs from row to row.
    pub digits: HashMap<(u32, i16), Digits>,
    /// What is asked of documents.
    pub documents: HashMap<(u32, i16), Vec<(JsonbQuery, Expr)>>,
    /// Of columns whose values are not read, a register that is NULL where they are, and why they are not.
    pub presences: HashMap<(u32, i16), (Expr, String)>,
}

/// Translates expressions over a scope. What reads no column and is no constant is evaluated by the
/// server once a run: a parameter of the program.
pub struct Translator {
    root: *mut pg_sys::PlannerInfo,
    columns: Columns,
    /// The expressions of the parameters.
    pub parameters: Vec<*mut Node>,
    /// What they are.
    pub fields: Vec<Field>,
    /// The values that `CASE value WHEN ...` compares, the innermost last.
    pub(super) cases: Vec<Expr>,
}

pub(super) type Translated = Result<Expr, WhyNot>;

impl Translator {
    pub fn new(root: *mut pg_sys::PlannerInfo, columns: Columns) -> Self {
        let (parameters, fields, cases) = (Vec::new(), Vec::new(), Vec::new());
        Self { root, columns, parameters, fields, cases }
    }

    /// From now on every column of a relation is NULL.
    pub fn forget(&mut self, relation: u32) {
        for (_, value) in self.columns.scope.iter_mut().filter(|((of, _), _)| *of == relation) {
            *value = Expr::Literal(Scalar::null(value.data_type()));
        }
        self.columns.digits.retain(|(of, _), _| *of != relation);
        self.columns.documents.retain(|(of, _), _| *of != relation);
    }

    /// An expression that is shown as its type says.
    pub unsafe fn expr(&mut self, node: *mut Node) -> Translated {
        self.shown(node)?.plain()
    }

    /// An expression of which the value alone counts.
    pub unsafe fn value(&mut self, node: *mut Node) -> Translated {
        Ok(self.shown(node)?.value)
    }

    /// An expression.
    pub unsafe fn shown(&mut self, node: *mut Node) -> Result<Shown, WhyNot> {
        if node.is_null() {
            return why_not("an expression that is not there");
        }
        if let Some((var, query)) = document::asked(node)
            && let Some(known) = self.columns.documents.get(&(var.varno as u32, var.varattno))
            && let Some((_, answer)) = known.iter().find(|(own, _)| *own == query)
        {
            let digits = document::digits_of(&query).and_then(|(wanted, possible)| {
                let (_, count) = known.iter().find(|(own, _)| *own == wanted)?;
                Some(Digits { count: count.clone(), possible })
            });
            let value = match ir_type(pg_sys::exprType(node), -1) {
                // Whole numbers are read as the widest.
                Ok(to) if to.is_integer() => widened(answer.clone(), &to),
                _ => answer.clone(),
            };
            return Ok(Shown { value, digits });
        }
        match nodes::tag(node) {
            NodeTag::T_Var => self.var(&*node.cast()),
            NodeTag::T_RelabelType => self.relabelled(&*node.cast()),
            NodeTag::T_NullIfExpr => self.null_if(&*node.cast()),
            NodeTag::T_OpExpr => self.operator(node),
            NodeTag::T_FuncExpr => self.function(node),
            NodeTag::T_CaseExpr => self.case(&*node.cast()),
            NodeTag::T_CoalesceExpr => self.coalesce(&*node.cast()),
            NodeTag::T_MinMaxExpr => self.extreme(&*node.cast()),
            _ => Ok(self.alike(node)?.into()),
        }
    }

    /// An expression whose values are all shown alike.
    unsafe fn alike(&mut self, node: *mut Node) -> Translated {
        match nodes::tag(node) {
            NodeTag::T_Const => constant(&*node.cast()),
            NodeTag::T_CoerceViaIO => self.via_text(node),
            NodeTag::T_BoolExpr => self.logic(&*node.cast()),
            NodeTag::T_NullTest => self.null_test(&*node.cast()),
            NodeTag::T_BooleanTest => self.boolean_test(&*node.cast()),
            NodeTag::T_DistinctExpr => self.distinct(&*node.cast()),
            NodeTag::T_ScalarArrayOpExpr => self.in_list(node),
            NodeTag::T_CaseTestExpr => match self.cases.last() {
                Some(value) => Ok(value.clone()),
                None => why_not("a value of CASE outside of it"),
            },
            _ => self.parameter(node),
        }
    }

    fn var(&self, var: &pg_sys::Var) -> Result<Shown, WhyNot> {
        let key = (var.varno as u32, var.varattno);
        let Columns { scope, digits, presences, .. } = &self.columns;
        match scope.get(&key) {
            Some(register) if var.varlevelsup == 0 => {
                Ok(Shown { value: register.clone(), digits: digits.get(&key).cloned() })
            }
            _ if presences.contains_key(&key) => why_not(&*presences[&key].1),
            _ if var.varattno <= 0 => why_not("a system column or a whole row"),
            _ => why_not("a column of another level"),
        }
    }

    /// What is NULL where an expression is, and nothing else.
    pub(super) unsafe fn presence(&mut self, node: *mut Node) -> Translated {
        if let Some(var) = cast::<pg_sys::Var>(node, NodeTag::T_Var)
            && let Some((register, _)) =
                self.columns.presences.get(&((*var).varno as u32, (*var).varattno))
            && (*var).varlevelsup == 0
        {
            return Ok(register.clone());
        }
        self.value(node)
    }

    /// A type that has the same values.
    unsafe fn relabelled(&mut self, relabel: &pg_sys::RelabelType) -> Result<Shown, WhyNot> {
        let shown = self.shown(relabel.arg.cast())?;
        // A domain's digits are declared; what it is over has the same numbers.
        let is_decimal = matches!(shown.value.data_type(), DataType::Decimal128 { .. });
        if is_decimal && (relabel.resulttype, relabel.resulttypmod) == (pg_sys::NUMERICOID, -1) {
            return Ok(shown);
        }
        let value = shown.plain()?;
        let wanted = ir_type(relabel.resulttype, relabel.resulttypmod);
        match wanted {
            Ok(data_type) if data_type == value.data_type() => Ok(value.into()),
            // Trailing blanks mean something from here on, which they do not in `bpchar`.
            _ => why_not(format!("a relabelling as {}", type_name(relabel.resulttype))),
        }
    }

    /// The text of a value: that of a uuid is what pipelines have of it.
    unsafe fn via_text(&mut self, node: *mut Node) -> Translated {
        let pg_sys::CoerceViaIO { arg, resulttype, .. } = *node.cast();
        let is_text = matches!(resulttype, pg_sys::TEXTOID | pg_sys::VARCHAROID);
        if pg_sys::exprType(arg.cast()) != pg_sys::UUIDOID || !is_text {
            return self.parameter(node);
        }
        ir_type(resulttype, -1)?;
        self.expr(arg.cast())
    }

    unsafe fn logic(&mut self, expr: &pg_sys::BoolExpr) -> Translated {
        let operands = items(expr.args).map(|arg| self.expr(arg)).collect::<Result<Vec<_>, _>>()?;
        Ok(match expr.boolop {
            pg_sys::BoolExprType::AND_EXPR => Expr::And(operands),
            pg_sys::BoolExprType::OR_EXPR => Expr::Or(operands),
            _ => match operands.into_iter().next() {
                Some(operand) => Expr::Not(Box::new(operand)),
                None => return why_not("NOT of nothing"),
            },
        })
    }

    unsafe fn null_test(&mut self, test: &pg_sys::NullTest) -> Translated {
        if test.argisrow {
            return why_not("a test whether a row is NULL");
        }
        let is_null = is_null(self.value(test.arg.cast())?);
        Ok(match test.nulltesttype {
            pg_sys::NullTestType::IS_NULL => is_null,
            _ => not(is_null),
        })
    }

    unsafe fn boolean_test(&mut self, test: &pg_sys::BooleanTest) -> Translated {
        use pg_sys::BoolTestType as Test;
        let value = self.expr(test.arg.cast())?;
        let known = |value: Expr| Expr::And(vec![not(is_null(value.clone())), value]);
        Ok(match test.booltesttype {
            Test::IS_TRUE => known(value),
            Test::IS_NOT_TRUE => not(known(value)),
            Test::IS_FALSE => Expr::And(vec![not(is_null(value.clone())), not(value)]),
            Test::IS_NOT_FALSE => Expr::Or(vec![is_null(value.clone()), value]),
            Test::IS_UNKNOWN => is_null(value),
            _ => not(is_null(value)),
        })
    }

    unsafe fn operator(&mut self, node: *mut Node) -> Result<Shown, WhyNot> {
        let expr = &*node.cast::<pg_sys::OpExpr>();
        if let [left, right] = operands(expr.args)[..]
            && let Some(comparison) = Comparison::of(expr.opno, expr.inputcollid)?
        {
            return Ok(self.comparison(&comparison, left, right)?.into());
        }
        self.call(node, expr.opfuncid, expr.args, expr.opresulttype)
    }

    unsafe fn function(&mut self, node: *mut Node) -> Result<Shown, WhyNot> {
        let call = &*node.cast::<pg_sys::FuncExpr>();
        self.call(node, call.funcid, call.args, call.funcresulttype)
    }

    pub(super) unsafe fn constant(&self, node: *mut Node) -> Option<Result<Scalar, WhyNot>> {
        let constant = &*cast::<pg_sys::Const>(node, NodeTag::T_Const)?;
        Some(scalar(constant))
    }

    /// What the server evaluates once a run.
    pub(super) unsafe fn parameter(&mut self, node: *mut Node) -> Translated {
        self.known_once(node)?;
        let (oid, typmod) = (pg_sys::exprType(node), pg_sys::exprTypmod(node));
        if oid == pg_sys::BPCHAROID {
            return why_not("a value of type bpchar that is known at execution only");
        }
        let data_type = ir_type(oid, typmod)?;
        Ok(self.add_parameter(node, data_type))
    }

    /// Whether an expression is the same for all rows, or why not.
    pub(super) unsafe fn known_once(&self, node: *mut Node) -> Result<(), WhyNot> {
        let mut culprit = None;
        nodes::any(node, &mut |inner| {
            let varies = matches!(
                nodes::tag(inner),
                NodeTag::T_Var
                    | NodeTag::T_CaseTestExpr
                    | NodeTag::T_Aggref
                    | NodeTag::T_WindowFunc
                    | NodeTag::T_GroupingFunc
                    | NodeTag::T_SubPlan
                    | NodeTag::T_AlternativeSubPlan
                    | NodeTag::T_PlaceHolderVar
                    | NodeTag::T_CoerceToDomainValue
            );
            varies.then(|| culprit = Some(inner)).is_some()
        });
        if culprit.is_some() || pg_sys::contain_volatile_functions(node) {
            return why_not(description(node));
        }
        if nodes::any(node, &mut |inner| is_correlated(self.root, inner)) {
            return why_not("a correlated subquery, which would run once a row of the outer query");
        }
        Ok(())
    }

    /// An expression as a parameter of a type.
    pub(super) unsafe fn add_parameter(&mut self, node: *mut Node, data_type: DataType) -> Expr {
        let known =
            self.fields.iter().zip(&self.parameters).position(|(field, known)| {
                field.data_type == data_type && nodes::equal(*known, node)
            });
        let index = known.unwrap_or_else(|| {
            let name = format!("${}", self.parameters.len() + 1);
            self.fields.push(Field::new(name, data_type.clone(), true));
            self.parameters.push(node);
            self.parameters.len() - 1
        });
        Expr::Parameter { index, data_type, nullable: true }
    }
}

/// Whether an expression is a value of the outer query's row: not one that a statement gives, nor one
/// that a subquery gives before all rows.
unsafe fn is_correlated(root: *mut pg_sys::PlannerInfo, node: *mut Node) -> bool {
    let Some(parameter) = cast::<pg_sys::Param>(node, NodeTag::T_Param) else { return false };
    if (*parameter).paramkind != pg_sys::ParamKind::PARAM_EXEC {
        return false;
    }
    let (mut level, wanted) = (root, (*parameter).paramid);
    while !level.is_null() {
        for plan in items::<pg_sys::SubPlan>((*level).init_plans) {
            if pg_sys::list_member_int((*plan).setParam, wanted) {
                return false;
            }
        }
        level = (*level).parent_root;
    }
    true
}

/// What an expression is, for a reason.
unsafe fn description(node: *mut Node) -> String {
    match nodes::tag(node) {
        NodeTag::T_FuncExpr => {
            let function = (*node.cast::<pg_sys::FuncExpr>()).funcid;
            format!("function {}", nodes::owned(pg_sys::get_func_name(function)))
        }
        NodeTag::T_OpExpr => {
            let operator = (*node.cast::<pg_sys::OpExpr>()).opno;
            let of = nodes::any(node, &mut |inner| nodes::tag(inner) == NodeTag::T_Var);
            let volatile = if of { "" } else { " of what is volatile" };
            format!("operator {}{volatile}", operator_name(operator))
        }
        NodeTag::T_SubPlan | NodeTag::T_AlternativeSubPlan => "a subquery".into(),
        NodeTag::T_CoerceViaIO => {
            let result = (*node.cast::<pg_sys::CoerceViaIO>()).resulttype;
            format!("a conversion to {} by its text", type_name(result))
        }
        NodeTag::T_PlaceHolderVar => "a value of an outer join".into(),
        tag => format!("{tag:?}").trim_start_matches("T_").into(),
    }
}

pub(super) unsafe fn operator_name(operator: Oid) -> String {
    nodes::owned(pg_sys::get_opname(operator))
}

unsafe fn type_name(oid: Oid) -> String {
    super::types::name_of(oid, -1)
}

pub(super) unsafe fn operands(arguments: *mut pg_sys::List) -> Vec<*mut Node> {
    items(arguments).collect()
}

unsafe fn constant(constant: &pg_sys::Const) -> Translated {
    scalar(constant).map(Expr::Literal)
}

pub(super) fn is_null(value: Expr) -> Expr {
    Expr::IsNull(Box::new(value))
}

pub(super) fn not(value: Expr) -> Expr {
    Expr::Not(Box::new(value))
}

pub(super) fn widened(value: Expr, to: &DataType) -> Expr {
    match value {
        value if value.data_type() == *to => value,
        // As a constant of the wider type it can bound a column.
        Expr::Literal(of)
            if of.data_type.is_integer() && to.is_integer() && !of.data_type.cast_can_fail(to) =>
        {
            Expr::Literal(Scalar::new(to.clone(), of.value))
        }
        value => value.cast(to.clone()),
    }
}
