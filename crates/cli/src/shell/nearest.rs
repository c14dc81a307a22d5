//! The name that was probably meant.

use datafusion::common::utils::datafusion_strsim::levenshtein;

/// The nearest of the names, if it is near enough to be meant.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    names
        .into_iter()
        .map(|name| (levenshtein(&wanted, &name.to_lowercase()), name))
        .filter(|(distance, name)| {
            // Every second letter may be wrong: two that changed places are two wrong ones.
            *distance * 2 <= wanted.chars().count().max(name.chars().count())
        })
        .min_by_key(|(distance, _)| *distance)
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
    }
}
