//! The words of the benchmark: the value lists of the specification, in dbgen's order.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};

/// Regions in alphabetical order; [`NATIONS`] refers to them by position.
pub(crate) const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];

/// The 25 nations and the region of each: five nations a region.
pub(crate) const NATIONS: [(&str, u8); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];

pub(crate) const CITIES_PER_NATION: u32 = 10;

pub(crate) const MARKET_SEGMENTS: [&str; 5] =
    ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"];

pub(crate) const ORDER_PRIORITIES: [&str; 5] =
    ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];

/// Every order has the same.
pub(crate) const SHIP_PRIORITIES: [&str; 1] = ["0"];

pub(crate) const SHIP_MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "TRUCK", "MAIL", "FOB", "SHIP"];

pub(crate) const MANUFACTURERS: u32 = 5;
pub(crate) const CATEGORIES_PER_MANUFACTURER: u32 = 5;
pub(crate) const BRANDS_PER_CATEGORY: u32 = 40;

const TYPE_WORDS: [&[&str]; 3] = [
    &["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    &["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    &["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
];
pub(crate) const PART_TYPES: u32 = 150;

const CONTAINER_WORDS: [&[&str]; 2] = [
    &["SM", "LG", "MED", "JUMBO", "WRAP"],
    &["CASE", "BOX", "BAG", "JAR", "PACK", "PKG", "CAN", "DRUM"],
];
pub(crate) const CONTAINERS: u32 = 40;

#[rustfmt::skip]
pub(crate) const COLORS: [&str; 92] = [
    "almond", "antique", "aquamarine", "azure", "beige", "bisque", "black", "blanched", "blue",
    "blush", "brown", "burlywood", "burnished", "chartreuse", "chiffon", "chocolate", "coral",
    "cornflower", "cornsilk", "cream", "cyan", "dark", "deep", "dim", "dodger", "drab",
    "firebrick", "floral", "forest", "frosted", "gainsboro", "ghost", "goldenrod", "green",
    "grey", "honeydew", "hot", "indian", "ivory", "khaki", "lace", "lavender", "lawn", "lemon",
    "light", "lime", "linen", "magenta", "maroon", "medium", "metallic", "midnight", "mint",
    "misty", "moccasin", "navajo", "navy", "olive", "orange", "orchid", "pale", "papaya", "peach",
    "peru", "pink", "plum", "powder", "puff", "purple", "red", "rose", "rosy", "royal", "saddle",
    "salmon", "sandy", "seashell", "sienna", "sky", "slate", "smoke", "snow", "spring", "steel",
    "tan", "thistle", "tomato", "turquoise", "violet", "wheat", "white", "yellow",
];

pub(crate) const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
];

/// Sunday is the first day of a week.
pub(crate) const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

pub(crate) const SEASONS: [&str; 5] = ["Winter", "Spring", "Summer", "Fall", "Christmas"];

fn array<S: AsRef<str>>(values: impl IntoIterator<Item = S>) -> ArrayRef {
    // `from_iter_values` wants an iterator of known length.
    Arc::new(StringArray::from_iter_values(values.into_iter().collect::<Vec<_>>()))
}

pub(crate) fn words(values: &[&str]) -> ArrayRef {
    array(values)
}

pub(crate) fn nations() -> ArrayRef {
    array(NATIONS.iter().map(|(name, _)| name))
}

/// 250 cities: the first nine characters of the nation, padded, and a digit. City c lies in
/// nation c / 10.
pub(crate) fn cities() -> ArrayRef {
    array(NATIONS.iter().flat_map(|(name, _)| {
        (0..CITIES_PER_NATION).map(move |digit| format!("{:<9.9}{digit}", name))
    }))
}

/// `MFGR#1` to `MFGR#5`.
pub(crate) fn manufacturers() -> ArrayRef {
    array((1..=MANUFACTURERS).map(|m| format!("MFGR#{m}")))
}

/// `MFGR#11` to `MFGR#55`: category c belongs to manufacturer c / 5.
pub(crate) fn categories() -> ArrayRef {
    array(category_names())
}

fn category_names() -> impl Iterator<Item = String> {
    (1..=MANUFACTURERS)
        .flat_map(|m| (1..=CATEGORIES_PER_MANUFACTURER).map(move |c| format!("MFGR#{m}{c}")))
}

/// `MFGR#111` to `MFGR#5540`, the number in a category without padding: brand b belongs to
/// category b / 40.
pub(crate) fn brands() -> ArrayRef {
    array(
        category_names()
            .flat_map(|category| (1..=BRANDS_PER_CATEGORY).map(move |b| format!("{category}{b}"))),
    )
}

pub(crate) fn part_types() -> ArrayRef {
    let [sizes, finishes, metals] = TYPE_WORDS;
    array(sizes.iter().flat_map(|size| {
        finishes.iter().flat_map(move |finish| {
            metals.iter().map(move |metal| format!("{size} {finish} {metal}"))
        })
    }))
}

pub(crate) fn containers() -> ArrayRef {
    let [sizes, shapes] = CONTAINER_WORDS;
    array(sizes.iter().flat_map(|size| shapes.iter().map(move |shape| format!("{size} {shape}"))))
}

/// All ordered pairs of two different colours; see [`part_name_code`].
pub(crate) fn part_names() -> ArrayRef {
    array(COLORS.iter().flat_map(|first| {
        COLORS
            .iter()
            .filter(move |second| first != *second)
            .map(move |second| format!("{first} {second}"))
    }))
}

/// The position in [`part_names`] of the colours `first` and `second`, which must differ.
pub(crate) const fn part_name_code(first: u32, second: u32) -> u32 {
    let skipped = if second > first { second - 1 } else { second };
    first * (COLORS.len() as u32 - 1) + skipped
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, cast::AsArray};

    use super::*;

    #[test]
    fn lists_have_their_sizes_and_no_duplicates() {
        for (list, len) in [
            (nations(), 25),
            (cities(), 250),
            (manufacturers(), 5),
            (categories(), 25),
            (brands(), 1000),
            (part_types(), PART_TYPES as usize),
            (containers(), CONTAINERS as usize),
            (words(&COLORS), 92),
            (part_names(), 92 * 91),
        ] {
            let distinct: std::collections::HashSet<_> =
                list.as_string::<i32>().iter().flatten().collect();
            assert_eq!((list.len(), distinct.len()), (len, len));
        }
        for region in 0..5 {
            assert_eq!(NATIONS.iter().filter(|nation| nation.1 == region).count(), 5);
        }
    }

    #[test]
    fn names_are_spelled_as_in_the_queries() {
        let cities = cities();
        assert_eq!(cities.as_string::<i32>().value(231), "UNITED KI1");
        assert_eq!(cities.as_string::<i32>().value(173), "PERU     3");
        let brands = brands();
        assert_eq!(brands.as_string::<i32>().value(6 * 40 + 20), "MFGR#2221");
    }

    #[test]
    fn part_name_codes_are_positions() {
        let names = part_names();
        for first in 0..92_u32 {
            for second in (0..92_u32).filter(|&second| second != first) {
                let name = names.as_string::<i32>().value(part_name_code(first, second) as usize);
                assert_eq!(name, format!("{} {}", COLORS[first as usize], COLORS[second as usize]));
            }
        }
    }
}
