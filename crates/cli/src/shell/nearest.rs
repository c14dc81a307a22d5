//! The name that was probably meant.

/// The nearest name, if it is near enough; never the typed one.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.to_lowercase().chars().collect();
    names
        .into_iter()
        .filter_map(|name| {
            let other: Vec<char> = name.to_lowercase().chars().collect();
            let mistakes = mistakes(&wanted, &other);
            // Every third letter may be wrong; what differs in nothing was typed.
            let is_near = mistakes > 0 && mistakes * 3 <= wanted.len().max(other.len());
            is_near.then_some((mistakes, name))
        })
        .min_by_key(|(mistakes, _)| *mistakes)
        .map(|(_, name)| name)
}

/// The edit distance: letters omitted, added, replaced, or swapped with the next.
fn mistakes(a: &[char], b: &[char]) -> usize {
    // The rows of the table of all beginnings: this one, and the two before.
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        rows[2][0] = i;
        for j in 1..=b.len() {
            let is_other = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[1][j - 1] + is_other).min(rows[1][j] + 1).min(rows[2][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[0][j - 2] + 1);
            }
            rows[2][j] = least;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_meant() {
        let names = ["trips", "taxis", "lineorder"];
        assert_eq!(nearest("tirps", names), Some("trips"));
        assert_eq!(nearest("trip", names), Some("trips"));
        assert_eq!(nearest("LineOrdre", names), Some("lineorder"));
        assert_eq!(nearest("weather", names), None);
        assert_eq!(nearest("year", ["lead", "rank"]), None);
        assert_eq!(nearest("cuont", ["count"]), Some("count"));
        assert_eq!(nearest("rank", ["rank", "RANK"]), None);
        assert_eq!(nearest("selec", ["SELECT"]), Some("SELECT"));
    }

    #[test]
    fn mistakes_are_counted() {
        let count = |a: &str, b: &str| {
            mistakes(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
        };
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("ab", "ba"), 1);
        assert_eq!(count("same", "same"), 0);
    }
}
