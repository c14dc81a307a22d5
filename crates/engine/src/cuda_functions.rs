//! `CREATE FUNCTION .. LANGUAGE cuda` and `DROP FUNCTION`: functions of a session.
//!
//! The types are resolved by planning casts to them, the twin by planning a query of it over a row of the parameters. The
//! body is compiled alone, so that an error is told where the function is made. A machine without NVRTC takes it
//! unseen: it has no GPU to run it on.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, internal_err, plan_datafusion_err, plan_err};
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType as SqlType};
use headrace_format::arrow::ir_type;
use headrace_ir::{CudaFunction, DataType as IrType};
use headrace_pipeline::WhyNot;
use headrace_runner::check_function;

use crate::catalog::with_opened;
use crate::error::{Told, blocking};
use crate::failure::Class;
use crate::functions::cuda::{CudaCall, Twin, schema_of};
use crate::functions::cuda_table::Known;
use crate::session::Session;
use crate::sql::Parsed;
use crate::sql::cuda_function::{Definition, FunctionStatement, NewCudaFunction, Returns};
use crate::sql::type_name;

/// What a query of a twin selects from.
const PARAMETERS: &str = "headrace_parameters";

impl Session {
    /// Makes a function as CREATE OR REPLACE FUNCTION does, within `statement_timeout`.
    ///
    /// # Errors
    /// A function that cannot be made.
    pub async fn create_cuda_function(&self, new: NewCudaFunction) -> Result<()> {
        let session = self.clone();
        let made = move || async move {
            let state = session.context().state();
            let made = Definition::of(new, &state)?;
            session.create_function(made, &state).await
        };
        self.in_time(made).await
    }

    /// Makes or drops a function.
    ///
    /// # Errors
    /// A function that cannot be made, or is not there.
    pub(crate) async fn change_functions(
        &self,
        statement: FunctionStatement,
        state: &SessionState,
    ) -> Result<()> {
        match statement {
            FunctionStatement::Create(made) => self.create_function(*made, state).await,
            FunctionStatement::Drop { name, if_exists } => {
                if is_of_table(&name, state) {
                    self.drop_function(&name);
                    return Ok(());
                }
                match state.scalar_functions().get(&name) {
                    Some(known) if known.inner().is::<CudaCall>() => {
                        self.drop_function(&name);
                        Ok(())
                    }
                    Some(_) => plan_err!("{name}() was not made by CREATE FUNCTION"),
                    None if if_exists => Ok(()),
                    None => plan_err!("there is no function {name}()"),
                }
            }
        }
    }

    async fn create_function(&self, made: Definition, state: &SessionState) -> Result<()> {
        let name = &made.name;
        let known = state.scalar_functions().get(name);
        let is_ours =
            is_of_table(name, state) || known.is_some_and(|known| known.inner().is::<CudaCall>());
        if !is_ours && (known.is_some() || is_taken(name, state)) {
            return plan_err!("there is a function {name}() already, which cannot be replaced");
        }
        if is_ours && !made.or_replace {
            return plan_err!(
                "there is a function {name}() already\nhint: CREATE OR REPLACE FUNCTION"
            );
        }
        match made.returns {
            Returns::Value(_) => self.create_scalar_function(made, state).await,
            Returns::Table(_) => self.create_table_function(made, state).await,
        }
    }

    async fn create_scalar_function(&self, made: Definition, state: &SessionState) -> Result<()> {
        let name = &made.name;
        let Returns::Value(returned) = &made.returns else {
            return internal_err!("{name}() returns a table");
        };
        let mut fields = Vec::with_capacity(made.parameters.len());
        for (parameter, written) in &made.parameters {
            fields.push((parameter.clone(), self.arrow_type(written, state).await?));
        }
        let result = self.arrow_type(returned, state).await?;
        let parameters =
            fields.iter().map(|(name, data_type)| Ok((name.clone(), known(data_type)?)));
        let function = CudaFunction {
            name: name.clone(),
            parameters: parameters.collect::<Result<_>>()?,
            result: known(&result)?,
            body: made.body,
        };
        if let Some(cause) = function.error() {
            return plan_err!("{name}(): {cause}");
        }
        let schema = schema_of(fields);
        let twin = match made.twin {
            None => None,
            Some(text) => {
                let table = Arc::new(EmptyTable::new(Arc::clone(&schema)));
                let expr = self.twin(&text, table, returned, state).await;
                let expr = expr.map_err(|error| {
                    plan_datafusion_err!("the TWIN of {name}(): {}", error.strip_backtrace())
                })?;
                if expr.data_type(&schema)? != result {
                    return plan_err!("the TWIN of {name}() is no {}", type_name(&result));
                }
                Some(Twin { text, expr })
            }
        };
        compiled(name, &made.first_line, {
            let function = function.clone();
            move || check_function(&function)
        })
        .await?;
        // One of the name may have been of a table.
        self.drop_function(name);
        let call = CudaCall::new(function, schema, result, twin);
        self.register_function(ScalarUDF::from(call));
        Ok(())
    }

    /// The Arrow type of a type as it is written.
    pub(crate) async fn arrow_type(
        &self,
        written: &SqlType,
        state: &SessionState,
    ) -> Result<DataType> {
        if let Some(bytes) = fixed_bytes(written)? {
            return Ok(DataType::FixedSizeBinary(bytes));
        }
        if let SqlType::Array(ArrayElemTypeDef::SquareBracket(item, Some(length))) = written {
            let item = Box::pin(self.arrow_type(item, state)).await?;
            let length = i32::try_from(*length)
                .map_err(|_| plan_datafusion_err!("a list of {length} values is too long"))?;
            return Ok(DataType::FixedSizeList(
                Arc::new(Field::new_list_field(item, true)),
                length,
            ));
        }
        let plan =
            Parsed::of(&format!("select cast(null as {written})"), state)?.plan(state).await?;
        Ok(plan.logical.schema().field(0).data_type().clone())
    }

    /// A twin over a table of the parameters.
    pub(crate) async fn twin(
        &self,
        text: &str,
        table: Arc<dyn TableProvider>,
        result: &SqlType,
        state: &SessionState,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let table_schema = table.schema();
        let query = format!("select cast(({text}\n) as {result}) from {PARAMETERS}");
        let given = [(PARAMETERS.to_string(), table)].into_iter().collect();
        let parsed = Parsed::of(&query, state)?;
        let planned = with_opened(given, parsed.plan(state)).await?;
        let plan = state.analyzer().execute_and_check(
            planned.logical,
            state.config_options(),
            |_, _| {},
        )?;
        let LogicalPlan::Projection(projection) = &plan else {
            return plan_err!("it is no expression over the parameters");
        };
        let is_of_rows = matches!(
            projection.input.as_ref(),
            LogicalPlan::TableScan(_) | LogicalPlan::SubqueryAlias(_)
        );
        match projection.expr.as_slice() {
            [expr] if is_of_rows => {
                let schema = Arc::new(DFSchema::try_from(table_schema)?);
                // Some functions are only there to become others. What is the present moment stays: no moment is known.
                let context = SimplifyContext::builder()
                    .with_schema(Arc::clone(&schema))
                    .with_config_options(Arc::clone(state.config_options()))
                    .build();
                let expr = without_qualifiers(expr.clone().unalias())?;
                if expr.is_volatile() {
                    return plan_err!("it is another value each time");
                }
                let expr = ExprSimplifier::new(context).simplify(expr)?;
                state.create_physical_expr(expr, &schema)
            }
            _ => plan_err!("it is no expression over the parameters, of one value a row"),
        }
    }
}

/// Columns by their names alone.
fn without_qualifiers(expr: Expr) -> Result<Expr> {
    let plain = expr.transform(|expr| {
        Ok(match expr {
            Expr::Column(column) => {
                Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))
            }
            other => Transformed::no(other),
        })
    });
    Ok(plain?.data)
}

/// Whether a name is that of a function of a table in CUDA.
fn is_of_table(name: &str, state: &SessionState) -> bool {
    state.table_functions().get(name).is_some_and(|known| {
        let known: &dyn Any = known.function().as_ref();
        known.is::<Known>()
    })
}

/// Whether an aggregate, a window function or a table function has a name.
fn is_taken(name: &str, state: &SessionState) -> bool {
    state.aggregate_functions().contains_key(name)
        || state.window_functions().contains_key(name)
        || state.table_functions().contains_key(name)
}

pub(crate) fn known(data_type: &DataType) -> Result<IrType> {
    ir_type(data_type)
        .ok_or_else(|| plan_datafusion_err!("a function in CUDA knows no {}", type_name(data_type)))
}

/// The length of `fixed_binary(n)`.
fn fixed_bytes(written: &SqlType) -> Result<Option<i32>> {
    let SqlType::Custom(name, lengths) = written else { return Ok(None) };
    if !name.to_string().eq_ignore_ascii_case("fixed_binary") {
        return Ok(None);
    }
    match lengths.as_slice() {
        [length]
            if let Ok(bytes) = length.parse::<i32>()
                && bytes > 0 =>
        {
            Ok(Some(bytes))
        }
        _ => plan_err!("fixed_binary has a number of bytes, as in fixed_binary(128)"),
    }
}

/// Compiles a function, where there is a compiler.
pub(crate) async fn compiled(
    name: &str,
    first_line: &str,
    check: impl FnOnce() -> std::result::Result<(), WhyNot> + Send + 'static,
) -> Result<()> {
    let checked = blocking(move || Ok(check())).await?;
    checked.map_err(|why| {
        let cause = format!("{name}() does not compile as CUDA C++:\n{why}");
        let lines = format!("lines are counted from {first_line}");
        Told::error(Class::Statement, cause, Some(&lines))
    })
}
