//! Expressions, by OID.

use std::collections::HashMap;

use headrace_ir::{
    ArithmeticOp, CompareOp, DataType, DatePart, Expr, Field, Function, OnOverflow, Scalar,
};
use pgrx::pg_sys::{self, Node, NodeTag, Oid};

use super::constant::{shown_decimal, value};
use super::types::{VARHDRSZ, ir_type, is_deterministic};
use crate::nodes::{self, WhyNot, cast, items, why_not};
use crate::version;

/// Registers of the columns that expressions may read, by range table entry and attribute.
pub type Scope = HashMap<(u32, i16), Expr>;

/// Translates expressions over a scope. What reads no column and is no constant is evaluated by the
/// server once a run: a parameter of the program.
pub struct Translator {
    root: *mut pg_sys::PlannerInfo,
    scope: Scope,
    /// The expressions of the parameters.
    pub parameters: Vec<*mut Node>,
    /// What they are.
    pub fields: Vec<Field>,
    /// The values that `CASE value WHEN ...` compares, the innermost last.
    cases: Vec<Expr>,
}

type Translated = Result<Expr, WhyNot>;
/// Conditions and values.
type Branches = Vec<(Expr, Expr)>;

impl Translator {
    pub fn new(root: *mut pg_sys::PlannerInfo, scope: Scope) -> Self {
        Self { root, scope, parameters: Vec::new(), fields: Vec::new(), cases: Vec::new() }
    }

    /// From now on every column of a relation is NULL.
    pub fn forget(&mut self, relation: u32) {
        for (_, value) in self.scope.iter_mut().filter(|((of, _), _)| *of == relation) {
            *value = Expr::Literal(Scalar::null(value.data_type()));
        }
    }

    /// An expression.
    pub unsafe fn expr(&mut self, node: *mut Node) -> Translated {
        if node.is_null() {
            return why_not("an expression that is not there");
        }
        match nodes::tag(node) {
            NodeTag::T_Var => self.var(&*node.cast()),
            NodeTag::T_Const => constant(&*node.cast()),
            NodeTag::T_RelabelType => self.relabelled(&*node.cast()),
            NodeTag::T_BoolExpr => self.logic(&*node.cast()),
            NodeTag::T_NullTest => self.null_test(&*node.cast()),
            NodeTag::T_BooleanTest => self.boolean_test(&*node.cast()),
            NodeTag::T_OpExpr => self.operator(node),
            NodeTag::T_DistinctExpr => self.distinct(&*node.cast()),
            NodeTag::T_NullIfExpr => self.null_if(&*node.cast()),
            NodeTag::T_ScalarArrayOpExpr => self.in_list(node),
            NodeTag::T_FuncExpr => self.function(node),
            NodeTag::T_CaseExpr => self.case(&*node.cast()),
            NodeTag::T_CaseTestExpr => match self.cases.last() {
                Some(value) => Ok(value.clone()),
                None => why_not("a value of CASE outside of it"),
            },
            NodeTag::T_CoalesceExpr => self.coalesce(&*node.cast()),
            _ => self.parameter(node),
        }
    }

    fn var(&self, var: &pg_sys::Var) -> Translated {
        let key = (var.varno as u32, var.varattno);
        match self.scope.get(&key) {
            Some(register) if var.varlevelsup == 0 => Ok(register.clone()),
            _ if var.varattno <= 0 => why_not("a system column or a whole row"),
            _ => why_not("a column of another level"),
        }
    }

    /// A type that has the same values.
    unsafe fn relabelled(&mut self, relabel: &pg_sys::RelabelType) -> Translated {
        let value = self.expr(relabel.arg.cast())?;
        let wanted = ir_type(relabel.resulttype, relabel.resulttypmod);
        match wanted {
            Ok(data_type) if data_type == value.data_type() => Ok(value),
            // Trailing blanks mean something from here on, which they do not in `bpchar`.
            _ => why_not(format!("a relabelling as {}", type_name(relabel.resulttype))),
        }
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
        let is_null = is_null(self.expr(test.arg.cast())?);
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

    unsafe fn operator(&mut self, node: *mut Node) -> Translated {
        let expr = &*node.cast::<pg_sys::OpExpr>();
        if let [left, right] = operands(expr.args)[..]
            && let Some(comparison) = Comparison::of(expr.opno, expr.inputcollid)?
        {
            return self.comparison(&comparison, left, right);
        }
        self.call(node, expr.opfuncid, expr.args, expr.opresulttype)
    }

    unsafe fn function(&mut self, node: *mut Node) -> Translated {
        let call = &*node.cast::<pg_sys::FuncExpr>();
        self.call(node, call.funcid, call.args, call.funcresulttype)
    }

    unsafe fn comparison(
        &mut self,
        comparison: &Comparison,
        left: *mut Node,
        right: *mut Node,
    ) -> Translated {
        if comparison.is_padded {
            return self.padded(comparison.op, left, right);
        }
        let (left, right) = unified(self.expr(left)?, self.expr(right)?)?;
        Ok(Expr::compare(comparison.op, left, right))
    }

    /// Texts of `bpchar`, whose trailing blanks do not count: a column's values are all padded to its
    /// length, and so is the constant that they are compared with.
    unsafe fn padded(&mut self, op: CompareOp, left: *mut Node, right: *mut Node) -> Translated {
        let (modifier, other) = (pg_sys::exprTypmod(left), pg_sys::exprTypmod(right));
        if modifier >= VARHDRSZ && modifier == other {
            return Ok(Expr::compare(op, self.expr(left)?, self.expr(right)?));
        }
        match (cast::<pg_sys::Const>(left, NodeTag::T_Const), self.constant(right)) {
            (None, Some(constant)) if modifier >= VARHDRSZ => {
                let text = padded(constant?, modifier);
                Ok(Expr::compare(op, self.expr(left)?, Expr::Literal(text)))
            }
            (Some(_), _) if other >= VARHDRSZ => self.padded(op.swapped(), right, left),
            _ => why_not("a comparison of texts of type bpchar with blanks at their ends"),
        }
    }

    unsafe fn constant(&self, node: *mut Node) -> Option<Result<Scalar, WhyNot>> {
        let constant = &*cast::<pg_sys::Const>(node, NodeTag::T_Const)?;
        Some(scalar(constant))
    }

    unsafe fn distinct(&mut self, expr: &pg_sys::DistinctExpr) -> Translated {
        let [left, right] = operands(expr.args)[..] else { return why_not("IS DISTINCT FROM") };
        let equal = self.equality(expr.opno, expr.inputcollid, left, right)?;
        let (left, right) = (is_null(self.expr(left)?), is_null(self.expr(right)?));
        let neither = Expr::And(vec![not(left.clone()), not(right.clone()), not(equal)]);
        let one = |a: &Expr, b: &Expr| Expr::And(vec![a.clone(), not(b.clone())]);
        Ok(Expr::Or(vec![one(&left, &right), one(&right, &left), neither]))
    }

    unsafe fn null_if(&mut self, expr: &pg_sys::NullIfExpr) -> Translated {
        let [left, right] = operands(expr.args)[..] else { return why_not("NULLIF") };
        let equal = self.equality(expr.opno, expr.inputcollid, left, right)?;
        let value = self.expr(left)?;
        let data_type = value.data_type();
        let null = Expr::Literal(Scalar::null(data_type.clone()));
        Ok(Expr::Case {
            branches: vec![(equal, null)],
            otherwise: Some(Box::new(value)),
            data_type,
        })
    }

    unsafe fn equality(
        &mut self,
        operator: Oid,
        collation: Oid,
        left: *mut Node,
        right: *mut Node,
    ) -> Translated {
        match Comparison::of(operator, collation)? {
            Some(comparison) if comparison.op == CompareOp::Eq => {
                self.comparison(&comparison, left, right)
            }
            _ => why_not(format!("operator {}", operator_name(operator))),
        }
    }

    /// `value = ANY (array)` and `value <> ALL (array)` of constants.
    unsafe fn in_list(&mut self, node: *mut Node) -> Translated {
        let expr = &*node.cast::<pg_sys::ScalarArrayOpExpr>();
        let [left, right] = operands(expr.args)[..] else { return why_not("ANY") };
        let comparison = Comparison::of(expr.opno, expr.inputcollid)?;
        let negated = match comparison {
            Some(Comparison { op: CompareOp::Eq, .. }) if expr.useOr => false,
            Some(Comparison { op: CompareOp::Ne, .. }) if !expr.useOr => true,
            _ => return self.parameter(node),
        };
        let Some(array) = cast::<pg_sys::Const>(right, NodeTag::T_Const) else {
            return why_not("a list that is not of constants");
        };
        let value = self.expr(left)?;
        let is_padded = comparison.is_some_and(|comparison| comparison.is_padded);
        let list = self.list(&*array, &value.data_type(), is_padded, pg_sys::exprTypmod(left))?;
        Ok(Expr::InList { value: Box::new(value), list, negated })
    }

    unsafe fn list(
        &self,
        array: &pg_sys::Const,
        of: &DataType,
        is_padded: bool,
        typmod: i32,
    ) -> Result<Vec<Scalar>, WhyNot> {
        if array.constisnull || (is_padded && typmod < VARHDRSZ) {
            return why_not("a list of unknown values");
        }
        let element = pg_sys::get_element_type(array.consttype);
        let elements = version::array_elements(array.constvalue, element);
        let scalars = elements.into_iter().map(|datum| match datum {
            None => Ok(Scalar::null(of.clone())),
            Some(datum) => {
                let own = match of {
                    DataType::Decimal128 { .. } => of.clone(),
                    _ => ir_type(element, -1)?,
                };
                let scalar = value(datum, element, &own)?;
                let scalar = if is_padded { padded(scalar, typmod) } else { scalar };
                as_type(scalar, of)
            }
        });
        scalars.collect()
    }

    unsafe fn case(&mut self, case: &pg_sys::CaseExpr) -> Translated {
        if !case.arg.is_null() {
            let value = self.expr(case.arg.cast())?;
            self.cases.push(value);
        }
        let translated = self.branches(case);
        if !case.arg.is_null() {
            self.cases.pop();
        }
        let (branches, otherwise) = translated?;
        let values: Vec<_> = branches.iter().map(|(_, value)| value).chain(&otherwise).collect();
        let data_type = common_type(&values)?;
        let typed = |value: Expr| typed_null(value, &data_type);
        let branches = branches.into_iter().map(|(when, then)| (when, typed(then))).collect();
        let otherwise = otherwise.map(|value| Box::new(typed(value)));
        Ok(Expr::Case { branches, otherwise, data_type })
    }

    unsafe fn branches(
        &mut self,
        case: &pg_sys::CaseExpr,
    ) -> Result<(Branches, Option<Expr>), WhyNot> {
        let mut branches = Vec::new();
        for when in items::<pg_sys::CaseWhen>(case.args) {
            let condition = self.expr((*when).expr.cast())?;
            // Values are not of what is compared.
            branches.push((condition, self.expr((*when).result.cast())?));
        }
        let otherwise = match case.defresult.is_null() {
            true => None,
            false => Some(self.expr(case.defresult.cast())?),
        };
        Ok((branches, otherwise))
    }

    unsafe fn coalesce(&mut self, expr: &pg_sys::CoalesceExpr) -> Translated {
        let values = items(expr.args).map(|arg| self.expr(arg)).collect::<Result<Vec<_>, _>>()?;
        let data_type = common_type(&values.iter().collect::<Vec<_>>())?;
        let mut values: Vec<_> = values.into_iter().map(|v| typed_null(v, &data_type)).collect();
        let Some(last) = values.pop() else { return why_not("COALESCE of nothing") };
        let branches = values.into_iter().map(|value| (not(is_null(value.clone())), value));
        Ok(Expr::Case { branches: branches.collect(), otherwise: Some(Box::new(last)), data_type })
    }

    unsafe fn call(
        &mut self,
        node: *mut Node,
        function: Oid,
        arguments: *mut pg_sys::List,
        result: Oid,
    ) -> Translated {
        let arguments = operands(arguments);
        match (function.to_u32(), &arguments[..]) {
            (f, &[left, right]) if let Some(op) = integer_arithmetic(f) => {
                let to = ir_type(result, -1)?;
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                Ok(Expr::arithmetic(op, widened(left, &to), widened(right, &to)))
            }
            (f, &[left, right]) if let Some(op) = decimal_arithmetic(f) => {
                decimal_operation(op, self.expr(left)?, self.expr(right)?)
            }
            (
                pg_sys::F_INT2UM | pg_sys::F_INT4UM | pg_sys::F_INT8UM | pg_sys::F_NUMERIC_UMINUS,
                &[value],
            ) => {
                let value = Box::new(self.expr(value)?);
                Ok(Expr::Negate { value, on_overflow: OnOverflow::Error })
            }
            (
                pg_sys::F_ABS_INT2
                | pg_sys::F_ABS_INT4
                | pg_sys::F_ABS_INT8
                | pg_sys::F_INT2ABS
                | pg_sys::F_INT4ABS
                | pg_sys::F_INT8ABS
                | pg_sys::F_ABS_NUMERIC
                | pg_sys::F_NUMERIC_ABS,
                &[value],
            ) => call(Function::Abs, self.expr(value)?),
            (
                pg_sys::F_INT4_INT2
                | pg_sys::F_INT8_INT2
                | pg_sys::F_INT8_INT4
                | pg_sys::F_INT2_INT4
                | pg_sys::F_INT2_INT8
                | pg_sys::F_INT4_INT8
                | pg_sys::F_FLOAT8_FLOAT4
                | pg_sys::F_FLOAT8_INT2
                | pg_sys::F_FLOAT8_INT4
                | pg_sys::F_TIMESTAMP_DATE,
                &[value],
            ) => Ok(self.expr(value)?.cast(ir_type(result, -1)?)),
            (pg_sys::F_NUMERIC_INT2, &[value]) => Ok(self.expr(value)?.cast(whole(5))),
            (pg_sys::F_NUMERIC_INT4, &[value]) => Ok(self.expr(value)?.cast(whole(10))),
            (pg_sys::F_NUMERIC_INT8, &[value]) => Ok(self.expr(value)?.cast(whole(19))),
            (
                pg_sys::F_LENGTH_TEXT
                | pg_sys::F_CHAR_LENGTH_TEXT
                | pg_sys::F_CHARACTER_LENGTH_TEXT,
                &[value],
            ) => call(Function::CharacterLength, self.expr(value)?),
            (pg_sys::F_OCTET_LENGTH_TEXT, &[value]) => {
                call(Function::OctetLength, self.expr(value)?)
            }
            (pg_sys::F_TEXTLIKE | pg_sys::F_BPCHARLIKE, &[value, pattern]) => {
                self.like(node, value, pattern, false)
            }
            (pg_sys::F_TEXTNLIKE | pg_sys::F_BPCHARNLIKE, &[value, pattern]) => {
                self.like(node, value, pattern, true)
            }
            (pg_sys::F_EXTRACT_TEXT_DATE | pg_sys::F_EXTRACT_TEXT_TIMESTAMP, &[part, moment]) => {
                self.date_part(part, moment, true)
            }
            (
                pg_sys::F_DATE_PART_TEXT_DATE | pg_sys::F_DATE_PART_TEXT_TIMESTAMP,
                &[part, moment],
            ) => self.date_part(part, moment, false),
            (pg_sys::F_DATE_TRUNC_TEXT_TIMESTAMP, &[part, moment]) => {
                let part = self.part(part)?;
                call(Function::DateTrunc(part), self.expr(moment)?)
            }
            _ => self.parameter(node),
        }
    }

    unsafe fn like(
        &mut self,
        node: *mut Node,
        value: *mut Node,
        pattern: *mut Node,
        negated: bool,
    ) -> Translated {
        let collation = pg_sys::exprInputCollation(node);
        if !is_deterministic(collation) {
            return why_not("LIKE under a collation that is not deterministic");
        }
        let Some(Ok(Scalar { value: headrace_ir::Value::Utf8(pattern), .. })) =
            self.constant(pattern)
        else {
            return why_not("LIKE with a pattern that is not constant");
        };
        let backslashes = pattern.chars().rev().take_while(|c| *c == '\\').count();
        if backslashes % 2 == 1 {
            return why_not("LIKE with a pattern that ends in its escape character");
        }
        let value = Box::new(self.expr(value)?);
        Ok(Expr::Like { value, pattern, escape: None, negated, case_insensitive: false })
    }

    unsafe fn part(&self, part: *mut Node) -> Result<DatePart, WhyNot> {
        let name = match self.constant(part) {
            Some(Ok(Scalar { value: headrace_ir::Value::Utf8(name), .. })) => name,
            _ => return why_not("a part of a date that is not constant"),
        };
        match DatePart::of_name(&name) {
            // Fractions of a second, and years before Christ in weeks, are counted otherwise.
            Some(
                DatePart::Second
                | DatePart::Millisecond
                | DatePart::Microsecond
                | DatePart::Epoch
                | DatePart::Isoyear
                | DatePart::Week,
            )
            | None => why_not(format!("the part {name} of a date")),
            Some(part) => Ok(part),
        }
    }

    /// `extract` is a number, `date_part` a float.
    unsafe fn date_part(&mut self, part: *mut Node, of: *mut Node, exact: bool) -> Translated {
        let part = self.part(part)?;
        let moment = self.expr(of)?;
        if moment.data_type() == DataType::Date32 && !part.is_of_day() {
            return why_not(format!("the part {} of a date", part.name()));
        }
        let mut value = call(Function::DatePart(part), moment)?;
        if part == DatePart::Year {
            // There is no year 0: the one before year 1 is -1.
            let number = |n| Expr::Literal(Scalar::int(DataType::Int32, n));
            let is_after = Expr::compare(CompareOp::Gt, value.clone(), number(0));
            let before = Expr::arithmetic(ArithmeticOp::Subtract, value.clone(), number(1));
            value = Expr::Case {
                branches: vec![(is_after, value)],
                otherwise: Some(Box::new(before)),
                data_type: DataType::Int32,
            };
        }
        Ok(value.cast(if exact { whole(10) } else { DataType::Float64 }))
    }

    /// What the server evaluates once a run.
    unsafe fn parameter(&mut self, node: *mut Node) -> Translated {
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
        let (oid, typmod) = (pg_sys::exprType(node), pg_sys::exprTypmod(node));
        if oid == pg_sys::BPCHAROID {
            return why_not("a value of type bpchar that is known at execution only");
        }
        let data_type = ir_type(oid, typmod)?;
        let known = (0..self.parameters.len()).find(|i| nodes::equal(self.parameters[*i], node));
        let index = known.unwrap_or_else(|| {
            let name = format!("${}", self.parameters.len() + 1);
            self.fields.push(Field::new(name, data_type.clone(), true));
            self.parameters.push(node);
            self.parameters.len() - 1
        });
        Ok(Expr::Parameter { index, data_type, nullable: true })
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
        NodeTag::T_MinMaxExpr => "GREATEST or LEAST".into(),
        NodeTag::T_PlaceHolderVar => "a value of an outer join".into(),
        tag => format!("{tag:?}").trim_start_matches("T_").into(),
    }
}

unsafe fn operator_name(operator: Oid) -> String {
    nodes::owned(pg_sys::get_opname(operator))
}

unsafe fn type_name(oid: Oid) -> String {
    super::types::name_of(oid, -1)
}

unsafe fn operands(arguments: *mut pg_sys::List) -> Vec<*mut Node> {
    items(arguments).collect()
}

/// A constant; digits behind the point are those that it shows.
unsafe fn scalar(constant: &pg_sys::Const) -> Result<Scalar, WhyNot> {
    let (oid, typmod) = (constant.consttype, constant.consttypmod);
    if oid == pg_sys::NUMERICOID && !constant.constisnull {
        let (unscaled, scale) = shown_decimal(constant.constvalue)?;
        let digits = unscaled.unsigned_abs().to_string().len() as u8;
        let precision = digits.max(scale).max(1);
        if precision > 38 {
            return why_not("a number of more than 38 digits");
        }
        let data_type = DataType::Decimal128 { precision, scale: scale as i8 };
        return Ok(Scalar::new(data_type, headrace_ir::Value::Int(unscaled)));
    }
    let data_type = match oid {
        pg_sys::NUMERICOID => whole(1),
        _ => ir_type(oid, typmod)?,
    };
    match constant.constisnull {
        true => Ok(Scalar::null(data_type)),
        false => value(constant.constvalue, oid, &data_type),
    }
}

unsafe fn constant(constant: &pg_sys::Const) -> Translated {
    scalar(constant).map(Expr::Literal)
}

fn is_null(value: Expr) -> Expr {
    Expr::IsNull(Box::new(value))
}

fn not(value: Expr) -> Expr {
    Expr::Not(Box::new(value))
}

fn whole(precision: u8) -> DataType {
    DataType::Decimal128 { precision, scale: 0 }
}

fn call(function: Function, argument: Expr) -> Translated {
    let of = argument.data_type();
    match function.signature(std::slice::from_ref(&of)) {
        Some(signature) => {
            Ok(Expr::Call { function, arguments: vec![argument], data_type: signature.result })
        }
        None => why_not(format!("{} of {of}", function.name())),
    }
}

fn widened(value: Expr, to: &DataType) -> Expr {
    if value.data_type() == *to { value } else { value.cast(to.clone()) }
}

/// NULL of whatever type as NULL of the type that is wanted.
fn typed_null(value: Expr, of: &DataType) -> Expr {
    match value {
        Expr::Literal(scalar) if scalar.is_null() => Expr::Literal(Scalar::null(of.clone())),
        value => value,
    }
}

/// The type of values that PostgreSQL holds for one type. Numbers with different digits behind the
/// point would be shown with another number of them.
fn common_type(values: &[&Expr]) -> Result<DataType, WhyNot> {
    let is_known = |value: &&&Expr| !matches!(value, Expr::Literal(scalar) if scalar.is_null());
    let mut types = values.iter().filter(is_known).map(|value| value.data_type());
    let Some(first) = types.next().or_else(|| values.first().map(|value| value.data_type())) else {
        return why_not("a choice among nothing");
    };
    types.try_fold(first, |known, next| match (&known, &next) {
        (a, b) if a == b => Ok(known),
        (
            &DataType::Decimal128 { precision, scale },
            &DataType::Decimal128 { precision: other, scale: other_scale },
        ) if scale == other_scale => {
            Ok(DataType::Decimal128 { precision: precision.max(other), scale })
        }
        (DataType::Decimal128 { .. }, DataType::Decimal128 { .. }) => {
            why_not("a choice among numbers with different digits behind the point")
        }
        (a, b) => why_not(format!("a choice between {a} and {b}")),
    })
}

/// A text padded with blanks to a column's length.
fn padded(scalar: Scalar, typmod: i32) -> Scalar {
    match scalar.value {
        headrace_ir::Value::Utf8(text) => {
            let width = usize::try_from(typmod - VARHDRSZ).unwrap_or(0);
            Scalar::utf8(format!("{:<width$}", text.trim_end_matches(' ')))
        }
        value => Scalar { value, ..scalar },
    }
}

/// A constant as one of another type that has the same value.
fn as_type(scalar: Scalar, to: &DataType) -> Result<Scalar, WhyNot> {
    if scalar.data_type == *to {
        return Ok(scalar);
    }
    let converted = Scalar::new(to.clone(), scalar.value);
    let is_integer = scalar.data_type.is_integer() && to.is_integer();
    match is_integer && converted.is_of_its_type() {
        true => Ok(converted),
        false => why_not(format!("a list of {} for {to}", scalar.data_type)),
    }
}

/// A comparison, of which the operands are one type or can be made one.
struct Comparison {
    op: CompareOp,
    is_padded: bool,
}

impl Comparison {
    /// What an operator of the built-in B-tree families means; `None` if it is of none.
    unsafe fn of(operator: Oid, collation: Oid) -> Result<Option<Self>, WhyNot> {
        const BPCHAR: u32 = 426;
        const TEXT: u32 = 1994;
        // bool, date and timestamps, integers, floats, numeric, time, uuid.
        const OTHERS: [u32; 7] = [424, 434, 1976, 1970, 1988, 1996, 2968];
        let meanings = pg_sys::get_op_btree_interpretation(operator);
        for meaning in items::<pg_sys::OpBtreeInterpretation>(meanings) {
            let family = (*meaning).opfamily_id.to_u32();
            let op = match (*meaning).strategy as u32 {
                1 => CompareOp::Lt,
                2 => CompareOp::Le,
                3 => CompareOp::Eq,
                4 => CompareOp::Ge,
                5 => CompareOp::Gt,
                _ => CompareOp::Ne,
            };
            let is_text = matches!(family, BPCHAR | TEXT);
            if !is_text && !OTHERS.contains(&family) {
                continue;
            }
            let is_equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
            if is_text && is_equality && !is_deterministic(collation) {
                return why_not("a collation that is not deterministic");
            }
            if is_text && !is_equality && (family == BPCHAR || !version::is_c_collation(collation))
            {
                return why_not("an order of texts under a collation other than C");
            }
            return Ok(Some(Self { op, is_padded: family == BPCHAR }));
        }
        Ok(None)
    }
}

/// Whether rows can be looked up by an operator: a built-in equality.
pub unsafe fn equality_key(operator: *mut pg_sys::OpExpr) -> bool {
    let comparison = Comparison::of((*operator).opno, (*operator).inputcollid);
    matches!(comparison, Ok(Some(Comparison { op: CompareOp::Eq, .. })))
}

/// Two operands as one type.
fn unified(left: Expr, right: Expr) -> Result<(Expr, Expr), WhyNot> {
    let (l, r) = (left.data_type(), right.data_type());
    let timestamp = |t: &DataType| matches!(t, DataType::Timestamp { timezone: None, .. });
    let to = match (&l, &r) {
        _ if l == r => return Ok((left, right)),
        (DataType::Decimal128 { .. }, DataType::Decimal128 { .. }) => return Ok((left, right)),
        _ if l.is_signed_integer() && r.is_signed_integer() => {
            if l.plain_width_bytes() > r.plain_width_bytes() { l.clone() } else { r.clone() }
        }
        _ if l.is_float() && r.is_float() => DataType::Float64,
        (DataType::Date32, other) | (other, DataType::Date32) if timestamp(other) => other.clone(),
        _ => return why_not(format!("a comparison of {l} with {r}")),
    };
    Ok((widened(left, &to), widened(right, &to)))
}

fn integer_arithmetic(function: u32) -> Option<ArithmeticOp> {
    Some(match function {
        pg_sys::F_INT2PL | pg_sys::F_INT4PL | pg_sys::F_INT8PL => ArithmeticOp::Add,
        pg_sys::F_INT24PL | pg_sys::F_INT42PL | pg_sys::F_INT48PL => ArithmeticOp::Add,
        pg_sys::F_INT84PL | pg_sys::F_INT28PL | pg_sys::F_INT82PL => ArithmeticOp::Add,
        pg_sys::F_INT2MI | pg_sys::F_INT4MI | pg_sys::F_INT8MI => ArithmeticOp::Subtract,
        pg_sys::F_INT24MI | pg_sys::F_INT42MI | pg_sys::F_INT48MI => ArithmeticOp::Subtract,
        pg_sys::F_INT84MI | pg_sys::F_INT28MI | pg_sys::F_INT82MI => ArithmeticOp::Subtract,
        pg_sys::F_INT2MUL | pg_sys::F_INT4MUL | pg_sys::F_INT8MUL => ArithmeticOp::Multiply,
        pg_sys::F_INT24MUL | pg_sys::F_INT42MUL | pg_sys::F_INT48MUL => ArithmeticOp::Multiply,
        pg_sys::F_INT84MUL | pg_sys::F_INT28MUL | pg_sys::F_INT82MUL => ArithmeticOp::Multiply,
        pg_sys::F_INT2DIV | pg_sys::F_INT4DIV | pg_sys::F_INT8DIV => ArithmeticOp::Divide,
        pg_sys::F_INT24DIV | pg_sys::F_INT42DIV | pg_sys::F_INT48DIV => ArithmeticOp::Divide,
        pg_sys::F_INT84DIV | pg_sys::F_INT28DIV | pg_sys::F_INT82DIV => ArithmeticOp::Divide,
        pg_sys::F_INT2MOD | pg_sys::F_INT4MOD | pg_sys::F_INT8MOD => ArithmeticOp::Modulo,
        pg_sys::F_MOD_INT2_INT2 | pg_sys::F_MOD_INT4_INT4 | pg_sys::F_MOD_INT8_INT8 => {
            ArithmeticOp::Modulo
        }
        _ => return None,
    })
}

fn decimal_arithmetic(function: u32) -> Option<ArithmeticOp> {
    match function {
        pg_sys::F_NUMERIC_ADD => Some(ArithmeticOp::Add),
        pg_sys::F_NUMERIC_SUB => Some(ArithmeticOp::Subtract),
        pg_sys::F_NUMERIC_MUL => Some(ArithmeticOp::Multiply),
        _ => None,
    }
}

/// Sums, differences and products of numbers show the digits behind the point that those of decimals
/// have; what has more than 38 digits in all fails.
fn decimal_operation(op: ArithmeticOp, left: Expr, right: Expr) -> Translated {
    let (l, r) = (left.data_type(), right.data_type());
    let (
        DataType::Decimal128 { precision: p, scale: s },
        DataType::Decimal128 { precision: q, scale: t },
    ) = (&l, &r)
    else {
        return why_not(format!("{l} {op} {r}"));
    };
    let (precision, scale) = match op {
        ArithmeticOp::Multiply => (p + q, s + t),
        _ => {
            let whole = (*p as i8 - s).max(*q as i8 - t);
            let scale = *s.max(t);
            ((whole + scale + 1).max(1) as u8, scale)
        }
    };
    if scale > 38 {
        return why_not("a product with more than 38 digits behind the point");
    }
    let data_type = DataType::Decimal128 { precision: precision.min(38), scale };
    let (left, right) = (Box::new(left), Box::new(right));
    Ok(Expr::Arithmetic { op, left, right, data_type, on_overflow: OnOverflow::Error })
}
