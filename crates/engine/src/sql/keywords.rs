//! Keywords for colours and completion: those that people type.

/// In alphabetical order.
pub const KEYWORDS: &[&str] = &[
    "ALL", "ANALYZE", "AND", "ANTI", "AS", "ASC", "BETWEEN", "BY", "CASE", "CAST", "COPY",
    "CREATE", "CROSS", "CUBE", "DELETE", "DESC", "DESCRIBE", "DISTINCT", "DROP", "ELSE", "END",
    "EXCEPT", "EXCLUDE", "EXISTS", "EXPLAIN", "EXTERNAL", "EXTRACT", "FALSE", "FILTER", "FIRST",
    "FOLLOWING", "FROM", "FULL", "GROUP", "GROUPING", "HAVING", "ILIKE", "IN", "INNER", "INSERT",
    "INTERSECT", "INTERVAL", "INTO", "IS", "JOIN", "LAST", "LATERAL", "LEFT", "LIKE", "LIMIT",
    "LOCATION", "NATURAL", "NOT", "NULL", "NULLS", "OFFSET", "ON", "OR", "ORDER", "OUTER", "OVER",
    "PARTITION", "PRECEDING", "QUALIFY", "RECURSIVE", "RIGHT", "ROLLUP", "ROWS", "SELECT", "SEMI",
    "SET", "SETS", "SHOW", "STORED", "SUMMARIZE", "TABLE", "TABLES", "THEN", "TO", "TRUE",
    "UNBOUNDED", "UNION", "UPDATE", "USING", "VALUES", "VIEW", "WHEN", "WHERE", "WINDOW", "WITH",
];

/// Whether a word is one of them.
pub fn is_keyword(word: &str) -> bool {
    KEYWORDS.binary_search(&word.to_uppercase().as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_in_order() {
        assert!(KEYWORDS.is_sorted());
        assert!(is_keyword("select") && !is_keyword("fare"));
    }
}
