//! All eigenpairs of a small symmetric matrix in memory, by Jacobi's rotations.

/// Sweeps over all pairs: convergence is quadratic, and some ten are enough for any matrix.
const SWEEPS_MAX: usize = 64;

/// Eigenvalues, the largest by magnitude first and of two opposite ones the positive, and as many vectors: the `i`-th
/// component of the `j`-th one at `i * size + j`. The matrix is finite; only its upper half counts.
pub(super) fn eigenpairs(matrix: &[f64], size: usize) -> (Vec<f64>, Vec<f64>) {
    let largest = matrix.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    // So that no square is too large or too small.
    let scale = if largest > 0.0 { largest } else { 1.0 };
    let at = |row: usize, column: usize| row.min(column) * size + row.max(column);
    let mut a: Vec<f64> =
        (0..size * size).map(|i| matrix[at(i / size, i % size)] / scale).collect();
    let mut v: Vec<f64> = (0..size * size).map(|i| f64::from(i / size == i % size)).collect();
    for _ in 0..SWEEPS_MAX {
        let off: f64 = pairs(size).map(|(p, q)| a[p * size + q] * a[p * size + q]).sum();
        if off <= f64::EPSILON * f64::EPSILON {
            break;
        }
        pairs(size).for_each(|(p, q)| turn(&mut a, &mut v, size, (p, q)));
    }
    let values: Vec<f64> = (0..size).map(|i| a[i * size + i] * scale).collect();
    let mut order: Vec<usize> = (0..size).collect();
    let key = |i: usize| (values[i].abs(), values[i]);
    order.sort_by(|i, j| key(*j).0.total_cmp(&key(*i).0).then(key(*j).1.total_cmp(&key(*i).1)));
    let vectors = (0..size * size).map(|i| v[i / size * size + order[i % size]]).collect();
    (order.iter().map(|i| values[*i]).collect(), vectors)
}

fn pairs(size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..size).flat_map(move |p| (p + 1..size).map(move |q| (p, q)))
}

/// Turns rows and columns `p` and `q` so that their entry becomes 0.
fn turn(a: &mut [f64], v: &mut [f64], size: usize, (p, q): (usize, usize)) {
    let entry = a[p * size + q];
    if entry == 0.0 {
        return;
    }
    let theta = (a[q * size + q] - a[p * size + p]) / (2.0 * entry);
    // The smaller root; of a huge theta its square is infinite, and the root 0.
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for k in 0..size {
        (a[k * size + p], a[k * size + q]) = turned(a[k * size + p], a[k * size + q], c, s);
        (v[k * size + p], v[k * size + q]) = turned(v[k * size + p], v[k * size + q], c, s);
    }
    for k in 0..size {
        (a[p * size + k], a[q * size + k]) = turned(a[p * size + k], a[q * size + k], c, s);
    }
    (a[p * size + q], a[q * size + p]) = (0.0, 0.0);
}

fn turned(x: f64, y: f64, c: f64, s: f64) -> (f64, f64) {
    (c * x - s * y, s * x + c * y)
}

#[cfg(test)]
mod tests {
    use headrace_io::random::Random;

    use super::eigenpairs;

    #[test]
    fn eigenpairs_are_such_and_in_order() {
        let mut random = Random(3);
        for (size, scale) in [(1, 1.0), (2, 1e-300), (3, 1e300), (17, 1.0), (40, 1e-5)] {
            let mut a = vec![0.0; size * size];
            for (row, column) in (0..size).flat_map(|i| (i..size).map(move |j| (i, j))) {
                let value = random.draw() as i64 as f64 / 2f64.powi(63) * scale;
                (a[row * size + column], a[column * size + row]) = (value, value);
            }
            let (values, v) = eigenpairs(&a, size);
            assert!(values.windows(2).all(|pair| pair[0].abs() >= pair[1].abs()));
            for (j, value) in values.iter().enumerate() {
                for i in 0..size {
                    let product: f64 =
                        (0..size).map(|k| a[i * size + k] / scale * v[k * size + j]).sum();
                    assert!(
                        (product - value / scale * v[i * size + j]).abs() < 1e-13 * size as f64
                    );
                }
                for other in 0..size {
                    let dot: f64 = (0..size).map(|k| v[k * size + j] * v[k * size + other]).sum();
                    assert!((dot - f64::from(j == other)).abs() < 1e-13, "{size} {j} {other}");
                }
            }
        }
    }

    #[test]
    fn of_opposite_ones_the_positive_comes_first() {
        let (values, _) = eigenpairs(&[0.0, 2.0, 2.0, 0.0], 2);
        assert!((values[0] - 2.0).abs() < 1e-15 && (values[1] + 2.0).abs() < 1e-15);
        assert_eq!(eigenpairs(&[0.0; 9], 3).0, [0.0; 3]);
        assert_eq!(eigenpairs(&[-3.0], 1), (vec![-3.0], vec![1.0]));
    }
}
