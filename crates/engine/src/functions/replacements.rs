//! What a regular expression's matches are replaced by, as PostgreSQL writes it: `\1` is a group, `\&` the match, `\\` a
//! backslash, and a dollar a dollar. The planner knows groups alone, and takes `$1` for one.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart, Value,
};

const NAME: &str = "regexp_replace";
/// A group that no expression has, to keep a backslash from the digit behind it.
const NOTHING: &str = "${_}";

/// Spells a constant replacement in the planner's way.
pub fn spell_out(call: &mut Function) {
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return };
    if !name.value.eq_ignore_ascii_case(NAME) {
        return;
    }
    let FunctionArguments::List(list) = &mut call.args else { return };
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))) =
        list.args.get_mut(2)
        && let Value::SingleQuotedString(text) = &mut value.value
    {
        *text = spelled(text);
    }
}

fn spelled(text: &str) -> String {
    let mut spelled = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some('\\')) => {
                spelled.push('\\');
                spelled.push_str(NOTHING);
                characters.next();
            }
            ('\\', Some('&')) => {
                spelled.push_str("\\0");
                characters.next();
            }
            ('$', _) => spelled.push_str("$$"),
            (other, _) => spelled.push(other),
        }
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::spelled;

    #[test]
    fn groups_stay_and_the_rest_is_plain() {
        assert_eq!(spelled(r"<\1-\&>"), r"<\1-\0>");
        assert_eq!(spelled(r"\\1 $1"), r"\${_}1 $$1");
    }
}
