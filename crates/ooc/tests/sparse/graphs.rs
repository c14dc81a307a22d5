//! Ranks and levels against plain loops.

use headrace_ooc::sparse::{LevelsJob, RanksJob, levels, ranks};
use headrace_ooc::{NumberType, Options};
use tempfile::TempDir;

use crate::support::*;

/// A graph whose rows list who points at them; some vertices have no edges in or out.
fn graph(seed: u64, vertices: usize, layout: Layout) -> Sparse {
    let lengths: Vec<usize> = (0..vertices).map(|row| [0, 1, 3, 2, 0, 9][row % 6]).collect();
    let mut graph = Sparse::random(seed, &lengths, vertices, layout);
    // The last ones point at nobody.
    graph.indices.iter_mut().for_each(|column| *column = *column * 4 / 5);
    graph
}

/// Power iteration by plain loops; returns the ranks and the last change.
fn plain_ranks(graph: &Sparse, damping: f64, iterations: usize) -> (Vec<f64>, f64) {
    let n = graph.rows();
    let mut out = vec![0.0; n];
    graph.indices.iter().for_each(|column| out[*column as usize] += 1.0);
    let (mut ranks, mut change) = (vec![1.0 / n as f64; n], 0.0);
    for _ in 0..iterations {
        let dangling: f64 = (0..n).filter(|v| out[*v] == 0.0).map(|v| ranks[v]).sum();
        let rank = |row: &[u64]| {
            let pulled = graph.indices[row[0] as usize..row[1] as usize].iter();
            let pulled: f64 = pulled.map(|c| ranks[*c as usize] / out[*c as usize]).sum();
            (1.0 - damping) / n as f64 + damping * (pulled + dangling / n as f64)
        };
        let new: Vec<f64> = graph.indptr.windows(2).map(rank).collect();
        change = new.iter().zip(&ranks).map(|(a, b)| (a - b).abs()).sum();
        ranks = new;
    }
    (ranks, change)
}

#[test]
fn ranks_are_those_of_a_plain_loop_and_have_the_same_bits_for_any_threads() {
    for (seed, layout) in [(1, GRAPH), (2, NARROW), (3, Layout { data: None, ..WIDE })] {
        let graph = graph(seed, 5000, layout);
        let folder = TempDir::new().unwrap();
        let job = RanksJob {
            graph: graph.write(folder.path()),
            output: folder.path().join("ranks"),
            damping: 0.85,
            tolerance: 1e-10,
            iterations: 200,
            result: None,
        };
        let report = ranks(&job, &cores(1)).unwrap();
        assert!(report.has_converged && report.iterations.len() < 200);
        assert_eq!((report.vertices, report.edges), (5000, graph.indices.len() as u64));
        let bytes = std::fs::read(&job.output).unwrap();
        let (wanted, change) = plain_ranks(&graph, 0.85, report.iterations.len());
        let found = values(&bytes);
        let away: f64 = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).sum();
        assert!(away < 1e-13, "{away}");
        assert!((report.iterations.last().unwrap().change - change).abs() < 1e-13);
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for (threads, chunk_bytes) in [(2, 5000), (3, 1 << 20), (5, 20_000)] {
            ranks(&job, &Options { chunk_bytes: Some(chunk_bytes), ..cores(threads) }).unwrap();
            assert!(std::fs::read(&job.output).unwrap() == bytes, "{threads} threads");
        }
    }
}

#[test]
fn iterations_end_when_they_are_to() {
    let folder = TempDir::new().unwrap();
    let mut job = RanksJob {
        graph: graph(5, 600, GRAPH).write(folder.path()),
        output: folder.path().join("ranks.npy"),
        damping: 0.5,
        tolerance: 0.0,
        iterations: 3,
        result: Some(NumberType::F32),
    };
    let report = ranks(&job, &cores(2)).unwrap();
    assert_eq!((report.iterations.len(), report.has_converged), (3, false));
    assert_eq!(std::fs::metadata(&job.output).unwrap().len(), 128 + 600 * 4);
    for (damping, tolerance) in [(1.5, 0.1), (f64::NAN, 0.1), (0.8, -1.0), (0.8, f64::NAN)] {
        (job.damping, job.tolerance) = (damping, tolerance);
        assert!(ranks(&job, &cores(2)).unwrap_err().to_string().contains("hint:"));
    }
}

/// Levels by a queue.
fn plain_levels(graph: &Sparse, source: usize) -> Vec<i32> {
    let mut out = vec![Vec::new(); graph.rows()];
    for (row, ends) in graph.indptr.windows(2).enumerate() {
        let columns = &graph.indices[ends[0] as usize..ends[1] as usize];
        columns.iter().for_each(|column| out[*column as usize].push(row));
    }
    let mut levels = vec![-1; graph.rows()];
    levels[source] = 0;
    let mut queue = std::collections::VecDeque::from([source]);
    while let Some(vertex) = queue.pop_front() {
        for row in &out[vertex] {
            if levels[*row] == -1 {
                levels[*row] = levels[vertex] + 1;
                queue.push_back(*row);
            }
        }
    }
    levels
}

#[test]
fn levels_are_those_of_a_queue() {
    for (seed, layout) in [(1, GRAPH), (2, NARROW), (3, Layout { data: None, ..WIDE })] {
        let mut graph = graph(seed, 4000, layout);
        // A path of many levels, from the source to the end.
        for row in 1..200 {
            let at = graph.indptr[row * 20] as usize;
            if graph.indptr[row * 20 + 1] as usize > at {
                graph.indices[at] = (row as u64 - 1) * 20;
            }
        }
        let folder = TempDir::new().unwrap();
        for source in [0, 17, 3999] {
            let job = LevelsJob {
                graph: graph.write(folder.path()),
                source,
                output: folder.path().join("levels"),
            };
            let wanted = plain_levels(&graph, source as usize);
            let mut told = None;
            for (threads, chunk_bytes) in [(1, 1 << 20), (2, 5000), (3, 20_000)] {
                let options = Options { chunk_bytes: Some(chunk_bytes), ..cores(threads) };
                let report = levels(&job, &options).unwrap();
                let bytes = std::fs::read(&job.output).unwrap();
                let found: Vec<i32> =
                    bytes.as_chunks().0.iter().map(|level| i32::from_le_bytes(*level)).collect();
                assert!(found == wanted, "{layout:?} from {source}");
                let reached = wanted.iter().filter(|level| **level >= 0).count() as u64;
                let of_levels: u64 = report.levels.iter().map(|level| level.vertices).sum();
                assert_eq!((report.reached_vertices, of_levels), (reached, reached));
                assert_eq!(report.levels.len() as i32, 1 + wanted.iter().max().unwrap());
                assert_eq!(*told.get_or_insert(report.reached_edges), report.reached_edges);
            }
        }
    }
}

#[test]
fn what_is_done_is_not_read_again() {
    // Everybody is pointed at by the source; the first half of the rows by the last vertex only.
    let vertices = 20_000;
    let mut graph = Sparse::random(1, &vec![4; vertices], vertices, GRAPH);
    graph.indices.fill(0);
    graph.indices[4 * (vertices - 5)..].fill(vertices as u64 - 6);
    let folder = TempDir::new().unwrap();
    let (graph, output) = (graph.write(folder.path()), folder.path().join("levels.npy"));
    let job = LevelsJob { graph, source: 0, output };
    let report = levels(&job, &Options { chunk_bytes: Some(8192), ..cores(2) }).unwrap();
    assert_eq!(report.levels.len(), 3);
    assert_eq!(report.reached_vertices, vertices as u64);
    assert!(report.levels[2].bytes * 10 < report.levels[1].bytes, "{:?}", report.levels);
}

#[test]
fn what_is_no_graph_is_told() {
    let folder = TempDir::new().unwrap();
    let job = |graph: &Sparse, source| LevelsJob {
        graph: graph.write(folder.path()),
        source,
        output: folder.path().join("levels"),
    };
    let error = |job: LevelsJob| levels(&job, &cores(1)).unwrap_err().to_string();
    let wide = Sparse::random(1, &[1, 2, 3], 4, GRAPH);
    assert!(error(job(&wide, 0)).contains("3 rows and 4 columns are no graph"));
    let square = Sparse::random(1, &[1, 2, 3], 3, GRAPH);
    assert!(error(job(&square, 3)).contains("vertex 3 of 3"));
    assert_eq!(left(folder.path()), Vec::<String>::new());
}
