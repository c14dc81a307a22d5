//! Texts of a build as codes of a sorted dictionary.

use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::{Array, StringArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use headrace_columns::column::text_array;
use headrace_columns::key::hash;
use headrace_columns::repr::Dictionary;
use headrace_io::{for_each, huge, parts_mut, try_map};

use crate::ExecError;
use crate::build::pieces::{BuildColumn, Piece, Pieces, shared};
use crate::distinct::DistinctCount;

/// Texts are sorted in as many buckets for each thread: some are larger than others.
const BUCKETS_A_THREAD: usize = 4;

/// But not in more than so many, which are numbered by 16 bits.
const BUCKETS_MAX: usize = 1 << 15;

/// Of as many texts for each bucket the bounds of buckets are taken.
const SAMPLES_A_BUCKET: usize = 64;

/// Where as many rows or fewer have each text, texts are not looked for twice.
const ROWS_A_TEXT_MAX: f64 = 1.5;

/// Bytes of a head.
const HEAD_BYTES: usize = 8;

/// Fewer rows are compared by their texts ..
const ROWS_COMPARED_MAX: usize = 32;
/// .. and all that so many heads do not tell apart.
const HEADS_MAX: usize = 16;

/// A row that has a text.
#[derive(Clone, Copy)]
struct Row {
    /// The first bytes in which texts differ: most are told apart by eight bytes that lie beside each other.
    head: u64,
    part: u32,
    /// In the part.
    row: u32,
}

/// Texts of a column, which all begin with as many bytes alike.
struct Texts<'a> {
    column: &'a BuildColumn<'a>,
    common_bytes: usize,
}

impl<'a> Texts<'a> {
    fn text(&self, row: &Row) -> &'a str {
        self.column.parts[row.part as usize].text(row.row as usize).unwrap_or_default()
    }

    /// The rows of a piece that have a text.
    fn rows(&self, piece: &Piece) -> impl Iterator<Item = Row> {
        let vector = self.column.of(piece);
        let (part, common) = (piece.part as u32, self.common_bytes);
        let column = self.column.parts[piece.part];
        piece.rows.clone().enumerate().filter(move |(at, _)| vector.is_valid(*at)).map(
            move |(_, row)| {
                let text = column.text(row).unwrap_or_default();
                Row {
                    head: head(text.as_bytes().get(common..).unwrap_or_default()),
                    part,
                    row: row as u32,
                }
            },
        )
    }

    /// Sorts rows by their texts; returns the distinct texts in order, each with the number of its rows.
    fn sort(&self, rows: &mut [Row]) -> Vec<(&'a str, u32)> {
        self.sort_from(rows, self.common_bytes, HEADS_MAX);
        let mut distinct: Vec<(&str, u32)> = Vec::new();
        for row in rows {
            let text = self.text(row);
            match distinct.last_mut() {
                Some((last, count)) if *last == text => *count += 1,
                _ => distinct.push((text, 1)),
            }
        }
        distinct
    }

    /// Sorts rows whose heads are the bytes from `at` on: by these, and those of the same head by the next ones, so that
    /// each text is looked at once for every eight bytes, not for every other text that it is compared with.
    fn sort_from(&self, rows: &mut [Row], at: usize, heads_max: usize) {
        if rows.len() < ROWS_COMPARED_MAX || heads_max == 0 {
            rows.sort_unstable_by(|a, b| {
                a.head.cmp(&b.head).then_with(|| self.text(a).cmp(self.text(b)))
            });
            return;
        }
        rows.sort_unstable_by_key(|row| row.head);
        let next = at + HEAD_BYTES;
        for same in rows.chunk_by_mut(|a, b| a.head == b.head).filter(|same| same.len() > 1) {
            // A text that ends within the head comes before those that go on, and the shorter before the longer.
            let ends = |row: &Row| self.text(row).len() <= next;
            if same.iter().any(ends) {
                same.sort_unstable_by_key(|row| self.text(row).len().min(next + 1));
            }
            let goes_on = same.partition_point(ends);
            let longer = &mut same[goes_on..];
            for row in longer.iter_mut() {
                row.head = head(&self.text(row).as_bytes()[next..]);
            }
            self.sort_from(longer, next, heads_max - 1);
        }
    }
}

/// A sorted dictionary of the texts that occur, and each row's code; 0 where there is none.
pub(super) fn code_texts(
    column: &BuildColumn<'_>,
    pieces: &Pieces,
) -> Result<(Dictionary, Vec<u32>), ExecError> {
    let texts = Texts { column, common_bytes: common_bytes(column, pieces)? };
    let buckets = Buckets::of(&texts, pieces)?;
    let by_piece = pieces.map(|piece| Ok(buckets.divide(texts.rows(piece))))?;
    let sorted = try_map(buckets.count(), (1, pieces.threads()), |bucket| {
        let parts = by_piece.iter().map(|divided| divided.bucket(bucket));
        let mut rows = parts.collect::<Vec<_>>().concat();
        let distinct = texts.sort(&mut rows);
        Ok::<_, ExecError>((rows, distinct))
    })?;
    drop(by_piece);
    let first_of_part = starts(column.part_rows());
    let mut codes: Vec<u32> = huge::zeroed(pieces.rows());
    let places = shared(&mut codes);
    let mut first_code = 0;
    let numbered = sorted.iter().map(|bucket| {
        let first = first_code;
        first_code += bucket.1.len() as u32;
        (first, bucket)
    });
    let numbered: Vec<_> = numbered.collect();
    for_each(numbered.into_iter(), pieces.threads(), |(first, (rows, distinct))| {
        let mut rows = rows.iter();
        for (code, (_, count)) in (first..).zip(distinct) {
            for row in rows.by_ref().take(*count as usize) {
                let number = first_of_part[row.part as usize] + row.row as usize;
                places[number].store(code, Ordering::Relaxed);
            }
        }
    });
    let distinct: Vec<_> = sorted.into_iter().map(|(_, distinct)| distinct).collect();
    Ok((Dictionary { values: joined(&distinct, pieces.threads())? }, codes))
}

/// All texts in the order of their rows, and the rows' numbers as their codes, where few texts come twice: then a
/// dictionary of the different ones would be hardly smaller, and takes long to sort.
pub(super) fn number_texts(
    column: &BuildColumn<'_>,
    pieces: &Pieces,
) -> Result<Option<(Dictionary, Vec<u32>)>, ExecError> {
    let texts_of = |piece: &Piece| {
        let column = column.parts[piece.part];
        piece.rows.clone().map(|row| column.text(row).unwrap_or_default())
    };
    let counts = pieces.map(|piece| {
        let hashes: Vec<u64> = texts_of(piece).map(|text| hash(text.as_bytes())).collect();
        let mut distinct = DistinctCount::default();
        distinct.add(&hashes);
        Ok((distinct, texts_of(piece).map(str::len).sum::<usize>()))
    })?;
    let distinct =
        counts.iter().fold(DistinctCount::default(), |all, (distinct, _)| all.with(distinct));
    let bytes: usize = counts.iter().map(|(_, bytes)| bytes).sum();
    let is_numbered = i32::try_from(bytes).is_ok() && i32::try_from(pieces.rows()).is_ok();
    if !is_numbered || distinct.estimate() * ROWS_A_TEXT_MAX < pieces.rows() as f64 {
        return Ok(None);
    }
    let (mut values, mut ends) = (huge::zeroed(bytes), huge::zeroed(pieces.rows() + 1));
    let places = parts_mut(&mut values, counts.iter().map(|(_, bytes)| *bytes)).into_iter();
    let ends_of = parts_mut(&mut ends[1..], pieces.iter().map(|piece| piece.rows.len()));
    let starts = starts(counts.iter().map(|(_, bytes)| *bytes));
    let of_pieces = pieces.iter().zip(starts).zip(places.zip(ends_of));
    for_each(of_pieces, pieces.threads(), |((piece, start), (mut place, ends))| {
        let mut at = start;
        for (text, end) in texts_of(piece).zip(ends) {
            let (own, rest) = std::mem::take(&mut place).split_at_mut(text.len());
            own.copy_from_slice(text.as_bytes());
            (place, at) = (rest, at + text.len());
            *end = at as i32;
        }
    });
    // SAFETY: each text was put between the end of the one before and its own.
    let values = unsafe { texts_between(ends.into(), values) };
    Ok(Some((Dictionary { values }, (0..pieces.rows() as u32).collect())))
}

/// Where each of some that lie one behind the other begins.
fn starts(lengths: impl Iterator<Item = usize>) -> Vec<usize> {
    let start = |next: &mut usize, length| Some(std::mem::replace(next, *next + length));
    lengths.scan(0, start).collect()
}

/// Texts one after the other.
fn joined(buckets: &[Vec<(&str, u32)>], threads: usize) -> Result<StringArray, ExecError> {
    let lengths = || buckets.iter().flatten().map(|(text, _)| text.len());
    let count: usize = lengths().sum();
    if i32::try_from(count).is_err() {
        return Err(ExecError::Internal(format!("{count} bytes of text in one build")));
    }
    let offsets = OffsetBuffer::from_lengths(lengths());
    let mut bytes = huge::zeroed(count);
    let bucket_bytes = |bucket: &Vec<(&str, u32)>| bucket.iter().map(|(text, _)| text.len()).sum();
    let places = parts_mut(&mut bytes, buckets.iter().map(bucket_bytes));
    for_each(places.into_iter().zip(buckets), threads, |(own, bucket)| {
        let places = parts_mut(own, bucket.iter().map(|(text, _)| text.len()));
        let pairs = places.into_iter().zip(bucket);
        pairs.for_each(|(place, (text, _))| place.copy_from_slice(text.as_bytes()));
    });
    // SAFETY: each text was put behind the one before, as the offsets are.
    Ok(unsafe { texts_between(offsets.into_inner(), bytes) })
}

/// Texts by their bytes and between which of them each lies.
///
/// # Safety
/// Between two offsets, which do not descend, is a text.
unsafe fn texts_between(offsets: ScalarBuffer<i32>, bytes: Vec<u8>) -> StringArray {
    let end = offsets.last().copied().unwrap_or_default();
    assert!(end as usize == bytes.len(), "texts of a build that do not fill their bytes");
    // SAFETY: the caller's promise; and the last text ends with the bytes.
    unsafe { StringArray::new_unchecked(OffsetBuffer::new(offsets), bytes.into(), None) }
}

/// Texts by their heads: those of a bucket come before those of the next.
struct Buckets {
    /// The first head of each bucket but the first.
    bounds: Vec<u64>,
}

impl Buckets {
    /// Of about as many texts each, judged by some of them.
    fn of(texts: &Texts<'_>, pieces: &Pieces) -> Result<Self, ExecError> {
        let count = match pieces.threads() {
            1 => 1,
            threads => (threads * BUCKETS_A_THREAD).min(BUCKETS_MAX),
        };
        let step = pieces.rows() / (count * SAMPLES_A_BUCKET) + 1;
        let heads = |piece: &Piece| texts.rows(piece).step_by(step).map(|row| row.head).collect();
        let mut heads = pieces.map(|piece| Ok::<Vec<_>, ExecError>(heads(piece)))?.concat();
        heads.sort_unstable();
        let bound = |bucket: usize| heads.get(bucket * heads.len() / count).copied();
        let mut bounds: Vec<u64> = (1..count).filter_map(bound).collect();
        bounds.dedup();
        Ok(Self { bounds })
    }

    fn count(&self) -> usize {
        self.bounds.len() + 1
    }

    /// Rows by bucket.
    fn divide(&self, rows: impl Iterator<Item = Row>) -> Divided {
        let rows: Vec<Row> = rows.collect();
        let bucket = |row: &Row| self.bounds.partition_point(|bound| *bound <= row.head);
        let buckets: Vec<u16> = rows.iter().map(|row| bucket(row) as u16).collect();
        let mut ends = vec![0; self.count()];
        buckets.iter().for_each(|&bucket| ends[usize::from(bucket)] += 1);
        let mut end = 0;
        for of_bucket in &mut ends {
            end += *of_bucket;
            *of_bucket = end;
        }
        // From the last row on, each bucket's places are taken from its end.
        let (mut places, mut divided) = (ends.clone(), rows.clone());
        for (row, bucket) in rows.into_iter().zip(buckets).rev() {
            let place = &mut places[usize::from(bucket)];
            *place -= 1;
            divided[*place] = row;
        }
        Divided { rows: divided, ends }
    }
}

/// The rows of a piece, bucket after bucket.
struct Divided {
    rows: Vec<Row>,
    /// Of each bucket.
    ends: Vec<usize>,
}

impl Divided {
    fn bucket(&self, bucket: usize) -> &[Row] {
        let start = bucket.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.rows[start..self.ends[bucket]]
    }
}

/// With how many bytes all texts of a column begin alike.
fn common_bytes(column: &BuildColumn<'_>, pieces: &Pieces) -> Result<usize, ExecError> {
    let texts = Texts { column, common_bytes: 0 };
    let alike = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let common = pieces.map(|piece| {
        let mut rows = texts.rows(piece).map(|row| texts.text(&row).as_bytes());
        let Some(first) = rows.next() else { return Ok(None) };
        let bytes = rows.fold(first.len(), |common, text| alike(&first[..common], text));
        Ok(Some(&first[..bytes]))
    })?;
    let all = common.into_iter().flatten().reduce(|a, b| &a[..alike(a, b)]);
    Ok(all.map_or(0, <[u8]>::len))
}

/// Up to eight bytes as a number of the same order.
fn head(bytes: &[u8]) -> u64 {
    let mut head = [0; HEAD_BYTES];
    let taken = bytes.len().min(HEAD_BYTES);
    head[..taken].copy_from_slice(&bytes[..taken]);
    u64::from_be_bytes(head)
}

/// The part of a dictionary that occurs, in its order, and the codes there by code of the whole; -1: it does not occur.
pub(super) fn occurring(
    all: &Dictionary,
    column: &BuildColumn<'_>,
    pieces: &Pieces,
) -> Result<(Dictionary, Vec<i64>), ExecError> {
    let occurs: Vec<AtomicBool> = (0..all.values.len()).map(|_| AtomicBool::new(false)).collect();
    let mark = |code: i64| {
        let occurs = &occurs[code as usize];
        // Most are marked already: they are not written again.
        if !occurs.load(Ordering::Relaxed) {
            occurs.store(true, Ordering::Relaxed);
        }
    };
    pieces.map(|piece| {
        column.with_integers(piece, |codes, valid| match valid {
            None => codes.iter().for_each(|&code| mark(code)),
            Some(valid) => {
                let present = codes.iter().zip(valid).filter(|(_, valid)| **valid != 0);
                present.for_each(|(&code, _)| mark(code));
            }
        })
    })?;
    let (mut texts, mut new_codes) = (Vec::new(), vec![-1; occurs.len()]);
    for (code, new) in new_codes.iter_mut().enumerate() {
        if occurs[code].load(Ordering::Relaxed) {
            *new = texts.len() as i64;
            texts.push(all.values.value(code));
        }
    }
    Ok((Dictionary { values: text_array(&texts, None)? }, new_codes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headrace_columns::column::Column;
    use headrace_columns::repr::Repr;
    use headrace_columns::vector::{Data, Vector};
    use headrace_ir::{DataType, Field};

    use super::*;

    fn part(texts: &[&str], valid: Option<Vec<u8>>) -> Column {
        let vector = Vector::with_validity(Data::Str(texts.to_vec()), valid);
        Column::of(Repr::Str, &vector, texts.len()).unwrap()
    }

    /// That codes are the places of texts among those that occur.
    fn check(parts: &[Column], threads: usize) {
        let field = Field::new("t", DataType::Utf8, true);
        let column = BuildColumn { field, repr: Repr::Str, parts: parts.iter().collect() };
        let pieces = Pieces::of(column.part_rows(), threads);
        let (dictionary, codes) = code_texts(&column, &pieces).unwrap();
        let present = |part: &Column| {
            let vector = part.vector();
            let texts = (0..part.rows()).map(|row| vector.is_valid(row).then(|| part.text(row)));
            texts.map(|text| text.flatten().map(String::from)).collect::<Vec<_>>()
        };
        let texts: Vec<Option<String>> = parts.iter().flat_map(present).collect();
        let mut sorted: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
        sorted.sort_unstable();
        sorted.dedup();
        assert!(dictionary.values.iter().flatten().eq(sorted.iter().copied()));
        for (text, code) in texts.iter().zip(codes) {
            let code_of = text.as_ref().map(|text| sorted.binary_search(&&**text).unwrap());
            assert_eq!(code as usize, code_of.unwrap_or(0), "{text:?}");
        }
    }

    #[test]
    fn codes_of_texts_are_in_their_order() {
        let texts =
            ["ab\0", "ab", "", "abcdefghij", "abcdefghii", "ab", "abcdefgh", "zz", "ab\0\0"];
        for with in ["", "Customer#", "é"] {
            let texts = texts.map(|text| format!("{with}{text}"));
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let mut valid = vec![1; texts.len()];
            valid[7] = 0;
            check(&[part(&texts, None), part(&[], None), part(&texts, Some(valid))], 2);
        }
        check(&[part(&["x"], Some(vec![0]))], 1);
        check(&[], 1);
    }

    #[test]
    fn many_texts_of_several_parts_are_in_their_order() {
        let numbered = |row: usize| format!("Number#{:06}", row * 7919 % 50_021);
        let few = |row: usize| format!("é{}", row * row % 7);
        let nested = |row: usize| "ab\0cdefgh".repeat(row % 37)[..row % 37 * 9 / 2].to_string();
        let long = |row: usize| format!("{:>8}{:0300}", row % 3, row * 31 % 1009);
        for of in [numbered as fn(usize) -> String, few, nested, long] {
            let texts: Vec<String> = (0..150_000).map(of).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let valid = (0..50_000).map(|row| u8::from(row % 11 != 0)).collect();
            let parts = [part(&texts[..90_000], None), part(&texts[90_000..140_000], Some(valid))];
            for threads in [1, 3] {
                check(&parts, threads);
            }
        }
    }

    #[test]
    fn texts_of_which_few_come_twice_are_numbered_by_their_rows() {
        let field = Field::new("t", DataType::Utf8, true);
        let numbered = |different: usize| {
            let text = |row: usize| format!("text {}", row * 7919 % different);
            let texts: Vec<String> = (0..100_000).map(text).collect();
            let views: Vec<&str> = texts.iter().map(String::as_str).collect();
            let valid = (0..40_000).map(|row| u8::from(row % 11 != 0)).collect();
            let parts = [part(&views[..60_000], None), part(&views[60_000..], Some(valid))];
            let (field, parts) = (field.clone(), parts.iter().collect());
            let column = BuildColumn { field, repr: Repr::Str, parts };
            let pieces = Pieces::of(column.part_rows(), 3);
            let (dictionary, codes) = number_texts(&column, &pieces).unwrap()?;
            for (row, text) in texts.iter().enumerate() {
                let is_null = row >= 60_000 && (row - 60_000) % 11 == 0;
                let found = dictionary.values.value(codes[row] as usize);
                assert!(is_null || found == text, "{row}: {found} for {text}");
            }
            Some(())
        };
        assert!(numbered(100_000).is_some());
        assert!(numbered(90_000).is_some());
        assert!(numbered(30_000).is_none());
        assert!(numbered(3).is_none());
    }
}
