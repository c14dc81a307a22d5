#!/usr/bin/env python3
"""Set operations, sorts, dense and sparse products and eigenpairs of random shapes, by Headrace and by NumPy on the same files.

    compare.py --headrace PATH [--shapes 300] [--seed 1] [--processor cpu]

Sizes lie around every block, page and chunk boundary; keys are random, all equal, repeated, disjoint,
nested, and at the extremes of their type. Every byte of a set or a sorted file must be NumPy's; a product must
lie within its error bound. Graphs are compared with SciPy where there is one. Ends with the number of comparisons, or with the first difference and its seed.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np

try:
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import breadth_first_order
except ImportError:
    sparse = None

TYPES = {"i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8", "f32": "<f4", "f64": "<f8"}
TIMES = {
    "intersect": np.minimum,
    "union": np.maximum,
    "difference": lambda m, n: np.maximum(m - n, 0),
    "symmetric-difference": lambda m, n: np.abs(m - n),
}


class Different(Exception):
    """An answer that is not NumPy's."""


class Run:
    """The program, a folder, and what is random."""

    def __init__(self, headrace: str, processor: str, folder: str, rng: random.Random):
        self.headrace, self.processor, self.rng = headrace, processor, rng
        self.folder = pathlib.Path(folder)
        self.numbers = np.random.default_rng(rng.randrange(1 << 30))

    def headrace_run(self, *arguments) -> str:
        command = [self.headrace, *map(str, arguments), "--processor", self.processor]
        command += ["--threads", str(self.rng.choice([1, 2, 3])), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Different(f"{' '.join(command)}\n{done.stderr}")
        return done.stdout

    def size(self) -> int:
        """A number of keys: small, around a boundary, or anything."""
        boundary = self.rng.choice([1, 8, 64, 512, 1024, 4096, 8192, 16384, 65536])
        return self.rng.choice(
            [0, 1, 2, boundary - 1, boundary, boundary + 1, self.rng.randrange(100_000)]
        )

    def keys(self, kind: str, size: int) -> np.ndarray:
        """Keys in any order."""
        dtype = np.dtype(TYPES[kind])
        if dtype.kind == "f":
            bounds, special = (-1e6, 1e6), [-np.inf, np.inf, 0.0, -0.0, np.finfo(dtype).max, np.nan]
        else:
            bounds = (np.iinfo(dtype).min, np.iinfo(dtype).max)
            special = [*bounds, 0, 1]
        shape = self.rng.choice(["any", "few", "equal", "extremes", "steps"])
        if shape == "equal":
            return np.full(size, special[self.rng.randrange(2)], dtype)
        if shape == "extremes":
            return np.array(self.rng.choices(special, k=size), dtype)
        if shape == "few":
            return self.numbers.integers(0, max(size // 50, 1), size, endpoint=True).astype(dtype)
        if shape == "steps":
            return np.cumsum(self.numbers.integers(0, 5, size)).astype(dtype)
        if dtype.kind == "f":
            return self.numbers.uniform(*bounds, size).astype(dtype)
        return self.numbers.integers(*bounds, size, dtype=dtype, endpoint=True)

    def same(self, what: str, path: pathlib.Path, wanted: np.ndarray) -> None:
        found = path.read_bytes()
        if found != wanted.tobytes():
            raise Different(f"{what}: {len(found)} bytes, wanted {wanted.nbytes}")

    def sort(self, kind: str) -> None:
        keys = self.keys(kind, self.size())
        source, out = self.folder / "in", self.folder / "out"
        keys.tofile(source)
        arguments = ["sort", source, "-o", out, "--type", kind]
        if self.rng.random() < 0.5:
            arguments += ["--memory-limit", self.rng.choice(["8MB", "16MB", "64MB"])]
        self.headrace_run(*arguments)
        self.same(f"sort of {len(keys)} {kind}", out, np.sort(keys, kind="stable"))

    def records(self, kind: str) -> None:
        """Records whose payload is their place in the input: also the order of equal keys must be right."""
        keys = self.keys(kind, self.size())
        record = np.dtype([("before", "<u4"), ("key", TYPES[kind]), ("place", "<u4")])
        records = np.zeros(len(keys), record)
        records["key"], records["place"] = keys, np.arange(len(keys))
        source, out = self.folder / "in", self.folder / "out"
        records.tofile(source)
        layout = ["--record", record.itemsize, "--key-offset", 4, "--type", kind]
        self.headrace_run("sort", source, "-o", out, *layout)
        wanted = records[np.argsort(keys, kind="stable")]
        self.same(f"sort of {len(keys)} records by {kind}", out, wanted)

    def sets(self, kind: str) -> None:
        lists = []
        unique = self.rng.random() < 0.5
        for name in "ab":
            keys = self.keys(kind, self.size())
            # NumPy takes each NaN for another, and the two zeros are one key with two faces.
            keys = keys[keys == keys] + np.dtype(TYPES[kind]).type(0)
            keys = np.unique(keys) if unique else np.sort(keys)
            keys.tofile(self.folder / name)
            lists.append(keys)
        values = np.union1d(*lists)
        edges = [[np.searchsorted(keys, values, side) for side in ("left", "right")] for keys in lists]
        m, n = (right - left for left, right in edges)
        for operation, times in TIMES.items():
            wanted = np.repeat(values, times(m, n))
            arguments = [operation, self.folder / "a", self.folder / "b", "--type", kind]
            arguments += ["--unique"] if unique else []
            arguments += ["--chunk", self.rng.choice([512, 4096, 65536, 1 << 20])]
            arguments += ["--fence", self.rng.choice([64, 1000, 65536])]
            out = self.folder / "out"
            self.headrace_run(*arguments, "-o", out)
            what = f"{operation} of {len(lists[0])} and {len(lists[1])} {kind}"
            self.same(what, out, wanted)
            count = int(self.headrace_run(*arguments, "--count"))
            if count != len(wanted):
                raise Different(f"{what}: counted {count}, wanted {len(wanted)}")

    def product(self, kind: str) -> None:
        kind = "f32" if kind in ("i32", "u32", "f32") else "f64"
        rows, columns, vectors = self.rng.randrange(1, 700), self.rng.randrange(1, 700), self.rng.choice([1, 1, 3])
        matrix = self.numbers.standard_normal((rows, columns)).astype(TYPES[kind])
        order = self.rng.choice("CF")
        np.save(self.folder / "m.npy", np.asarray(matrix, order=order))
        xs = [self.numbers.standard_normal((n, vectors)).astype(TYPES[kind]) for n in (columns, rows)]
        for name, x in zip("xz", xs):
            np.save(self.folder / f"{name}.npy", x if vectors > 1 else x[:, 0])
        files = {name: self.folder / f"{name}.npy" for name in "mxyzw"}
        both = ["--transposed-x", files["z"], "--transposed-out", files["w"]]
        self.headrace_run("matvec", files["m"], files["x"], "-o", files["y"], *both)
        wide = matrix.astype(np.longdouble)
        for name, x, left in (("y", xs[0], wide), ("w", xs[1], wide.T)):
            found = np.load(files[name]).reshape(-1, vectors)
            wanted = left @ x
            bound = np.abs(left) @ np.abs(x)
            epsilon = np.finfo(TYPES[kind]).eps if kind == "f32" else 1e3 * np.finfo("f8").eps
            if found.shape != wanted.shape or not (np.abs(found - wanted) <= epsilon * bound).all():
                raise Different(f"{name} of {rows} x {columns} {kind} in order {order}, {vectors} vectors")

    def rows(self, kind: str, rows: int, columns: int, values: np.dtype | None) -> pathlib.Path:
        """Compressed sparse rows in a folder or a .npz, some without entries and some with many."""
        lengths = self.numbers.integers(0, self.rng.choice([1, 4, 40]), rows)
        if rows:
            lengths[self.rng.randrange(rows)] = self.rng.choice([0, 511, 513, 5000])
        self.indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(TYPES[kind])
        self.indices = self.numbers.integers(0, columns, self.indptr[-1]).astype(TYPES[kind])
        arrays = {"indptr": self.indptr, "indices": self.indices, "shape": np.array([rows, columns])}
        self.data = np.ones(len(self.indices))
        if values is not None:
            self.data = arrays["data"] = self.numbers.standard_normal(len(self.indices)).astype(values)
        if self.rng.random() < 0.5:
            np.savez(self.folder / "s.npz", **arrays)
            return self.folder / "s.npz"
        folder = self.folder / "s"
        folder.mkdir(exist_ok=True)
        (folder / "data.npy").unlink(missing_ok=True)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        return folder

    def sums(self, terms: np.ndarray) -> np.ndarray:
        """Of each row, in the order of entries."""
        rows = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr).astype(int))
        total = np.zeros((len(self.indptr) - 1, *terms.shape[1:]))
        np.add.at(total, rows, terms)
        return total

    def sparse_product(self, kind: str) -> None:
        kind = kind.replace("f", "i")
        rows, columns, vectors = self.rng.randrange(0, 700), self.rng.randrange(1, 700), self.rng.choice([1, 1, 3])
        values = self.rng.choice([None, np.dtype("<f4"), np.dtype("<f8")])
        matrix = self.rows(kind, rows, columns, values)
        x = self.numbers.standard_normal((columns, vectors))
        np.save(self.folder / "x.npy", x if vectors > 1 else x[:, 0])
        chunk = ["--chunk", self.rng.choice([3000, 65536, 1 << 24])]
        self.headrace_run("spmv", matrix, self.folder / "x.npy", "-o", self.folder / "y.npy", *chunk)
        found = np.load(self.folder / "y.npy").reshape(-1, vectors)
        terms = self.data[:, None].astype("f8") * x[self.indices.astype(int)]
        bound = 1e4 * np.finfo("f8").eps * self.sums(np.abs(terms))
        if found.shape != (rows, vectors) or not (np.abs(found - self.sums(terms)) <= bound).all():
            raise Different(f"sparse product of {rows} x {columns}, {kind}, {values}, {vectors} vectors")

    def graph(self, kind: str) -> None:
        kind, vertices = kind.replace("f", "i"), self.rng.randrange(1, 700)
        matrix = self.rows(kind, vertices, vertices, None)
        indices, chunk = self.indices.astype(int), ["--chunk", self.rng.choice([3000, 65536, 1 << 24])]
        ranks, levels = self.folder / "ranks.npy", self.folder / "levels.npy"
        self.headrace_run("pagerank", matrix, "-o", ranks, "--iterations", 20, "--tolerance", 0, *chunk)
        out, wanted = np.bincount(indices, minlength=vertices), np.full(vertices, 1 / vertices)
        for _ in range(20):
            shares = np.divide(wanted, out, where=out > 0, out=np.zeros(vertices))
            dangling = wanted[out == 0].sum()
            wanted = 0.15 / vertices + 0.85 * (self.sums(shares[indices]) + dangling / vertices)
        if not np.allclose(np.load(ranks), wanted, rtol=1e-11, atol=0):
            raise Different(f"ranks of {vertices} vertices, {kind}")
        source = self.rng.randrange(vertices)
        self.headrace_run("bfs", matrix, "--source", source, "-o", levels, *chunk)
        if sparse is None:
            return
        # A row lists who points at it: SciPy walks along the transposed one.
        pulled = sparse.csr_matrix((self.data, indices, self.indptr.astype(int)), (vertices, vertices))
        order, before = breadth_first_order(pulled.T.tocsr(), source)
        wanted = np.full(vertices, -1, "<i4")
        wanted[source] = 0
        for vertex in order[1:]:
            wanted[vertex] = wanted[before[vertex]] + 1
        if not (np.load(levels) == wanted).all():
            raise Different(f"levels of {vertices} vertices from {source}, {kind}")


    def eigenpairs(self, kind: str) -> None:
        """Of a symmetric matrix of known eigenvalues, dense or sparse; their own order by magnitude is NumPy's."""
        rows = self.rng.randrange(1, 200)
        pairs = self.rng.randrange(1, min(rows, 6) + 1)
        # They fall by steps, with signs of their own: power iteration needs them apart.
        wanted = 0.7 ** np.arange(rows) * self.numbers.choice([-1, 1], rows)
        basis = np.linalg.qr(self.numbers.standard_normal((rows, rows)))[0]
        matrix = (basis * wanted) @ basis.T
        matrix = (matrix + matrix.T) / 2
        source, chunk = self.folder / "e.npy", ["--chunk", self.rng.choice([3000, 65536, 1 << 24])]
        if self.rng.random() < 0.5:
            np.save(source, matrix)
        else:
            index = TYPES[kind.replace("f", "i")]
            arrays = {"indptr": np.arange(rows + 1) * rows, "indices": np.tile(np.arange(rows), rows)}
            source = source.with_suffix(".npz")
            np.savez(source, data=matrix.ravel(), **{name: array.astype(index) for name, array in arrays.items()})
        values, vectors = self.folder / "values.npy", self.folder / "vectors.npy"
        told = self.headrace_run("eigen", source, "-k", pairs, "--values", values, "-o", vectors, "--tolerance", 1e-9, *chunk)
        found, v = np.load(values), np.load(vectors)
        all_of_them = np.linalg.eigvalsh(matrix)
        wanted = all_of_them[np.argsort(-np.abs(all_of_them))][:pairs]
        what = f"{pairs} eigenpairs of {rows} rows, {source.suffix}"
        if [float(line) for line in told.split()] != found.tolist() or v.shape != (rows, pairs):
            raise Different(f"{what}: printed {told!r}, written {found}, shape {v.shape}")
        if not (np.abs(found - wanted) <= 1e-8).all():
            raise Different(f"{what}: {found}, wanted {wanted}")
        if not (np.abs(matrix @ v - v * found) <= 1e-8).all() or not np.allclose(v.T @ v, np.eye(pairs), atol=1e-12):
            raise Different(f"{what}: the vectors are none")


def notices_a_wrong_answer(run: Run) -> None:
    """A comparison that cannot fail is none."""
    honest = run.headrace_run

    def spoilt(*arguments) -> str:
        told = honest(*arguments)
        out = run.folder / "out"
        if out.exists() and out.stat().st_size:
            content = bytearray(out.read_bytes())
            content[-1] ^= 1
            out.write_bytes(content)
        return told

    run.headrace_run = spoilt
    noticed = 0
    for _ in range(10):
        for check in (run.sort, run.records, run.sets):
            try:
                check("i64")
            except Different:
                noticed += 1
    run.headrace_run = honest
    if noticed < 10:
        sys.exit(f"error: of 30 spoilt answers {noticed} were noticed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headrace", required=True)
    parser.add_argument("--shapes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processor", default="cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(arguments.headrace, arguments.processor, folder, random.Random(arguments.seed))
        notices_a_wrong_answer(run)
        for number in range(arguments.shapes):
            seed = arguments.seed * 1_000_000 + number
            run = Run(arguments.headrace, arguments.processor, folder, random.Random(seed))
            checks = [run.sort, run.records, run.sets, run.product, run.sparse_product, run.graph, run.eigenpairs]
            try:
                checks[number % len(checks)](list(TYPES)[number // len(checks) % len(TYPES)])
            except Different as different:
                sys.exit(f"error: shape {number} (seed {seed}): {different}")
    print(f"{arguments.shapes} shapes: every answer is NumPy's")


main()
