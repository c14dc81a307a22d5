//! Functions of numbers, and how alike two texts are.

use datafusion::common::{Result, exec_err};

use super::rows::Kind::{Bool, Float, Int, Text};
use super::rows::{Definition, Row, Value, int, strict};

/// The functions.
pub const FUNCTIONS: &[Definition] = &[
    strict("even", &[&[Float]], Float, |row| {
        let half = row.float(0) / 2.0;
        float(2.0 * if half < 0.0 { half.floor() } else { half.ceil() })
    }),
    strict("round_even", &[&[Float, Int]], Float, |row| {
        let power = 10f64.powi(row.int(1) as i32);
        float((row.float(0) * power).round_ties_even() / power)
    }),
    strict("width_bucket", &[&[Float, Float, Float, Int]], Int, width_bucket),
    strict("hamming", &[&[Text, Text]], Int, hamming),
    strict("mismatches", &[&[Text, Text]], Int, hamming),
    strict("jaccard", &[&[Text, Text]], Float, jaccard),
    strict("jaro_similarity", &[&[Text, Text]], Float, |row| float(jaro(row.text(0), row.text(1)))),
    strict("jaro_winkler_similarity", &[&[Text, Text]], Float, |row| {
        float(jaro_winkler(row.text(0), row.text(1)))
    }),
    strict("jaro_winkler", &[&[Text, Text]], Float, |row| {
        float(jaro_winkler(row.text(0), row.text(1)))
    }),
    strict("signbit", &[&[Float]], Bool, |row| {
        Ok(Some(Value::Bool(row.float(0).is_sign_negative())))
    }),
];

fn float(number: f64) -> Result<Option<Value>> {
    Ok(Some(Value::Float(number)))
}

fn width_bucket(row: &Row) -> Result<Option<Value>> {
    let (x, low, high, count) = (row.float(0), row.float(1), row.float(2), row.int(3));
    if count <= 0 || low == high || !low.is_finite() || !high.is_finite() || x.is_nan() {
        return exec_err!(
            "width_bucket({x}, {low}, {high}, {count}): it needs two bounds that differ and a count above 0"
        );
    }
    let share = (x - low) / (high - low);
    int(match share {
        share if share < 0.0 => 0,
        share if share >= 1.0 => count.saturating_add(1),
        share => ((share * count as f64).floor() as i64).min(count - 1) + 1,
    })
}

fn hamming(row: &Row) -> Result<Option<Value>> {
    let (one, other) = (row.text(0), row.text(1));
    if one.chars().count() != other.chars().count() {
        return exec_err!(
            "hamming('{one}', '{other}'): the texts have different lengths\nhint: levenshtein()"
        );
    }
    int(one.chars().zip(other.chars()).filter(|(a, b)| a != b).count())
}

/// Characters that both have, of those that either has.
fn jaccard(row: &Row) -> Result<Option<Value>> {
    use std::collections::HashSet;
    let set = |nth| row.text(nth).chars().collect::<HashSet<char>>();
    let (one, other) = (set(0), set(1));
    if one.is_empty() || other.is_empty() {
        return exec_err!("jaccard() of an empty text");
    }
    float(one.intersection(&other).count() as f64 / one.union(&other).count() as f64)
}

fn jaro(one: &str, other: &str) -> f64 {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.is_empty() || other.is_empty() {
        return if one.is_empty() && other.is_empty() { 1.0 } else { 0.0 };
    }
    let window = (one.len().max(other.len()) / 2).saturating_sub(1);
    let mut taken = vec![false; other.len()];
    let mut matched = Vec::new();
    for (at, letter) in one.iter().enumerate() {
        let near = at.saturating_sub(window)..(at + window + 1).min(other.len());
        if let Some(place) = near.clone().find(|place| !taken[*place] && other[*place] == *letter) {
            taken[place] = true;
            matched.push(*letter);
        }
    }
    if matched.is_empty() {
        return 0.0;
    }
    let of_other = other.iter().zip(&taken).filter(|(_, taken)| **taken).map(|(letter, _)| letter);
    let moved = matched.iter().zip(of_other).filter(|(a, b)| a != b).count() as f64 / 2.0;
    let count = matched.len() as f64;
    (count / one.len() as f64 + count / other.len() as f64 + (count - moved) / count) / 3.0
}

fn jaro_winkler(one: &str, other: &str) -> f64 {
    let similarity = jaro(one, other);
    if similarity <= 0.7 {
        return similarity;
    }
    let common = one.chars().zip(other.chars()).take(4).take_while(|(a, b)| a == b).count();
    similarity + common as f64 * 0.1 * (1.0 - similarity)
}
