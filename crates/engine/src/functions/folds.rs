//! `list_reduce(l, (so_far, x) -> ..)`: what a function of two makes of a list, from its first element or from a value.
//!
//! All lists of a batch take a step together: the n-th elements of those that are so long, with what came of the elements before.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, ListArray, UInt32Array, new_null_array,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options, interleave, take, take_arrays};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
    Volatility,
};

/// What it is called; others are words for it.
pub const NAME: &str = "list_reduce";

/// The function.
pub fn function() -> HigherOrderUDF {
    let signature = HigherOrderSignature::user_defined(Volatility::Immutable);
    HigherOrderUDF::new_from_impl(Reduce { signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Reduce {
    signature: HigherOrderSignature,
}

fn wrong<T>() -> Result<T> {
    plan_err!(
        "{NAME}() takes a list, a function of two, and a value to begin with if the list may be empty\n\
         hint: {NAME}(l, (so_far, x) -> so_far + x, 0)"
    )
}

/// The type of a list's elements.
fn element(list: &DataType) -> Result<&FieldRef> {
    match list {
        DataType::List(element) => Ok(element),
        _ => wrong(),
    }
}

impl HigherOrderUDFImpl for Reduce {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let Some(list) = types.first() else { return wrong() };
        let element = match list {
            DataType::List(element)
            | DataType::LargeList(element)
            | DataType::FixedSizeList(element, _)
            | DataType::ListView(element)
            | DataType::LargeListView(element) => element.data_type().clone(),
            DataType::Null => DataType::Null,
            _ => return wrong(),
        };
        let list = |element| DataType::List(Arc::new(Field::new_list_field(element, true)));
        match &types[1..] {
            [] => Ok(vec![list(element)]),
            [first] => {
                let Some(both) = comparison_coercion(&element, first) else {
                    return plan_err!(
                        "{NAME}() begins with a {first}, and its list has a {element} in each place\n\
                         hint: cast one of them"
                    );
                };
                Ok(vec![list(both.clone()), both])
            }
            _ => wrong(),
        }
    }

    fn lambda_parameters(
        &self,
        _step: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let [ValueOrLambda::Value(list), ValueOrLambda::Lambda(_), ..] = fields else {
            return wrong();
        };
        let element = element(list.data_type())?.data_type();
        let so_far = Arc::new(Field::new("so_far", element.clone(), true));
        let next = Arc::new(Field::new("next", element.clone(), true));
        let place = Arc::new(Field::new("place", DataType::Int64, false));
        Ok(LambdaParametersProgress::Complete(vec![vec![so_far, next, place]]))
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs) -> Result<FieldRef> {
        let [ValueOrLambda::Value(list), ValueOrLambda::Lambda(_), ..] = args.arg_fields else {
            return wrong();
        };
        Ok(Arc::new(Field::new("", element(list.data_type())?.data_type().clone(), true)))
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let (list, lambda, first) = match args.args.as_slice() {
            [ValueOrLambda::Value(list), ValueOrLambda::Lambda(lambda)] => (list, lambda, None),
            [
                ValueOrLambda::Value(list),
                ValueOrLambda::Lambda(lambda),
                ValueOrLambda::Value(first),
            ] => (list, lambda, Some(first)),
            _ => return wrong(),
        };
        let lists = list.to_array(args.number_rows)?;
        let first = first.map(|first| first.to_array(args.number_rows)).transpose()?;
        let reduced = Steps::of(lists.as_list(), first)?.all(lambda)?;
        Ok(ColumnarValue::Array(reduced))
    }
}

/// A reduction on its way.
struct Steps<'a> {
    lists: &'a ListArray,
    /// What came of lists at their ends; the first is NULL, for lists that are.
    ended: Vec<ArrayRef>,
    /// For each list where in `ended` its value is.
    places: Vec<(usize, usize)>,
    /// The lists that go on, and what has come of each.
    rows: Vec<u32>,
    so_far: ArrayRef,
    /// The element that comes next.
    nth: usize,
}

impl<'a> Steps<'a> {
    fn of(lists: &'a ListArray, first: Option<ArrayRef>) -> Result<Self> {
        let rows: Vec<u32> =
            (0..lists.len()).filter(|row| lists.is_valid(*row)).map(|row| row as u32).collect();
        let is_empty = |row: &u32| lists.value_length(*row as usize) == 0;
        if first.is_none() && rows.iter().any(is_empty) {
            return exec_err!(
                "{NAME}() of an empty list has nothing to begin with\nhint: {NAME}(l, (so_far, x) -> so_far + x, 0)"
            );
        }
        let (nth, so_far) = match first {
            Some(first) => (0, take(&first, &UInt32Array::from(rows.clone()), None)?),
            None => (1, elements(lists, &rows, 0)?),
        };
        let ended = vec![new_null_array(lists.values().data_type(), 1)];
        Ok(Self { lists, ended, places: vec![(0, 0); lists.len()], rows, so_far, nth })
    }

    fn all(mut self, lambda: &LambdaArgument) -> Result<ArrayRef> {
        loop {
            self.end_lists()?;
            if self.rows.is_empty() {
                let ended: Vec<&dyn Array> = self.ended.iter().map(AsRef::as_ref).collect();
                return Ok(interleave(&ended, &self.places)?);
            }
            let next = elements(self.lists, &self.rows, self.nth)?;
            let place: ArrayRef =
                Arc::new(Int64Array::from(vec![self.nth as i64 + 1; self.rows.len()]));
            let rows = UInt32Array::from(self.rows.clone());
            let made = lambda.evaluate(
                &[&|| Ok(Arc::clone(&self.so_far)), &|| Ok(Arc::clone(&next)), &|| {
                    Ok(Arc::clone(&place))
                }],
                |captured| Ok(take_arrays(captured, &rows, None)?),
            )?;
            let made = made.into_array(self.rows.len())?;
            let strict = CastOptions { safe: false, ..CastOptions::default() };
            self.so_far = cast_with_options(&made, self.so_far.data_type(), &strict)?;
            self.nth += 1;
        }
    }

    /// Puts away what came of lists that have no element more.
    fn end_lists(&mut self) -> Result<()> {
        let goes_on = |row: u32| self.lists.value_length(row as usize) as usize > self.nth;
        let going_on: Vec<u32> =
            (0..self.rows.len() as u32).filter(|at| goes_on(self.rows[*at as usize])).collect();
        if going_on.len() == self.rows.len() {
            return Ok(());
        }
        for (at, row) in self.rows.iter().enumerate().filter(|(_, row)| !goes_on(**row)) {
            self.places[*row as usize] = (self.ended.len(), at);
        }
        self.ended.push(Arc::clone(&self.so_far));
        self.rows = going_on.iter().map(|at| self.rows[*at as usize]).collect();
        self.so_far = take(&self.so_far, &UInt32Array::from(going_on), None)?;
        Ok(())
    }
}

/// The elements of lists at a place that all of them have.
fn elements(lists: &ListArray, rows: &[u32], nth: usize) -> Result<ArrayRef> {
    let place = |row: &u32| lists.value_offsets()[*row as usize] as u32 + nth as u32;
    let places = UInt32Array::from_iter_values(rows.iter().map(place));
    Ok(take(lists.values(), &places, None)?)
}
