//! A batch's memory is the next one's, but never while somebody has the batch.

use arrow_array::RecordBatch;

use super::build::*;
use crate::heap::Decoder;

fn addresses(batch: &RecordBatch) -> Vec<usize> {
    let data = batch.columns().iter().map(|column| column.to_data());
    data.flat_map(|data| data.buffers().iter().map(|b| b.as_ptr() as usize).collect::<Vec<_>>())
        .collect()
}

#[test]
fn a_batch_keeps_its_values_while_others_are_decoded() {
    let (relation, page) = mixed();
    let expected = decode(&relation, &MIXED_WANTED, &page.bytes).unwrap();
    let mut other = mixed().1;
    for line in 1..=40 {
        // The key.
        let at = other.line(line).0 + 24;
        other.put(at, 7);
    }
    let mut decoder = Decoder::new(&relation, &MIXED_WANTED).unwrap();
    let mut next = |page: &Page| {
        decoder.decode(&page.bytes, 0).unwrap();
        decoder.finish().unwrap()
    };
    let first = next(&page);
    let second = next(&other);
    assert_eq!(first, expected);
    assert_ne!(second, expected);
    // A column outlives its batch.
    let (key, addresses_before) = (second.column(0).clone(), addresses(&second));
    let before = key.to_data();
    drop(second);
    let third = next(&page);
    assert_eq!(third, expected);
    assert_eq!(key.to_data(), before);
    assert_ne!(addresses(&third)[0], addresses_before[0]);
}

#[test]
fn a_batch_that_is_gone_leaves_its_memory_to_the_next() {
    let (relation, page) = mixed();
    // Numbers, text, decimals.
    let mut decoder = Decoder::new(&relation, &[0, 2, 3, 4]).unwrap();
    let mut next = || {
        decoder.decode(&page.bytes, 0).unwrap();
        decoder.finish().unwrap()
    };
    let first = next();
    let before = addresses(&first);
    drop(first);
    // Whoever asks for memory now has what was freed.
    let others: Vec<Vec<u8>> = (0..2048).map(|i| vec![1; 16 * (i / 8 + 1)]).collect();
    assert_eq!(addresses(&next()), before);
    drop(others);
}
