//! What functions of DuckDB, PostgreSQL and ClickHouse are in the planner's words.

use super::templates::expanded;
use datafusion::sql::sqlparser::ast::{Expr, Value};

/// A call, and the expression that it is; `$1` is its first argument.
pub const SPELLINGS: &[(&str, &str)] = &[
    // Parts of moments.
    ("year(x)", "date_part('year', $1)"),
    ("month(x)", "date_part('month', $1)"),
    ("day(x)", "date_part('day', $1)"),
    ("dayofmonth(x)", "date_part('day', $1)"),
    ("hour(x)", "date_part('hour', $1)"),
    ("minute(x)", "date_part('minute', $1)"),
    ("second(x)", "date_part('second', $1)"),
    ("millisecond(x)", "date_part('millisecond', $1)"),
    ("microsecond(x)", "date_part('microsecond', $1)"),
    ("quarter(x)", "date_part('quarter', $1)"),
    ("week(x)", "date_part('week', $1)"),
    ("weekofyear(x)", "date_part('week', $1)"),
    ("dayofweek(x)", "date_part('dow', $1)"),
    ("weekday(x)", "date_part('dow', $1)"),
    ("isodow(x)", "date_part('isodow', $1)"),
    ("dayofyear(x)", "date_part('doy', $1)"),
    ("isoyear(x)", "date_part('isoyear', $1)"),
    ("decade(x)", "cast(floor(date_part('year', $1) / 10.0) as integer)"),
    ("century(x)", "cast(ceil(date_part('year', $1) / 100.0) as integer)"),
    ("epoch(x)", "date_part('epoch', $1)"),
    ("yearweek(x)", "date_part('isoyear', $1) * 100 + date_part('week', $1)"),
    ("date_add(x, i)", "$1 + $2"),
    ("date_sub(x, i)", "$1 - $2"),
    ("adddate(x, i)", "$1 + $2"),
    ("subdate(x, i)", "$1 - $2"),
    ("date_sub(part, x, y)", "datesub($1, $2, $3)"),
    ("datediff(part, x, y)", "date_diff($1, $2, $3)"),
    ("datediff(x, y)", "date_diff('day', $2, $1)"),
    ("age(x)", "age(cast(current_date() as timestamp), $1)"),
    ("date(x)", "cast($1 as date)"),
    ("get_current_timestamp()", "now()"),
    ("transaction_timestamp()", "now()"),
    ("statement_timestamp()", "now()"),
    ("current_localtimestamp()", "cast(now() as timestamp)"),
    ("unix_timestamp(x)", "cast(floor(date_part('epoch', $1)) as bigint)"),
    ("formatdatetime(x, f)", "strftime($1, $2)"),
    ("toyear(x)", "date_part('year', $1)"),
    ("tomonth(x)", "date_part('month', $1)"),
    ("todayofmonth(x)", "date_part('day', $1)"),
    ("tohour(x)", "date_part('hour', $1)"),
    ("tominute(x)", "date_part('minute', $1)"),
    ("tosecond(x)", "date_part('second', $1)"),
    ("toquarter(x)", "date_part('quarter', $1)"),
    ("todayofweek(x)", "date_part('isodow', $1)"),
    ("todayofyear(x)", "date_part('doy', $1)"),
    ("tostartofyear(x)", "cast(date_trunc('year', $1) as date)"),
    ("tostartofquarter(x)", "cast(date_trunc('quarter', $1) as date)"),
    ("tostartofmonth(x)", "cast(date_trunc('month', $1) as date)"),
    ("tomonday(x)", "cast(date_trunc('week', $1) as date)"),
    ("tostartofday(x)", "date_trunc('day', $1)"),
    ("tostartofhour(x)", "date_trunc('hour', $1)"),
    ("tostartofminute(x)", "date_trunc('minute', $1)"),
    ("toyyyymm(x)", "date_part('year', $1) * 100 + date_part('month', $1)"),
    (
        "toyyyymmdd(x)",
        "date_part('year', $1) * 10000 + date_part('month', $1) * 100 + date_part('day', $1)",
    ),
    ("todate(x)", "cast($1 as date)"),
    ("todatetime(x)", "cast($1 as timestamp)"),
    ("tostring(x)", "cast($1 as varchar)"),
    ("toint32(x)", "cast($1 as integer)"),
    ("toint64(x)", "cast($1 as bigint)"),
    ("tofloat64(x)", "cast($1 as double)"),
    // Choices.
    ("if(c, x, y)", "case when $1 then $2 else $3 end"),
    ("iff(c, x, y)", "case when $1 then $2 else $3 end"),
    ("ifnull(x, y)", "coalesce($1, $2)"),
    ("nvl(x, y)", "coalesce($1, $2)"),
    ("nvl2(x, y, z)", "case when $1 is not null then $2 else $3 end"),
    ("isnull(x)", "$1 is null"),
    ("zeroifnull(x)", "coalesce($1, 0)"),
    ("nullifzero(x)", "nullif($1, 0)"),
    // Numbers.
    ("sign(x)", "signum($1)"),
    ("ceiling(x)", "ceil($1)"),
    ("mod(x, y)", "$1 % $2"),
    ("div(x, y)", "trunc($1 / $2)"),
    ("add(x, y)", "$1 + $2"),
    ("subtract(x, y)", "$1 - $2"),
    ("multiply(x, y)", "$1 * $2"),
    ("divide(x, y)", "$1 / $2"),
    ("xor(x, y)", "($1 | $2) - ($1 & $2)"),
    ("isinf(x)", "abs(cast($1 as double)) = cast('inf' as double)"),
    (
        "isfinite(x)",
        "not (isnan(cast($1 as double)) or abs(cast($1 as double)) = cast('inf' as double))",
    ),
    ("fdiv(x, y)", "floor(cast($1 as double) / $2)"),
    ("truncate(x, n)", "trunc($1, $2)"),
    // Texts.
    ("len(x)", "length($1)"),
    ("lengthutf8(x)", "character_length($1)"),
    ("strlen(x)", "octet_length($1)"),
    ("ucase(x)", "upper($1)"),
    ("lcase(x)", "lower($1)"),
    ("lowerutf8(x)", "lower($1)"),
    ("upperutf8(x)", "upper($1)"),
    ("mid(x, n)", "substr($1, $2)"),
    ("mid(x, n, m)", "substr($1, $2, $3)"),
    ("space(n)", "repeat(' ', $1)"),
    ("ord(x)", "ascii($1)"),
    ("unicode(x)", "ascii($1)"),
    ("string_split(x, y)", "string_to_array($1, $2)"),
    ("str_split(x, y)", "string_to_array($1, $2)"),
    ("split(x, y)", "string_to_array($1, $2)"),
    ("splitbychar(y, x)", "string_to_array($2, $1)"),
    ("splitbystring(y, x)", "string_to_array($2, $1)"),
    ("string_split_regex(x, p)", "regexp_split_to_array($1, $2)"),
    ("str_split_regex(x, p)", "regexp_split_to_array($1, $2)"),
    ("prefix(x, y)", "starts_with($1, $2)"),
    ("startswith(x, y)", "starts_with($1, $2)"),
    ("suffix(x, y)", "ends_with($1, $2)"),
    ("endswith(x, y)", "ends_with($1, $2)"),
    ("locate(y, x)", "strpos($2, $1)"),
    ("to_base64(x)", "encode(cast($1 as bytea), 'base64pad')"),
    ("base64(x)", "encode(cast($1 as bytea), 'base64pad')"),
    ("from_base64(x)", "decode($1, 'base64')"),
    ("unhex(x)", "decode($1, 'hex')"),
    ("from_hex(x)", "decode($1, 'hex')"),
    ("gen_random_uuid()", "uuid()"),
    ("uuidv4()", "uuid()"),
    ("generateuuidv4()", "uuid()"),
    ("editdist3(x, y)", "levenshtein($1, $2)"),
    ("regexp_matches(x, p)", "regexp_like($1, $2)"),
    ("regexp_matches(x, p, f)", "regexp_like($1, $2, $3)"),
    ("regexp_full_match(x, p)", "regexp_like($1, '^(?:' || $2 || ')$')"),
    ("match(x, p)", "regexp_like($1, $2)"),
    ("replaceall(x, y, z)", "replace($1, $2, $3)"),
    ("replaceregexpall(x, y, z)", "regexp_replace($1, $2, $3, 'g')"),
    ("replaceregexpone(x, y, z)", "regexp_replace($1, $2, $3)"),
    ("concatwithseparator(s, x, y)", "concat_ws($1, $2, $3)"),
    ("to_json(x)", "json_quote($1)"),
    // Lists.
    ("list_min(l)", "array_min($1)"),
    ("list_count(l)", "array_length(array_compact($1))"),
    ("list_unique(l)", "cardinality(array_distinct(array_compact($1)))"),
    ("list_first(l)", "array_element($1, 1)"),
    ("list_last(l)", "array_element($1, -1)"),
    ("array_first(l)", "array_element($1, 1)"),
    ("array_last(l)", "array_element($1, -1)"),
    ("list_reverse_sort(l)", "array_sort($1, 'DESC', 'NULLS LAST')"),
    ("array_reverse_sort(l)", "array_sort($1, 'DESC', 'NULLS LAST')"),
    (
        "array_remove(l, x)",
        "case when $2 is null then array_compact($1) else array_remove_all($1, $2) end",
    ),
    ("array_replace(l, x, y)", "array_replace_all($1, $2, $3)"),
    ("arraysort(l)", "array_sort($1)"),
    ("has(l, x)", "array_has($1, $2)"),
    ("arrayjoin(l)", "unnest($1)"),
    ("arraydistinct(l)", "array_distinct($1)"),
    ("arrayconcat(l, m)", "array_concat($1, $2)"),
    ("list_select(l, i)", "array_element($1, $2)"),
    ("map_contains(m, k)", "array_has(map_keys($1), $2)"),
    // Aggregates.
    ("count_if(c)", "count(*) filter (where $1)"),
    ("countif(c)", "count(*) filter (where $1)"),
    ("sumif(x, c)", "sum($1) filter (where $2)"),
    ("sum_if(x, c)", "sum($1) filter (where $2)"),
    ("avgif(x, c)", "avg($1) filter (where $2)"),
    ("minif(x, c)", "min($1) filter (where $2)"),
    ("maxif(x, c)", "max($1) filter (where $2)"),
    ("every(c)", "bool_and($1)"),
    ("first(x)", "first_value($1)"),
    ("any(x)", "any_value($1)"),
    ("anylast(x)", "last_value($1) filter (where $1 is not null)"),
    ("last(x)", "last_value($1)"),
    ("arbitrary(x)", "first_value($1)"),
    ("any_value(x)", "first_value($1) filter (where $1 is not null)"),
    ("list(x)", "array_agg($1)"),
    ("grouparray(x)", "array_agg($1) filter (where $1 is not null)"),
    ("groupuniqarray(x)", "array_agg(distinct $1) filter (where $1 is not null)"),
    (
        "arg_max(x, y)",
        "first_value($1 order by $2 desc) filter (where $1 is not null and $2 is not null)",
    ),
    (
        "arg_min(x, y)",
        "first_value($1 order by $2) filter (where $1 is not null and $2 is not null)",
    ),
    ("argmax(x, y)", "arg_max($1, $2)"),
    ("argmin(x, y)", "arg_min($1, $2)"),
    ("max_by(x, y)", "arg_max($1, $2)"),
    ("min_by(x, y)", "arg_min($1, $2)"),
    ("arg_max_null(x, y)", "first_value($1 order by $2 desc) filter (where $2 is not null)"),
    ("arg_min_null(x, y)", "first_value($1 order by $2) filter (where $2 is not null)"),
    ("approx_count_distinct(x)", "approx_distinct($1)"),
    ("uniq(x)", "approx_distinct($1)"),
    ("uniqexact(x)", "count(distinct $1)"),
    ("quantile(x, p)", "percentile_cont($1, $2)"),
    ("approx_quantile(x, p)", "approx_percentile_cont($1, $2)"),
    ("string_agg(x)", "string_agg($1, ',')"),
    ("listagg(x)", "string_agg($1, ',')"),
    ("listagg(x, s)", "string_agg($1, $2)"),
    ("group_concat(x)", "string_agg($1, ',')"),
    ("group_concat(x, s)", "string_agg($1, $2)"),
    ("fsum(x)", "sum(cast($1 as double))"),
    ("favg(x)", "avg(cast($1 as double))"),
    ("kahan_sum(x)", "sum(cast($1 as double))"),
    ("variance(x)", "var_samp($1)"),
    ("geomean(x)", "exp(avg(ln($1)))"),
    ("geometric_mean(x)", "exp(avg(ln($1)))"),
    ("logical_and(c)", "bool_and($1)"),
    ("logical_or(c)", "bool_or($1)"),
    // Of the session.
    ("current_database()", "'headrace'"),
    ("current_schema()", "'public'"),
];

/// The functions that `list_aggregate` calls, by names of aggregates.
const OF_LISTS: [(&str, &str); 11] = [
    ("sum", "array_sum($1)"),
    ("min", "array_min($1)"),
    ("max", "array_max($1)"),
    ("avg", "array_avg($1)"),
    ("mean", "array_avg($1)"),
    ("product", "array_product($1)"),
    ("count", "array_length(array_compact($1))"),
    ("first", "array_element($1, 1)"),
    ("last", "array_element($1, -1)"),
    ("any_value", "array_any_value($1)"),
    ("string_agg", "array_to_string($1, ',')"),
];

/// Functions of lists whose number of arguments is free, or whose meaning is in one of them.
pub fn of_list(name: &str, arguments: &[Expr]) -> Option<Expr> {
    match name {
        "list_value" | "list_pack" | "array_value" => call("make_array", arguments),
        "multiif" => cases(arguments),
        "list_aggregate" | "list_aggr" | "array_aggregate" | "aggregate" => {
            let [list, Expr::Value(aggregate), rest @ ..] = arguments else { return None };
            let Value::SingleQuotedString(aggregate) = &aggregate.value else { return None };
            if aggregate == "string_agg" && rest.len() == 1 {
                return call("array_to_string", &[list.clone(), rest[0].clone()]);
            }
            let (_, template) = OF_LISTS.iter().find(|(name, _)| name == aggregate)?;
            expanded(template, std::slice::from_ref(list)).ok()
        }
        _ => None,
    }
}

/// A call of a function with arguments.
fn call(name: &str, arguments: &[Expr]) -> Option<Expr> {
    let places: Vec<_> = (1..=arguments.len()).map(|nth| format!("${nth}")).collect();
    expanded(&format!("{name}({})", places.join(", ")), arguments).ok()
}

/// `multiIf(c, x, d, y, z)`.
fn cases(arguments: &[Expr]) -> Option<Expr> {
    if arguments.len() < 3 || arguments.len().is_multiple_of(2) {
        return None;
    }
    let mut text = "case".to_string();
    for nth in (1..arguments.len()).step_by(2) {
        text += &format!(" when ${nth} then ${}", nth + 1);
    }
    text += &format!(" else ${} end", arguments.len());
    expanded(&text, arguments).ok()
}
