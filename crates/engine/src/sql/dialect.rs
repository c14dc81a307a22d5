//! The dialect of a session: the parser's generic one, where `^` is a power as in PostgreSQL and DuckDB, and `1_000` a number.

use std::any::TypeId;

use datafusion::common::config::Dialect as Named;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, dialect_from_str};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// The dialect that a session is set to.
pub fn of(state: &SessionState) -> Box<dyn Dialect> {
    match state.config().options().sql_parser.dialect {
        Named::Generic => Box::new(HeadraceDialect),
        other => dialect_from_str(other).unwrap_or_else(|| Box::new(HeadraceDialect)),
    }
}

/// What statements are written in unless a session is set to another dialect.
#[derive(Debug)]
pub struct HeadraceDialect;

/// Binds tighter than `*`, as PostgreSQL's does.
const POWER_PRECEDENCE: u8 = 45;

macro_rules! as_generic {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            GenericDialect.$method()
        })*
    };
}

impl Dialect for HeadraceDialect {
    // The parser asks for the type where it allows what one dialect has.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch)
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        true
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        (parser.peek_token_ref().token == Token::Caret).then_some(Ok(POWER_PRECEDENCE))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if !parser.consume_token(&Token::Caret) {
            return None;
        }
        let power = |exponent| Expr::BinaryOp {
            left: Box::new(expr.clone()),
            op: BinaryOperator::PGExp,
            right: Box::new(exponent),
        };
        Some(parser.parse_subexpr(precedence).map(power))
    }

    as_generic! {
        supports_unicode_string_literal, supports_partition_by_after_order_by,
        supports_array_join_syntax, supports_group_by_expr, supports_group_by_with_modifier,
        supports_left_associative_joins_without_parens, supports_connect_by,
        supports_match_recognize, supports_pipe_operator, supports_start_transaction_modifier,
        supports_window_function_null_treatment_arg, supports_dictionary_syntax,
        supports_window_clause_named_window_reference, supports_parenthesized_set_variables,
        supports_select_wildcard_except, support_map_literal_syntax, allow_extract_custom,
        allow_extract_single_quotes, supports_extract_comma_syntax,
        supports_create_view_comment_syntax, supports_parens_around_table_factor,
        supports_values_as_table_factor, supports_create_index_with_clause,
        supports_explain_with_utility_options, supports_limit_comma, supports_update_order_by,
        supports_from_first_select, supports_projection_trailing_commas,
        supports_asc_desc_in_column_definition, supports_try_convert,
        supports_bitwise_shift_operators, supports_comment_on, supports_load_extension,
        supports_named_fn_args_with_assignment_operator, supports_struct_literal,
        supports_empty_projections, supports_nested_comments, supports_multiline_comment_hints,
        supports_user_host_grantee, supports_string_escape_constant,
        supports_array_typedef_with_brackets, supports_match_against, supports_set_names,
        supports_comma_separated_set_assignments, supports_filter_during_aggregation,
        supports_select_wildcard_exclude, supports_data_type_signed_suffix,
        supports_interval_options, supports_quote_delimited_string,
        supports_select_wildcard_replace, supports_select_wildcard_ilike,
        supports_select_wildcard_rename, supports_optimize_table, supports_install,
        supports_detach, supports_prewhere, supports_with_fill, supports_limit_by,
        supports_interpolate, supports_settings, supports_select_format,
        supports_comment_optimizer_hint, supports_constraint_keyword_without_name,
        supports_key_column_option, supports_comma_separated_trim, supports_cte_without_as,
        supports_select_item_multi_column_alias, supports_xml_expressions
    }
}
