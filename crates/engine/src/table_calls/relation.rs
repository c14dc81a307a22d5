//! Plans calls of functions of tables where they stand in FROM.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, TableReference, plan_datafusion_err, plan_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, ObjectName, ObjectNamePart, TableFactor,
};

use super::node::TableCall;
use crate::functions::cuda::coerced;
use crate::functions::cuda_table::{CudaTable, KnownTable, TwinRows};

/// Plans calls of functions of tables.
#[derive(Debug)]
pub struct OfTableCalls;

impl RelationPlanner for OfTableCalls {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::Table { name, args: Some(args), alias, .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(function) = known(name, context) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let call = call(function, &args.args, context)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(call.node(), alias.clone()))))
    }
}

/// The function of a name, if it is one of a table in CUDA.
fn known(name: &ObjectName, context: &dyn RelationPlannerContext) -> Option<Arc<CudaTable>> {
    let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else { return None };
    let name = context.normalize_ident(ident.clone());
    let source = context.context_provider().get_table_function_source(&name, Vec::new()).ok()?;
    let provider = source_as_provider(&source).ok()?;
    let provider: &dyn Any = provider.as_ref();
    provider.downcast_ref::<KnownTable>().map(|known| Arc::clone(&known.0))
}

fn call(
    function: Arc<CudaTable>,
    args: &[FunctionArg],
    context: &mut dyn RelationPlannerContext,
) -> Result<TableCall> {
    let name = function.function.name.clone();
    let usage = || {
        let parameters = function.parameters.fields().iter().map(|field| field.name().as_str());
        let all: Vec<_> = ["(SELECT ..)"].into_iter().chain(parameters).collect();
        format!("hint: {name}({}), or the name of a table in place of a query", all.join(", "))
    };
    let mut values = Vec::new();
    for arg in args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = arg else {
            return plan_err!("{name}() has no argument {arg}\n{}", usage());
        };
        values.push(value.clone());
    }
    let mut values = values.into_iter();
    let Some(SqlExpr::Subquery(subquery)) = values.next() else {
        return plan_err!("{name}() has no table as its first argument\n{}", usage());
    };
    // The planner leaves it out of a subquery, and the rows would come in any order.
    if subquery.order_by.is_some() && subquery.limit_clause.is_none() && subquery.fetch.is_none() {
        return plan_err!(
            "the rows of {name}() have no order, whatever ORDER BY its argument has\n\
             hint: row_number() OVER (ORDER BY ..) as a column of its table"
        );
    }
    let rows = context.plan(TableFactor::Derived {
        lateral: false,
        subquery,
        alias: None,
        sample: None,
    })?;
    let rows = columns_of(&function, rows)?;
    let parameters = parameters_of(&function, values.collect(), context)?;
    let twin = function.twin.as_ref();
    let twin = twin.map(|twin| filled(twin, &function, &rows, &parameters)).transpose()?;
    let schema = DFSchema::try_from_qualified_schema(
        TableReference::bare(name.as_str()),
        &function.outputs,
    )?;
    Ok(TableCall { function, parameters, rows, twin, schema: Arc::new(schema) })
}

/// The columns of the function's table, of rows that may have more.
fn columns_of(function: &CudaTable, rows: LogicalPlan) -> Result<LogicalPlan> {
    let (name, schema) = (&function.function.name, Arc::clone(rows.schema()));
    let mut given = Vec::new();
    for wanted in function.columns.fields() {
        let named = |is: &dyn Fn(&str) -> bool| {
            let columns = schema.iter().filter(|(_, field)| is(field.name()));
            columns.map(Column::from).collect::<Vec<_>>()
        };
        let mut found = named(&|column| column == wanted.name());
        if found.is_empty() {
            found = named(&|column| column.eq_ignore_ascii_case(wanted.name()));
        }
        match found.as_slice() {
            [column] => given.push(Expr::Column(column.clone())),
            [] => {
                return plan_err!(
                    "{name}() wants a column {} of its table\nhint: columns there: {}; SELECT .. AS {0} names one",
                    wanted.name(),
                    schema
                        .fields()
                        .iter()
                        .map(|f| f.name().as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                );
            }
            _ => {
                return plan_err!(
                    "two columns of the table of {name}() are called {}",
                    wanted.name()
                );
            }
        }
    }
    let types = given.iter().map(|column| column.get_type(&schema)).collect::<Result<Vec<_>>>()?;
    coerced(&format!("the table of {name}"), &types, types_of(&function.columns))?;
    let columns = given.into_iter().zip(function.columns.fields());
    let columns =
        columns.map(|(column, field)| cast(column, field.data_type().clone()).alias(field.name()));
    LogicalPlanBuilder::from(rows)
        .project(columns.collect::<Vec<_>>())?
        .alias(function.function.table.as_str())?
        .build()
}

fn types_of(schema: &SchemaRef) -> Vec<DataType> {
    schema.fields().iter().map(|field| field.data_type().clone()).collect()
}

/// What is given for the parameters that are values.
fn parameters_of(
    function: &CudaTable,
    values: Vec<SqlExpr>,
    context: &mut dyn RelationPlannerContext,
) -> Result<Vec<Expr>> {
    let (name, nothing) = (&function.function.name, DFSchema::empty());
    let mut given = Vec::new();
    for value in values {
        let text = value.to_string();
        let expr = context.sql_to_expr(value, &nothing).map_err(|error| {
            plan_datafusion_err!("{name}() takes {text}: {}", error.strip_backtrace())
        })?;
        let has_query = |expr: &Expr| {
            Ok(matches!(expr, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)))
        };
        if expr.exists(has_query)? || expr.is_volatile() {
            return plan_err!("{name}() takes {text}, which is no constant");
        }
        given.push(expr);
    }
    let types = given.iter().map(|value| value.get_type(&nothing)).collect::<Result<Vec<_>>>()?;
    let wanted = coerced(name, &types, types_of(&function.parameters))?;
    Ok(given.into_iter().zip(wanted).map(|(value, wanted)| cast(value, wanted)).collect())
}

/// A twin over the rows of a call, with its values in the places of the parameters.
fn filled(
    twin: &LogicalPlan,
    function: &CudaTable,
    rows: &LogicalPlan,
    parameters: &[Expr],
) -> Result<LogicalPlan> {
    let value_of = |id: &str| {
        let mut named = function.parameters.fields().iter().zip(parameters);
        named.find(|(field, _)| id.strip_prefix('$') == Some(field.name())).map(|(_, value)| value)
    };
    let fill = |plan: LogicalPlan| {
        if let LogicalPlan::TableScan(scan) = &plan
            && let Ok(provider) = source_as_provider(&scan.source)
        {
            let provider: &dyn Any = provider.as_ref();
            if provider.is::<TwinRows>() {
                return Ok(Transformed::yes(rows.clone()));
            }
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let filled = expr.transform_up(|expr| {
                Ok(match &expr {
                    Expr::Placeholder(placeholder) => match value_of(&placeholder.id) {
                        Some(value) => Transformed::yes(value.clone()),
                        None => Transformed::no(expr),
                    },
                    _ => Transformed::no(expr),
                })
            })?;
            Ok(filled.update_data(|expr| name.restore(expr)))
        })
    };
    let plan = twin.clone().transform_up_with_subqueries(fill)?.data;
    let columns = plan.schema().columns().into_iter().zip(function.outputs.fields());
    let columns = columns.map(|(column, field)| {
        cast(Expr::Column(column), field.data_type().clone()).alias(field.name())
    });
    LogicalPlanBuilder::from(plan).project(columns.collect::<Vec<_>>())?.build()
}
