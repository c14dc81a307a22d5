//! Products against plain loops.

use headrace_flow::{AccessPath, HostMemory};
use headrace_ooc::matvec::{MatvecJob, Product, multiply};
use headrace_ooc::{NumberType, Options, npy};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::support::*;

fn any_number() -> impl Strategy<Value = NumberType> {
    prop_oneof![Just(NumberType::F32), Just(NumberType::F64), Just(NumberType::Bf16)]
}

prop_compose! {
    fn any_matrix()(
        shape in prop_oneof![
            (0usize..4, 0usize..4),
            (1usize..300, 1usize..80),
            (1usize..20, 1usize..3000),
            (1usize..3000, 1usize..20),
            (60usize..70, 2040usize..2060),
            // Rows that are longer than a chunk.
            (1usize..4, 8000usize..40000),
        ],
        number in any_number(),
        layout in prop_oneof![Just(Layout::Raw), Just(Layout::Npy), Just(Layout::NpyFortran), (8usize..2000).prop_map(Layout::Arrow)],
        seed in any::<u64>(),
    ) -> Matrix {
        // NumPy has no bf16, nor has Arrow; and a table of many columns takes long to write.
        let is_wide = matches!(layout, Layout::Arrow(_)) && (shape.1 > 300 || shape.1 == 0 || shape.0 == 0);
        let layout = if number == NumberType::Bf16 || is_wide { Layout::Raw } else { layout };
        Matrix { layout, ..Matrix::random(seed, shape, number) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn products_are_those_of_a_plain_loop(
        matrix in any_matrix(),
        which in 0usize..3,
        vectors in (1usize..8, 1usize..8),
        number in any_number(),
        is_raw in any::<bool>(),
        threads in 1usize..4,
        slots in 1usize..4,
        chunk_bytes in prop_oneof![Just(1), Just(100_000), Just(1 << 20)],
        access in prop_oneof![Just(AccessPath::Auto), Just(AccessPath::Mapped), Just(AccessPath::Buffered)],
    ) {
        let is_raw = is_raw || number == NumberType::Bf16;
        // How many vectors an empty file holds nobody can tell.
        let x = X::random(1, matrix.columns, vectors.0, number, is_raw && matrix.columns > 0);
        let x_transposed = X::random(2, matrix.rows, vectors.1, number, is_raw && matrix.rows > 0);
        prop_assume!(x.is_raw == x_transposed.is_raw || number != NumberType::Bf16);
        prop_assume!(number != NumberType::Bf16 || x.is_raw);
        let options = Options {
            chunk_bytes: Some(chunk_bytes),
            slots: Some(slots),
            access,
            ..cores(threads)
        };
        check(&matrix, (which != 1).then_some(&x), (which != 0).then_some(&x_transposed), &options);
    }
}

#[test]
fn results_have_the_same_bits_for_any_threads_and_chunks() {
    let shapes = [(1000, 700), (70, 40_000), (40_000, 3), (3, 100_001), (1, 100_000), (100_000, 1)];
    let numbers = [NumberType::F32, NumberType::F32, NumberType::F64].repeat(2);
    for ((shape, number), vectors) in
        shapes.into_iter().zip(numbers).zip([(5, 2), (1, 1)].repeat(3))
    {
        let matrix = Matrix::random(7, shape, number);
        let x = X::random(8, shape.1, vectors.0, NumberType::F64, true);
        let x_transposed = X::random(9, shape.0, vectors.1, NumberType::F64, true);
        let case = Case::new(&matrix, Some(&x), Some(&x_transposed));
        case.run(&cores(1));
        let wanted = case.results();
        for threads in [1, 2, 3, 7] {
            for chunk_bytes in [1, 3 << 20, 1 << 30] {
                for access in [AccessPath::Auto, AccessPath::Buffered] {
                    let chunk_bytes = Some(chunk_bytes);
                    case.run(&Options { chunk_bytes, access, ..cores(threads) });
                    assert!(case.results() == wanted, "{shape:?}, {threads} threads");
                }
            }
        }
        // And one product alone has those of both in one pass.
        for alone in [
            MatvecJob { transposed: None, ..case.job.clone() },
            MatvecJob { product: None, ..case.job.clone() },
        ] {
            multiply(&alone, &cores(2)).unwrap();
            assert!(case.results() == wanted, "{shape:?} alone");
        }
    }
}

#[test]
fn tables_have_the_same_bits_for_any_threads() {
    let layout = Layout::Arrow(50_000);
    let matrix = Matrix { layout, ..Matrix::random(7, (120_000, 70), NumberType::F32) };
    let x = X::random(8, 70, 5, NumberType::F64, true);
    let x_transposed = X::random(9, 120_000, 2, NumberType::F64, true);
    let case = Case::new(&matrix, Some(&x), Some(&x_transposed));
    case.run(&cores(1));
    let wanted = case.results();
    for access in [AccessPath::Auto, AccessPath::Buffered] {
        case.run(&Options { access, ..cores(3) });
        assert!(case.results() == wanted, "{access:?}");
    }
    for vectors in [(&x, false), (&x_transposed, true)].into_iter().zip(&wanted) {
        let ((x, transposed), y) = vectors;
        let product = matrix.product(&x.values, x.vectors, transposed);
        assert_near(&values(y), &product, if transposed { 120_000 } else { 70 });
    }
}

#[test]
fn infinities_and_nan_propagate() {
    let mut matrix = Matrix::random(1, (80, 3000), NumberType::F32);
    let mut x = X::random(2, 3000, 1, NumberType::F32, true);
    let mut x_transposed = X::random(3, 80, 1, NumberType::F32, true);
    matrix.values[5 * 3000 + 2999] = f64::INFINITY;
    matrix.values[6 * 3000 + 17] = f64::NAN;
    matrix.values[7 * 3000] = f64::INFINITY;
    matrix.values[7 * 3000 + 1] = f64::NEG_INFINITY;
    (x.values[0], x.values[1], x.values[2999]) = (1.0, 1.0, -1.0);
    (x_transposed.values[5], x_transposed.values[7]) = (0.0, 2.0);
    let case = Case::new(&matrix, Some(&x), Some(&x_transposed));
    case.run(&cores(2));
    for (result, (x, transposed)) in case.results().iter().zip([(&x, false), (&x_transposed, true)])
    {
        let wanted = matrix.product(&x.values, 1, transposed);
        for (at, (y, (sum, _))) in values(result).into_iter().zip(wanted).enumerate() {
            let is_same = if sum.is_finite() {
                y.is_finite()
            } else {
                y == sum || sum.is_nan() && y.is_nan()
            };
            assert!(is_same, "{at}: {y} instead of {sum}");
        }
    }
}

#[test]
fn results_are_written_as_they_are_asked_for() {
    let matrix = Matrix::random(1, (9, 5), NumberType::F32);
    let x = X::random(2, 5, 1, NumberType::F32, false);
    let many = X::random(2, 5, 3, NumberType::F64, false);
    let folder = TempDir::new().unwrap();
    let matrix_file = matrix.write(folder.path());
    for (x, result, number, shape) in [
        (&x, None, NumberType::F32, vec![9]),
        (&x, Some(NumberType::F64), NumberType::F64, vec![9]),
        (&many, None, NumberType::F64, vec![9, 3]),
        (&many, Some(NumberType::F32), NumberType::F32, vec![9, 3]),
    ] {
        let (x_file, y) = (x.write(folder.path().join("x")), folder.path().join("y.npy"));
        let product = Some(Product { x: x_file, y: y.clone() });
        let matrix_file = matrix_file.clone();
        let job = MatvecJob {
            matrix: matrix_file,
            product,
            transposed: None,
            result,
            memory: HostMemory::Pinned,
        };
        multiply(&job, &cores(2)).unwrap();
        let wanted = matrix.product(&x.values, x.vectors, false).into_iter().map(|(sum, _)| sum);
        let bytes = std::fs::read(&y).unwrap();
        let header = npy::header(number, &shape);
        assert_eq!(bytes[..header.len()], header);
        let wanted = bytes_of(wanted, number);
        // So few terms that the roundings to f32 agree; of f64 only the size is looked at.
        match number {
            NumberType::F32 => assert_eq!(bytes[header.len()..], wanted),
            _ => assert_eq!(bytes[header.len()..].len(), wanted.len()),
        }
    }
}
