//! Functions of other databases that are not here, and what does the same.

/// A name, and what to write in its place.
const REPLACEMENTS: &[(&str, &str)] = &[
    ("regexp_split_to_table", "unnest(regexp_split_to_array(text, pattern))"),
    ("string_to_table", "unnest(string_to_array(text, delimiter))"),
    ("generate_subscripts", "unnest(range(1, cardinality(l) + 1))"),
    ("json_each", "unnest(json_keys(json)), and json -> key for the value"),
    ("jsonb_extract_path", "json_extract_path"),
    ("jsonb_array_length", "json_array_length"),
    ("json_agg", "array_agg"),
    ("json_group_array", "array_agg"),
    ("to_number", "cast(replace(text, ',', '') as decimal(18, 2))"),
    ("hash", "md5(text) or sha256(text)"),
    ("cityhash64", "md5(text) or sha256(text)"),
    ("xxhash64", "md5(text) or sha256(text)"),
    ("crc32", "md5(text) or sha256(text)"),
    ("sleep", "nothing: statements do not wait"),
    ("pg_sleep", "nothing: statements do not wait"),
    ("nextval", "row_number() over ()"),
    ("rownum", "row_number() over ()"),
    ("kurtosis", "avg of powers: avg(pow((x - m) / s, 4)) - 3"),
    ("skewness", "avg of powers: avg(pow((x - m) / s, 3))"),
    ("mad", "median(abs(x - m)), with m from a subquery"),
    ("entropy", "-sum(p * log2(p)), with p = count(*) / sum(count(*)) over ()"),
    ("topk", "count(*) .. group by x order by 1 desc limit n"),
    ("approx_top_k", "count(*) .. group by x order by 1 desc limit n"),
    ("reservoir_quantile", "approx_percentile_cont(x, 0.5)"),
    ("to_days", "n * interval '1 day'"),
    ("to_hours", "n * interval '1 hour'"),
    ("to_minutes", "n * interval '1 minute'"),
    ("to_seconds", "n * interval '1 second'"),
    ("to_months", "n * interval '1 month'"),
    ("to_years", "n * interval '1 year'"),
    ("make_interval", "n * interval '1 day'"),
    ("getdate", "now()"),
    ("sysdate", "now()"),
    ("charindex", "strpos(text, part)"),
    ("isnumeric", "try_cast(text as double) is not null"),
    ("convert", "cast(x as type)"),
    ("struct_pack", "{'a': 1}, or named_struct('a', 1)"),
    ("struct_extract", "s['a'], or get_field(s, 'a')"),
    ("array_unnest", "unnest(l)"),
    ("explode", "unnest(l)"),
    ("flatten_json", "json -> 'key'"),
    ("dateadd", "date_add(d, n * interval '1 day')"),
];

/// What to write in place of a function that is not here.
pub fn replacement(name: &str) -> Option<&'static str> {
    REPLACEMENTS.iter().find(|(refused, _)| *refused == name).map(|(_, instead)| *instead)
}
