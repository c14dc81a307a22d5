//! Products against plain loops.

use headrace_flow::AccessPath;
use headrace_ooc::{NumberType, Options};
use proptest::prelude::*;

use crate::support::*;

fn any_layout() -> impl Strategy<Value = Layout> {
    let integer = prop_oneof![
        Just(NumberType::I32),
        Just(NumberType::U32),
        Just(NumberType::I64),
        Just(NumberType::U64)
    ];
    let data = prop_oneof![Just(None), Just(Some(NumberType::F32)), Just(Some(NumberType::F64))];
    let archive = prop_oneof![Just(None), (0usize..9).prop_map(Some)];
    (integer.clone(), integer, data, archive).prop_map(|(indptr, indices, data, archive)| Layout {
        indptr,
        indices,
        data,
        archive,
    })
}

/// Lengths of rows: none, few, around tiles, longer than a chunk, and many without entries.
fn any_lengths() -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![
        8 => 0usize..4,
        8 => 0usize..40,
        2 => 505usize..520,
        1 => 1000usize..9000,
    ];
    let rows = prop_oneof![
        proptest::collection::vec(length, 0..150),
        proptest::collection::vec(0usize..20, 0..2000),
    ];
    (rows, 0usize..3, 0usize..5000).prop_map(|(mut lengths, place, empty)| {
        let at = lengths.len() * place / 2;
        lengths.splice(at..at, std::iter::repeat_n(0, empty));
        lengths
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn products_are_those_of_a_plain_loop(
        lengths in any_lengths(),
        columns in 1usize..3000,
        layout in any_layout(),
        vectors in 1usize..4,
        threads in 1usize..4,
        slots in 1usize..4,
        chunk_bytes in prop_oneof![Just(1), Just(5000), Just(100_000), Just(1 << 20)],
        access in prop_oneof![Just(AccessPath::Auto), Just(AccessPath::Mapped), Just(AccessPath::Buffered)],
        seed in any::<u64>(),
    ) {
        // A chunk of one row each: not for thousands.
        let chunk_bytes = if lengths.len() > 300 { chunk_bytes.max(5000) } else { chunk_bytes };
        let matrix = Sparse::random(seed, &lengths, columns, layout);
        let x = numbers(seed ^ 1, columns * vectors);
        let case = Case::new(&matrix, &x, vectors);
        let options =
            Options { chunk_bytes: Some(chunk_bytes), slots: Some(slots), access, ..cores(threads) };
        let report = case.run(&options);
        prop_assert_eq!(report.rows, lengths.len() as u64);
        prop_assert_eq!(report.entries, matrix.indices.len() as u64);
        let terms = lengths.iter().copied().max().unwrap_or(0);
        assert_near(&values(&case.result()), &matrix.product(&x, vectors), terms);
    }
}

#[test]
fn results_have_the_same_bits_for_any_threads_and_chunks() {
    let mut lengths: Vec<usize> = (0..3000).map(|row| row * 7 % 31).collect();
    lengths[100] = 40_000;
    lengths[2000] = 1025;
    for layout in [WIDE, NARROW, GRAPH] {
        let matrix = Sparse::random(7, &lengths, 5000, layout);
        let x = numbers(8, 5000 * 2);
        let case = Case::new(&matrix, &x, 2);
        case.run(&cores(1));
        let wanted = case.result();
        for threads in [1, 2, 3, 7] {
            for chunk_bytes in [5000, 100_000, 1 << 30] {
                for access in [AccessPath::Auto, AccessPath::Buffered] {
                    let chunk_bytes = Some(chunk_bytes);
                    case.run(&Options { chunk_bytes, access, ..cores(threads) });
                    assert!(case.result() == wanted, "{layout:?}, {threads} threads");
                }
            }
        }
    }
}

/// Additions in the order that the module promises.
#[test]
fn the_order_of_additions_is_the_promised_one() {
    let lengths = [3, 700, 0, 1300, 1, 8, 9, 50];
    let matrix = Sparse::random(3, &lengths, 100, WIDE);
    let x = numbers(4, 100);
    let case = Case::new(&matrix, &x, 1);
    case.run(&cores(2));
    let term = |at: usize| matrix.data[at] * x[matrix.indices[at] as usize];
    let mut wanted = Vec::new();
    for row in matrix.indptr.windows(2) {
        let (mut begin, end) = (row[0] as usize, row[1] as usize);
        let mut sum = None;
        while begin < end {
            let next = (begin / 512 * 512 + 512).min(end);
            let mut lanes = [0.0; 8];
            (begin..next).for_each(|at| lanes[(at - begin) % 8] += term(at));
            let [a, b, c, d, e, f, g, h] = lanes;
            let tile: f64 = ((a + e) + (c + g)) + ((b + f) + (d + h));
            sum = Some(sum.map_or(tile, |sum: f64| sum + tile));
            begin = next;
        }
        wanted.extend(sum.unwrap_or(0.0).to_le_bytes());
    }
    assert!(case.result() == wanted);
}

#[test]
fn infinities_and_nan_propagate() {
    let mut matrix = Sparse::random(1, &[600, 20, 20, 1], 50, WIDE);
    let mut x = numbers(2, 50);
    (x[3], x[4]) = (1.0, -1.0);
    matrix.indices[599] = 3;
    matrix.data[599] = f64::INFINITY;
    (matrix.indices[600], matrix.data[600]) = (3, f64::INFINITY);
    (matrix.indices[601], matrix.data[601]) = (4, f64::INFINITY);
    matrix.data[625] = f64::NAN;
    let case = Case::new(&matrix, &x, 1);
    case.run(&cores(2));
    let y = values(&case.result());
    assert_eq!(y[0], f64::INFINITY);
    assert!(y[1].is_nan() && y[2].is_nan() && y[3].is_finite());
}

#[test]
fn matrices_without_rows_columns_or_entries_are_multiplied() {
    for (lengths, columns) in [(vec![], 0), (vec![], 5), (vec![0, 0, 0], 0), (vec![0; 3000], 7)] {
        for layout in [WIDE, NARROW, GRAPH] {
            let indptr = vec![0; lengths.len() + 1];
            let (indices, data) = (Vec::new(), Vec::new());
            let matrix = Sparse { columns, layout, indptr, indices, data };
            let case = Case::new(&matrix, &vec![1.0; columns], 1);
            case.run(&Options { chunk_bytes: Some(100), ..cores(2) });
            assert_eq!(values(&case.result()), vec![0.0; lengths.len()]);
        }
    }
}
