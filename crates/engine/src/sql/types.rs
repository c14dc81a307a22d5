//! What SQL's names of types mean: TIMESTAMP has microseconds, as PostgreSQL's and DuckDB's have.
//!
//! The planner's has nanoseconds, which end in 2262; all that is said of `9999-12-31` fails there. `t AT TIME ZONE z` is
//! `timezone(z, t)`, and `x::VARCHAR(2)` has two characters at most: the planner forgets the length. For the zone it makes a
//! cast, which cannot tell a moment from a local time.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, CreateTable, DataType, ExactNumberInfo, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart, Statement,
    TimezoneInfo, TypedString, Value, VisitorMut,
};

use super::own::parse_expr;
use super::walk::{self, Flow, ON, Stop};

/// Digits behind the point of a second.
const MICROSECONDS: u64 = 6;

/// Digits of the longest decimals, and of those that are computed fast.
const DECIMAL_DIGITS_MAX: usize = 76;
const FAST_DIGITS_MAX: u64 = 38;

/// Gives timestamps without a precision microseconds, and AT TIME ZONE its function.
pub fn spell_out(statement: &mut Statement) {
    walk::change_all(statement, &mut Types);
}

struct Types;

impl VisitorMut for Types {
    type Break = Stop;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> Flow {
        if let Statement::CreateTable(CreateTable { columns, .. }) = statement {
            columns.iter_mut().for_each(|column| change(&mut column.data_type));
        }
        ON
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) =
            expr
        {
            change(data_type);
        }
        if let Some(length) = length(expr)
            && let Ok(Expr::Function(mut call)) = parse_expr(&format!("left('', {length})"))
            && let FunctionArguments::List(list) = &mut call.args
            && let Some(text) = list.args.first_mut()
        {
            let whole = std::mem::replace(expr, Expr::value(Value::Null));
            *text = FunctionArg::Unnamed(FunctionArgExpr::Expr(whole));
            *expr = Expr::Function(call);
        }
        if let Expr::Value(value) = expr
            && let Value::Number(number, _) = &value.value
            && is_beyond_integers(number)
            && let Ok(decimal) =
                parse_expr(&format!("CAST('{number}' AS DECIMAL({}, 0))", number.len()))
        {
            *expr = decimal;
        }
        ON
    }

    // What it is of comes before.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Function(call) = expr
            && let Some(zone) = moment(call)
            && let Ok(mut cast) = parse_expr("CAST(now() AS TIMESTAMP(6))")
        {
            if let Expr::Cast { data_type, .. } = &mut cast {
                *data_type = DataType::Timestamp(Some(MICROSECONDS), zone);
            }
            *expr = cast;
        }
        if let Expr::AtTimeZone { timestamp, time_zone } = expr
            && let Ok(Expr::Function(mut call)) = parse_expr("timezone('', '')")
            && let FunctionArguments::List(list) = &mut call.args
        {
            let arguments = [time_zone, timestamp].map(|part| part.as_ref().clone());
            let arguments = arguments.map(|part| FunctionArg::Unnamed(FunctionArgExpr::Expr(part)));
            list.args = arguments.into();
            *expr = Expr::Function(call);
        }
        ON
    }
}

/// Whether a call is of the present moment, and the zone of its type.
fn moment(call: &Function) -> Option<TimezoneInfo> {
    let has_arguments = match &call.args {
        FunctionArguments::None => false,
        FunctionArguments::List(list) => !list.args.is_empty(),
        FunctionArguments::Subquery(_) => true,
    };
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return None };
    match name.value.to_ascii_lowercase().as_str() {
        _ if has_arguments => None,
        "now" | "current_timestamp" | "transaction_timestamp" | "statement_timestamp" => {
            Some(TimezoneInfo::WithTimeZone)
        }
        "localtimestamp" => Some(TimezoneInfo::None),
        _ => None,
    }
}

/// The length of the text that a cast makes; the type forgets it, so that there is none the next time.
fn length(expr: &mut Expr) -> Option<u64> {
    let Expr::Cast { data_type, .. } = expr else { return None };
    let (DataType::Char(length)
    | DataType::Character(length)
    | DataType::Varchar(length)
    | DataType::CharVarying(length)
    | DataType::CharacterVarying(length)) = data_type
    else {
        return None;
    };
    match length.take()? {
        CharacterLength::IntegerLength { length, .. } => Some(length),
        CharacterLength::Max => None,
    }
}

/// Whether a number has no fraction and does not fit 64 bits: the planner makes a float of it, of 15 digits.
fn is_beyond_integers(number: &str) -> bool {
    let is_whole = number.bytes().all(|byte| byte.is_ascii_digit());
    is_whole && number.len() <= DECIMAL_DIGITS_MAX && number.parse::<u64>().is_err()
}

fn change(data_type: &mut DataType) {
    match data_type {
        DataType::Timestamp(precision @ None, _) => *precision = Some(MICROSECONDS),
        DataType::TimestampNtz(precision) => {
            *data_type = DataType::Timestamp(precision.or(Some(MICROSECONDS)), TimezoneInfo::None);
        }
        DataType::Datetime(precision @ None) => *precision = Some(MICROSECONDS),
        DataType::UTinyInt => *data_type = DataType::TinyIntUnsigned(None),
        DataType::USmallInt => *data_type = DataType::SmallIntUnsigned(None),
        DataType::UBigInt => *data_type = DataType::BigIntUnsigned(None),
        DataType::Blob(_) => *data_type = DataType::Bytea,
        // JSON is a text whose parts functions take.
        DataType::JSON | DataType::JSONB => *data_type = DataType::Text,
        // As many digits as are computed fast: two powers of ten less than its range.
        DataType::HugeInt | DataType::UHugeInt | DataType::Int128 => *data_type = whole_decimal(),
        DataType::Custom(ObjectName(name), _) => match name.as_slice() {
            [name] if name.to_string().eq_ignore_ascii_case("uinteger") => {
                *data_type = DataType::IntegerUnsigned(None);
            }
            _ => {}
        },
        DataType::Array(
            ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => change(element),
        DataType::Struct(fields, _) => {
            fields.iter_mut().for_each(|field| change(&mut field.field_type));
        }
        _ => {}
    }
}

fn whole_decimal() -> DataType {
    DataType::Decimal(ExactNumberInfo::PrecisionAndScale(FAST_DIGITS_MAX, 0))
}
