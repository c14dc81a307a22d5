//! Words in place of the values of a key: a row that comes before another has no larger one.

use headrace_columns::convert::integers;
use headrace_columns::vector::{Data, Vector};
use headrace_ir::OrderKey;

use crate::WhyNot;
use crate::cpu::sorted::{first_bytes, float_order};

/// A word for each row, and whether rows of equal words have equal keys.
pub fn words_of(keys: &Vector<'_>, key: &OrderKey) -> Result<(Vec<u64>, bool), WhyNot> {
    let mut words = words(&keys.data).ok_or_else(|| WhyNot::new("an order by no words"))?;
    if key.descending {
        words.iter_mut().for_each(|word| *word = !*word);
    }
    if let Some(valid) = &keys.validity {
        let null = if key.nulls_first { 0 } else { u64::MAX };
        let nulls = words.iter_mut().zip(valid.iter()).filter(|(_, valid)| **valid == 0);
        nulls.for_each(|(word, _)| *word = null);
    }
    let is_whole = !matches!(keys.data, Data::I128(_) | Data::Str(_));
    Ok((words, is_whole && keys.validity.is_none()))
}

fn words(data: &Data<'_>) -> Option<Vec<u64>> {
    let signed = |value: i64| value as u64 ^ 1 << 63;
    let float = |value| signed(float_order(value));
    Some(match data {
        Data::U64(values) => values.to_vec(),
        Data::F32(values) => values.iter().map(|&value| float(f64::from(value))).collect(),
        Data::F64(values) => values.iter().map(|&value| float(value)).collect(),
        Data::I128(values) => {
            let clamped = |value: i128| value.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            values.iter().map(|&value| signed(clamped(value))).collect()
        }
        Data::Str(values) => values.iter().map(|text| signed(first_bytes(text))).collect(),
        data => integers(data)?.iter().map(|&value| signed(value)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_order_as_values_do() {
        let least = [f64::NEG_INFINITY, -1.5, -1e-300, -0.0, 0.0, 1e-300, 2.5, f64::INFINITY];
        let floats = words(&Data::F64([&least[..], &[f64::NAN, -f64::NAN]].concat().into()));
        let floats = floats.unwrap_or_default();
        assert!(floats.windows(2).all(|pair| pair[0] <= pair[1]), "{floats:?}");
        assert_eq!((floats[3], floats[8]), (floats[4], floats[9]));
        assert!(floats[2] < floats[3] && floats[7] < floats[8]);
        let decimals = Data::I128(vec![i128::MIN, -1, 0, 7, i128::MAX].into());
        let decimals = words(&decimals).unwrap_or_default();
        assert!(decimals.windows(2).all(|pair| pair[0] < pair[1]));
        let texts = Data::Str(vec!["", "a", "a\0", "abcdefgh", "abcdefghi", "ä"]);
        let texts = words(&texts).unwrap_or_default();
        assert!(texts.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(texts[0] < texts[1] && texts[3] == texts[4] && texts[4] < texts[5]);
    }
}
