//! The dialect of a session: the parser's generic one, with what PostgreSQL and DuckDB have and it does not:
//!
//! ```text
//! 2 ^ 10                       a power, which binds tighter than *
//! 5 # 3                        bits of which one number has a one
//! 'a' || 7 % 5                 'a' || (7 % 5)
//! x BETWEEN SYMMETRIC a AND b  x BETWEEN a AND b OR x BETWEEN b AND a
//! [x + 1 FOR x IN l IF x > 2]  list_transform(list_filter(l, x -> x > 2), x -> x + 1)
//! lambda x, y: x + y           (x, y) -> x + y
//! 1_000                        a number
//! ```

use std::any::TypeId;

use datafusion::common::config::Dialect as Named;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, LambdaFunction, LambdaFunctionParameter, LambdaSyntax,
    OneOrManyWithParens, UnaryOperator,
};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence, dialect_from_str};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::nodes::call;

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

    // `#` is an operator.
    fn is_identifier_start(&self, ch: char) -> bool {
        ch != '#' && GenericDialect.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch != '#' && GenericDialect.is_identifier_part(ch)
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        true
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match parser.peek_token_ref().token {
            Token::Caret => Some(Ok(POWER_PRECEDENCE)),
            // PostgreSQL's operators of its own bind less tightly than arithmetic, and so does `||`.
            Token::Sharp | Token::StringConcat => Some(Ok(self.prec_value(Precedence::Pipe))),
            _ => None,
        }
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if is_lambda(parser) {
            return Some(named_lambda(parser));
        }
        is_comprehension(parser).then(|| comprehension(parser))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let op = match parser.peek_token_ref().token {
            Token::Caret => BinaryOperator::PGExp,
            Token::Sharp => BinaryOperator::PGBitwiseXor,
            _ => return between(parser, expr),
        };
        parser.next_token();
        let right = parser.parse_subexpr(precedence);
        Some(right.map(|right| Expr::BinaryOp {
            left: Box::new(expr.clone()),
            op,
            right: Box::new(right),
        }))
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

/// `x [NOT] BETWEEN SYMMETRIC a AND b`, as SQL defines it: it is NULL where that is.
fn between(parser: &mut Parser, expr: &Expr) -> Option<Result<Expr, ParserError>> {
    use Keyword::{ASYMMETRIC, BETWEEN, NOT, SYMMETRIC};
    let (is_negated, is_symmetric) = if parser.parse_keywords(&[BETWEEN, SYMMETRIC]) {
        (false, true)
    } else if parser.parse_keywords(&[NOT, BETWEEN, SYMMETRIC]) {
        (true, true)
    } else if parser.parse_keywords(&[BETWEEN, ASYMMETRIC]) {
        (false, false)
    } else if parser.parse_keywords(&[NOT, BETWEEN, ASYMMETRIC]) {
        (true, false)
    } else {
        return None;
    };
    let parsed = parser.parse_between(expr.clone(), is_negated);
    if !is_symmetric {
        return Some(parsed);
    }
    Some(parsed.map(|parsed| {
        let Expr::Between { expr, low, high, .. } = parsed else { return parsed };
        let between = |low: &Expr, high: &Expr| {
            let (low, high) = (Box::new(low.clone()), Box::new(high.clone()));
            Box::new(Expr::Between { expr: expr.clone(), negated: false, low, high })
        };
        let either = Expr::Nested(Box::new(Expr::BinaryOp {
            left: between(&low, &high),
            op: BinaryOperator::Or,
            right: between(&high, &low),
        }));
        match is_negated {
            true => Expr::Nested(Box::new(Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr: Box::new(either),
            })),
            false => either,
        }
    }))
}

/// Whether a function follows that is written as Python's.
fn is_lambda(parser: &Parser) -> bool {
    let is_word = |nth: usize, wanted: Option<&str>| match &parser.peek_nth_token_ref(nth).token {
        Token::Word(word) => wanted.is_none_or(|wanted| {
            word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted)
        }),
        _ => false,
    };
    is_word(0, Some("lambda"))
        && is_word(1, None)
        && matches!(parser.peek_nth_token_ref(2).token, Token::Colon | Token::Comma)
}

/// `lambda x, y: x + y`.
fn named_lambda(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.next_token();
    let names = parser.parse_comma_separated(Parser::parse_identifier)?;
    parser.expect_token(&Token::Colon)?;
    let body = parser.parse_expr()?;
    Ok(lambda(&names, body))
}

fn lambda(names: &[Ident], body: Expr) -> Expr {
    let parameter = |name: &Ident| LambdaFunctionParameter { name: name.clone(), data_type: None };
    let params = match names {
        [one] => OneOrManyWithParens::One(parameter(one)),
        several => OneOrManyWithParens::Many(several.iter().map(parameter).collect()),
    };
    Expr::Lambda(LambdaFunction { params, body: Box::new(body), syntax: LambdaSyntax::Arrow })
}

/// Whether a list begins that says FOR.
fn is_comprehension(parser: &Parser) -> bool {
    if parser.peek_token_ref().token != Token::LBracket {
        return false;
    }
    let (mut depth, mut nth) = (0_usize, 0);
    loop {
        match parser.peek_nth_token_no_skip(nth).token {
            Token::LBracket | Token::LParen | Token::LBrace => depth += 1,
            Token::RBracket | Token::RParen | Token::RBrace if depth > 1 => depth -= 1,
            Token::RBracket | Token::RParen | Token::RBrace | Token::EOF => return false,
            // The first element says whether others are a list of it.
            Token::Comma if depth == 1 => return false,
            Token::Word(word) if depth == 1 && word.keyword == Keyword::FOR => return true,
            _ => {}
        }
        nth += 1;
    }
}

/// `[x + 1 FOR x IN l IF x > 2]`.
fn comprehension(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.expect_token(&Token::LBracket)?;
    let element = parser.parse_expr()?;
    parser.expect_keyword(Keyword::FOR)?;
    let name = parser.parse_identifier()?;
    parser.expect_keyword(Keyword::IN)?;
    let list = parser.parse_expr()?;
    let of_each = |body: Expr| lambda(std::slice::from_ref(&name), body);
    let kept = match parser.parse_keyword(Keyword::IF) {
        true => Expr::Function(call("array_filter", [list, of_each(parser.parse_expr()?)])),
        false => list,
    };
    parser.expect_token(&Token::RBracket)?;
    Ok(Expr::Function(call("array_transform", [kept, of_each(element)])))
}
