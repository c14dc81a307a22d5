//! SQL functions: those that the planner lacks, or means otherwise, and bounds for those that can make anything of
//! nothing.
//!
//! - [`bounded`], [`sizes`]: results that would be huge are refused before they are made.
//! - [`approximate`]: arguments of approximate aggregates have bounds, too.
//! - [`calls`], by [`templates`], [`spellings`], [`lambdas`], [`replacements`]: calls that are other words for an expression, in the parsed statement.
//! - [`rows`]: functions of rows; [`dates`], [`texts`], [`regexes`], [`numbers`], [`json`] are tables of them.
//! - [`formats`], [`patterns`], [`numerals`], [`printf`]: what moments, numbers and texts look like.
//! - [`choices`]: texts beside moments.
//! - [`operators`]: intervals times numbers, and parts of JSON.
//! - [`cuda`], [`cuda_table`]: those that users write in CUDA.
//! - [`distances`]: how alike fingerprints and vectors are.
//! - [`counts`], [`products`]: aggregates; [`series`]: tables.
//! - [`folds`], [`maps`]: lists as one value, and as maps.
//! - [`about`]: what a session and its values are.
//! - [`table`]: what the docs say of them, with examples that tests run.
//! - [`refused`]: what is written in place of functions that are not here.
//!
//! It must never know tables, files, or who runs a plan.

mod about;
mod approximate;
mod bounded;
mod calls;
mod choices;
mod counts;
pub(crate) mod cuda;
pub(crate) mod cuda_table;
pub(crate) mod dates;
mod distances;
mod folds;
mod formats;
mod json;
mod lambdas;
mod maps;
mod numbers;
mod numerals;
mod operators;
mod patterns;
mod printf;
mod products;
mod refused;
mod regexes;
mod replacements;
mod rows;
mod series;
mod sizes;
mod spellings;
mod table;
pub(crate) mod templates;
mod texts;
mod types;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use headrace_io::MemoryBudget;

use crate::fixes::{array_agg_views, far_moments, sliding_variances};
use bounded::Bounded;
pub use calls::spell_out;
pub use distances::function_of;
pub use rows::name_of;
pub use table::{Entry, page, sections};
pub(crate) use templates::fill;

/// The planner's own function, which another stands before.
pub fn own(function: &ScalarUDF) -> &ScalarUDF {
    choices::inner(far_moments::inner(Bounded::of(function)))
}

/// Registers all of them in place of the planner's own.
///
/// # Errors
/// None: every name that is bounded is there.
pub fn register(context: &SessionContext, budget: &Arc<MemoryBudget>) -> Result<()> {
    let of_rows = [
        dates::FUNCTIONS,
        texts::FUNCTIONS,
        regexes::FUNCTIONS,
        numbers::FUNCTIONS,
        json::FUNCTIONS,
        operators::FUNCTIONS,
    ];
    for function in of_rows.into_iter().flatten() {
        context.register_udf(function.function());
    }
    for function in about::functions().chain(distances::functions()) {
        context.register_udf(function);
    }
    for function in counts::functions().chain([products::function(), array_agg_views::array_agg()])
    {
        context.register_udaf(function);
    }
    context.register_udf(maps::function());
    context.register_higher_order_function(Arc::new(folds::function()));
    for (name, is_sample, is_root) in sliding_variances::NAMES {
        context.register_udaf(sliding_variances::exact(context.udaf(name)?, is_sample, is_root));
    }
    for (name, has_end) in series::NAMES {
        let known = context.state_ref().read().table_functions().get(name).cloned();
        if let Some(known) = known {
            let of_numbers = Arc::clone(known.function());
            let of_moments = series::OfMoments { of_numbers, name, has_end };
            context.register_udtf(name, Arc::new(of_moments));
        }
    }
    for name in far_moments::NAMES {
        context.register_udf(far_moments::beyond_ns(context.udf(name)?));
    }
    context.state_ref().write().register_expr_planner(Arc::new(operators::Operators))?;
    context.register_udf(choices::beside_texts(context.udf(choices::NAME)?));
    for (name, size) in sizes::SIZES {
        let function = context.udf(name)?;
        context.register_udf(Bounded::around(function, *size, Arc::clone(budget)));
    }
    for name in ["approx_percentile_cont", "approx_percentile_cont_with_weight"] {
        context.register_udaf(approximate::percentile(context.udaf(name)?));
    }
    Ok(())
}
