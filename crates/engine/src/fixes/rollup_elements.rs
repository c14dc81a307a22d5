//! `ROLLUP ((x + 1)::INT)`: the parser takes what begins with a parenthesis there for a list of columns that ends with it.
//!
//! ```sql
//! SELECT count(*) FROM t GROUP BY ROLLUP ((x) + 1)
//! ```
//!
//! - DataFusion: The parser refuses it: a parenthesis there begins a list of columns; right is a group of each sum.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! Where it refused the text, such elements are given another pair: `ROLLUP (((x + 1)::INT))`.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::sql::dialect::HeadraceDialect;

/// The text with another pair of parentheses around such elements; `None` if it has none.
pub fn spelled(text: &str) -> Option<String> {
    let mut tokens = Tokenizer::new(&HeadraceDialect, text).tokenize().ok()?;
    let mut at = 0;
    let mut changed = false;
    while let Some(open) = next_list(&tokens, at) {
        at = open + 1;
        let mut from = at;
        while let Some(end) = end_of_element(&tokens, from) {
            if begins_with_more(&tokens[from..end]) {
                tokens.insert(end, Token::RParen);
                tokens.insert(from, Token::LParen);
                changed = true;
            }
            let end = end_of_element(&tokens, from)?;
            if tokens[end] != Token::Comma {
                break;
            }
            from = end + 1;
        }
    }
    changed.then(|| tokens.iter().map(ToString::to_string).collect())
}

/// The parenthesis behind the next ROLLUP, CUBE or GROUPING SETS.
fn next_list(tokens: &[Token], from: usize) -> Option<usize> {
    let is_word = |token: &Token| matches!(token, Token::Word(word) if matches!(word.keyword, Keyword::ROLLUP | Keyword::CUBE | Keyword::SETS));
    let mut place = from;
    loop {
        let word = place + tokens.get(place..)?.iter().position(is_word)?;
        let behind = word + 1 + tokens[word + 1..].iter().position(|token| !is_space(token))?;
        if tokens[behind] == Token::LParen {
            return Some(behind);
        }
        place = word + 1;
    }
}

/// Where the element that begins at a token ends: at a comma, or the parenthesis that ends the list.
fn end_of_element(tokens: &[Token], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(from) {
        match token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return Some(place),
            Token::RParen => depth -= 1,
            Token::Comma if depth == 0 => return Some(place),
            _ => {}
        }
    }
    None
}

/// Whether an element begins with a parenthesis, and goes on behind the one that closes it.
fn begins_with_more(element: &[Token]) -> bool {
    let mut tokens = element.iter().filter(|token| !is_space(token));
    if tokens.next() != Some(&Token::LParen) {
        return false;
    }
    let mut depth = 1_usize;
    for token in tokens {
        match token {
            _ if depth == 0 => return true,
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
    }
    false
}

fn is_space(token: &Token) -> bool {
    matches!(token, Token::Whitespace(_))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn elements_that_go_on_behind_a_parenthesis_get_another() {
        let with = |list: &str| spelled(&format!("select 1 from t group by {list} order by (1)+2"));
        let is = |list: &str| format!("select 1 from t group by {list} order by (1)+2");
        assert_eq!(with("rollup((x + 1)::int)").unwrap(), is("rollup(((x + 1)::int))"));
        assert_eq!(
            with("cube (a, (b) * 2, (c, d)), rollup ( (e).f )").unwrap(),
            is("cube (a,( (b) * 2), (c, d)), rollup (( (e).f ))")
        );
        assert_eq!(
            with("grouping sets ((a, b), (), (c)::int)").unwrap(),
            is("grouping sets ((a, b), (),( (c)::int))")
        );
        assert_eq!(with("rollup (a, (b), (c, d))"), None);
        assert_eq!(spelled("select rollup"), None);
        assert_eq!(spelled("group by rollup ((a"), None);
    }
}
