//! `SUMMARIZE t` and `SUMMARIZE SELECT ..`: one row for each column, in one pass over the rows.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;

use super::{cell, type_name};

const VERB: &str = "summarize";

/// The query that a SUMMARIZE is about; `None` of every other statement.
pub fn subject(text: &str) -> Option<String> {
    let text = text.trim_start();
    let verb = text.get(..VERB.len())?;
    let rest = &text[VERB.len()..];
    let is_verb = verb.eq_ignore_ascii_case(VERB) && rest.starts_with(char::is_whitespace);
    let subject = rest.trim().trim_end_matches(';').trim_end();
    (is_verb && !subject.is_empty()).then(|| match begins_query(subject) {
        true => subject.to_string(),
        false => format!("select * from {subject}"),
    })
}

fn begins_query(text: &str) -> bool {
    let word = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    text.starts_with('(')
        || ["select", "with", "from", "values"].iter().any(|w| word.eq_ignore_ascii_case(w))
}

struct Column {
    name: String,
    data_type: DataType,
}

impl Column {
    fn of(field: &Field) -> Self {
        Self { name: field.name().clone(), data_type: field.data_type().clone() }
    }

    fn is_number(&self) -> bool {
        value_type(&self.data_type).is_numeric()
    }

    fn has_order(&self) -> bool {
        let value = value_type(&self.data_type);
        !value.is_nested() && !matches!(value, DataType::Null | DataType::Interval(_))
    }

    /// A value as text: of some types a value may have none.
    fn text(&self, value: &str) -> String {
        let own = value_type(&self.data_type);
        match own.is_temporal() || own.is_binary() {
            true => format!("{}({value})", cell::NAME),
            false => format!("{value}::varchar"),
        }
    }

    /// The aggregates of the column, in the order of [`SHOWN`].
    fn aggregates(&self) -> [String; SHOWN.len()] {
        let name = match &self.data_type {
            // Aggregates do not look into runs.
            DataType::RunEndEncoded(_, value) => format!(
                "arrow_cast({}, {})",
                quoted(&self.name, '"'),
                quoted(&value.data_type().to_string(), '\'')
            ),
            _ => quoted(&self.name, '"'),
        };
        let if_number = |text: String| if self.is_number() { text } else { "null".into() };
        let if_order = |text: String| if self.has_order() { text } else { "null".into() };
        [
            if_order(self.text(&format!("min({name})"))),
            if_order(self.text(&format!("max({name})"))),
            if_number(format!("avg({name}::double)")),
            if_number(format!("stddev({name}::double)")),
            format!("count({name})"),
            format!("count(*) - count({name})"),
        ]
    }
}

/// Columns of the answer behind name and type, with their types.
const SHOWN: [(&str, &str); 6] = [
    ("min", "varchar"),
    ("max", "varchar"),
    ("avg", "double"),
    ("std", "double"),
    ("count", "bigint"),
    ("nulls", "bigint"),
];

fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, value) => value,
        DataType::RunEndEncoded(_, value) => value.data_type(),
        other => other,
    }
}

fn quoted(text: &str, quote: char) -> String {
    let twice = format!("{quote}{quote}");
    format!("{quote}{}{quote}", text.replace(quote, &twice))
}

/// Columns whose aggregates are computed in one pass. The time to plan aggregates is the square of their number.
const COLUMNS_MAX: usize = 64;

/// What a SUMMARIZE of a query with such columns stands for: all aggregates as one row, which arrays turn into
/// a row for each column; of very many columns the rows of each part of them.
pub fn query_of(schema: &DFSchema, query: &str) -> String {
    let columns: Vec<_> = schema.fields().iter().map(|field| Column::of(field)).collect();
    if columns.len() <= COLUMNS_MAX {
        return rows_of(&columns, None, query);
    }
    let shown = SHOWN.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let parts = columns.chunks(COLUMNS_MAX).enumerate();
    let parts = parts.map(|(part, columns)| rows_of(columns, Some(part * COLUMNS_MAX), query));
    let parts = parts.collect::<Vec<_>>().join(" union all ");
    format!("select column_name, column_type, {shown} from ({parts}) as parts order by {PLACE}")
}

/// The place of a column among all.
const PLACE: &str = "place_of_column";

/// A row for each of some columns, with its place where the first one's is given.
fn rows_of(columns: &[Column], first_place: Option<usize>, query: &str) -> String {
    let mut inner = Vec::new();
    for (i, column) in columns.iter().enumerate() {
        for ((name, sql_type), aggregate) in SHOWN.iter().zip(column.aggregates()) {
            inner.push(format!("{aggregate}::{sql_type} as {name}_{i}"));
        }
    }
    let rows = |cells: Vec<String>, name: &str| {
        format!("unnest(make_array({})) as \"{name}\"", cells.join(", "))
    };
    let literals = |text: fn(&Column) -> String| -> Vec<String> {
        columns.iter().map(|c| quoted(&text(c), '\'')).collect()
    };
    let mut shown = vec![
        rows(literals(|column| column.name.clone()), "column_name"),
        rows(literals(|column| type_name(&column.data_type)), "column_type"),
    ];
    shown.extend(
        SHOWN.iter().map(|(name, _)| {
            rows((0..columns.len()).map(|i| format!("{name}_{i}")).collect(), name)
        }),
    );
    if let Some(first) = first_place {
        let places = first..first + columns.len();
        shown.push(rows(places.map(|place| place.to_string()).collect(), PLACE));
    }
    format!(
        "select {} from (select {} from ({query}) as subject) as summary",
        shown.join(", "),
        inner.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_summarized() {
        assert_eq!(subject("summarize trips;").as_deref(), Some("select * from trips"));
        assert_eq!(subject("  SUMMARIZE select 1").as_deref(), Some("select 1"));
        assert_eq!(subject("summarized"), None);
        assert_eq!(subject("summarize"), None);
        assert_eq!(subject("sélect"), None);
        assert!(begins_query("(select 1)") && begins_query("With a as (select 1) from a"));
        assert!(!begins_query("selections") && !begins_query("\"from\""));
    }
}
