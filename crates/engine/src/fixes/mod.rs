//! Faults of DataFusion and of its parser: a file for each, with what mends it here.
//!
//! A fault is a wrong answer, a panic, a refusal of valid SQL, memory that is not reserved, quadratic
//! planning. Syntax of other databases, which DataFusion never promised, is in [`sql`](crate::sql); deliberate differences are in [`semantics`](crate::semantics), [`overflow`](crate::overflow) and [`functions`](crate::functions).
//!
//! Each file says first what shows its fault, what is right, where upstream speaks of it, and when it can go. Its canary, in
//! `tests/sql/canaries`, asks plain DataFusion for the same, and fails once that is answered rightly.
//!
//! | what is mended | file | upstream | canary |
//! |---|---|---|---|
//! | `array_agg` of texts counts the texts | [`array_agg_views`] | none known | `array_agg_views` |
//! | what binds tighter, `->>` or `=` | [`arrow_operators`] | parser #2459 | `trees::arrow_operators` |
//! | Casts that the planner takes for what they cast | [`cast_names`] | #4478 | `cast_names` |
//! | the value of a subquery without columns | [`columnless_values`] | none known | `columnless_values` |
//! | the NaN that operators compute | [`computed_nans`] | none known | `computed_nans` |
//! | Groups by `x` and by `CAST(x AS INT)`, which have one name | [`constant_groups`] | none known | `constant_groups` |
//! | Subqueries that look at the outer row, and those among the outputs: joins with what they find | [`correlated`] | #5492, #14554, #16137, #10048 | `correlated` |
//! | Chained joins where NULL equals NULL in one of them | [`cross_join_nulls`] | none known | `cross_join_nulls` |
//! | types of `round` and `ceil` of decimals | [`decimal_digits`] | none known | `decimal_digits` |
//! | expressions of many levels | [`deep_expressions`] | none known | none: a stack that overflows ends the process |
//! | Sums of decimals beside a DISTINCT | [`distinct_sums`] | #17699 | `distinct_sums` |
//! | `a IS NOT DISTINCT FROM b` beside `a = b` in one join | [`equijoin_nulls`] | none known | `equijoin_nulls` |
//! | `min` and `max` of floats by groups, where NaN is the greatest | [`extremes`] | #24432 | `extremes` |
//! | constants above outer joins and grouping sets | [`false_constants`] | none known | `false_constants` |
//! | dates beside timestamps, before 1677 and after 2262 | [`far_dates`] | none known | `far_dates` |
//! | `date_trunc` and `date_bin` of moments before 1677 and after 2262: the planner computes in nanoseconds, which have none | [`far_moments`] | #25432 | `far_moments` |
//! | Conditions are asked of the columns that they name | [`filters_by_name`] | #25296, #25244, #25259 | `filters_by_name` |
//! | GROUP BY, HAVING and DISTINCT ON in the planner's words | [`groupings`] | none known | `groupings` |
//! | AND and OR evaluate an operand that can fail for rows that the other operand decides | [`guarded_conjunctions`] | #8927 | `guarded_conjunctions` |
//! | a WITH that hides one of a query around it | [`hidden_tables`] | none known | `hidden_tables` |
//! | clauses that are dropped without a word | [`ignored_clauses`] | #13563 | `ignored_clauses` |
//! | `x [NOT] IN (SELECT y ..)` where `x` or `y` may be NULL, and `x < ANY (SELECT y ..)`, `x < ALL (SELECT y ..)` | [`in_subqueries`] | #8241, #25347, #25340, #25348 | `in_subqueries` |
//! | `a IS DISTINCT FROM b AND c` as SQL means it | [`is_distinct_from`] | #23692, parser #2436 | `is_distinct_from` |
//! | `lag(x, n, d) OVER w` is `d` where there is no such row, if it is no constant | [`lag_defaults`] | #22082 | `lag_defaults` |
//! | `x LIKE 'a#%' ESCAPE '#'` is `x LIKE 'a\%'` | [`like_escapes`] | none known | `like_escapes` |
//! | `SELECT c0, c1, ..` of very many columns | [`long_lists`] | #7698, #5637 | `times::long_lists` |
//! | windows and recursions that mean nothing | [`meaningless`] | none known | `meaningless` |
//! | Named windows: `OVER w`, `OVER (w ORDER BY x)`, and `WINDOW w2 AS (w ORDER BY x)` | [`named_windows`] | none known | `named_windows` |
//! | `a NATURAL JOIN b` is `a JOIN b USING (..)` of the columns that both have, in the order of `a` | [`natural_joins`] | #22881 | `natural_joins` |
//! | `min` and `max` of lists whose elements have elements themselves: the planner compares none of them | [`nested_extremes`] | #24948, #24938 | `nested_extremes` |
//! | nested loop joins in little memory | [`nested_loops_again`] | #24676, #22641, #24677, #24675 | `nested_loops_again` |
//! | A subquery of one value may be NULL: where it has no row | [`nullable_subqueries`] | #24513, #24516 | `nullable_subqueries` |
//! | ORDER BY of an output means the output | [`order_by_outputs`] | none known | `order_by_outputs` |
//! | Functions within what orders rows are columns of their own: `ORDER BY length(w) > 3` | [`order_keys`] | none known | `order_keys` |
//! | Aggregates of outer columns alone are the outer query's | [`outer_aggregates`] | none known | `outer_aggregates` |
//! | `city.id` is a column of the table `city`, of an outer query, too, before it is a field of a column `city` | [`outer_tables`] | none known | `outer_tables` |
//! | rules of plans with long lists | [`parts`] | #7698, #5637 | `times::parts` |
//! | Keeps expressions above filters, so that they see only the rows that a filter keeps | [`projections_below_filters`] | none known | `projections_below_filters` |
//! | Aggregates are ordered by what orders something | [`repeated_orders`] | #25398 | `repeated_orders` |
//! | expressions in ROLLUP that begin with a parenthesis | [`rollup_elements`] | none known | `rollup_elements` |
//! | Rows as values: `(a, b) = (c, d)`, `(a, b) < (c, d)`, `(a, b) IN ((1, 2), ..)`, `(a, b) IN (SELECT ..)` | [`row_comparisons`] | #21054, #21226 | `row_comparisons` |
//! | EXCEPT ALL and INTERSECT ALL count rows | [`set_operations`] | #12956, #12955 | `set_operations` |
//! | `a SIMILAR TO 'pattern'`: the pattern is of the whole text, `%` is any text and `_` any character | [`similar_to`] | #22263, #23188 | `similar_to` |
//! | Variances and deviations over sliding windows | [`sliding_variances`] | #13247 | `sliding_variances` |
//! | Sorts of one plan set aside for merging no more than half of the memory, together | [`sort_reservations`] | #15675 | `sort_reservations` |
//! | `SELECT *` of all that FROM has is no list of columns | [`stars`] | #7698, #5637 | `times::stars` |
//! | `string_agg(x, s ORDER BY y)` is the list of the texts in that order, with `s` between them | [`string_agg_orders`] | #8582 | `string_agg_orders` |
//! | windows that are ordered by structs | [`struct_orders`] | #24915 | `struct_orders` |
//! | `FROM o, unnest(o.list)`: the lists of outer rows, unnested beside those rows | [`unnested_lists`] | #13659, #10048 | `unnested_lists` |
//! | nested loop joins that nobody reads any more | [`unread_joins`] | none known | `times::unread_joins` |
//! | The columns of `a JOIN b USING (k)` | [`using_columns`] | #22881 | `using_columns` |
//! | `x IN (VALUES (1), (2))` is `x IN (SELECT * FROM (VALUES ..))` | [`values_in`] | none known | `values_in` |
//! | Rows that are known to be wide before they are made | [`wide_rows`] | none known | `batches::wide_rows` |
//!
//! [`long_groups`] is a part of [`long_lists`], and [`whole_rows`] what that and [`stars`] share. Two faults are mended by settings
//! of a session, where it sets them: spilled files of a repartition that are never read (apache/datafusion#24883: a
//! deadlock, which no test can wait for), and `x IS FALSE`, whose plan is refused for the NULLs that it has not.

pub mod array_agg_views;
pub mod arrow_operators;
pub mod cast_names;
pub mod columnless_values;
pub mod computed_nans;
pub mod constant_groups;
pub mod correlated;
pub mod cross_join_nulls;
pub mod decimal_digits;
pub mod deep_expressions;
pub mod distinct_sums;
pub mod equijoin_nulls;
pub mod extremes;
pub mod false_constants;
pub mod far_dates;
pub mod far_moments;
pub mod filters_by_name;
pub mod groupings;
pub mod guarded_conjunctions;
pub mod hidden_tables;
pub mod ignored_clauses;
pub mod in_subqueries;
pub mod is_distinct_from;
pub mod lag_defaults;
pub mod like_escapes;
mod long_groups;
pub mod long_lists;
pub mod meaningless;
pub mod named_windows;
pub mod natural_joins;
mod nested_extremes;
pub mod nested_loops_again;
pub mod nullable_subqueries;
pub mod order_by_outputs;
pub mod order_keys;
pub mod outer_aggregates;
pub mod outer_tables;
pub mod parts;
pub mod projections_below_filters;
pub mod repeated_orders;
pub mod rollup_elements;
pub mod row_comparisons;
pub mod set_operations;
pub mod similar_to;
pub mod sliding_variances;
pub mod sort_reservations;
pub mod stars;
pub mod string_agg_orders;
pub mod struct_orders;
pub mod unnested_lists;
pub mod unread_joins;
pub mod using_columns;
pub mod values_in;
mod whole_rows;
pub mod wide_rows;
