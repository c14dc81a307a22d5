//! The name that was probably meant.

use strsim::osa_distance;

/// The nearest name, if it is near enough; never the typed one.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    names
        .into_iter()
        .filter_map(|name| {
            let other = name.to_lowercase();
            let mistakes = osa_distance(&wanted, &other);
            // Every third letter may be wrong; what differs in nothing was typed.
            let is_near =
                mistakes > 0 && mistakes * 3 <= wanted.chars().count().max(other.chars().count());
            is_near.then_some((mistakes, name))
        })
        .min_by_key(|(mistakes, _)| *mistakes)
        .map(|(_, name)| name)
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
}
