//! Frames that are truncated, too long, or not frames at all.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Decimal128Array, Int32Array, RecordBatchOptions, StringArray};
use arrow_schema::Schema;

use super::*;

fn frame() -> Vec<u8> {
    let mut bytes = Vec::new();
    let head = Ask::Held { question: 7 };
    write(&mut bytes, &head, &[1, 0, 1]).unwrap();
    bytes
}

fn read_ask(mut bytes: &[u8]) -> Result<Option<Frame<Ask>>, ProtocolError> {
    read(&mut bytes)
}

#[test]
fn a_frame_comes_back_and_a_cut_one_does_not() {
    let bytes = frame();
    let whole = read_ask(&bytes).unwrap().unwrap();
    assert!(matches!(whole.head, Ask::Held { question: 7 }));
    assert_eq!(whole.body, [1, 0, 1]);
    assert!(read_ask(&[]).unwrap().is_none());
    for end in 1..bytes.len() {
        let cut = read_ask(&bytes[..end]).unwrap_err();
        assert!(matches!(cut, ProtocolError::Truncated), "{end}: {cut}");
    }
}

#[test]
fn lengths_are_bounded_and_not_believed() {
    let mut long_head = frame();
    long_head[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read_ask(&long_head), Err(ProtocolError::Oversized { part: "head", .. })));
    let mut long_body = frame();
    long_body[8..16].copy_from_slice(&(BODY_BYTES_MAX + 1).to_le_bytes());
    assert!(matches!(read_ask(&long_body), Err(ProtocolError::Oversized { part: "body", .. })));
    // 4 GiB that were announced and never come take no memory.
    long_body[8..16].copy_from_slice(&BODY_BYTES_MAX.to_le_bytes());
    assert!(matches!(read_ask(&long_body), Err(ProtocolError::Truncated)));
}

#[test]
fn garbage_is_an_error() {
    let mut foreign = frame();
    foreign[0] = b'G';
    assert!(matches!(read_ask(&foreign), Err(ProtocolError::Magic([b'G', ..]))));
    let mut broken = frame();
    broken[16] = b'!';
    assert!(matches!(read_ask(&broken), Err(ProtocolError::Head(_))));
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    for length in 0..2000 {
        let mut noise: Vec<u8> = (0..length).map(|_| random()).collect();
        if length >= 16 && length % 2 == 0 {
            noise[..4].copy_from_slice(&MAGIC);
            noise[4..8].copy_from_slice(&((length / 3) as u32).to_le_bytes());
        }
        assert!(length == 0 || read_ask(&noise).is_err(), "{noise:?}");
    }
}

fn batch() -> RecordBatch {
    let decimals =
        Decimal128Array::from(vec![Some(1), None, Some(-3), Some(i128::from(i64::MAX) * 9)]);
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("a", Arc::new(Int32Array::from(vec![1, 2, 3, 4])), true),
        ("b", Arc::new(StringArray::from(vec![Some("x"), None, Some(""), Some("long")])), true),
        ("c", Arc::new(decimals.with_precision_and_scale(38, 2).unwrap()), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[test]
fn batches_come_back_slices_and_those_without_columns_too() {
    let batch = batch();
    let options = RecordBatchOptions::new().with_row_count(Some(77));
    let none = RecordBatch::try_new_with_options(Schema::empty().into(), vec![], &options).unwrap();
    for batch in [batch.slice(1, 2), batch.slice(4, 0), batch, none] {
        assert_eq!(decode_batch(encode_batch(&batch).unwrap()).unwrap(), batch);
    }
}

#[test]
fn a_damaged_batch_is_an_error_or_another_batch_and_never_a_panic() {
    let bytes = encode_batch(&batch()).unwrap();
    for end in 0..bytes.len() - 8 {
        assert!(decode_batch(bytes[..end].to_vec()).is_err(), "{end} of {}", bytes.len());
    }
    let mut twice = bytes.clone();
    twice.extend(&bytes);
    assert!(decode_batch(twice).is_err());
    let mut errors = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        match decode_batch(damaged) {
            Ok(batch) => {
                let sound = batch.columns().iter().all(|c| c.to_data().validate_full().is_ok());
                assert!(sound, "byte {at}");
            }
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 0);
}

#[test]
fn ranges_have_whole_lengths() {
    let ranges = [0..7, 9..10, u32::MAX - 1..u32::MAX];
    assert_eq!(decode_ranges(&encode_ranges(&ranges)).unwrap(), ranges);
    assert!(decode_ranges(&[0; 4]).is_err());
    assert!(decode_ranges(&[0; 9]).is_err());
}
